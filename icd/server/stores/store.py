"""One database in the daemon: calls queue, its thread drains them in batches.

Invariants
    - a single task feeds the thread, one batch at a time, so others get at the lock in between;
    - every call is answered: by the thread, or at its deadline if the thread hangs;
    - a database that cannot be opened answers every call with the reason, and is forgotten;
    - an idle database is closed and forgotten, unless a call comes meanwhile.
"""

import asyncio
import math
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio

from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call, Params
from icd.app.dispatch import STATEMENT_GRACE_SECONDS, Clock, failure, run_batch
from icd.app.verb import Method
from icd.app.write_cache import Recent
from icd.config import Settings
from icd.db import lock
from icd.db.database import Database
from icd.db.engine import Engine
from icd.db.paths import Where
from icd.errors import Guard, IcError, Internal, Locked, NoDatabase, Overloaded
from icd.features.state.watch import LOOK
from icd.server import limits
from icd.server.logs import log
from icd.server.stores import maintenance as upkeep
from icd.server.stores.call_queue import CallQueue, Deliver, Moved
from icd.server.stores.db_thread import DbThread, HangDetector
from icd.server.stores.maintenance import Facts, Maintenance, Turns
from icd.server.stores.notify import Changes
from icd.values.processes import Writer

T = TypeVar("T")


def of_files(path: str, settings: Settings) -> Engine:
    return Database(path, settings, wait=lock.poll, careful=True)


class Store:
    """The queue and the thread of one database.

    `forget` is told that nothing is served here any more; `turns` are those of all databases.
    """

    def __init__(
        self,
        path: str,
        settings: Settings,
        clock: Clock,
        forget: Callable[["Store"], None],
        turns: Turns,
        *,
        engine: Callable[[str, Settings], Engine] = of_files,
    ) -> None:
        self.path = path
        self.calls = 0
        self.batches = 0
        self.own_batches = 0  # of calls that only the daemon made
        self.largest_batch = 0
        self.database = engine(path, settings)
        self.changes = Changes(self._rouse)
        self._clock = clock
        self._forget = forget
        self._turns = turns
        self._settings = settings
        self._recent = Recent()
        self._upkeep = Maintenance(self.database, clock, self._recent)
        self._queue = CallQueue(path)
        self._hangs = HangDetector(path, self._settle_overdue)
        self._needs: list[Callable[[], bool]] = []
        self._notice: tuple[str, Callable[[], object]] | None = None
        self.used_at = time.monotonic()  # by others than the daemon itself
        self._looked_at = 0.0
        self._is_roused = False
        self._is_signalled = False  # others may have written
        self._sleep: asyncio.Future[bool] | None = None  # while there is nothing to do
        self._stopping = False
        self._closed = anyio.Event()

    @property
    def is_closed(self) -> bool:
        """The thread has ended, and no call is answered here any more."""
        return self._closed.is_set()

    @property
    def waiting(self) -> int:
        return self._queue.unanswered

    @property
    def facts(self) -> Facts | None:
        """What the thread saw when it last looked; None until it is idle for the first time."""
        return self._upkeep.facts

    @property
    def is_working(self) -> bool:
        """Whether the thread works, be it only at a look between calls."""
        return self._hangs.is_working

    @property
    def hung_since(self) -> float | None:
        """Since when, monotonic, the thread has been at one thing for too long."""
        return self._hangs.hung_since

    @property
    def is_needed(self) -> bool:
        """A watcher follows it, or a worker needs it: it stays open without calls."""
        return self.changes.is_watched or any(is_needed() for is_needed in self._needs)

    @property
    def is_idle(self) -> bool:
        """Open, and no caller would notice if it were closed and opened again."""
        at_rest = not (self.waiting or self.is_working or self._stopping)
        return at_rest and self.database.is_open and not self.is_needed

    def keep_while(self, is_needed: Callable[[], bool]) -> None:
        """Keep the database open as long as this is so."""
        self._needs.append(is_needed)

    def tell_next(self, sentence: str, told: Callable[[], object]) -> None:
        """Warn the next command of a person or a script of this, then call `told`."""
        self._notice = (sentence, told)

    def submit(self, calls: list[Call], deliver: Deliver, moved: Moved | None = None) -> None:
        """Queue the calls; `deliver` gets the answers in their order, each after its commit."""
        if len(self._queue.pending) + len(calls) > limits.WAITING_CALLS:
            error = Overloaded(f"too many calls are waiting for {self.path}")
            deliver([Answer(error=error)] * len(calls))
            return
        if not calls[0].background:
            self.calls += len(calls)
        self._queue.add(calls, deliver, moved)
        self._rouse()

    def _rouse(self) -> None:
        self._is_roused = True
        if self._sleep is not None:
            _wake(self._sleep, because=True)

    async def ask(self, calls: list[Call]) -> list[Answer]:
        done: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()

        def deliver(answers: list[Answer]) -> None:
            if not done.cancelled():
                done.set_result(answers)

        self.submit(calls, deliver)
        return await done

    async def inquire(self, question: Call) -> Any:
        """Ask something for the daemon itself; what goes wrong is raised."""
        if not self.is_closed:
            (answer,) = await self.ask([question])
            if answer.error is not None:
                raise answer.error
            if not answer.moved:
                return answer.result
        raise NoDatabase(f"{self.path} was closed")

    async def run(self) -> None:
        """The life of the thread: open, drain, rest, close."""
        while not self._is_roused:
            await self._roused_within(limits.REST_SECONDS)
        thread = await self._open()
        if thread is None:
            self.database.leave()
            self._end()
            return
        try:
            await self._drain(thread)
        finally:
            with anyio.CancelScope(shield=True):
                await self._close(thread)

    async def stop(self) -> None:
        """Finish what is queued, then close."""
        self._stopping = True
        self._rouse()
        await self._closed.wait()

    async def _open(self) -> DbThread | None:
        """Open for the calls that wait; None: it cannot be opened, and they were all told why."""
        while self._queue.pending:
            calls = list(self._queue.pending)
            creates = any(call.method.runs.creates for call in calls)
            first = min(call.deadline for call in calls)
            self.database.stop_at = max(call.deadline for call in calls) + STATEMENT_GRACE_SECONDS
            with Guard(self._tell_all), self._hangs:
                return await DbThread.open(partial(self._connect, first, create=creates))
        self._forget(self)
        return None

    def _tell_all(self, exc: Exception) -> None:
        """Why the database cannot be opened; those who can wait for its lock still do."""
        until = time.monotonic() if isinstance(exc, Locked) else math.inf
        self._queue.refuse(failure(exc), until=until)

    def _connect(self, deadline: float, *, create: bool) -> sqlite3.Connection:
        with self.database.hold(deadline, create=create):
            return self.database.connection(create=create)

    async def _drain(self, thread: DbThread) -> None:
        look_at = time.monotonic() + self._settings.idle_seconds
        while True:
            if not self._queue.pending:
                if self._stopping:
                    return
                if not await self._rest(look_at):
                    look_at = time.monotonic() + await self._look_after(thread)
            if self._queue.pending:
                await self._gather()
                if await self._run_batch(thread):
                    look_at = time.monotonic() + self._settings.idle_seconds
            if not (self.database.is_open or self._queue.pending):
                return  # closed, or deleted: the next call finds what is there by then

    async def _rest(self, idle_at: float) -> bool:
        """Wait until there is something to do; whether that was before `idle_at`.

        For all who watch, one look: every batch notices what others wrote.
        """
        now = time.monotonic()
        is_watched = self.changes.is_watched
        look_at = self._looked_at + limits.WATCH_LOOK_SECONDS if is_watched else math.inf
        if await self._roused_within(max(0, min(idle_at, look_at) - now)):
            return True
        if look_at < idle_at or self._is_signalled:
            self.submit([inquiry(self.path, LOOK, LOOK.params())], lambda _: None)
            return True
        return False

    async def _roused_within(self, seconds: float) -> bool:
        """Wait; a future and a timer of the loop, because this is done once for every batch."""
        loop = asyncio.get_running_loop()
        sleep: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(seconds, partial(_wake, sleep, because=False))
        signal = self.database.signal if self.changes.is_heard else None
        self._is_signalled = False
        if signal is not None:
            loop.add_reader(signal, self._hear, sleep)
        try:
            return await self._sleeps(sleep)
        finally:
            timer.cancel()
            if signal is not None:
                loop.remove_reader(signal)

    def _hear(self, sleep: "asyncio.Future[bool]") -> None:
        """Another host wrote; the next batch reads what the signal says, and looks."""
        self._is_signalled = True
        _wake(sleep, because=False)

    async def _sleeps(self, sleep: "asyncio.Future[bool]") -> bool:
        """Wait for it; whether we were roused before."""
        self._is_roused = False
        self._sleep = sleep
        try:
            return await sleep
        finally:
            self._sleep = None

    async def _gather(self) -> None:
        """Let callers that are about to ask do so first.

        While the thread works, the loop had better rest: the two share Python's lock, and passing
        it back and forth costs more than the work itself.
        """
        size = 0
        while size < len(self._queue.pending) < limits.BATCH_CALLS:
            size = len(self._queue.pending)
            await asyncio.sleep(0)

    async def _run_batch(self, thread: DbThread) -> bool:
        """Run what is waiting; whether any of it came from a caller."""
        calls = self._queue.take(limits.BATCH_CALLS)
        asked = len([call for call in calls if not call.background])
        self.used_at = time.monotonic()
        self._upkeep.used |= asked > 0
        work = partial(run_batch, self.database, calls, clock=self._clock, recent=self._recent)
        try:
            answers = await self._hop(thread, work)
        except Exception as exc:  # noqa: BLE001 -- the thread outlives every batch
            answers = [Answer(error=failure(exc)) for _ in calls]
        self._looked_at = time.monotonic()
        self.batches += asked > 0
        self.own_batches += not asked
        self.largest_batch = max(self.largest_batch, asked)
        if self._notice is not None:
            self._warn(calls, answers, *self._notice)
        self._queue.hand_out(answers)
        if self.changes.is_heard:
            self.changes.after(calls, self.database.foreign)
        else:
            self.changes.foreign = self.database.foreign
        return asked > 0

    def _warn(
        self,
        calls: list[Call],
        answers: list[Answer | None],
        sentence: str,
        told: Callable[[], object],
    ) -> None:
        for call, answer in zip(calls, answers, strict=True):
            # What a statusline says on stderr is read by no person.
            heard = call.is_command and not call.method.name.startswith("statusline.")
            if heard and answer and answer.error is None and not answer.moved:
                answer.warnings = [*answer.warnings, sentence]
                self._notice = None
                told()
                return

    async def _hop(self, thread: DbThread, work: Callable[[], T]) -> T:
        reopened, was_open = self.database.reopened, self.database.is_open
        try:
            return await thread.hop(work, self._hangs)
        finally:
            if self.database.incidents:
                for incident in self.database.take_incidents():
                    log.warning("%s", incident)
            if self.database.is_open and self.database.reopened != reopened:
                log.warning("database replaced, reopened", extra={"path": self.path})
            elif was_open and not self.database.is_open:
                log.info("database closed", extra={"path": self.path})

    def _settle_overdue(self) -> None:
        self._queue.settle(overdue=time.monotonic() - limits.GRACE_SECONDS)

    async def _look_after(self, thread: DbThread) -> float:
        """See to the database while it is idle; how long to rest until the next look."""
        if await self._sleeps(self._turns.take()):
            return self._settings.idle_seconds  # a call came first
        with Guard(self._tell_of_upkeep):
            return await self._maintain(thread)
        return limits.REST_SECONDS

    async def _maintain(self, thread: DbThread) -> float:
        idle = time.monotonic() - self.used_at
        close = idle >= self._settings.close_idle_seconds and not self.is_needed
        foreign = self.database.foreign
        due = await self._hop(thread, partial(self._upkeep.look, close=close))
        if self.database.foreign != foreign:
            self.used_at = time.monotonic()
            self.changes.after([], self.database.foreign)
        now = time.monotonic()
        return upkeep.rest(self._settings, now=now, idle=now - self.used_at, due=due)

    def _tell_of_upkeep(self, exc: Exception) -> None:
        """Log a failure of maintenance: a line about a file, a traceback of our own bugs."""
        if isinstance(exc, IcError) and not isinstance(exc, Internal):
            log.warning("maintenance failed: %s", exc.message, extra={"path": self.path})
        else:
            log.error("maintenance failed", exc_info=exc, extra={"path": self.path})

    async def _close(self, thread: DbThread) -> None:
        self._forget(self)
        path = {"path": self.path}
        with Guard(lambda exc: log.error("closing failed", exc_info=exc, extra=path)):
            while not await self._closed_under_the_lock(thread):
                log.warning("database is locked, not closed yet", extra=path)
            await thread.close()
        self._queue.turn_away()
        self._end()

    async def _closed_under_the_lock(self, thread: DbThread) -> bool:
        """Close, but never without the lock; False if that is held for too long."""
        try:
            await self._hop(thread, partial(upkeep.close, self.database))
        except Locked:
            return False
        return True

    def _end(self) -> None:
        self._closed.set()
        self.changes.tell()  # its watchers must look for another store


def _wake(sleep: "asyncio.Future[bool]", *, because: bool) -> None:
    if not sleep.done():
        sleep.set_result(because)


def inquiry(
    path: str,
    method: Method[Any, Any],
    params: Params,
    *,
    seconds: float = DEFAULT_DEADLINE_MS / 1000,
) -> Call:
    """What the daemon asks of a database for itself, like any other call.

    In the background: the database counts as idle all the same, and it is not in the counts.
    """
    return Call(
        method=method,
        params=params,
        where=Where("", path),
        writer=Writer(),
        deadline=time.monotonic() + seconds,
        background=True,
    )
