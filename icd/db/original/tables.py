"""Databases of the original Go program, schema v1 to v9: their tables, brought into ours in place.

Its columns came with its versions, and some of its own upgrades left them out; they hold whatever
was put into them.  What is missing, of another type or out of range has its default: no row makes
an upgrade fail.  Where it did not store something, we assume the safe side: an unknown interval is
never pruned, and a claim that was recorded as second S may have happened at its very end.

The caller has made a backup and is inside a transaction.  runs.py brings over runs and what belongs
to them.  Events are copied into the log; their tables are dropped with the rest.
"""

import json
import math
import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from icd.db.rows import is_json

# --- rows, read without trust ---------------------------------------------------------------------

# The year 9999: the last one that RFC 3339 can show.
LAST_SECOND = 253_402_300_799
# Sums of a few of these still fit into a column.
_LARGEST = 2**62

# Characters, of up to four bytes: the names of ours have at most 4096.
_WORD = 1000

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Row(Struct, frozen=True):
    values: dict[str, object]

    def text(self, name: str, default: str = "") -> str:
        return text(self.values.get(name)) or default

    def word(self, name: str, default: str = "") -> str:
        """A text that is shown in lines and columns."""
        return _CONTROL.sub("\ufffd", self.text(name)[:_WORD]) or default

    def number(self, name: str, default: int = 0, least: int = 0, most: int = _LARGEST) -> int:
        value = self.values.get(name)
        return value if isinstance(value, int) and least <= value <= most else default

    def real(self, name: str) -> float:
        """A number of any kind, if it is one; SQLite stores what is not as NULL."""
        value = self.values.get(name)
        return value if isinstance(value, (int, float)) else 0.0

    def blob(self, name: str) -> bytes:
        value = self.values.get(name)
        return value if isinstance(value, bytes) else b""

    def json(self, name: str, default: str) -> str:
        return _json(self.text(name, default))

    def seconds(self, name: str, default: int = 0) -> int:
        return self.number(name, default, most=LAST_SECOND)


def rows(conn: sqlite3.Connection, table: str) -> list[Row]:
    """One for each id, the newest, in the order of their creation; none if there is no table."""
    found = sorted(every(conn, table), key=lambda row: row.seconds("created_at"))
    return list({row.word("id"): row for row in found if row.word("id")}.values())


def every(conn: sqlite3.Connection, table: str) -> list[Row]:
    """All rows of a table, whatever they say; none if there is no table."""
    if not exists(conn, table):
        return []
    with lenient(conn):
        found = conn.execute(f"SELECT * FROM {table} ORDER BY rowid")  # noqa: S608 -- ours
        names = [column[0] for column in found.description]
        return [Row(dict(zip(names, row, strict=True))) for row in found]


def exists(conn: sqlite3.Connection, table: str) -> bool:
    found = conn.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    return found is not None


def set_aside(conn: sqlite3.Connection, tables: tuple[str, ...]) -> None:
    """Free the names that our tables need; a database of ours has none of them."""
    for table in tables:
        if exists(conn, table):
            conn.execute(f"ALTER TABLE {table} RENAME TO original_{table}")


def put(
    conn: sqlite3.Connection, table: str, values: dict[str, object], conflict: str = ""
) -> bool:
    """Insert a row by the names of its columns; whether it was inserted."""
    marks = ", ".join(f":{name}" for name in values)
    text = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks}) {conflict}"  # noqa: S608
    return conn.execute(text, values).rowcount > 0


@contextmanager
def lenient(conn: sqlite3.Connection) -> Iterator[None]:
    """Read texts that are no UTF-8, too."""
    before = conn.text_factory
    conn.text_factory = text
    try:
        yield
    finally:
        conn.text_factory = before


def text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _json(given: str) -> str:
    """What is no JSON after all becomes a string."""
    return given if not given or is_json(given) else json.dumps(given)


# --- state, sentinels and events ------------------------------------------------------------------

# Its columns hold whatever was put into them; a text may even be no UTF-8, which we could not read.
_STATE = """
SELECT key, scope_id, payload, row_number() OVER (ORDER BY key, scope_id),
       min(max(CAST(updated_at AS INTEGER), 0), :last),
       min(max(CAST(expires_at AS INTEGER), 0), :last),
       min(max(CAST(expires_at AS INTEGER), 0), :last) * 1000
FROM original_state
"""
_SENTINELS = """
SELECT name, scope_id, min(max(CAST(last_fired AS INTEGER), 0), :last),
       min(max(CAST(last_fired AS INTEGER), 0), :last) * 1000 + 999
FROM original_sentinels
"""
# What we store as one name may have been two: a text, and bytes that spell it.
_PUT_STATE = """
INSERT INTO state (key, scope_id, payload, version, updated_at, expires_at, expires_ms)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key, scope_id) DO NOTHING
"""
_PUT_SENTINEL = """
INSERT INTO sentinels (name, scope_id, last_fired, fired_ms, interval_ms, once)
VALUES (?, ?, ?, ?, 0, 0)
ON CONFLICT (name, scope_id) DO NOTHING
"""


def bring_state(conn: sqlite3.Connection) -> None:
    """Copy the rows that were set aside, then drop the old tables."""
    last = {"last": LAST_SECOND}
    with lenient(conn):
        state, sentinels = conn.execute(_STATE, last), conn.execute(_SENTINELS, last)
        conn.executemany(_PUT_STATE, ((*map(text, row[:3]), *row[3:]) for row in state))
        conn.executemany(_PUT_SENTINEL, ((*map(text, row[:2]), *row[2:]) for row in sentinels))
    conn.execute(
        "UPDATE counters SET value = (SELECT count(*) FROM original_state) WHERE name = 'state'"
    )
    conn.execute("DROP TABLE original_state")
    conn.execute("DROP TABLE original_sentinels")
    conn.execute("DROP TABLE IF EXISTS _migrate_lock")


# Each as: id, type, run, subject, from, to, reason, payload, session, project, at.
# A payload is two names with their values, or a value without a name: it is JSON already.
_EVENTS = {
    "phase_events": """
        SELECT id, event_type, run_id, '', from_phase, to_phase, reason,
               'gate_result', gate_result, 'gate_tier', gate_tier, NULL, NULL, created_at
        FROM phase_events
    """,
    "dispatch_events": """
        SELECT id, event_type, run_id, dispatch_id, from_status, to_status, reason,
               NULL, NULL, NULL, NULL, NULL, NULL, created_at
        FROM dispatch_events
    """,
    "interspect_events": """
        SELECT id, event_type, run_id, agent_name, '', '', override_reason,
               'agent_name', agent_name, 'context_json', context_json, session_id, project_dir,
               created_at
        FROM interspect_events
    """,
    "discovery_events": """
        SELECT id, event_type, '', discovery_id, from_status, to_status, '',
               NULL, payload, NULL, NULL, NULL, NULL, created_at
        FROM discovery_events
    """,
}
_KEEP_EVENT = """
INSERT INTO events (source, source_id, type, run_id, subject_id, from_state, to_state, reason,
                    payload, actor_session, project_dir, at, at_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# Later events must be later by the original's ids, too.
_GO_ON_AFTER = """
UPDATE sqlite_sequence SET seq = max(seq, (SELECT max(source_id) FROM events))
WHERE name = 'events'
"""


def bring_events(conn: sqlite3.Connection, others: Iterable[tuple[Any, ...]] = ()) -> None:
    """Copy the events of the original into the log, in the order in which it showed them.

    `others` are rows of the log from its later tables.
    """
    with lenient(conn):
        rows = [row for table in _EVENTS for row in _events(conn, table)]
    rows.extend(others)
    rows.sort(key=lambda row: (row[-2], row[0], row[1]))
    conn.executemany(_KEEP_EVENT, rows)
    if rows:
        conn.execute(_GO_ON_AFTER)


def _events(conn: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    for row in conn.execute(_EVENTS[table]) if exists(conn, table) else ():
        number, *words, a, first, b, second, session, project, at = row
        pairs = {str(name): text(value) for name, value in ((a, first), (b, second)) if name}
        told = {name: value for name, value in pairs.items() if value}
        payload = (json.dumps(told) if told else None) if a else _json(text(first)) or None
        seconds = at if isinstance(at, int) and 0 <= at <= LAST_SECOND else 0
        yield (
            table.removesuffix("_events"),
            number,
            *map(text, words),
            payload,
            text(session) or None,
            text(project) or None,
            seconds,
            seconds * 1000,
        )


# --- discoveries, feedback and the interest profile -----------------------------------------------

# - Scores become millionths, within [0, 1]; what its decay took from them stays taken.
# - A discovery that was dismissed counts as dismissed since its review, else since now.
# - A vector that is none, or of another dimension than the first of its source, is left out; so are
#   weights that are no numbers, and feedback about what is not there.

DISCOVERIES = ("discoveries", "feedback_signals", "interest_profile")

_MILLION = 1_000_000
_STATUSES = {"new", "scored", "proposed", "promoted", "dismissed"}
# As our own commands have them: what is stored must be read, exported and taken in again.
MAX_DIMENSION = 16_384
MAX_WEIGHTS = 1000
MAX_WEIGHT = 1_000_000
# With so many characters of four bytes, all of them are less than a payload.
_NAME_CHARACTERS = 200


def bring_discoveries(conn: sqlite3.Connection, *, now_ms: int) -> None:
    """Copy what was set aside, then drop it."""
    _bring_finds(conn, now_ms=now_ms)
    _bring_feedback(conn)
    _bring_profile(conn)
    for table in ("discovery_events", *(f"original_{table}" for table in DISCOVERIES)):
        conn.execute(f"DROP TABLE IF EXISTS {table}")


_SOURCE = """
INSERT INTO embedding_sources (source, dimension) VALUES (?, ?) ON CONFLICT (source) DO NOTHING
"""
_EMBEDDING = """
INSERT INTO embeddings (discovery_id, source, vector)
SELECT ?1, ?2, ?3 WHERE (SELECT dimension FROM embedding_sources WHERE source = ?2) = ?4
"""


def _bring_finds(conn: sqlite3.Connection, *, now_ms: int) -> None:
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
