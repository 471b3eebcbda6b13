"""What scanners submit: a discovery, unless it is known already or resembles one that is.

Invariants
    - whether something is known is decided in the transaction that stores it: of all who submit
      the same, or what resembles each other, at once, one stores it;
    - what the same source submitted under the same id is a duplicate and changes nothing, whatever
      it looks like by now;
    - what resembles a discovery of the same source, whatever became of that one, leaves an event
      and nothing else.
"""

import sqlite3
from typing import Literal, Protocol

from msgspec import Struct

from icd.config import Settings
from icd.features.discoveries import store as discoveries
from icd.features.discoveries import tiers, vectors
from icd.features.discoveries.store import Told
from icd.values import ids

Outcome = Literal["new", "deduped", "duplicate"]


class Submission(Struct, frozen=True, kw_only=True):
    """`metadata` is JSON that was checked already; `relevance` is in millionths."""

    source: str
    source_id: str
    title: str
    summary: str = ""
    url: str = ""
    metadata: str = "{}"
    relevance: int = 0
    embedding: bytes | None = None


class Verdict(Struct, frozen=True):
    """`id`: of the discovery that there is now, or that there was."""

    id: str
    verdict: Outcome


class Comparing(Protocol):
    """Embeddings of discoveries, as `vectors.Batch` keeps them for many submissions."""

    def nearest(self, source: str, vector: bytes, *, threshold: float) -> str | None: ...

    def add(self, discovery_id: str, source: str, vector: bytes) -> None: ...


class OneByOne:
    """The same for a single submission."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def nearest(self, source: str, vector: bytes, *, threshold: float) -> str | None:
        return vectors.nearest(self._conn, source, vector, threshold=threshold)

    def add(self, discovery_id: str, source: str, vector: bytes) -> None:
        vectors.store(self._conn, discovery_id, source, vector)


_KNOWN = "SELECT id FROM discoveries WHERE source = ? AND source_id = ?"
_INSERT = """
INSERT INTO discoveries (id, source, source_id, title, summary, url, raw_metadata, relevance, decay,
                         status, discovered_at, discovered_ms, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1000000, 'new', ?, ?, ?)
"""


def submit(
    conn: sqlite3.Connection,
    given: Submission,
    *,
    threshold: float = 0.0,
    among: Comparing | None = None,
    settings: Settings,
    told: Told,
) -> Verdict:
    """Store it, unless there is no need to.  `threshold` 0: it is compared with nothing."""
    known = conn.execute(_KNOWN, (given.source, given.source_id)).fetchone()
    if known:
        return Verdict(known[0], "duplicate")
    among = among or OneByOne(conn)
    if given.embedding is not None and threshold > 0:
        similar = among.nearest(given.source, given.embedding, threshold=threshold)
        if similar is not None:
            _tell_deduped(conn, given, similar, told)
            return Verdict(similar, "deduped")
    return Verdict(_store(conn, given, among, settings, told), "new")


def _store(
    conn: sqlite3.Connection,
    given: Submission,
    among: Comparing,
    settings: Settings,
    told: Told,
) -> str:
    name = ids.new(discoveries.ID_CHARACTERS)
    texts = (given.source, given.source_id, given.title, given.summary, given.url, given.metadata)
    rest = (given.relevance, told.at, told.now_ms, discoveries.bump(conn))
    conn.execute(_INSERT, (name, *texts, *rest))
    if given.embedding is not None:
        among.add(name, given.source, given.embedding)
    payload: dict[str, object] = {
        "id": name,
        "score": tiers.shown(given.relevance),
        "source": given.source,
        "tier": tiers.tier(given.relevance, settings),
        "title": given.title,
    }
    discoveries.tell(conn, "discovery.submitted", name, payload, told, change=("", "new"))
    return name


def _tell_deduped(conn: sqlite3.Connection, given: Submission, similar: str, told: Told) -> None:
    payload: dict[str, object] = {
        "existing_id": similar,
        "new_source_id": given.source_id,
        "source": given.source,
    }
    discoveries.tell(conn, "discovery.deduped", similar, payload, told)
