"""Makes sessions of connections, and ends them or hands them over to the next daemon."""

import asyncio
import os
import socket
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from icd.server import limits
from icd.server.metrics.status import About
from icd.server.net.handler import Handler
from icd.server.net.listener import peer
from icd.server.net.session import Session
from icd.server.reexec import Connection

LOOK_SECONDS = 0.005


class Connections:
    """The sessions of all peers; `handler` makes what carries out the requests of one."""

    def __init__(self, tasks: TaskGroup, about: About, handler: Callable[[int], Handler]) -> None:
        self._tasks = tasks
        self._about = about
        self._handler = handler
        self.entered = 0  # since the start
        self._sessions: set[Session] = set()
        self._entering = 0
        self._closing = False

    def __len__(self) -> int:
        return len(self._sessions) + self._entering

    def open(self, connection: socket.socket, pid: int, left: Connection | None = None) -> None:
        if len(self._sessions) >= limits.SESSIONS:
            connection.close()
        else:
            self.entered += 1
            self._entering += 1
            self._tasks.start_soon(self._begin, connection, pid, left)

    def take_over(self, left: list[Connection]) -> None:
        """Go on with the conversations of the daemon before us."""
        for one in left:
            connection = socket.socket(fileno=one.fd)
            connection.settimeout(0)
            self.open(connection, peer(connection)[0], one)

    async def close(self) -> None:
        """Let every session answer what it has read, for a limited time."""
        self._closing = True
        for session in list(self._sessions):
            session.stop()
        with anyio.move_on_after(limits.DRAIN_SECONDS):
            for session in list(self._sessions):
                await session.ended.wait()

    async def quiesce(self) -> str:
        """Answer what is under way and begin nothing new; return what does not end, if anything."""
        with anyio.move_on_after(limits.QUIET_SECONDS):
            await self._until(lambda: not self._entering)
            for session in self._sessions:
                session.suspend()
            await self._until(lambda: all(session.is_settled for session in self._sessions))
            for session in self._sessions:
                session.end_stream()
            await self._until(lambda: all(session.is_quiet for session in self._sessions))
        busy = sum(not session.is_quiet for session in self._sessions)
        return f"{busy} calls are still running" if busy else ""

    def go_on(self) -> None:
        """Resume accepting requests: the reload was cancelled."""
        for session in list(self._sessions):
            session.resume()

    def leave(self) -> list[Connection]:
        """Let go of every connection, once everything is quiet."""
        left: list[Connection] = []
        try:
            left += (session.conversation() for session in self._sessions)
        except OSError:
            for connection in left:
                os.close(connection.fd)
            raise
        for session in list(self._sessions):
            session.let_go()
        return left

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():  # noqa: ASYNC110 -- for a second, and calls need not pay for an event
            await anyio.sleep(LOOK_SECONDS)

    async def _begin(self, connection: socket.socket, pid: int, left: Connection | None) -> None:
        try:
            session = Session(self._handler(pid), self._left, left)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: session, connection)
        except (OSError, MemoryError):  # it has left already, or there is no room for it
            connection.close()
            return
        finally:
            self._entering -= 1
        if session.ended.is_set():
            return
        self._sessions.add(session)
        self._about.sessions = len(self._sessions)
        if self._closing:
            session.stop()

    def _left(self, session: Session) -> None:
        self._sessions.discard(session)
        self._about.sessions = len(self._sessions)
