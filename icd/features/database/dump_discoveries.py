"""Discoveries, what belongs to them and the profile, taken in from the lines of an export.

Invariants, beside those of `dumps`
    - of two discoveries of one id, the one that is further in its life wins, else the one that is
      here; versions count the changes of a single database and say nothing about another's;
    - one that is here under another id is the same find: it stays, and what belongs to the other
      is left out; so does one whose id is here for another find;
    - texts are taken in as they are: scanners submit what they see, and so it is in an export;
    - a version never repeats: discoveries get new ones, above those of both databases;
    - an embedding is taken in where there is none, if it has the dimension of its source here;
    - feedback is added until the very same is here as often as in the file;
    - of two profiles the later one wins, under a version that neither had.

Callers run these inside a transaction.
"""

import sqlite3

from msgspec import structs

from icd.errors import DimensionMismatch, UnreadableInput
from icd.features.database.dump_lines import (
    Discovery,
    Embedding,
    EmbeddingSource,
    Feedback,
    Profile,
)
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import vectors, weights
from icd.values import payloads
from icd.values import validation as names

# What has been decided is not undone by a file in which it has not.
_LIFE = ("new", "scored", "proposed", "promoted", "dismissed")

_NEXT = "UPDATE counters SET value = value + 1 WHERE name = 'discoveries' RETURNING value"
_STATUS = "SELECT status FROM discoveries WHERE id = ?"
_NAMED = "SELECT id, source, source_id FROM discoveries WHERE id = ?"
_SAME = "SELECT id, source, source_id FROM discoveries WHERE source = ? AND source_id = ?"
# REPLACE would delete its embedding.
_PUT = """
INSERT INTO discoveries (id, source, source_id, title, summary, url, raw_metadata, relevance, decay,
                         status, run_id, bead_id, discovered_at, discovered_ms, decayed_ms,
                         promoted_at, reviewed_at, dismissed_ms, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    title = excluded.title, summary = excluded.summary, url = excluded.url,
    raw_metadata = excluded.raw_metadata,
    relevance = excluded.relevance, decay = excluded.decay, status = excluded.status,
    run_id = excluded.run_id, bead_id = excluded.bead_id,
    discovered_at = excluded.discovered_at, discovered_ms = excluded.discovered_ms,
    decayed_ms = excluded.decayed_ms, promoted_at = excluded.promoted_at,
    reviewed_at = excluded.reviewed_at, dismissed_ms = excluded.dismissed_ms,
    version = excluded.version
"""
_PUT_SOURCE = """
INSERT INTO embedding_sources (source, dimension) VALUES (?, ?) ON CONFLICT (source) DO NOTHING
"""
_BARE = """
SELECT source FROM discoveries
WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM embeddings WHERE discovery_id = ?1)
"""
_TOUCH = "UPDATE discoveries SET version = ? WHERE id = ?"
_EQUAL = """
SELECT count(*) FROM feedback_signals
WHERE discovery_id = ? AND signal_type = ? AND signal_data = ? AND actor = ? AND created_at = ?
"""
_PUT_FEEDBACK = """
INSERT INTO feedback_signals (discovery_id, signal_type, signal_data, actor, created_at)
VALUES (?, ?, ?, ?, ?)
"""


def take_in(
    conn: sqlite3.Connection,
    line: Discovery | EmbeddingSource | Embedding | Feedback | Profile,
    *,
    brought: set[str],
) -> bool:
    """Whether the row was written; `brought` is added to, see `dumps.take_in`."""
    match line:
        case Discovery():
            return _take_discovery(conn, line)
        case EmbeddingSource():
            names.check_name(line.source)
            return conn.execute(_PUT_SOURCE, structs.astuple(line)).rowcount > 0
        case Embedding():
            return _take_embedding(conn, line)
        case Feedback():
            return _take_feedback(conn, line, brought=brought)
        case Profile():
            return _take_profile(conn, line)


def _take_discovery(conn: sqlite3.Connection, line: Discovery) -> bool:
    for name in (line.id, line.source, line.source_id):
        names.check_name(name)
    _check_json("raw_metadata", line.raw_metadata)
    if _is_taken(conn, line):
        return False
    there = conn.execute(_STATUS, (line.id,)).fetchone()
    if there is not None and _LIFE.index(there[0]) >= _LIFE.index(line.status):
        return False
    line.version = _next(conn)
    conn.execute(_PUT, structs.astuple(line))
    return True


def _is_taken(conn: sqlite3.Connection, line: Discovery) -> bool:
    """It is here under another id, or its id is that of another find.

    A discovery never changes its source: its embedding, and whoever compares with that, rely on it.
    """
    mine = line.id, line.source, line.source_id
    here = conn.execute(_SAME, mine[1:]).fetchall() + conn.execute(_NAMED, mine[:1]).fetchall()
    return any(row != mine for row in here)


def _take_embedding(conn: sqlite3.Connection, line: Embedding) -> bool:
    vectors.parse(line.vector)
    bare = conn.execute(_BARE, (line.discovery_id,)).fetchone()
    if bare is None:
        return False
    try:
        vectors.store(conn, line.discovery_id, bare[0], line.vector)
    except DimensionMismatch:
        return False
    # Whoever keeps vectors in memory looks at versions.
    conn.execute(_TOUCH, (_next(conn), line.discovery_id))
    return True


def _take_feedback(conn: sqlite3.Connection, line: Feedback, *, brought: set[str]) -> bool:
    names.check_name(line.signal_type)
    names.check_scope(line.actor)
    _check_json("signal_data", line.signal_data)
    if conn.execute(_STATUS, (line.discovery_id,)).fetchone() is None:
        return False
    signal = structs.astuple(line)[1:]
    (here,) = conn.execute(_EQUAL, signal).fetchone()
    if here >= _times(signal, brought):
        return False
    conn.execute(_PUT_FEEDBACK, signal)
    return True


def _times(signal: tuple[object, ...], brought: set[str]) -> int:
    """How often the file has had it by now; no run can be called like this."""
    times = 1
    while (mark := f"\0{times}{signal!r}") in brought:
        times += 1
    brought.add(mark)
    return times


def _take_profile(conn: sqlite3.Connection, line: Profile) -> bool:
    keywords = weights.check(line.keyword_weights.encode())
    sources = weights.check(line.source_weights.encode())
    topic = None if line.topic_vector is None else vectors.parse(line.topic_vector)
    there = profiles.get(conn)
    if there.version and there.updated_at >= line.updated_at:
        return False
    version = max(there.version + 1, line.version)
    profiles.put(conn, profiles.Profile(version, topic, keywords, sources, line.updated_at))
    return True


def _next(conn: sqlite3.Connection) -> int:
    (number,) = conn.execute(_NEXT).fetchone()
    return int(number)


def _check_json(column: str, text: str) -> None:
    """No more than that: the original stored what our own commands may not."""
    if not payloads.is_json(text):
        raise UnreadableInput(f"{column} is not JSON")
