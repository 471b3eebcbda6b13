"""From "which database does the caller mean" to the store that serves it.

What was found is remembered, and checked again by the database's thread at every use.
"""

import os
import resource
from collections.abc import Callable, Sequence
from itertools import groupby

import anyio
from anyio.abc import TaskGroup

from icd import config, procfs
from icd.app.call import Answer, Call, Topic
from icd.app.dispatch import Clock, failure
from icd.db.database import Debt
from icd.db.paths import Where
from icd.errors import Guard, Overloaded
from icd.features.state import watch
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.call_queue import Deliver
from icd.server.stores.maintenance import Turns
from icd.server.stores.notify import Changes, ChangeWaiter
from icd.server.stores.resolver import Resolver
from icd.server.stores.searches import Searches
from icd.server.stores.store import Store, inquiry
from icd.server.subscriptions.event_fanout import Feed

MOVES = 3  # how often a caller's database may move away while it is being asked


class Stores:
    """All open databases of this daemon; `opened` are told of each that is about to be opened.

    `settings` reads what holds for the project with that file of settings.
    """

    def __init__(
        self,
        settings: Callable[[str], config.Settings],
        clock: Clock,
        tasks: TaskGroup,
        opened: Sequence[Callable[[Store, config.Settings], None]] = (),
        vectors_max_mib: int = config.DEFAULTS.vectors_max_mib,
    ) -> None:
        self.stores: dict[str, Store] = {}
        self._searches = Searches(self.ask, vectors_max_mib * 1024 * 1024)
        self._resolver = Resolver(settings)
        self._clock = clock
        self._tasks = tasks
        self._opened = opened
        self._known: dict[Where, str] = {}
        # Of stores that ended: how often files were replaced, and what is yet to be told.
        self._ended: dict[str, tuple[int, Debt | None]] = {}
        self._feeds: dict[Store, Feed] = {}
        self._closing = False
        self._opening = anyio.Lock()
        self._turns = Turns()

    def ready(self, calls: list[Call]) -> Store | None:
        """The store that serves all the calls, if it is known and open already."""
        where = calls[0].where
        for call in calls:
            runs = call.method.runs
            if runs.creates or runs.apart or (call.where is not where and call.where != where):
                return None
        return self._open_store(where)

    async def ask(self, calls: list[Call]) -> list[Answer]:
        """Answers in the order of the calls, wherever each of them is served.

        What is answered apart waits for the calls before it, and those after it wait for it.
        """
        answers: list[Answer] = []
        for apart, some in groupby(calls, lambda call: call.method.runs.apart):
            if apart:
                answers += [await self._searches.answer(call) for call in some]
            else:
                answers += await self._ask_together(list(some))
        return answers

    async def _ask_together(self, calls: list[Call]) -> list[Answer]:
        first = calls[0].where
        if all(call.where == first for call in calls):
            return await self._ask_here(calls, MOVES)
        answers = [Answer()] * len(calls)
        async with anyio.create_task_group() as tasks:
            for indices in self._grouped(calls):
                tasks.start_soon(self._ask_some, calls, indices, answers)
        return answers

    def waiter(self, where: Where, topic: Topic) -> ChangeWaiter:
        def changes() -> Changes | None:
            store = self._open_store(where)
            return None if store is None else store.changes

        return ChangeWaiter(changes, topic)

    def feed(self, where: Where) -> Feed | None:
        """What is new in the log of a database; None while it is not open."""
        store = self._open_store(where)
        if store is None:
            return None
        if store not in self._feeds:
            self._feeds[store] = Feed(store)
        return self._feeds[store]

    def _open_store(self, where: Where) -> Store | None:
        return self.stores.get(self._known.get(where, ""))

    @property
    def needed(self) -> list[str]:
        """The databases that must stay open without a caller."""
        return [path for path, store in self.stores.items() if store.is_needed]

    def open_again(self, paths: list[str]) -> None:
        """Open what the daemon before us kept open; its workers and watchers then attach to it."""
        for path in paths:
            call = inquiry(path, watch.ROWS, watch.Rows([]))
            call.where = Where(os.path.dirname(path), path)  # it has to be found first
            self._tasks.start_soon(self.ask, [call])

    def obstacle(self) -> str:
        """The database that is still busy, if any."""
        busy = [p for p, store in self.stores.items() if store.waiting or store.is_working]
        return f"{busy[0]} is still busy" if busy else ""

    def hung(self) -> list[str]:
        return [path for path, store in self.stores.items() if store.hung_since is not None]

    async def close(self) -> None:
        self._closing = True
        async with anyio.create_task_group() as tasks:
            for store in list(self.stores.values()):
                tasks.start_soon(store.stop)

    def _grouped(self, calls: list[Call]) -> list[list[int]]:
        """Calls that name the same database stay in their order."""
        groups: dict[Where, list[int]] = {}
        for index, call in enumerate(calls):
            groups.setdefault(call.where, []).append(index)
        return list(groups.values())

    def follow(self, calls: list[Call], answers: list[Answer], deliver: Deliver) -> None:
        """Ask again for calls whose database has moved, wherever it is by now."""
        self._tasks.start_soon(self._follow_slowly, calls, answers, deliver)

    async def _follow_slowly(
        self, calls: list[Call], answers: list[Answer], deliver: Deliver
    ) -> None:
        deliver(await self._follow(calls, answers, MOVES))

    async def _ask_some(self, calls: list[Call], indices: list[int], answers: list[Answer]) -> None:
        found = await self._ask_here([calls[index] for index in indices], MOVES)
        for index, answer in zip(indices, found, strict=True):
            answers[index] = answer

    async def _ask_here(self, calls: list[Call], moves: int) -> list[Answer]:
        """Calls that all name the same database."""
        store = self.ready(calls)
        refused: list[Answer] = []
        if store is None:
            with Guard(lambda exc: refused.extend([Answer(error=failure(exc))] * len(calls))):
                store = await self._find_store(calls)
        if store is None:
            return refused
        answers = await store.ask(calls)
        if any(answer.moved for answer in answers):
            return await self._follow(calls, answers, moves)
        return answers

    async def _follow(self, calls: list[Call], answers: list[Answer], moves: int) -> list[Answer]:
        """Ask again for those, and only those, that were turned away."""
        if not moves:
            lost = Answer(error=Overloaded("the database is replaced again and again"))
            return [lost if answer.moved else answer for answer in answers]
        moved = [c for c, a in zip(calls, answers, strict=True) if a.moved]
        for call in moved:
            self._known.pop(call.where, None)
        again = iter(await self._ask_here(moved, moves - 1))
        return [next(again) if answer.moved else answer for answer in answers]

    async def _find_store(self, calls: list[Call]) -> Store:
        where = calls[0].where
        create = any(call.method.runs.creates for call in calls)
        deadline = min(call.deadline for call in calls)
        path, settings = await self._resolver.find(where, create=create, deadline=deadline)
        if self._closing:
            raise Overloaded("the daemon is stopping")
        if len(self._known) >= limits.KNOWN_PLACES:
            self._known.clear()
        self._known[where] = path
        if path not in self.stores:
            await self._make_room()
        if path not in self.stores:
            self.stores[path] = Store(path, settings, self._clock, self._forget, self._turns)
            database = self.stores[path].database
            database.reopened, database.debt = self._ended.pop(path, (0, None))
            for opened in self._opened:
                opened(self.stores[path], settings)
            self._tasks.start_soon(self.stores[path].run)
        return self.stores[path]

    async def _make_room(self) -> None:
        """While descriptors are short, close the database that was not used for the longest time.

        If all are in use, the caller of the next one is told that descriptors are short.
        """
        async with self._opening:
            while self._is_short() and (idle := [s for s in self.stores.values() if s.is_idle]):
                store = min(idle, key=lambda store: store.used_at)
                log.info("too few descriptors, closing a database", extra={"path": store.path})
                with anyio.move_on_after(limits.ROOM_SECONDS):  # its lock may be held by others
                    await store.stop()

    def _is_short(self) -> bool:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        opening = sum(not store.database.is_open for store in self.stores.values())
        needed = limits.SPARE_DESCRIPTORS + limits.STORE_DESCRIPTORS * (opening + 1)
        return soft != resource.RLIM_INFINITY and procfs.descriptors() + needed > soft

    def _forget(self, store: Store) -> None:
        if self.stores.get(store.path) is store:
            del self.stores[store.path]
            if len(self._ended) >= limits.KNOWN_PLACES:
                self._ended.clear()
            if store.database.reopened or store.database.debt:
                self._ended[store.path] = (store.database.reopened, store.database.debt)
        self._feeds.pop(store, None)
        self._searches.forget(store.path)
