"""discovery search: which discoveries resemble a vector most, of those that the filters let pass.

Invariants
    - filters come before ranking: all that pass them compete, and nothing else;
    - dismissed discoveries are found only where they are asked for;
    - there is an answer for all of what is stored, or none.

A host that has one call to answer scans the database.  The daemon keeps vectors in memory
(`icd.server.stores.searches`) and reads the discoveries in the order of their last change, page by
page.  A change in between moves a row to the end, where it is read again; deletions leave no trace
but their count, after which everything is read anew.  After the last page it knows all there is.
"""

import sqlite3
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import NUMBER
from icd.app.verb import Column, Command, Method, Option, Runs, Table, narrow
from icd.config import Settings
from icd.db.rows import checked
from icd.errors import (
    DeadlineExceeded,
    DimensionMismatch,
    DiscoveryNotFound,
    IcError,
    InvalidParams,
    InvalidScore,
    NoEmbedding,
    UnreadableInput,
    Usage,
)
from icd.features.discoveries import similarity, store, vectors
from icd.features.discoveries.similarity import Best, Query
from icd.features.discoveries.store import ONE, STATUSES, Status, Tier
from icd.features.discoveries.vectors import Mark, Page, Question, Ranked, Row, Sieve
from icd.values.wire import INT64, Result

MAX_LIMIT = 1000
# Comparing takes longer than a look-up, and no edit waits for it.
SEARCH_DEADLINE_MS = 10_000
# Of one page: some milliseconds of the thread that every call waits for.
PAGE_ROWS = 1000
PAGE_BYTES = 1024 * 1024
# Longer than any path: no need to ask whether there is such a file.
PATH_CHARACTERS = 4096

Similarity = Annotated[float, Meta(ge=-1, le=1), NUMBER]


def unless_empty(_world: World, given: str | None) -> str | None:
    """An empty word is none, as from an unset variable."""
    return given or None


class Search(Params):
    """Find the discoveries most similar to an embedding: give either `embedding` or `like`."""

    embedding: Annotated[bytes | None, Meta(description="Little-endian float32 in base64.")] = None
    like: Annotated[
        str | None,
        Option("--like", "Find discoveries similar to this one, which is left out.", "ID"),
    ] = None
    source: Annotated[
        str | None, Option("--source", "Include only this source.", "S", resolve=unless_empty)
    ] = None
    tier: Annotated[Tier | None, Option("--tier", "Include only this tier.")] = None
    status: Annotated[Status | None, Option("--status", "Include only this status.")] = None
    include_dismissed: Annotated[
        bool, Option("--include-dismissed", "Include dismissed discoveries.")
    ] = False
    min_score: Annotated[Similarity | None, Option("--min-score", "Minimum similarity.", "F")] = (
        None
    )
    limit: Annotated[
        int,
        Meta(ge=1, le=MAX_LIMIT),
        Option("--limit", "Maximum number of results (default 10).", "N"),
    ] = 10
    deadline_ms: Annotated[
        int, Meta(description="Deadline in milliseconds; there are no partial results.")
    ] = SEARCH_DEADLINE_MS


class SearchForm(Search):
    """Print the discoveries most similar to an embedding (cosine), best first.

    Each line: id, source, title, score, similarity and tier, separated by tabs.
    Dismissed discoveries take part only with --status=dismissed or --include-dismissed.
    Sources with another dimension are left out, with a warning.
    There are no partial results: the search fails if it exceeds --timeout (10s).
    """

    file: Annotated[
        str | None,
        Option("--embedding", "Embedding to compare with: little-endian float32.", "@FILE"),
    ] = None


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


# --- what is done ---------------------------------------------------------------------------------


def search(ctx: Context, p: Search) -> list[Match]:
    """All at once, for a host that has this one call to answer."""
    asked = question_of(ctx, p)
    best = scan(ctx.conn, asked, deadline_check(ctx.deadline))
    return fetch(ctx.conn, asked, best) or []


def question_of(ctx: Context, p: Search) -> Question:
    similarity.require()
    asked = question(ctx.conn, p, ctx.settings)
    if asked.others:
        ctx.warnings.append(
            f"not compared because of another dimension: {', '.join(asked.others[:10])}"
        )
    return asked


def check_search(p: Search) -> None:
    if (p.embedding is None) == (p.like is None):
        raise InvalidParams("pass either embedding or like")
    if p.embedding is not None:
        vectors.parse(p.embedding)


def deadline_check(deadline: float) -> Callable[[], None]:
    """Half a search is none: what was found by then is not told."""

    def check() -> None:
        if time.monotonic() >= deadline:
            raise too_late()

    return check


def too_late() -> IcError:
    return DeadlineExceeded(
        "the search timed out; there are no partial results",
        hint="raise --timeout, or narrow the search with --source",
    )


_SOURCES = "SELECT source, dimension FROM embedding_sources ORDER BY source"


def question(conn: sqlite3.Connection, p: Search, settings: Settings) -> Question:
    vector = p.embedding if p.like is None else _stored(conn, p.like)
    assert vector is not None
    rest = sieve(p, settings), -1.0 if p.min_score is None else p.min_score, p.limit, settings
    if p.source is not None:
        vectors.check_dimension(conn, p.source, vector)
        return Question(vector, [p.source], [], *rest)
    dimensions: dict[str, int] = dict(conn.execute(_SOURCES).fetchall())
    own = len(vector) // 4
    fitting = [source for source, dimension in dimensions.items() if dimension == own]
    if dimensions and not fitting:
        known = ", ".join(str(number) for number in sorted(set(dimensions.values()))[:10])
        raise DimensionMismatch(f"the embedding has dimension {own}, but the sources have {known}")
    return Question(vector, fitting, [s for s in dimensions if s not in fitting], *rest)


def sieve(p: Search, settings: Settings) -> Sieve:
    low, high = store.bounds_of(p.tier, settings)
    statuses = {p.status} if p.status else set(STATUSES)
    if not (p.status or p.include_dismissed):
        statuses.remove("dismissed")
    return Sieve(low, high, frozenset(statuses), p.like or "")


_STORED = """
SELECT e.vector FROM discoveries d LEFT JOIN embeddings e ON e.discovery_id = d.id WHERE d.id = ?
"""


def _stored(conn: sqlite3.Connection, discovery_id: str) -> bytes:
    row = conn.execute(_STORED, (discovery_id,)).fetchone()
    if row is None:
        raise DiscoveryNotFound(f"discovery not found: {discovery_id}")
    if row[0] is None:
        raise NoEmbedding(f"discovery {discovery_id} has no embedding")
    return bytes(row[0])


_COUNTERS = "SELECT name, value FROM counters WHERE name IN ('discoveries', 'discoveries_deleted')"
_PAGE = """
SELECT d.id, e.vector, d.source, d.version, d.relevance * d.decay, d.status
FROM discoveries d LEFT JOIN embeddings e ON e.discovery_id = d.id
WHERE (d.version, d.id) > (?1, ?2) ORDER BY d.version, d.id LIMIT ?3
"""


def page(conn: sqlite3.Connection, mark: Mark) -> Page:
    """The discoveries that changed after the mark, the longest unchanged first."""
    counts = dict(conn.execute(_COUNTERS).fetchall())
    deleted = counts["discoveries_deleted"]
    anew = mark.deleted != deleted or mark.version > counts["discoveries"]
    if anew:
        mark = Mark(deleted=deleted)
    rows, size = [], 0
    for found in conn.execute(_PAGE, (mark.version, mark.id, PAGE_ROWS)):
        row = checked(Row, found)
        rows.append(row)
        size += len(row.vector or b"")
        if size >= PAGE_BYTES:
            break
    is_last = size < PAGE_BYTES and len(rows) < PAGE_ROWS
    if rows:
        mark = Mark(rows[-1].version, rows[-1].id, deleted)
    return Page(rows, mark, anew, is_last)


# ?1 source, ?2 bytes of a vector, ?3 and ?4 the weights, ?5 the statuses, ?6 the one left out
_SCAN = """
SELECT d.id, e.vector FROM embeddings e JOIN discoveries d ON d.id = e.discovery_id
WHERE e.source = ?1 AND length(e.vector) = ?2 AND d.id <> ?6
  AND d.relevance * d.decay >= ?3 AND d.relevance * d.decay < ?4
  AND d.status IN (SELECT value FROM json_each(?5))
"""


def scan(conn: sqlite3.Connection, asked: Question, check: Callable[[], None]) -> Ranked:
    """The whole search in one transaction, page by page; `check` may end it."""
    best = Best(Query(asked.vector), asked.limit, asked.min_score, check)
    low, high, statuses, without = asked.sieve
    wanted, size = msgspec.json.encode(sorted(statuses)).decode(), len(asked.vector)
    for source in asked.sources:
        best.take(vectors.read(conn, _SCAN, source, size, low, high, wanted, without))
    return best.found


_SHOWN = ("id", "source", "source_id", "title", "summary", "url", "status", "discovered_at")
_FETCH = f"SELECT {', '.join(_SHOWN)}, relevance * decay, version FROM discoveries WHERE id = ?"  # noqa: S608


def fetch(
    conn: sqlite3.Connection, asked: Question, best: Ranked, *, version: int = INT64
) -> list[Match] | None:
    """What there is to show of them; None if one is gone, or has changed since that version."""
    found = []
    for name, similar in best:
        row = conn.execute(_FETCH, (name,)).fetchone()
        if row is None or row[-1] > version:
            return None
        effective = row[-2] // ONE
        found.append(
            Match(
                **dict(zip(_SHOWN, row, strict=False)),
                relevance_score=store.fraction(effective),
                confidence_tier=store.tier_of(effective, asked.settings),
                similarity=similar,
            )
        )
    return found


# --- what is typed and shown ----------------------------------------------------------------------


def ask_search(world: World, f: SearchForm) -> Ask:
    if (f.file is None) == (f.like is None):
        raise Usage("pass either --embedding=@FILE or --like=ID")
    if f.min_score is not None and not -1 <= f.min_score <= 1:
        hint = "a similarity is a number from -1 to 1"
        raise InvalidScore(f"--min-score {f.min_score:g} is not a similarity", hint=hint)
    vector, note = (None, b"") if f.file is None else read(world, f.file, "discovery search")
    params = narrow(f, Search, embedding=vector)

    def show(found: list[Match]) -> Output:
        if world.json:
            output = render.in_order(found)
        else:
            output = render.shown(world, found, lambda: map(_line, found), MATCHES)
        output.stderr = note
        return output

    return Ask("discovery.search", params, show)


def read(world: World, given: str, context: str) -> tuple[bytes, bytes]:
    """An embedding as a caller gives it, and what is to be said about that."""
    if given.startswith("@"):
        return world.read_file(given[1:]), b""
    literal = given.encode()
    if not given or len(given) > PATH_CHARACTERS:
        return literal, b""
    try:
        content = world.read_file(given)
    except UnreadableInput:
        return literal, b""
    told = f"{given} is read as a file; use --embedding=@{given}"
    note = f"{world.program}: {context}: warning: {told}\n"
    return content, note.encode("utf-8", "backslashreplace")


def _line(found: Match) -> str:
    return render.columns(
        found.id,
        found.source,
        render.one_line(found.title),
        f"{found.relevance_score:.2f}",
        f"{found.similarity:.4f}",
        found.confidence_tier,
    )


MATCHES = Table(
    Column("DISCOVERY", "id", "id"),
    Column("SIMILARITY", "similarity", "score"),
    Column("SCORE", lambda m: f"{m.relevance_score:.2f}"),
    Column("TIER", "confidence_tier", spare=True),
    Column("STATE", "status", "state", spare=True),
    Column("SOURCE", "source", spare=True),
    Column("TITLE", "title"),
    empty="Nothing like it. Lower --min-score, or add --include-dismissed.",
)

VERBS = [
    Method(
        "discovery.search",
        Search,
        list[Match],
        search,
        check=check_search,
        runs=Runs(apart=True, long="searching"),
        warm_up=lambda _: similarity.warm_up(),
    ),
    Command(
        "discovery search",
        SearchForm,
        ask_search,
        human=MATCHES,
        order=("like", "source", "tier", "status", "include_dismissed", "min_score", "limit"),
        summary="Find discoveries by similarity.",
        examples=[
            "icctl discovery search --embedding=@query.f32 --limit=5",
            'icctl discovery search --like="$ID" --source=arxiv --min-score=0.8',
            "icctl discovery search --embedding=@query.f32 --tier=high --json",
        ],
    ),
]
