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
from typing import Literal

from msgspec import Struct

from icd.config import Settings
from icd.features.discoveries import store, tiers
from icd.features.discoveries.store import Told
from icd.features.discoveries.vectors import Batch
from icd.values.validation import new_id
from icd.values.wire import Result


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


class Submitted(Result):
    """`id`: of the discovery that is new, or that was there."""

    id: str
    verdict: Literal["new", "deduped", "duplicate"]


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
    among: Batch | None = None,
    settings: Settings,
    told: Told,
) -> Submitted:
    """Store it, unless there is no need to.  `threshold` 0: it is compared with nothing.

    `among` keeps embeddings in memory, for many submissions.
    """
    known = conn.execute(_KNOWN, (given.source, given.source_id)).fetchone()
    if known:
        return Submitted(known[0], "duplicate")
    among = among or Batch(conn, keeps=False)
    if given.embedding is not None and threshold > 0:
        similar = among.nearest(given.source, given.embedding, threshold=threshold)
        if similar is not None:
            _tell_deduped(conn, given, similar, told)
            return Submitted(similar, "deduped")
    return Submitted(_store(conn, given, among, settings, told), "new")


def _store(
    conn: sqlite3.Connection, given: Submission, among: Batch, settings: Settings, told: Told
) -> str:
    name = new_id(store.ID_CHARACTERS)
    texts = (given.source, given.source_id, given.title, given.summary, given.url, given.metadata)
    rest = (given.relevance, told.at, told.now_ms, store.bump(conn))
    conn.execute(_INSERT, (name, *texts, *rest))
    if given.embedding is not None:
        among.add(name, given.source, given.embedding)
    payload = {
        "id": name,
        "score": tiers.shown(given.relevance),
        "source": given.source,
        "tier": tiers.tier(given.relevance, settings),
        "title": given.title,
    }
    store.tell(conn, "discovery.submitted", name, payload, told, change=("", "new"))
    return name


def _tell_deduped(conn: sqlite3.Connection, given: Submission, similar: str, told: Told) -> None:
    payload = {"existing_id": similar, "new_source_id": given.source_id, "source": given.source}
    store.tell(conn, "discovery.deduped", similar, payload, told)
