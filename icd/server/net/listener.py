"""Accepting connections, whatever happens.

anyio's own listener dies of EMFILE.  Here a reserved descriptor is given up for a moment, so that
the connection can be accepted and closed: its peer learns that nothing was executed, and goes on
without the daemon.
"""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from icd.errors import AlreadyRunning, IcError
from icd.server import limits
from icd.server.logs import Rarely, log
from icd.server.net.socket_claim import SocketClaim

# What the kernel says when descriptors or memory run short, which passes.
SHORTAGE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.05
_AT_ONCE = 64
_CREDENTIALS = struct.Struct("iII")


Admitted = Callable[[socket.socket, int], None]


class Listener:
    """Accepts connections at one socket."""

    def __init__(self, sock: socket.socket, admitted: Admitted) -> None:
        self.ended = anyio.Event()
        self._sock = sock
        self._admitted = admitted
        self._reserve = -1
        self._complained = False
        self._strangers = Rarely(limits.STRANGERS_SECONDS)
        self._scope = anyio.CancelScope()

    def stop(self) -> None:
        """Accept no more.  The socket stays open: another daemon may accept the peers that wait."""
        self._scope.cancel()
        self._ignore()

    async def run(self) -> None:
        """Accept until stopped."""
        with self._reserved(), self._scope:
            while True:
                await self._shortage()
                await anyio.sleep(_PAUSE_SECONDS)

    async def _shortage(self) -> None:
        """Accept until descriptors run short; as the loop calls, not with a task for each."""
        short = anyio.Event()

        def accept() -> None:
            if not self.accept():
                self._ignore()
                short.set()

        await anyio.lowlevel.checkpoint()  # it may be stopped already
        asyncio.get_running_loop().add_reader(self._sock, accept)
        try:
            await short.wait()
        finally:
            self._ignore()

    def _ignore(self) -> None:
        """Have the loop look at the socket no more."""
        if self._sock.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._sock)

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
        """Accept the peers that wait now, up to a number; False if descriptors ran short."""
        for _ in range(_AT_ONCE):
            try:
                connection, _address = self._sock.accept()
            except BlockingIOError:
                break
            except OSError as exc:
                if exc.errno not in SHORTAGE:
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
            self._strangers.warning("refused a connection of another user", uid=uid, pid=pid)
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


class Acceptor:
    """Accepts connections where the daemon listens, and takes its place again if it gets lost.

    `stop` is told why this daemon has to leave its place to another one.
    """

    def __init__(
        self, claim: SocketClaim, admitted: Admitted, tasks: TaskGroup, stop: Callable[[str], None]
    ) -> None:
        self.claim = claim
        self._admitted = admitted
        self._tasks = tasks
        self._stop = stop
        self._is_paused = False
        self._complaint = ""

    def start(self) -> None:
        self.claim.sock.listen(limits.BACKLOG)  # not before we can be told to stop
        self._listen()
        self._tasks.start_soon(self._keep_place)

    async def pause(self) -> None:
        """Let callers wait in the backlog: the next daemon may accept them."""
        self._is_paused = True
        self._listener.stop()
        await self._listener.ended.wait()

    def go_on(self) -> None:
        self._listen()
        self._is_paused = False

    async def close(self) -> None:
        await self._retire(self._listener, self.claim.sock)

    def _listen(self) -> None:
        self._listener = Listener(self.claim.sock, self._admitted)
        self._tasks.start_soon(self._listener.run)

    async def _retire(self, listener: Listener, sock: socket.socket) -> None:
        """Close the socket: callers still in its backlog learn that nothing was executed."""
        listener.stop()
        await listener.ended.wait()
        sock.close()

    async def _keep_place(self) -> None:
        while True:
            await anyio.sleep(limits.PLACE_SECONDS)
            while self._is_paused:  # noqa: ASYNC110 -- for a second, or the next daemon looks
                await anyio.sleep(limits.RELOAD_PAUSE_SECONDS / 10)
            try:
                if self.claim.is_taken:
                    self._stop("another daemon listens where clients connect first")
                    return
                if not self.claim.is_held:
                    self._take_place_again()
                self._complaint = ""
            except AlreadyRunning as exc:
                self._stop(exc.message)
                return
            except (OSError, IcError) as exc:
                self._complain(str(exc))

    def _take_place_again(self) -> None:
        before = self.claim.sock
        self.claim.renew()
        if self.claim.sock is not before:
            self.claim.sock.listen(limits.BACKLOG)
            self._tasks.start_soon(self._retire, self._listener, before)
            self._listen()
        log.warning("the socket or its lock was removed", extra={"socket": self.claim.path})

    def _complain(self, sentence: str) -> None:
        if self._complaint != sentence:
            self._complaint = sentence
            log.error("cannot listen again: %s", sentence)


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
