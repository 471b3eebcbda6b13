"""Commands that touch files outside of any database, done in the caller's place.

A command takes steps (`Served`), and each step is taken in the thread of the directory that it
touches: a file system that hangs holds up neither the loop nor other directories.  Between two
steps it waits in the loop, without a thread.

Promises
    - it is done only where the caller could do it, too (`Served.fits`); else the caller's own
      process does it, and also if the directory's thread hangs, or if we stop meanwhile;
    - nothing is held between two steps: a caller or a daemon that leaves then leaves nothing
      behind, and another daemon can begin anew;
    - what a caller did not hear of is undone.

Waiting takes one inotify for all, and one pidfd for a holder.  A waiter has a bell.  The kernel
tells of a lock that disappears and of a holder that ends; both only mean "look now", and a waiter
that hears nothing looks again after a while, as a process of its own does (`Watch` in
icd/features/locks/owners.py).  Who has waited longest is rung for all who wait for the same lock:
of a hundred that look, one gets it.  When it leaves, with the lock or without, the next one is
rung, sees who holds the lock now, and hears of that holder's end.
"""

import asyncio
import ctypes
import os
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from icd.app import planner
from icd.app.call import Answer, Call
from icd.app.invocation import Errand, Need, Output
from icd.errors import IcError, Locked
from icd.features.locks import owners
from icd.features.locks.owners import Pause
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.db_thread import PATIENCE_SECONDS, Hop
from icd.server.workers import threads
from icd.values.processes import Process, look

T = TypeVar("T")
# Has calls on databases answered.
Ask = Callable[[list[Call]], Awaitable[list[Answer]]]

_EVENT = struct.Struct("iIII")
_QUEUE_OVERFLOW = -1  # the descriptor of an event that stands for those that were lost


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


# --- who waits for what ---


class Bell:
    """Rings until it is cleared, and wakes who waits for it."""

    def __init__(self) -> None:
        self._rings = False
        self._waiter: asyncio.Future[None] | None = None
        self.watched: tuple[int, bytes] | None = None

    def clear(self) -> None:
        self._rings = False

    def ring(self) -> None:
        self._rings = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float | None = None) -> None:
        """Until it rings, or until then."""
        if self._rings:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if until is None else loop.call_at(until, self.ring)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


class LockWaits:
    """Who waits for what; `add` is for the thread of a directory, all else for the loop."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._entries: dict[int, dict[bytes, dict[Bell, None]]] = {}  # in the order they came
        self._holders: dict[tuple[int, int], tuple[int, set[Bell]]] = {}

    def begin(self) -> None:
        """Have a descriptor, from the first call that has to wait."""
        if self._fd < 0 and hasattr(self._libc, "inotify_init1"):
            self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            if self._fd >= 0:
                asyncio.get_running_loop().add_reader(self._fd, self._hear)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def add(self, pause: Pause) -> int:
        """Have the kernel tell of a directory; negative if it does not."""
        if self._fd < 0 or not pause.entry:
            return -1
        found: int = self._libc.inotify_add_watch(
            self._fd, os.fsencode(pause.directory), owners.EVENTS
        )
        return found

    def listen(self, bell: Bell, watch: int, pause: Pause) -> bool:
        """Ring the bell for the pause; False if it was not listening before, and has to look."""
        wanted = (watch, os.fsencode(pause.entry)) if watch >= 0 else None
        if bell.watched == wanted:
            return True
        self.leave(bell)
        if wanted is not None:
            self._entries.setdefault(watch, {}).setdefault(wanted[1], {})[bell] = None
        bell.watched = wanted
        return wanted is None

    def leave(self, bell: Bell) -> None:
        if bell.watched is None:
            return
        watch, entry = bell.watched
        bell.watched = None
        known = self._entries[watch]
        del known[entry][bell]
        if known[entry]:
            next(iter(known[entry])).ring()
        else:
            del known[entry]
        if not known:
            del self._entries[watch]
            self._libc.inotify_rm_watch(self._fd, watch)

    async def rest(self, bell: Bell, pause: Pause, until: float) -> None:
        """Wait for the bell, for the end of the holder, or for the time."""
        holder = Process(pause.holder.pid, pause.holder.start) if pause.holder else None
        key = self._attend(holder, bell) if holder else None
        try:
            await bell.wait(until)
        finally:
            if key is not None:
                self._forget(key, bell)

    # --- holders ---

    def _attend(self, holder: Process, bell: Bell) -> tuple[int, int] | None:
        key = holder.pid, holder.start
        if key not in self._holders:
            try:
                fd = os.pidfd_open(holder.pid)
            except (OSError, AttributeError):
                return None  # the next look will tell
            self._holders[key] = fd, set()
            asyncio.get_running_loop().add_reader(fd, self._ended, key)
        self._holders[key][1].add(bell)
        if look(holder) != "alive":  # its number may be another's by now
            bell.ring()
        return key

    def _ended(self, key: tuple[int, int]) -> None:
        fd, bells = self._holders[key]
        asyncio.get_running_loop().remove_reader(fd)  # it stays readable
        for bell in bells:
            bell.ring()

    def _forget(self, key: tuple[int, int], bell: Bell) -> None:
        fd, bells = self._holders[key]
        bells.discard(bell)
        if not bells:
            del self._holders[key]
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    # --- entries ---

    def _hear(self) -> None:
        try:
            data = os.read(self._fd, owners.EVENT_BYTES)
        except BlockingIOError:
            return
        for watch, name in _events(data):
            for bell in self._entries.get(watch, {}).get(name, {}):
                bell.ring()
                break
            if watch == _QUEUE_OVERFLOW:
                self._ring_all()

    def _ring_all(self) -> None:
        for known in self._entries.values():
            for bells in known.values():
                for bell in bells:
                    bell.ring()


def _events(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _EVENT.size <= len(data):
        watch, _mask, _cookie, size = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield watch, data[at : at + size].rstrip(b"\0")
        at += size


# --- errands ---


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

    def begin_step(self) -> None:
        """What rang before is seen by this step; that one of us leaves is seen by none."""
        if not self._is_leaving:
            self.bell.clear()

    async def goes_on(self) -> bool:
        """Whether to take the next step, once a reload has failed; not if one of us leaves."""
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

    async def run(self, errand: Errand, visit: Visit, ask: Ask) -> Output | Need:
        """Carry out an errand; or leave it to the caller, with nothing done."""
        assert errand.served is not None
        steps = errand.served.steps()
        fits: Callable[[], bool] | None = errand.served.fits
        pace = owners.FIRST_PAUSE
        answer, notes = None, b""
        try:
            while True:
                visit.begin_step()
                lane = self._lane(errand.served.directory)
                if lane is None:
                    return Need("local")
                found = await lane.do(partial(self._step, fits, errand, steps, answer))
                fits = answer = None
                if isinstance(found, Call):
                    (answer,) = await ask([found])
                    notes += planner.notes(errand, answer)
                    continue
                if isinstance(found, Output):
                    found.stderr = notes + found.stderr
                if isinstance(found, Output | Need):
                    return found
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
        """Undo what no caller heard of."""
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
        self,
        fits: Callable[[], bool] | None,
        errand: Errand,
        steps: Generator[Any, Any, Output],
        answer: Answer | None,
    ) -> Output | Need | Call | tuple[Pause, int]:
        """In the thread of the directory."""
        if fits is not None and not fits():
            return Need("local")
        found = planner.step(errand, steps, answer)
        return (found, self._waits.add(found)) if isinstance(found, Pause) else found

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
