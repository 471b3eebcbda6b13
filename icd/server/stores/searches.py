"""Searches: hops on the database's thread for what is stored, another thread for the arithmetic.

A search compares megabytes.  On the database's thread it would hold up all callers of the database,
on the loop all callers there are.  So its call never reaches either as a whole: it asks for what
has changed since the last search, page by page between the calls of others, takes it into matrices
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
from typing import Any, NamedTuple, TypeVar

import anyio
from msgspec import structs

from icd.app.call import Answer, Call, Context, Params
from icd.app.dispatch import failure
from icd.app.verb import Method
from icd.errors import Guard
from icd.features.discoveries import search
from icd.features.discoveries.search import Match, Search
from icd.features.discoveries.vectors import Index, Mark, Page, Question, Scan
from icd.server.workers import threads

T = TypeVar("T")
# While a thread computes beside the loop, another that waits for Python's lock gets it this soon:
# five milliseconds, the usual time, are more than most calls take.
EAGER_SECONDS = 0.0001

Asker = Callable[[list[Call]], Awaitable[list[Answer]]]


class Hop(Params):
    """What to read of a database for a search."""

    read: Callable[[Context], Any]


class Seen(NamedTuple):
    """Something read from a database; from another connection, it may be of another database."""

    conn: sqlite3.Connection
    what: Any


def _hop(ctx: Context, p: Hop) -> Seen:
    return Seen(ctx.conn, p.read(ctx))


# They are in no table: no caller may ask them.
ASK = Method("search.ask", Hop, Seen, _hop)
PAGE = Method("search.page", Hop, Seen, _hop)
FETCH = Method("search.fetch", Hop, Seen, _hop)


class _Changed(Exception):
    """The database is not the one that we began with."""


class _Kept:
    """The index of a database; `too_much`: as it is, it does not fit into the memory we may use."""

    def __init__(self, path: str, conn: sqlite3.Connection) -> None:
        self.path = path
        self.conn = conn
        self.index = Index()
        self.too_much = False


class Searches:
    def __init__(self, ask: Asker, max_bytes: int) -> None:
        self._ask = ask
        self._max_bytes = max_bytes
        self._kept: dict[str, _Kept] = {}  # by path, the one used last at the end
        self._turn = anyio.Lock()
        self._worker = threads.Worker()

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(kept.index.size for kept in self._kept.values())

    def forget(self, path: str) -> None:
        self._kept.pop(path, None)

    async def answer(self, call: Call) -> Answer:
        answers: list[Answer] = []
        with Guard(lambda exc: answers.append(Answer(error=failure(exc)))):
            answers.append(await self._in_turn(call))
        return answers[0]

    async def _in_turn(self, call: Call) -> Answer:
        try:
            with anyio.fail_after(max(0.0, call.deadline - time.monotonic())):
                async with self._turn:
                    call.ran_at = time.monotonic()
                    return await self._search(call)
        except TimeoutError:
            return Answer(error=search.too_late())

    async def _search(self, call: Call) -> Answer:
        assert isinstance(call.params, Search)
        begin = partial(self._begin, call.params)
        while True:
            answer = await self._hop(call, ASK, begin)
            try:
                found = await self._find(call, *answer.result.what)
            except _Changed:
                continue
            return Answer(found, warnings=answer.warnings, trace=answer.trace)

    def _begin(self, p: Search, ctx: Context) -> tuple[_Kept, Question, Page]:
        """On the database's thread: the search, and the first of what is new since the last one."""
        kept = self._kept.get(ctx.path)
        if kept is None or kept.conn is not ctx.conn:
            kept = _Kept(ctx.path, ctx.conn)
        return kept, search.question_of(ctx, p), search.page(ctx.conn, kept.index.mark)

    async def _find(
        self, call: Call, kept: _Kept, asked: Question, page: Page | None
    ) -> list[Match]:
        self._kept.pop(kept.path, None)
        self._kept[kept.path] = kept
        keeper = Scan(asked, kept.index.mark) if kept.too_much else kept.index
        while await self._catch_up(call, kept, keeper, page):
            page = None
            check = search.deadline_check(call.deadline)
            best = await self._beside(partial(keeper.best, asked, check))
            if not best:
                return []
            show = partial(search.fetch, asked=asked, best=best, version=keeper.mark.version)
            found: list[Match] | None = await self._read(call, kept, FETCH, show)
            if found is not None:
                return found
        kept.index, kept.too_much = Index(Mark(deleted=kept.index.mark.deleted)), True
        return await self._find(call, kept, asked, None)

    async def _catch_up(
        self, call: Call, kept: _Kept, keeper: Index | Scan, first: Page | None
    ) -> bool:
        """Have it know all that is stored, from `first` on; False if it becomes too much."""
        while True:
            read = partial(search.page, mark=keeper.mark)
            page: Page = first or await self._read(call, kept, PAGE, read)
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

    async def _read(
        self, call: Call, kept: _Kept, method: Method[Any, Any], read: Callable[[Any], Any]
    ) -> Any:
        answer = await self._hop(call, method, lambda ctx: read(ctx.conn))
        seen: Seen = answer.result
        if seen.conn is not kept.conn:
            raise _Changed
        return seen.what

    async def _hop(
        self, call: Call, method: Method[Any, Any], read: Callable[[Context], Any]
    ) -> Answer:
        is_first = method is ASK  # the rest is arithmetic
        hop = structs.replace(
            call,
            method=method,
            params=Hop(read),
            background=call.background or not is_first,
            verbose=call.verbose and is_first,
        )
        (answer,) = await self._ask([hop])
        if answer.error is not None:
            raise answer.error
        return answer

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
