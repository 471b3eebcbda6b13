"""Dispatches of the open databases, observed: an end that nobody else records is recorded here.

Usually a runner does so.  If it is gone, what it left in its spool file is taken over; if it left
nothing, its agent is observed in its place; and if that is gone, too, the dispatch has failed.

Promises
    - a process is told by its start, boot and namespace: no other one with its number, and no
      zombie, is taken for it; what cannot be seen from here is left alone;
    - nothing here holds up the lane or the loop: files are the business of a thread;
    - while something is observed, its database stays open, and so does the daemon.
"""

from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from icd.app.call import Params
from icd.app.verb import Method
from icd.config import Settings
from icd.errors import IcError
from icd.features.dispatches.agent import looks
from icd.features.dispatches.methods import LIVE, POLL, Live, Poll
from icd.features.dispatches.observation import Seen, Subject
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.store import Store, inquiry
from icd.server.workers import threads
from icd.server.workers.dispatches.pidfds import Pidfds
from icd.values.processes import Process


class Observers:
    """One for each open database."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    def attach(self, store: Store, _settings: Settings) -> None:
        self._tasks.start_soon(Observer(store).run)


class Observer:
    """What is observed of one database, from its first call until it is closed."""

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
                await anyio.sleep(limits.OBSERVE_GAP_SECONDS)  # whoever opened it is served first
                await self._try()
                is_due = self._live or self._is_behind
                with anyio.move_on_after(limits.OBSERVE_SECONDS if is_due else None):
                    await self._wake.wait()
        finally:
            self._ends.close()

    async def _try(self) -> None:
        self._wake = anyio.Event()
        try:
            self._is_behind = await self._look()
        except IcError as exc:
            self._is_behind = self._store.database.is_open
            if self._is_behind and not exc.retryable:
                why = {"path": self._store.path, "why": exc.message}
                log.warning("dispatches cannot be observed", extra=why)
        except Exception:  # noqa: BLE001 -- goes on with the next look
            self._is_behind = True
            log.exception("observing failed", extra={"path": self._store.path})

    async def _look(self) -> bool:
        """Whether something is left to be recorded."""
        subjects: list[Subject] = await self._ask(LIVE, Live())
        if not subjects and not self._live:  # most projects, most of the time
            return False
        self._live = len(subjects)  # until we know better
        seen = await threads.start(partial(self._see, subjects))
        news = [await self._record(each, what) for each, what in seen if what.is_news]
        observed = [what for _, what in seen if _can_be_observed(what)]
        self._live = len(observed)
        self._ends.watch(found for each, what in seen if (found := _whom(each, what)))
        return not all(news)

    def _see(self, subjects: list[Subject]) -> list[tuple[Subject, Seen]]:
        return [(each, looks.look(each, self._store.path)) for each in subjects]

    async def _record(self, subject: Subject, seen: Seen) -> bool:
        """Whether it is over by now; else it has changed since, or there is some time left."""
        now = await self._ask(POLL, Poll(subject.id, seen=seen))
        if now.is_over:
            known = {"path": self._store.path, "dispatch": subject.id, "status": now.status}
            log.info("the runner of a dispatch is gone, and it is over", extra=known)
            if seen.end is not None:
                await threads.start(partial(looks.forget, subject.id, self._store.path))
        return bool(now.is_over)

    async def _ask(self, method: Method[Any, Any], params: Params) -> Any:
        return await self._store.inquire(inquiry(self._store.path, method, params))


def _can_be_observed(seen: Seen) -> bool:
    """Also what is about to be started: it runs soon, or never will."""
    is_due = seen.agent is None and seen.runner != "unknown"
    return is_due or "alive" in (seen.runner, seen.agent)


def _whom(subject: Subject, seen: Seen) -> Process | None:
    """Whose end matters: an agent's is told by its runner."""
    if seen.runner == "alive":
        return subject.runner
    return subject.agent if seen.agent == "alive" else None
