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
from collections.abc import Callable

import anyio

from icd.server.logs import log

_SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.05
_AT_ONCE = 64
_CREDENTIALS = struct.Struct("iII")


class Listener:
    def __init__(self, sock: socket.socket, accepted: Callable[[socket.socket, int], None]) -> None:
        self._sock = sock
        self._accepted = accepted
        self._reserve = _spare()
        self._complained = False
        self._scope = anyio.CancelScope()

    def stop(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        """Accept until stopped; whoever still waits then learns that nothing was executed."""
        with self._sock, self._scope:
            await self._accept_forever()

    async def _accept_forever(self) -> None:
        while True:
            await anyio.wait_readable(self._sock)
            for _ in range(_AT_ONCE):
                try:
                    connection, _address = self._sock.accept()
                except BlockingIOError:
                    break
                except OSError as exc:
                    if exc.errno in _SHORTAGE:
                        self._shed(exc)
                        await anyio.sleep(_PAUSE_SECONDS)
                    break
                self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        """Only our own user gets in; the directory's mode says so, too, but it may be changed."""
        connection.settimeout(0)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _gid = _CREDENTIALS.unpack(raw)
        if uid != os.geteuid():
            log.warning("refused another user", extra={"uid": uid, "pid": pid})
            connection.close()
            return
        self._accepted(connection, pid)

    def _shed(self, exc: OSError) -> None:
        if not self._complained:
            log.error("too few descriptors: %s", exc.strerror)
            self._complained = True
        if self._reserve >= 0:
            os.close(self._reserve)
        with contextlib.suppress(OSError):
            self._sock.accept()[0].close()
        self._reserve = _spare()


def _spare() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
