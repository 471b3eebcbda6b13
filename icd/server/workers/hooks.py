"""Hooks in the daemon: every event that was committed is brought to the hooks that are trusted.

After the commit, and level-triggered: a change only says that the log may have grown; what is to be
delivered is what the log has and the positions have not.

Promises
    - one event at a time, in the order of the log; and no other process runs hooks of this project
      meanwhile, which a lock outside the project sees to;
    - nothing here holds up the database's thread or the loop: files and processes are the business
      of another thread;
    - an event is delivered again only if its delivery could not be noted, and is marked then.
"""

import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from icd.app.call import Params
from icd.app.verb import Method
from icd.config import Settings
from icd.errors import Guard, IcError, Locked
from icd.features.daemon.report import HooksReport
from icd.features.triggers import files, process, verbs
from icd.features.triggers.files import Trust
from icd.features.triggers.process import NotStarted, Outcome
from icd.features.triggers.store import Delivery, Done
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.store import Store, inquiry
from icd.server.workers import threads

T = TypeVar("T")


class Hooks:
    """The hooks of all open databases: how many run at once, what they did, their orderly end.

    `home`: where the user's trust is recorded; None: no hook is trusted.
    `socket`: that of this daemon, which hooks are to find.
    """

    def __init__(self, home: str | None, socket: Callable[[], str], tasks: TaskGroup) -> None:
        self.done = HooksReport(0, 0, 0, None)
        self.slots = anyio.CapacityLimiter(limits.HOOKS_AT_ONCE)
        self.stop = os.eventfd(0, os.EFD_CLOEXEC)  # becomes readable to end what is running
        self.is_paused = False
        self._home = home
        self._socket = socket
        self._tasks = tasks
        self._deliveries: set[Deliveries] = set()

    def attach(self, store: Store, settings: Settings) -> None:
        project = files.project(store.path)
        if self._home and project:
            trust = Trust(self._home, project)
            found = Deliveries(store, trust, settings.hook_seconds, self)
            self._tasks.start_soon(self._run, found)

    def report(self) -> HooksReport:
        return self.done

    def environment(self) -> dict[str, str]:
        """The environment of this process, in which hooks find the daemon that runs them."""
        return {**os.environ, "INTERCORE_SOCKET": self._socket()}

    async def pause(self) -> bool:
        """Start no hook any more; whether those that run have ended in time."""
        self.is_paused = True
        with anyio.move_on_after(limits.HOOK_REST_SECONDS) as rested:
            for each in list(self._deliveries):
                await each.rest()
        return not rested.cancelled_caught

    def go_on(self) -> None:
        self.is_paused = False
        for each in self._deliveries:
            each.wake()

    async def close(self) -> None:
        """End all hooks; what is not delivered by now is left to the next daemon."""
        if not await self.pause():
            log.warning("killing a hook, because the daemon stops")
            os.eventfd_write(self.stop, 1)
            await self.pause()

    async def _run(self, found: "Deliveries") -> None:
        self._deliveries.add(found)
        try:
            await found.run()
        finally:
            self._deliveries.discard(found)


def home() -> str | None:
    """This process's home directory, if it is an absolute path."""
    given = os.environ.get("HOME")
    return given if given and os.path.isabs(given) else None


class Deliveries:
    """What is delivered of one database, from its first call until it is closed."""

    def __init__(self, store: Store, trust: Trust, seconds: float, hooks: Hooks) -> None:
        self._store = store
        self._trust = trust
        self._seconds = seconds
        self._hooks = hooks
        self._thread = anyio.CapacityLimiter(1)
        self._unrecorded: Done | None = None
        self._retry = False
        self._is_waiting = False  # for a hook that was trusted to be as it was then
        self._was_told = False  # of something new, while hooks were paused
        self._wake = anyio.Event()
        self._resting = anyio.Event()
        self._resting.set()
        store.changes.listen_to_log(self.wake)
        store.keep_while(lambda: self.is_needed)

    @property
    def is_needed(self) -> bool:
        """Whether the database must stay open: there is something to deliver, or may be.

        After a reload, too: nothing else would open it for the rest.
        """
        is_told = self._wake.is_set() or self._was_told
        return is_told or self._retry or not self._resting.is_set()

    def wake(self) -> None:
        self._wake.set()

    async def rest(self) -> None:
        """Wait until nothing is running any more; pause hooks first."""
        await self._resting.wait()

    async def run(self) -> None:
        while not self._store.is_closed:
            with anyio.move_on_after(self._patience()):
                await self._wake.wait()
            self._wake = anyio.Event()
            self._retry = False
            self._was_told = self._hooks.is_paused
            if not (self._was_told or self._store.is_closed):
                await self._try(self._catch_up)

    def _patience(self) -> float | None:
        """The seconds until the next look, unless there is an event; None: as long as it takes."""
        if self._retry:
            return limits.HOOK_RETRY_SECONDS
        return limits.HOOK_LOOK_SECONDS if self._is_waiting else None

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        with Guard(self._fail):
            await step()

    def _fail(self, exc: Exception) -> None:
        if isinstance(exc, Locked | NotStarted):
            self._retry = True  # others are at it; or the machine has no room at the moment
        elif not isinstance(exc, IcError):
            log.error("hooks failed", exc_info=exc, extra={"path": self._store.path})
            self._hooks.done.last_error = f"{self._store.path}: {exc!r}"
        elif self._store.database.is_open:
            self._retry = True
            if not exc.retryable:
                self._complain(exc.message)

    def _complain(self, sentence: str) -> None:
        message = f"{self._store.path}: {sentence}"
        if self._hooks.done.last_error != message:
            log.warning("hooks cannot be run", extra={"path": self._store.path, "why": sentence})
        self._hooks.done.last_error = message

    async def _catch_up(self) -> None:
        """Deliver whatever is to be delivered."""
        self._is_waiting = False
        programs = await self._look()
        if not programs:  # most projects: many events are not as many looks
            await anyio.sleep(limits.HOOK_RETRY_SECONDS)
            return
        if not await self._ask(verbs.PENDING, verbs.Pending([*programs])):
            return
        await self._in_thread(partial(self._trust.acquire, time.monotonic()))
        self._resting = anyio.Event()
        try:
            while await self._deliver_next():
                pass
        finally:
            self._trust.release()
            self._resting.set()

    async def _look(self) -> dict[str, str]:
        """What runs; if a trusted hook is not among it, there is another look later."""
        programs, is_waiting = await self._in_thread(self._trust.look)
        self._is_waiting |= is_waiting
        return programs

    async def _deliver_next(self) -> bool:
        """Note what was delivered, and deliver what is next; whether there was something."""
        async with self._hooks.slots:
            programs = await self._look()
            hooks = [] if self._hooks.is_paused else [*programs]
            step = verbs.Step(hooks, self._unrecorded)
            delivery: Delivery | None = await self._ask(verbs.STEP, step)
            self._unrecorded = None
            if delivery is None:
                return False
            outcome = await self._run(delivery, programs[delivery.hook])
        if outcome.is_stopped:
            return False
        self._unrecorded = process.done(delivery, outcome)
        self._note(delivery, outcome)
        return True

    async def _run(self, delivery: Delivery, program: str) -> Outcome:
        deliver = partial(
            process.deliver,
            delivery,
            program,
            project=self._trust.project,
            database=self._store.path,
            own=self._hooks.environment(),
            seconds=self._seconds,
            stop=self._hooks.stop,
        )
        while True:
            try:
                return await self._in_thread(deliver)
            except NotStarted as exc:
                # It is noted as started: who leaves it now would mark it as a redelivery.
                self._complain(f"{delivery.hook} cannot be started: {exc}")
                await anyio.sleep(limits.HOOK_RETRY_SECONDS)

    def _note(self, delivery: Delivery, outcome: Outcome) -> None:
        done = self._hooks.done
        done.delivered += 1
        done.redelivered += delivery.redelivery
        facts: dict[str, object] = {
            "path": self._store.path,
            "hook": delivery.hook,
            "seq": delivery.seq,
        }
        if outcome.output:
            facts["output"] = outcome.output.decode("utf-8", "backslashreplace")
            facts["is_cut"] = outcome.is_cut
        if outcome.problem:
            log.warning("hook failed", extra={**facts, "problem": outcome.problem})
            done.failed += 1
            done.last_error = f"{self._store.path}: {delivery.hook} {outcome.problem}"
        elif outcome.output:
            log.info("hook said", extra=facts)

    async def _ask(self, method: Method[Any, Any], params: Params) -> Any:
        return await self._store.inquire(inquiry(self._store.path, method, params))

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Abandoned if we are cancelled: a file system that hangs must not keep the daemon."""
        async with self._thread:
            return await threads.start(function)
