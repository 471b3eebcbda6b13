"""Accepting connections, whatever happens.

anyio's own listener dies of EMFILE.  Here a reserved descriptor is given up for a moment, so that
the connection can be accepted and closed: its peer learns that nothing was executed, and goes on
without the daemon.
"""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator

import anyio

from icd.server import limits
from icd.server.logs import Rarely, log

_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.05
_AT_ONCE = 64
_CREDENTIALS = struct.Struct("iII")


class Listener:
    def __init__(self, sock: socket.socket, admitted: Callable[[socket.socket, int], None]) -> None:
        self.ended = anyio.Event()
        self._sock = sock
        self._admitted = admitted
        self._reserve = -1
        self._complained = False
        self._strangers = Rarely(limits.STRANGERS_SECONDS)
        self._scope = anyio.CancelScope()

    def stop(self) -> None:
        """For good.  The socket stays open: whoever waits may be accepted by another."""
        self._scope.cancel()

    async def run(self) -> None:
        """Accept until stopped."""
        with self._reserved(), self._scope:
            while True:
                await anyio.wait_readable(self._sock)
                if not self.accept():
                    await anyio.sleep(_PAUSE_SECONDS)

    @contextlib.contextmanager
    def _reserved(self) -> Iterator[None]:
        self._reserve = _spare()
        try:
            yield
        finally:
            if self._reserve >= 0:
                os.close(self._reserve)
            self.ended.set()

    def accept(self) -> bool:
        """Accept whoever waits now, up to a number; False if descriptors ran short."""
        for _ in range(_AT_ONCE):
            try:
                connection, _address = self._sock.accept()
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno not in _SHORTAGE:
                    break
                self._shed(exc)
                return False
            self._admit(connection)
        return True

    def _admit(self, connection: socket.socket) -> None:
        """Only our own user gets in; the directory's mode says so, too, but it may be changed."""
        connection.settimeout(0)
        pid, uid = peer(connection)
        if uid != os.geteuid():
            self._strangers.warning("refused another user", uid=uid, pid=pid)
            connection.close()
            return
        self._admitted(connection, pid)

    def _shed(self, exc: OSError) -> None:
        if not self._complained:
            log.error("too few descriptors: %s", exc.strerror)
            self._complained = True
        if self._reserve >= 0:
            os.close(self._reserve)
        with contextlib.suppress(OSError):
            self._sock.accept()[0].close()
        self._reserve = _spare()


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel tells it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return pid, uid


def _spare() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
