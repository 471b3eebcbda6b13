"""discovery.search, and what the daemon asks of a database to answer it.

The daemon's questions are not in the table: nobody else may ask them.
"""

import sqlite3
import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from icd.app.call import Context, Params
from icd.app.verb import Method, Runs
from icd.errors import DeadlineExceeded, IcError, InvalidParams
from icd.features.discoveries import arrays, tiers, vectors
from icd.features.discoveries import search_store as searches
from icd.features.discoveries.search_store import MAX_LIMIT, Found, Mark, Question, Wanted
from icd.features.discoveries.store import Status
from icd.features.discoveries.tiers import Tier
from icd.values.wire import Result

# Comparing takes longer than a look-up, and nobody's edit waits for it.
SEARCH_DEADLINE_MS = 10_000


class Search(Params):
    """Either `embedding`, in base64, or `like`, the id of a discovery that has one."""

    embedding: bytes | None = None
    like: str | None = None
    source: str | None = None
    tier: Tier | None = None
    status: Status | None = None
    include_dismissed: bool = False
    min_score: Annotated[float, Meta(ge=-1, le=1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = 10
    deadline_ms: int = SEARCH_DEADLINE_MS


class Match(Result, kw_only=True):
    """In the order of the original.  Without a default: what is always there."""

    id: str
    source: str
    source_id: str
    title: str
    summary: str = ""
    url: str = ""
    relevance_score: float
    confidence_tier: str
    status: str
    discovered_at: int
    similarity: float


class Asking(Params):
    search: Search


class Paging(Params):
    mark: Mark


class Fetching(Params):
    best: list[tuple[str, float]]


class Seen(NamedTuple):
    """Something read from a database; from another connection, it may be of another database."""

    conn: sqlite3.Connection
    path: str
    what: Any


def search(ctx: Context, p: Search) -> list[Match]:
    """All at once, for a host that has this one call to answer."""
    asked = _question(ctx, p)
    found = searches.scan(ctx.conn, asked, deadline_check(ctx.deadline))
    return shown(found, asked)


def ask(ctx: Context, p: Asking) -> Seen:
    return Seen(ctx.conn, ctx.path, _question(ctx, p.search))


def page(ctx: Context, p: Paging) -> Seen:
    return Seen(ctx.conn, ctx.path, searches.page(ctx.conn, p.mark))


def fetch(ctx: Context, p: Fetching) -> Seen:
    return Seen(ctx.conn, ctx.path, searches.fetch(ctx.conn, p.best))


def _question(ctx: Context, p: Search) -> Question:
    wanted = Wanted(
        vector=p.embedding,
        like=p.like,
        source=p.source,
        tier=p.tier,
        status=p.status,
        include_dismissed=p.include_dismissed,
        min_score=-1.0 if p.min_score is None else p.min_score,
        limit=p.limit,
    )
    asked = searches.question(ctx.conn, wanted, ctx.settings)
    if asked.others:
        ctx.warnings.append(f"not compared, of another dimension: {', '.join(asked.others[:10])}")
    return asked


def shown(found: list[Found], asked: Question) -> list[Match]:
    return [
        Match(
            id=row.id,
            source=row.source,
            source_id=row.source_id,
            title=row.title,
            summary=row.summary,
            url=row.url,
            relevance_score=tiers.shown(row.effective),
            confidence_tier=tiers.tier(row.effective, asked.settings),
            status=row.status,
            discovered_at=row.discovered_at,
            similarity=row.similarity,
        )
        for row in found
    ]


def deadline_check(deadline: float) -> Callable[[], None]:
    """Half a search is none: what was found by then is not told."""

    def check() -> None:
        if time.monotonic() >= deadline:
            raise too_late()

    return check


def too_late() -> IcError:
    return DeadlineExceeded(
        "the search did not end in time; there are no partial results",
        hint="give it more with --timeout, or narrow it with --source",
    )


def check_search(p: Search) -> None:
    if (p.embedding is None) == (p.like is None):
        raise InvalidParams("give either embedding or like")
    if p.embedding is not None:
        vectors.parse(p.embedding)


ASK = Method("search.ask", Asking, Seen, ask)
PAGE = Method("search.page", Paging, Seen, page)
FETCH = Method("search.fetch", Fetching, Seen, fetch)

METHODS = [
    Method(
        "discovery.search",
        Search,
        list[Match],
        search,
        check=check_search,
        runs=Runs(apart=True),
        warm_up=lambda _: arrays.load(),
    )
]
