"""Commands that touch files outside of any database, done in the caller's place: locks.

A command takes steps (`Served`), and each step is taken in the thread of the directory that it
touches: a file system that hangs holds up neither the loop nor other directories.  Between two
steps it waits in the loop, without a thread.

Promises
    - it is done only where the caller could do it, too (`Served.fits`); else the caller's own
      process does it, and also if the directory's thread hangs, or if we stop meanwhile;
    - nothing is held between two steps: whoever leaves then, caller or daemon, leaves nothing
      behind, and another daemon can begin anew;
    - what a caller did not hear of is undone.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from icd.app import planner
from icd.app.invocation import Errand, Need, Output
from icd.errors import IcError, Locked
from icd.features.locks import owners
from icd.features.locks.owners import Pause
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.db_thread import PATIENCE_SECONDS, Hop
from icd.server.workers import threads
from icd.server.workers.lock_waits import Bell, LockWaits

T = TypeVar("T")


class Hung(Exception):
    """The thread does not come to a step, and never will take it."""


class _Step(Hop[T]):
    """It belongs to who claims it first: the thread that takes it, or the loop that gives up."""

    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__(function)
        self.claim = threading.Lock()

    def run(self) -> None:
        if self.claim.acquire(blocking=False):
            super().run()


class Lane:
    """The thread of one directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._steps: SimpleQueue[_Step[Any] | None] = SimpleQueue()
        self._since = 0.0  # when the thread began with its step, or was given the first one
        self.waiting = 0
        self.hung = False
        threads.run(self._work)

    def close(self) -> None:
        self._steps.put(None)

    @property
    def is_hung(self) -> bool:
        late = self.waiting > 0 and time.monotonic() - self._since > limits.LANE_SECONDS
        if late != self.hung:
            self.hung = late
            log.warning(f"locks {'hang' if late else 'are back'}", extra={"path": self._directory})
        return late

    async def do(self, function: Callable[[], T]) -> T:
        step = _Step(function)
        is_idle = not self.waiting
        if is_idle:
            self._since = time.monotonic()
        self.waiting += 1
        self._steps.put(step)
        try:
            if not (is_idle and step.ends_within(PATIENCE_SECONDS)):
                await self._wait(step)
            return step.outcome()
        finally:
            self.waiting -= 1

    async def _wait(self, step: _Step[T]) -> None:
        told = step.tell_in_loop()
        while not told.done():
            await asyncio.wait([told], timeout=limits.GRACE_SECONDS)
            if not told.done() and self.is_hung and step.claim.acquire(blocking=False):
                raise Hung

    def _work(self) -> None:
        while (step := self._steps.get()) is not None:
            self._since = time.monotonic()
            step.run()


class Visit:
    """A caller whose errand is under way, as its session sees it."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.rests = False  # between two steps: another daemon can begin anew
        self.rested = 0.0  # seconds; they are not counted as work
        self._is_leaving = False
        self._is_suspended = False

    def leave(self) -> None:
        """The caller has left, or the daemon is about to."""
        self._is_leaving = True
        self.bell.ring()

    def suspend(self) -> None:
        """Take no step: another daemon may have to."""
        self._is_suspended = True

    def resume(self) -> None:
        self._is_suspended = False
        self.bell.ring()

    async def goes_on(self) -> bool:
        """Whether to take the next step, once a reload has failed; not if somebody leaves."""
        while self._is_suspended and not self._is_leaving:
            self.bell.clear()
            await self.bell.wait()
        return not self._is_leaving


class Errands:
    """The errands of all callers."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._waits = LockWaits()

    def close(self) -> None:
        self._waits.close()
        for lane in self._lanes.values():
            lane.close()

    async def run(self, errand: Errand, visit: Visit) -> Output | Need:
        """Carry out an errand; or leave it to the caller, with nothing done."""
        assert errand.served is not None
        lane = self._lane(errand.served.directory)
        if lane is None:
            return Need("local")
        steps = errand.served.steps()
        fits: Callable[[], bool] | None = errand.served.fits
        pace = owners.FIRST_PAUSE
        try:
            while True:
                visit.bell.clear()
                found = await lane.do(partial(self._step, fits, errand, steps))
                if isinstance(found, Output | Need):
                    return found
                fits = None
                pause, watch = found
                if pause.entry and not self._waits.listen(visit.bell, watch, pause):
                    continue  # what happened before went unseen
                told = owners.LOOK_AGAIN_SECONDS if watch >= 0 or not pause.entry else pace
                pace = min(pace * 2, owners.LAST_PAUSE)
                visit.rests, since = True, time.monotonic()
                await self._waits.rest(visit.bell, pause, min(pause.until, since + told))
                if not await visit.goes_on():
                    return Need("local")
                visit.rests = False
                visit.rested += time.monotonic() - since
        except Hung:
            return Need("local")
        finally:
            self._waits.leave(visit.bell)

    async def undo(self, errand: Errand) -> None:
        """Nobody heard that it was done."""
        assert errand.served is not None
        assert errand.served.undo is not None
        for _ in range(limits.UNDO_TRIES):
            try:
                await threads.start(partial(owners.run, errand.served.undo()))
            except Locked:  # a process that is stopped keeps others from removing a lock
                continue
            except IcError as exc:
                log.warning("a lock stays: %s", exc.message)
            return

    def _step(
        self, fits: Callable[[], bool] | None, errand: Errand, steps: Generator[Any, None, Output]
    ) -> Output | Need | tuple[Pause, int]:
        """In the thread of the directory."""
        if fits is not None and not fits():
            return Need("local")
        found = planner.step(errand, steps)
        return found if isinstance(found, Output) else (found, self._waits.add(found))

    def _lane(self, directory: str) -> Lane | None:
        """The thread of a directory; None if it hangs, or if there are too many of them."""
        self._waits.begin()
        lane = self._lanes.get(directory)
        if lane is None:
            if len(self._lanes) >= limits.LANES and not self._retire():
                return None
            lane = self._lanes[directory] = Lane(directory)
        return None if lane.is_hung else lane

    def _retire(self) -> bool:
        """End a thread that has nothing to do, to make room."""
        for directory, lane in self._lanes.items():
            if not lane.waiting:
                lane.close()
                del self._lanes[directory]
                return True
        return False
