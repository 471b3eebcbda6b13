"""A daemon between its start and its end: who is let in, and what it is told to do.

Told from several sides (signals, callers, its own idleness, the loss of its place), it obeys one at
a time; to stop interrupts whatever else is being done.
"""

import os
import signal
import socket
import time
from collections.abc import AsyncIterator

import anyio
from anyio.abc import TaskGroup

from icd.errors import AlreadyRunning, IcError
from icd.server import limits, watchdog
from icd.server.handover import Connection
from icd.server.logs import log
from icd.server.metrics.status import About
from icd.server.net.connections import LOOK_SECONDS, Door
from icd.server.net.listener import Listener
from icd.server.net.socket_claim import Claim
from icd.server.reload import Reload
from icd.server.stores.registry import Router
from icd.server.workers.hooks import Hooks


class Life:
    """`exit_idle_seconds`: leave when nobody needs us for so long; 0: stay."""

    def __init__(
        self,
        claim: Claim,
        tasks: TaskGroup,
        *,
        door: Door,
        router: Router,
        hooks: Hooks,
        about: About,
        reload: Reload,
        exit_idle_seconds: float,
    ) -> None:
        self._claim = claim
        self._tasks = tasks
        self._door = door
        self._router = router
        self._hooks = hooks
        self._about = about
        self._reload = reload
        self._exit_idle_seconds = exit_idle_seconds
        self._stopping = anyio.Event()
        self.too_late: list[signal.Signals] = []
        self._left: list[Connection] = []
        self._is_leaving = False
        self._is_quiet = False  # nobody is let in, wherever our place is
        self._had_terminal = os.isatty(2)

    async def run(self) -> list[Connection] | None:
        """Until told to stop; or until the next daemon can go on with the connections."""
        self._listen()
        for task in (self._keep_place, self._leave_when_idle):
            self._tasks.start_soon(task)
        self._tasks.start_soon(watchdog.feed, self._about.summary)
        reloading = anyio.CancelScope()
        self._tasks.start_soon(self._interrupt, reloading)
        with reloading:
            while True:
                await self._reload.wanted()
                if await self._reload.attempt(self._quiesce, self._router.hung):
                    self._is_leaving = True
                    if self._stopping.is_set():  # told so in this very moment
                        self.too_late.append(signal.SIGTERM)
                    return self._left
        await self._retire(self._listener, self._claim.sock)
        return None

    def stop(self, why: str) -> None:
        if not self._stopping.is_set():
            log.info("stopping", extra={"why": why, "sessions": self._about.sessions})
            self._stopping.set()

    async def _interrupt(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    def _listen(self) -> None:
        self._listener = Listener(self._claim.sock, self._door.open)
        self._tasks.start_soon(self._listener.run)

    async def obey(self, signals: AsyncIterator[signal.Signals]) -> None:
        """To the very end: what arrives too late for us is meant for the next daemon."""
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

    async def _quiesce(self) -> str:
        """Make everything ready for the next daemon; what is in the way, if anything is."""
        if not await self._hooks.pause():  # before anybody has to wait for us
            self._hooks.go_on()
            return "a hook does not come to an end"
        self._is_quiet = True
        self._listener.stop()
        await self._listener.ended.wait()
        obstacle = await self._door.quiesce() or await self._rest()
        if not obstacle:
            try:
                self._left = self._door.leave()
            except OSError as exc:
                obstacle = f"connections cannot be handed over: {exc.strerror}"
        if obstacle:
            self._door.go_on()
            self._listen()
            self._hooks.go_on()
            self._is_quiet = False
        return obstacle

    async def _rest(self) -> str:
        """Let the databases end what they ask themselves; the one that does not, if any."""
        with anyio.move_on_after(limits.QUIET_SECONDS):
            while self._router.obstacle():  # noqa: ASYNC110 -- as the door does
                await anyio.sleep(LOOK_SECONDS)
        return self._router.obstacle()

    async def _keep_place(self) -> None:
        complaint = ""
        while True:
            await anyio.sleep(limits.PLACE_SECONDS)
            while self._is_quiet:  # noqa: ASYNC110 -- for a second, or the next daemon looks
                await anyio.sleep(limits.RELOAD_PAUSE_SECONDS / 10)
            try:
                if self._claim.is_taken:
                    self.stop("another daemon is where clients look first")
                    return
                if not self._claim.is_held:
                    self._take_place_again()
                complaint = ""
            except AlreadyRunning as exc:
                self.stop(exc.message)
                return
            except (OSError, IcError) as exc:
                if complaint != str(exc):
                    complaint = str(exc)
                    log.error("cannot listen again: %s", complaint)

    def _take_place_again(self) -> None:
        before = self._claim.sock
        self._claim.renew()
        if self._claim.sock is not before:
            self._claim.sock.listen(limits.BACKLOG)
            self._tasks.start_soon(self._retire, self._listener, before)
            self._listen()
        self._about.socket = self._claim.path
        log.warning("the socket or its lock had vanished", extra={"socket": self._claim.path})

    async def _retire(self, listener: Listener, sock: socket.socket) -> None:
        """Whoever is still in the backlog then learns that nothing was executed."""
        listener.stop()
        await listener.ended.wait()
        sock.close()

    async def _leave_when_idle(self) -> None:
        """Only if somebody starts us again for the next caller."""
        limit = self._exit_idle_seconds
        entered, since = -1, 0.0
        while limit:
            if entered != self._door.entered or self._is_needed():
                entered, since = self._door.entered, time.monotonic()
            elif self._claim.passed and time.monotonic() - since >= limit:
                self.stop("idle")
                return
            await anyio.sleep(limit / 10)

    def _is_needed(self) -> bool:
        """A database stays open while somebody follows it or its mirror has things to do."""
        return bool(self._router.stores) or not self._door.is_empty
