"""Searches: hops on the lane for what is stored, a thread of its own for the arithmetic.

A search compares megabytes.  On the lane it would hold up everybody who waits for the database, on
the loop everybody there is.  So its call never reaches the lane as a whole: it asks for what has
changed since the last search, page by page between the calls of others, takes it into matrices
that are kept in memory, multiplies in a thread (numpy lets go of Python's lock for that), and asks
for the rows to show.

Promises
    - one search at a time in this daemon, with one thread: the others wait for their turn;
    - its answer is what a search of the database at one moment would have found;
    - at its deadline it is answered with an error; the matrices keep what they have by then;
    - the matrices of all databases together stay below the limit; what does not fit is paged
      through for every search, with the best of it in memory only;
    - those of a database that is closed, replaced or opened anew are dropped.
"""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import anyio
from msgspec import structs

from icd.app.call import Answer, Call, Params
from icd.app.dispatch import failure
from icd.app.verb import Method
from icd.db.paths import Where
from icd.features.discoveries.indexes import Index, Ranked, Scan
from icd.features.discoveries.search_methods import (
    ASK,
    FETCH,
    PAGE,
    Asking,
    Fetching,
    Paging,
    Search,
    Seen,
    deadline_check,
    shown,
    too_late,
)
from icd.features.discoveries.search_store import Found, Page, Question
from icd.server.workers import threads

T = TypeVar("T")
# While a thread computes beside the loop, whoever waits for Python's lock gets it this soon: five
# milliseconds, the usual time, are more than most calls take.
EAGER_SECONDS = 0.0001
# So many ways to name a database are remembered, which saves a hop.
CALLERS = 1000

Asker = Callable[[list[Call]], Awaitable[list[Answer]]]


class _Changed(Exception):
    """The database is not the one that we began with."""


class _Kept:
    """The index of a database; `too_much`: as it is, it does not fit into the memory we may use."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn
        self.index = Index()
        self.too_much = False


class Searches:
    def __init__(self, ask: Asker, max_bytes: int) -> None:
        self._ask = ask
        self._max_bytes = max_bytes
        self._kept: dict[str, _Kept] = {}  # by path, the one used last at the end
        self._paths: dict[Where, str] = {}  # which of them a caller meant the last time
        self._turn = anyio.Lock()
        self._worker = threads.Worker()

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(kept.index.size for kept in self._kept.values())

    def forget(self, path: str) -> None:
        self._kept.pop(path, None)

    async def answer(self, call: Call) -> Answer:
        try:
            with anyio.fail_after(max(0.0, call.deadline - time.monotonic())):
                async with self._turn:
                    call.ran_at = time.monotonic()
                    return await self._search(call)
        except TimeoutError:
            return Answer(error=too_late())
        except Exception as exc:  # noqa: BLE001 -- the error map
            return Answer(error=failure(exc))

    async def _search(self, call: Call) -> Answer:
        assert isinstance(call.params, Search)
        while True:
            answer, page = await self._begin(call, call.params)
            seen: Seen = answer.result
            try:
                found = await self._find(call, seen, page)
            except _Changed:
                continue
            return Answer(shown(found, seen.what), warnings=answer.warnings, trace=answer.trace)

    async def _begin(self, call: Call, asked: Search) -> tuple[Answer, Page | None]:
        """The question, and in the same hop what is new where it was asked the last time."""
        ask = self._call(call, ASK, Asking(asked), background=call.background)
        known = self._kept.get(self._paths.get(call.where, ""))
        if known is None or known.too_much:
            (answer,) = await self._asked(ask)
            page = None
        else:
            paging = self._call(call, PAGE, Paging(known.index.mark), background=True)
            answer, news = await self._asked(ask, paging)
            is_same = answer.result.conn is news.result.conn is known.conn
            page = news.result.what if is_same else None
        if len(self._paths) >= CALLERS:
            self._paths.clear()
        self._paths[call.where] = answer.result.path
        return answer, page

    async def _find(self, call: Call, seen: Seen, page: Page | None) -> list[Found]:
        asked: Question = seen.what
        kept = self._kept.pop(seen.path, None)
        if kept is None or kept.conn is not seen.conn:
            kept = _Kept(seen.conn)
        self._kept[seen.path] = kept
        keeper = Scan(asked) if kept.too_much else kept.index
        while True:
            if not await self._catch_up(call, kept, keeper, page):
                kept.index, kept.too_much, page = Index(), True, None
                keeper = Scan(asked)
                continue
            page = None
            best = await self._beside(partial(keeper.best, asked, deadline_check(call.deadline)))
            found = await self._fetch(call, kept, best)
            if len(found) == len(best) and all(row.version <= keeper.mark.version for row in found):
                return found

    async def _catch_up(
        self, call: Call, kept: _Kept, keeper: Index | Scan, first: Page | None
    ) -> bool:
        """Have it know all that is stored, from `first` on; False if it becomes too much."""
        while True:
            page: Page = first or await self._read(call, kept, PAGE, Paging(keeper.mark))
            first = None
            if page.anew:
                kept.too_much = False  # for the next one: there is less by now
            if page.rows or page.anew:
                await self._beside(partial(keeper.take, page))
            if isinstance(keeper, Index) and not self._make_room(kept):
                return False
            if page.is_last and keeper.mark == page.mark:
                return True

    def _make_room(self, kept: _Kept) -> bool:
        """Others are dropped first, those that were searched the longest ago."""
        while self.size > self._max_bytes:
            path = next(iter(self._kept))
            if self._kept[path] is kept:
                return False
            del self._kept[path]
        return True

    async def _fetch(self, call: Call, kept: _Kept, best: Ranked) -> list[Found]:
        if not best:
            return []
        found: list[Found] = await self._read(call, kept, FETCH, Fetching(best))
        return found

    async def _read(self, call: Call, kept: _Kept, method: Method[Any, Any], params: Params) -> Any:
        (answer,) = await self._asked(self._call(call, method, params, background=True))
        seen: Seen = answer.result
        if seen.conn is not kept.conn:
            raise _Changed
        return seen.what

    def _call(
        self, call: Call, method: Method[Any, Any], params: Params, *, background: bool
    ) -> Call:
        verbose = call.verbose and method is ASK  # the rest is arithmetic
        return structs.replace(
            call, method=method, params=params, background=background, verbose=verbose
        )

    async def _asked(self, *hops: Call) -> list[Answer]:
        answers = await self._ask(list(hops))
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return answers

    async def _beside(self, work: Callable[[], T]) -> T:
        """In the thread.  To the end: the next search must not meet it in the matrices."""
        usual = sys.getswitchinterval()
        sys.setswitchinterval(EAGER_SECONDS)
        try:
            done = self._worker.start(work)
            with anyio.CancelScope(shield=True):
                await asyncio.wait([done])
        finally:
            sys.setswitchinterval(usual)
        return done.result()
