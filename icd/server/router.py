"""From "which database does the caller mean" to the store that serves it.

Looking at a caller's directories happens in a thread of its own, never in the loop and never in a
shared pool: one hung mount must not hold up the callers of other projects.  What was found is
remembered, and checked again by the lane at every use.
"""

import time
from functools import partial

import anyio
from anyio.abc import TaskGroup

from icd import config
from icd.db import paths
from icd.db.paths import Where
from icd.errors import DeadlineExceeded, Overloaded
from icd.rpc.dispatch import failure
from icd.rpc.method import Answer, Call, Clock
from icd.server import limits
from icd.server.store import Store

MOVES = 3  # how often a caller's database may move away while it is being asked


class Router:
    """All open databases of this daemon."""

    def __init__(self, settings_file: str | None, clock: Clock, tasks: TaskGroup) -> None:
        self.stores: dict[str, Store] = {}
        self._settings_file = settings_file
        self._clock = clock
        self._tasks = tasks
        self._known: dict[Where, str] = {}

    async def submit(self, calls: list[Call]) -> list[Answer]:
        """Answers in the order of the calls, wherever each of them is served."""
        first = calls[0].where
        if len(calls) == 1 or all(call.where == first for call in calls):
            return await self._submit_here(calls, MOVES)
        answers = [Answer()] * len(calls)
        async with anyio.create_task_group() as tasks:
            for indices in self._grouped(calls):
                tasks.start_soon(self._submit_some, calls, indices, answers)
        return answers

    async def close(self) -> None:
        async with anyio.create_task_group() as tasks:
            for store in list(self.stores.values()):
                tasks.start_soon(store.stop)

    def _grouped(self, calls: list[Call]) -> list[list[int]]:
        """Calls that name the same database stay in their order."""
        groups: dict[Where, list[int]] = {}
        for index, call in enumerate(calls):
            groups.setdefault(call.where, []).append(index)
        return list(groups.values())

    async def _submit_some(
        self, calls: list[Call], indices: list[int], answers: list[Answer]
    ) -> None:
        found = await self._submit_here([calls[index] for index in indices], MOVES)
        for index, answer in zip(indices, found, strict=True):
            answers[index] = answer

    async def _submit_here(self, calls: list[Call], moves: int) -> list[Answer]:
        """Calls that all name the same database."""
        where = calls[0].where
        creates = any(call.method.creates for call in calls)
        store = None if creates else self.stores.get(self._known.get(where, ""))
        if store is None:
            try:
                store = await self._find_store(where, calls, create=creates)
            except Exception as exc:  # noqa: BLE001 -- told to the callers
                return [Answer(error=failure(exc))] * len(calls)
        answers = await store.submit(calls)
        if any(answer.moved for answer in answers):
            return await self._follow(calls, answers, moves)
        return answers

    async def _follow(self, calls: list[Call], answers: list[Answer], moves: int) -> list[Answer]:
        """Ask again for those, and only those, that were turned away."""
        if not moves:
            lost = Answer(error=Overloaded("the database keeps moving"))
            return [lost if answer.moved else answer for answer in answers]
        self._known.pop(calls[0].where, None)
        moved = [c for c, a in zip(calls, answers, strict=True) if a.moved]
        again = iter(await self._submit_here(moved, moves - 1))
        return [next(again) if answer.moved else answer for answer in answers]

    async def _find_store(self, where: Where, calls: list[Call], *, create: bool) -> Store:
        deadline = min(call.deadline for call in calls)
        with anyio.move_on_after(deadline - time.monotonic()):
            path, settings = await anyio.to_thread.run_sync(
                partial(_find, where, self._settings_file, create=create),
                limiter=anyio.CapacityLimiter(1),
                abandon_on_cancel=True,
            )
            if len(self._known) >= limits.KNOWN_PLACES:
                self._known.clear()
            self._known[where] = path
            if path not in self.stores:
                self.stores[path] = Store(path, settings, self._clock, self._forget)
                self._tasks.start_soon(self.stores[path].run)
            return self.stores[path]
        raise DeadlineExceeded(f"looking for a database in {where.cwd} takes too long")

    def _forget(self, store: Store) -> None:
        if self.stores.get(store.path) is store:
            del self.stores[store.path]


def _find(where: Where, settings_file: str | None, *, create: bool) -> tuple[str, config.Settings]:
    find = paths.target if create else paths.resolve
    path = paths.canonical(find(where))
    return path, config.load(settings_file, config.project_file(path))
