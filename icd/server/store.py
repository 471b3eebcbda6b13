"""One database in the daemon: calls queue, a lane drains them in batches.

Invariants
    - a single task feeds the lane, one batch at a time, so others get at the lock in between;
    - whoever submitted calls is answered: by the lane, or at its deadline if the lane hangs;
    - a database that cannot be opened answers everybody with the reason, and is forgotten.
"""

import asyncio
import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import anyio
import msgspec

from icd.config import Settings
from icd.core.debounce import Recent
from icd.db import lock
from icd.db.database import Database
from icd.errors import DeadlineExceeded, IcError, Locked, Overloaded, UnknownOutcome
from icd.rpc.dispatch import failure, run_batch
from icd.rpc.method import Answer, Call, Clock
from icd.server import limits, upkeep
from icd.server.changes import Changes
from icd.server.lane import Lane
from icd.server.logs import log


class _Ticket:
    """Calls that were submitted together; their answers are delivered together."""

    __slots__ = ("_answers", "_deliver", "_missing")

    def __init__(self, size: int, deliver: Callable[[list[Answer]], None]) -> None:
        self._answers: list[Answer | None] = [None] * size
        self._missing = size
        self._deliver = deliver

    def answer(self, index: int, answer: Answer) -> None:
        if self._answers[index] is None:
            self._answers[index] = answer
            self._missing -= 1
            if not self._missing:
                self._deliver([answer for answer in self._answers if answer is not None])


class _Waiting(msgspec.Struct, gc=False):
    call: Call
    ticket: _Ticket
    index: int

    def answer(self, answer: Answer) -> None:
        self.ticket.answer(self.index, answer)


class Store:
    """The queue and the lane of one database file."""

    def __init__(
        self, path: str, settings: Settings, clock: Clock, forget: Callable[["Store"], None]
    ) -> None:
        self.path = path
        self.calls = 0
        self.batches = 0
        self.database = Database(path, settings, wait=lock.poll, careful=True)
        self.changes = Changes()
        self._clock = clock
        self._forget = forget
        self._idle_seconds = settings.idle_seconds
        self._recent = Recent()
        self._queue: deque[_Waiting] = deque()
        self._in_flight: list[_Waiting] = []
        self._wake = anyio.Event()
        self._stopping = False
        self._closed = anyio.Event()

    @property
    def is_closed(self) -> bool:
        """Nobody answers here any more."""
        return self._closed.is_set()

    @property
    def waiting(self) -> int:
        return len(self._queue) + len(self._in_flight)

    def submit(self, calls: list[Call], deliver: Callable[[list[Answer]], None]) -> None:
        """Queue the calls; `deliver` gets the answers in their order, each after its commit."""
        if len(self._queue) + len(calls) > limits.WAITING_CALLS:
            error = Overloaded(f"too many calls wait for {self.path}")
            deliver([Answer(error=error)] * len(calls))
            return
        if not calls[0].background:
            self.calls += len(calls)
        ticket = _Ticket(len(calls), deliver)
        self._queue.extend(_Waiting(call, ticket, index) for index, call in enumerate(calls))
        if not self._wake.is_set():
            self._wake.set()

    async def ask(self, calls: list[Call]) -> list[Answer]:
        done: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()

        def deliver(answers: list[Answer]) -> None:
            if not done.cancelled():
                done.set_result(answers)

        self.submit(calls, deliver)
        return await done

    async def run(self) -> None:
        """The life of the lane: open, drain, rest, close."""
        await self._wake.wait()
        lane = await self._open()
        if lane is None:
            self.database.lock.close()
            self._end()
            return
        try:
            await self._drain(lane)
        finally:
            with anyio.CancelScope(shield=True):
                await self._close(lane)

    async def stop(self) -> None:
        """Finish what is queued, then close."""
        self._stopping = True
        self._wake.set()
        await self._closed.wait()

    async def _open(self) -> Lane | None:
        """Open for those who wait; None when nobody waits any more, because they were told why."""
        while self._queue:
            creates = any(waiting.call.method.creates for waiting in self._queue)
            first = min(waiting.call.deadline for waiting in self._queue)
            try:
                with self._watching():
                    return await Lane.open(partial(self._connect, first, create=creates))
            except Locked as exc:
                self._refuse(exc, until=time.monotonic())
            except Exception as exc:  # noqa: BLE001 -- everybody who waits is told
                self._refuse(failure(exc), until=math.inf)
        self._forget(self)
        return None

    def _refuse(self, error: IcError, *, until: float) -> None:
        """Answer those whose deadline is not after `until`."""
        for waiting in [w for w in self._queue if w.call.deadline <= until]:
            self._queue.remove(waiting)
            waiting.answer(Answer(error=error))

    def _connect(self, deadline: float, *, create: bool) -> sqlite3.Connection:
        with self.database.hold(deadline, create=create):
            return self.database.connection(create=create)

    async def _drain(self, lane: Lane) -> None:
        idle_at = time.monotonic() + self._idle_seconds
        while True:
            if not self._queue:
                if self._stopping:
                    return
                self._wake = anyio.Event()
                with anyio.move_on_after(max(0, idle_at - time.monotonic())) as idle:
                    await self._wake.wait()
                if idle.cancelled_caught:
                    idle_at = time.monotonic() + await self._look_after(lane)
                    if not self.database.is_open:
                        return
                    continue
            await self._gather()
            if await self._run_batch(lane):
                idle_at = time.monotonic() + self._idle_seconds
            if not self.database.is_open and not self._queue:
                return  # deleted: whoever asks next finds what is there by then

    async def _gather(self) -> None:
        """Let everybody who is about to ask do so first.

        While the thread works, the loop had better rest: the two share Python's lock, and passing
        it back and forth costs more than the work itself.
        """
        size = 0
        while size < len(self._queue) < limits.BATCH_CALLS:
            size = len(self._queue)
            await asyncio.sleep(0)

    async def _run_batch(self, lane: Lane) -> bool:
        """Run what is waiting; whether anybody but the daemon itself had asked."""
        size = min(len(self._queue), limits.BATCH_CALLS)
        if not size:
            return False
        batch = [self._queue.popleft() for _ in range(size)]
        self._in_flight = batch
        calls = [waiting.call for waiting in batch]
        work = partial(run_batch, self.database, calls, clock=self._clock, recent=self._recent)
        reopened = self.database.reopened
        try:
            with self._watching():
                answers = await lane.hop(work)
        except Exception as exc:  # noqa: BLE001 -- the lane outlives every batch
            answers = [Answer(error=failure(exc)) for _ in batch]
        if self.database.reopened != reopened:
            log.warning("database replaced, reopened", extra={"path": self.path})
        self._in_flight = []
        self.batches += 1
        self._hand_out(batch, answers)
        self.changes.after(calls, self.database.foreign)
        return not all(call.background for call in calls)

    def _hand_out(self, batch: list[_Waiting], answers: list[Answer | None]) -> None:
        left = []
        for waiting, answer in zip(batch, answers, strict=True):
            if answer is None:
                left.append(waiting)
            else:
                waiting.answer(answer)
        self._queue.extendleft(reversed(left))

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """While the thread works, see to it that nobody waits far beyond its deadline."""
        self._schedule_watch()
        try:
            yield
        finally:
            self._watch.cancel()

    def _schedule_watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(limits.GRACE_SECONDS, self._settle_overdue)

    def _settle_overdue(self) -> None:
        """The thread hangs: whoever is overdue hears at least what is known."""
        self._schedule_watch()
        overdue = time.monotonic() - limits.GRACE_SECONDS
        for waiting in self._in_flight:
            if waiting.call.deadline < overdue:
                sentence = f"unknown_outcome: {self.path} did not answer in time"
                waiting.answer(Answer(error=UnknownOutcome(sentence)))
        self._refuse(DeadlineExceeded(f"{self.path} did not get to it in time"), until=overdue)

    async def _look_after(self, lane: Lane) -> float:
        """Prune and checkpoint; how long to rest until there is something to prune again."""
        try:
            with self._watching():
                due = await lane.hop(partial(upkeep.look_after, self.database, self._clock))
        except Exception:  # noqa: BLE001 -- the lane goes on without it
            log.exception("upkeep failed", extra={"path": self.path})
            due = None
        return limits.REST_SECONDS if due is None else max(due, self._idle_seconds)

    async def _close(self, lane: Lane) -> None:
        self._forget(self)
        try:
            with self._watching():
                await lane.hop(partial(upkeep.close, self.database))
            await lane.close()
        except Exception:  # noqa: BLE001 -- there is nobody left to tell
            log.exception("closing failed", extra={"path": self.path})
        while self._queue:
            self._queue.popleft().answer(Answer(moved=True))
        self._end()

    def _end(self) -> None:
        self._closed.set()
        self.changes.tell_all()  # whoever waits for a change here must look elsewhere
