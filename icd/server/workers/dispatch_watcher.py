"""Watches the dispatches of open databases, and records an end that no other process records.

Usually a runner does so.  If it is gone, what it left in its spool file is taken over; if it left
nothing, its agent is observed in its place; and if that is gone, too, the dispatch has failed.

Promises
    - a process is told by its start, boot and namespace: no other one with its number, and no
      zombie, is taken for it; what cannot be seen from here is left alone;
    - nothing here holds up the database's thread or the loop: files are the business of a thread;
    - while something is observed, its database stays open, and so does the daemon.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from icd import procfs
from icd.app.call import Params
from icd.app.verb import Method
from icd.config import Settings
from icd.errors import Guard, IcError
from icd.features.dispatches import poll as polls
from icd.features.dispatches.calls import LIVE, POLL, Live, Poll
from icd.features.dispatches.poll import Seen
from icd.features.dispatches.store import Dispatch
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.store import Store, inquiry
from icd.server.workers import threads
from icd.values import processes
from icd.values.processes import Process


def attach(tasks: TaskGroup, store: Store, _settings: Settings) -> None:
    """Watch the dispatches of a database that was just opened."""
    tasks.start_soon(Watcher(store).run)


class Watcher:
    """Watches the dispatches of one database, from its first call until it is closed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live = 0  # that can be observed from here
        self._is_behind = True  # until the first look, something may run
        self._wake = anyio.Event()
        self._wake.set()
        self._ends = Pidfds(self.wake, most=limits.OBSERVED_PROCESSES)
        store.changes.listen_to_log(self.wake)
        store.keep_while(lambda: self._live > 0 or self._is_behind)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        try:
            while not self._store.is_closed:
                await anyio.sleep(
                    limits.OBSERVE_GAP_SECONDS
                )  # the call that opened it is served first
                await self._try()
                is_due = self._live or self._is_behind
                with anyio.move_on_after(limits.OBSERVE_SECONDS if is_due else None):
                    await self._wake.wait()
        finally:
            self._ends.close()

    async def _try(self) -> None:
        self._wake = anyio.Event()
        with Guard(self._fail):
            self._is_behind = await self._look()

    def _fail(self, exc: Exception) -> None:
        """The next look may succeed."""
        path = self._store.path
        self._is_behind = not isinstance(exc, IcError) or self._store.database.is_open
        if not isinstance(exc, IcError):
            log.error("watching dispatches failed", exc_info=exc, extra={"path": path})
        elif self._is_behind and not exc.retryable:
            why = {"path": path, "why": exc.message}
            log.warning("dispatches cannot be watched", extra=why)

    async def _look(self) -> bool:
        """Whether something is left to be recorded."""
        live: list[Dispatch] = await self._ask(LIVE, Live())
        if not live and not self._live:  # most projects, most of the time
            return False
        self._live = len(live)  # until we know better
        seen = await threads.start(partial(self._see, live))
        news = [await self._record(each, what) for each, what in seen if what.is_news]
        observed = [what for _, what in seen if _can_be_observed(what)]
        self._live = len(observed)
        self._ends.watch(found for each, what in seen if (found := _whom(each, what)))
        return not all(news)

    def _see(self, live: list[Dispatch]) -> list[tuple[Dispatch, Seen]]:
        return [(each, polls.look(each, self._store.path)) for each in live]

    async def _record(self, found: Dispatch, seen: Seen) -> bool:
        """Whether it is over by now; else it has changed since, or there is some time left."""
        now = await self._ask(POLL, Poll(found.id, seen=seen))
        if now.is_over:
            known = {"path": self._store.path, "dispatch": found.id, "status": now.status}
            log.info("the runner of a dispatch is gone; recorded its end", extra=known)
            if seen.end is not None:
                await threads.start(partial(polls.forget, found.id, self._store.path))
        return bool(now.is_over)

    async def _ask(self, method: Method[Any, Any], params: Params) -> Any:
        return await self._store.inquire(inquiry(self._store.path, method, params))


def _can_be_observed(seen: Seen) -> bool:
    """Also what is about to be started: it runs soon, or never will."""
    is_due = seen.agent is None and seen.runner != "unknown"
    return is_due or "alive" in (seen.runner, seen.agent)


def _whom(found: Dispatch, seen: Seen) -> Process | None:
    """Whose end matters: an agent's is told by its runner."""
    if seen.runner == "alive":
        return found.runner
    return found.agent if seen.agent == "alive" else None


class Pidfds:
    """Calls `ended`, in the event loop, when one of the watched processes has ended."""

    def __init__(self, ended: Callable[[], None], *, most: int) -> None:
        self._ended = ended
        self._most = most
        self._open: dict[Process, int] = {}

    def watch(self, wanted: Iterable[Process]) -> None:
        """Watch these from now on, and no others; what cannot be watched is left out."""
        chosen = set(wanted)
        for process in [known for known in self._open if known not in chosen]:
            self._forget(process)
        for process in chosen - self._open.keys():
            if len(self._open) < self._most:
                self._begin(process)

    def close(self) -> None:
        self.watch([])

    def _begin(self, process: Process) -> None:
        if process.pidns != procfs.namespace():
            return
        try:
            fd = os.pidfd_open(process.pid)
        except (OSError, AttributeError):
            return  # it is gone, or the kernel is too old: the next look will tell
        self._open[process] = fd
        # Its number may have been another process's by the time it was opened.
        if processes.liveness(process) == "dead":
            self._forget(process)
            self._ended()
        else:
            asyncio.get_running_loop().add_reader(fd, self._end, process)

    def _end(self, process: Process) -> None:
        self._forget(process)
        self._ended()

    def _forget(self, process: Process) -> None:
        fd = self._open.pop(process)
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
