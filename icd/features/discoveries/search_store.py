"""Discoveries by meaning: which resemble a vector most, of those that the filters let pass.

Invariants
    - filters come before ranking: whatever passes them competes, and nothing else;
    - dismissed discoveries are found only by those who ask for them;
    - there is an answer for all of what is stored, or none.

Whoever keeps vectors in memory reads the discoveries in the order of their last change, page by
page.  A change in between moves a row to the end, where it is read again; deletions leave no trace
but their count, after which everything is read anew.  After the last page it knows all there is.
"""

import sqlite3
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from icd.config import Settings
from icd.db.rows import checked
from icd.errors import DimensionMismatch, DiscoveryNotFound, NoEmbedding
from icd.features.discoveries import tiers, vectors
from icd.features.discoveries.matrices import Row, Sieve
from icd.features.discoveries.similarity import Best, Query, Rows
from icd.features.discoveries.store import STATUSES, Status
from icd.features.discoveries.tiers import ONE, Tier

MAX_LIMIT = 1000
# Of one page: some milliseconds of the thread that everybody waits for.
PAGE_ROWS = 1000
PAGE_BYTES = 1024 * 1024


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Either `vector` or `like`, the id of a discovery that has one."""

    vector: bytes | None = None
    like: str | None = None
    source: str | None = None
    tier: Tier | None = None
    status: Status | None = None
    include_dismissed: bool = False
    min_score: float = -1.0
    limit: int = 10


class Question(NamedTuple):
    """A search made precise: the vector, what competes, and sources that cannot be compared."""

    vector: bytes
    sources: list[str]
    others: list[str]
    sieve: Sieve
    min_score: float
    limit: int
    settings: Settings


class Mark(NamedTuple):
    """How far the discoveries have been read: the last row, and how many were deleted by then."""

    version: int = -1
    id: str = ""
    deleted: int = 0


class Page(NamedTuple):
    """`anew`: what was read before no longer holds.  `is_last`: it holds now."""

    rows: list[Row]
    mark: Mark
    anew: bool
    is_last: bool


class Found(msgspec.Struct, frozen=True):
    """A discovery that resembles; the `weight` is its relevance times its decay."""

    similarity: float
    id: str
    source: str
    source_id: str
    title: str
    summary: str
    url: str
    weight: int
    status: str
    discovered_at: int
    version: int

    @property
    def effective(self) -> int:
        return self.weight // ONE


def question(conn: sqlite3.Connection, wanted: Wanted, settings: Settings) -> Question:
    vector = wanted.vector if wanted.like is None else _stored(conn, wanted.like)
    assert vector is not None
    rest = sieve(wanted, settings), wanted.min_score, wanted.limit, settings
    if wanted.source is not None:
        vectors.check_dimension(conn, wanted.source, vector)
        return Question(vector, [wanted.source], [], *rest)
    dimensions: dict[str, int] = dict(
        conn.execute("SELECT source, dimension FROM embedding_sources ORDER BY source").fetchall()
    )
    own = len(vector) // 4
    fitting = [source for source, dimension in dimensions.items() if dimension == own]
    if dimensions and not fitting:
        known = ", ".join(str(number) for number in sorted(set(dimensions.values()))[:10])
        raise DimensionMismatch(
            f"the embedding has {own} numbers, and no source has that many, but {known}"
        )
    others = [source for source in dimensions if source not in fitting]
    return Question(vector, fitting, others, *rest)


def sieve(wanted: Wanted, settings: Settings) -> Sieve:
    low, high = 0, ONE * ONE + 1
    if wanted.tier is not None:
        low, high = tiers.bounds(wanted.tier, settings)
    statuses = {wanted.status} if wanted.status else set(STATUSES)
    if not (wanted.status or wanted.include_dismissed):
        statuses.remove("dismissed")
    return Sieve(low, high, frozenset(statuses), wanted.like or "")


def _stored(conn: sqlite3.Connection, discovery_id: str) -> bytes:
    row = conn.execute(
        "SELECT e.vector FROM discoveries d LEFT JOIN embeddings e ON e.discovery_id = d.id"
        " WHERE d.id = ?",
        (discovery_id,),
    ).fetchone()
    if row is None:
        raise DiscoveryNotFound(f"discovery not found: {discovery_id}")
    if row[0] is None:
        raise NoEmbedding(f"discovery {discovery_id} has no embedding")
    return bytes(row[0])


_PAGE = """
SELECT d.id, d.version, d.source, d.relevance * d.decay, d.status, e.vector
FROM discoveries d LEFT JOIN embeddings e ON e.discovery_id = d.id
WHERE (d.version, d.id) > (?1, ?2) ORDER BY d.version, d.id LIMIT ?3
"""


def page(conn: sqlite3.Connection, mark: Mark) -> Page:
    """The discoveries that changed after the mark, the longest unchanged first."""
    counts = dict(
        conn.execute(
            "SELECT name, value FROM counters WHERE name IN ('discoveries', 'discoveries_deleted')"
        ).fetchall()
    )
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


_FETCH = """
SELECT id, source, source_id, title, summary, url, relevance * decay, status, discovered_at, version
FROM discoveries WHERE id = ?
"""


def fetch(conn: sqlite3.Connection, best: list[tuple[str, float]]) -> list[Found]:
    """What there is to show of them; those that are gone are left out."""
    found = []
    for name, similarity in best:
        row = conn.execute(_FETCH, (name,)).fetchone()
        if row is not None:
            found.append(Found(similarity, *row))
    return found


# ?1 source, ?2 bytes of a vector, ?3 and ?4 the weights, ?5 the statuses, ?6 the one left out
_SCAN = """
SELECT d.id, e.vector FROM embeddings e JOIN discoveries d ON d.id = e.discovery_id
WHERE e.source = ?1 AND length(e.vector) = ?2 AND d.id <> ?6
  AND d.relevance * d.decay >= ?3 AND d.relevance * d.decay < ?4
  AND d.status IN (SELECT value FROM json_each(?5))
"""


def scan(conn: sqlite3.Connection, asked: Question, check: Callable[[], None]) -> list[Found]:
    """The whole search in one transaction, page by page; `check` may end it between two pages."""
    query, sieve = Query(asked.vector), asked.sieve
    best = Best(query, asked.limit, asked.min_score)
    statuses = msgspec.json.encode(sorted(sieve.statuses)).decode()
    size = len(asked.vector)
    for source in asked.sources:
        rows = conn.execute(_SCAN, (source, size, sieve.low, sieve.high, statuses, sieve.without))
        while found := rows.fetchmany(max(1, PAGE_BYTES // size)):
            check()
            new = Rows([vector for _, vector in found], query.dimension)
            best.offer(new.values, new.norms, [name for name, _ in found])
    return fetch(conn, best.found)
