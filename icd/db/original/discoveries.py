"""Discoveries, feedback and the interest profile of the original Go program, brought over.

- Scores become millionths, within [0, 1]; what its decay took from them stays taken.
- A discovery that was dismissed counts as dismissed when it was reviewed, else now: it is unknown.
- A vector that is none, or of another dimension than the first of its source, is left out; so are
  weights that are no numbers, and feedback about what is not there.

Its events are in the log already; its table of them is dropped with the rest.
"""

import math
import re
import sqlite3
import struct

import msgspec

from icd.db.original.rows import Row, put, rows

TABLES = ("discoveries", "feedback_signals", "interest_profile")

_MILLION = 1_000_000
_STATUSES = {"new", "scored", "proposed", "promoted", "dismissed"}
# As our own commands have them: what is stored must be read, exported and taken in again.
MAX_DIMENSION = 16_384
MAX_WEIGHTS = 1000
MAX_WEIGHT = 1_000_000
# With so many characters of four bytes, all of them are less than a payload.
_NAME_CHARACTERS = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def bring_over(conn: sqlite3.Connection, *, now_ms: int) -> None:
    """Copy what was set aside, then drop it."""
    _bring_discoveries(conn, now_ms=now_ms)
    _bring_feedback(conn)
    _bring_profile(conn)
    for table in ("discovery_events", *(f"original_{table}" for table in TABLES)):
        conn.execute(f"DROP TABLE IF EXISTS {table}")


_SOURCE = """
INSERT INTO embedding_sources (source, dimension) VALUES (?, ?) ON CONFLICT (source) DO NOTHING
"""
_EMBEDDING = """
INSERT INTO embeddings (discovery_id, source, vector)
SELECT ?1, ?2, ?3 WHERE (SELECT dimension FROM embedding_sources WHERE source = ?2) = ?4
"""


def _bring_discoveries(conn: sqlite3.Connection, *, now_ms: int) -> None:
    version = 0
    for row in rows(conn, "original_discoveries"):
        found = _discovery(row, version=version + 1, now_ms=now_ms)
        # What is one find for us may have been two: a text, and bytes that spell it.
        if put(conn, "discoveries", found, "ON CONFLICT (source, source_id) DO NOTHING"):
            version += 1
            _bring_vector(conn, row.word("id"), str(found["source"]), row.blob("embedding"))
    conn.execute("UPDATE counters SET value = ? WHERE name = 'discoveries'", (version,))


def _discovery(row: Row, *, version: int, now_ms: int) -> dict[str, object]:
    status, discovered = row.text("status", "new"), row.seconds("discovered_at")
    reviewed = row.seconds("reviewed_at")
    return {
        "id": row.word("id"),
        "source": row.word("source", "unknown"),
        "source_id": row.word("source_id") or row.word("id"),
        "title": row.text("title"),
        "summary": row.text("summary"),
        "url": row.text("url"),
        "raw_metadata": row.json("raw_metadata", "{}"),
        "relevance": round(min(max(row.real("relevance_score"), 0), 1) * _MILLION),
        "decay": _MILLION,
        "status": status if status in _STATUSES else "new",
        "run_id": row.word("run_id") or None,
        "bead_id": row.word("bead_id") or None,
        "discovered_at": discovered,
        "discovered_ms": discovered * 1000,
        "promoted_at": row.seconds("promoted_at") or None,
        "reviewed_at": reviewed or None,
        "dismissed_ms": (reviewed * 1000 or now_ms) if status == "dismissed" else None,
        "version": version,
    }


def _bring_vector(conn: sqlite3.Connection, discovery_id: str, source: str, vector: bytes) -> None:
    if _is_vector(vector):
        conn.execute(_SOURCE, (source, len(vector) // 4))
        conn.execute(_EMBEDDING, (discovery_id, source, vector, len(vector) // 4))


def _bring_feedback(conn: sqlite3.Connection) -> None:
    known = {found for (found,) in conn.execute("SELECT id FROM discoveries")}
    for row in rows(conn, "original_feedback_signals"):
        signal: dict[str, object] = {
            "discovery_id": row.word("discovery_id"),
            "signal_type": row.word("signal_type", "unknown"),
            "signal_data": row.json("signal_data", "{}"),
            "actor": row.word("actor", "system"),
            "created_at": row.seconds("created_at"),
        }
        if signal["discovery_id"] in known:
            put(conn, "feedback_signals", signal)


def _bring_profile(conn: sqlite3.Connection) -> None:
    for row in rows(conn, "original_interest_profile"):
        topic = row.blob("topic_vector")
        profile: dict[str, object] = {
            "id": 1,
            "version": 1,
            "topic_vector": topic if _is_vector(topic) else None,
            "keyword_weights": _weights(row.text("keyword_weights")),
            "source_weights": _weights(row.text("source_weights")),
            "updated_at": row.seconds("updated_at"),
        }
        put(conn, "interest_profile", profile)


def _is_vector(data: bytes) -> bool:
    """Whole floats, each of them a number, and not all of them zero."""
    count, rest = divmod(len(data), 4)
    if rest or not 0 < count <= MAX_DIMENSION:
        return False
    numbers = struct.unpack(f"<{count}f", data)
    return all(map(math.isfinite, numbers)) and any(numbers)


def _weights(text: str) -> str:
    """Those that are numbers, under names that can be shown."""
    try:
        given = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return "{}"
    good = [(name, weight) for name, weight in given.items() if _is_weight(name, weight)]
    return msgspec.json.encode(dict(good[:MAX_WEIGHTS])).decode()


def _is_weight(name: str, weight: object) -> bool:
    is_name = 0 < len(name) <= _NAME_CHARACTERS and not _CONTROL.search(name)
    is_number = type(weight) in {int, float}
    return is_name and is_number and abs(weight) <= MAX_WEIGHT  # type: ignore[arg-type]
