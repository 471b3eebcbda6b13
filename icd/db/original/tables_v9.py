"""Databases of the original Go program, schema v1 to v9: taken over in place.

The caller has made a backup and is inside a transaction.  `state` and `sentinels` are rebuilt in
our shape, and events are copied into the log; runs.py and discoveries.py bring over the rest.

What the original did not store, we assume on the safe side: an unknown interval is never pruned,
and a claim that was recorded as second S may have happened at its very end.
"""

import json
import sqlite3
from collections.abc import Iterator

from icd.db.original.rows import LAST_SECOND, exists, lenient, text

LAST_SCHEMA = 9


def is_original(application_id: int, user_version: int) -> bool:
    return application_id == 0 and user_version > 0


def has_its_tables(conn: sqlite3.Connection) -> bool:
    """Any program may count its schema from one; only the original has these two tables."""
    (found,) = conn.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('state', 'sentinels')"
    ).fetchone()
    return bool(found == 2)


def set_aside(conn: sqlite3.Connection) -> None:
    """Free the names that our first migration needs."""
    conn.execute("ALTER TABLE state RENAME TO original_state")
    conn.execute("ALTER TABLE sentinels RENAME TO original_sentinels")


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


def bring_over(conn: sqlite3.Connection) -> None:
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


def bring_events(conn: sqlite3.Connection) -> None:
    """Copy the events of the original into the log, in the order in which it showed them."""
    with lenient(conn):
        rows = [row for table in _EVENTS for row in _events(conn, table)]
    rows.sort(key=lambda row: (row[-2], row[0], row[1]))
    conn.executemany(_KEEP_EVENT, rows)
    if rows:
        conn.execute(_GO_ON_AFTER)


def _events(conn: sqlite3.Connection, table: str) -> Iterator[tuple[object, ...]]:
    for row in conn.execute(_EVENTS[table]) if exists(conn, table) else ():
        number, *words, a, first, b, second, session, project, at = row
        pairs = {str(name): text(value) for name, value in ((a, first), (b, second)) if name}
        told = {name: value for name, value in pairs.items() if value}
        payload = (json.dumps(told) if told else None) if a else _json(text(first))
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


def _json(given: str) -> str | None:
    """The value as JSON; what is no JSON becomes a string."""
    try:
        json.loads(given)
    except (ValueError, RecursionError):
        return json.dumps(given) if given else None
    return given
