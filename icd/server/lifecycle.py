"""A daemon between its start and its end: what it is told to do, and by whom.

Told from several sides (signals, callers, its own idleness, the loss of its place), it obeys one at
a time; to stop interrupts whatever else is being done.
"""

import os
import signal
import time
from collections.abc import AsyncIterator

import anyio
from anyio.abc import TaskGroup

from icd.server import limits
from icd.server.logs import log
from icd.server.net.connections import LOOK_SECONDS, Connections
from icd.server.net.listener import Acceptor
from icd.server.net.socket_claim import SocketClaim
from icd.server.reexec import Connection
from icd.server.reload import Reload
from icd.server.stores.registry import Stores
from icd.server.workers.hooks import Hooks


class Lifecycle:
    """Serves until it is told to stop, or to go on with other code."""

    def __init__(
        self,
        claim: SocketClaim,
        tasks: TaskGroup,
        *,
        connections: Connections,
        stores: Stores,
        hooks: Hooks,
        reload: Reload,
    ) -> None:
        self.too_late: list[signal.Signals] = []  # meant for the next daemon
        self._acceptor = Acceptor(claim, connections.open, tasks, self.stop)
        self._connections = connections
        self._stores = stores
        self._hooks = hooks
        self._reload = reload
        self._tasks = tasks
        self._stopping = anyio.Event()
        self._left: list[Connection] = []
        self._is_leaving = False
        self._had_terminal = os.isatty(2)

    def start(self, exit_idle_seconds: float, *, leaves: bool) -> None:
        """Accept callers; leave after so long without work (0: stay)."""
        self._acceptor.start()
        if exit_idle_seconds:
            self._tasks.start_soon(self._leave_when_idle, exit_idle_seconds, leaves)

    async def run(self) -> list[Connection] | None:
        """Serve until told to stop, or until the next daemon can go on with the connections."""
        reloading = anyio.CancelScope()
        self._tasks.start_soon(self._interrupt, reloading)
        with reloading:
            while True:
                await self._reload.wanted()
                if await self._reload.attempt(self._quiesce, self._stores.hung):
                    self._is_leaving = True
                    if self._stopping.is_set():  # told so in this very moment
                        self.too_late.append(signal.SIGTERM)
                    return self._left
        await self._acceptor.close()
        return None

    def stop(self, why: str) -> None:
        if not self._stopping.is_set():
            log.info("stopping", extra={"why": why, "sessions": len(self._connections)})
            self._stopping.set()

    async def obey(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Act on signals, to the very end: those that come too late are for the next daemon."""
        async for told in signals:
            if self._is_leaving:
                self.too_late.append(told)
                continue
            # The shell of a foreground daemon sends a SIGHUP, too, when its terminal is closed.
            hung_up = self._had_terminal and not os.isatty(2)
            if told is signal.SIGHUP and not hung_up:
                self._reload.order()
            else:
                self.stop(told.name)

    async def _interrupt(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _quiesce(self) -> str:
        """Make everything ready for the next daemon; return what is in the way, if anything is."""
        if not await self._hooks.pause():  # before callers have to wait for us
            self._hooks.go_on()
            return "a hook is still running"
        await self._acceptor.pause()
        obstacle = await self._connections.quiesce() or await self._rest()
        if not obstacle:
            try:
                self._left = self._connections.leave()
            except OSError as exc:
                obstacle = f"connections cannot be handed over: {exc.strerror}"
        if obstacle:
            self._connections.go_on()
            self._acceptor.go_on()
            self._hooks.go_on()
        return obstacle

    async def _rest(self) -> str:
        """Wait until no database works any more; return the one that still does, if any."""
        with anyio.move_on_after(limits.QUIET_SECONDS):
            while self._stores.obstacle():  # noqa: ASYNC110 -- as connections do
                await anyio.sleep(LOOK_SECONDS)
        return self._stores.obstacle()

    async def _leave_when_idle(self, limit: float, leaves: bool) -> None:  # noqa: FBT001 -- a task
        """Stop after so long without work, if systemd starts us again for the next caller.

        `leaves`: also if it does not; callers go on without us, until we are started again.
        A database stays open while a stream follows it or its mirror has things to do.
        """
        entered, since = -1, 0.0
        while True:
            is_needed = bool(self._stores.stores or len(self._connections))
            if entered != self._connections.entered or is_needed:
                entered, since = self._connections.entered, time.monotonic()
            elif (leaves or self._acceptor.claim.passed) and time.monotonic() - since >= limit:
                self.stop("idle")
                return
            await anyio.sleep(limit / 10)
