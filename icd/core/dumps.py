"""Every row as a line that can be kept anywhere, and taken in again.

Invariants
    - taking in the same lines twice changes nothing the second time;
    - of two rows of one name the later one wins, of two as late the one that is there; a sentinel
      that was claimed once and for all wins over any other claim;
    - a row that has expired is not taken in;
    - a version never repeats: rows of state get new ones, above those of both databases;
    - an event keeps its number and is taken in only beyond the end of the log: what consumers have
      read stays as they have read it.

Callers run these inside a transaction; the tables are listed in the order that this needs.
"""

import sqlite3
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from icd import __version__
from icd.core import events, names, payloads, sentinels, state
from icd.db import migrate
from icd.errors import SchemaTooNew, UnreadableInput

_Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**62)]
# The year 9999: the last one that RFC 3339 can show.
_Seconds = Annotated[int, Meta(ge=0, le=253_402_300_799)]
_Milliseconds = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]


class _Line(Struct, tag_field="kind", forbid_unknown_fields=True):
    """A row of the table that `kind` names; its fields are the columns."""


class Header(_Line, tag="header", forbid_unknown_fields=False):
    """Always the first line; a later intercore may say more in it, and still be told apart."""

    format: Literal["intercore-export"]
    schema: int
    program: str


class Migration(_Line, tag="migrations"):
    version: int
    program: str
    applied_at: _Seconds


class Counter(_Line, tag="counters"):
    name: Literal["state", "events_pruned"]
    value: _Count


class State(_Line, tag="state"):
    key: str
    scope_id: str
    payload: str
    version: _Count
    updated_at: _Seconds
    expires_at: _Seconds | None
    expires_ms: _Milliseconds | None
    writer_pid: _Int | None
    writer_session: str | None


class Sentinel(_Line, tag="sentinels"):
    name: str
    scope_id: str
    last_fired: _Seconds
    fired_ms: _Milliseconds
    interval_ms: _Count
    once: Literal[0, 1]
    prune_ms: _Count | None
    claim_ms: _Count | None
    request_id: str | None


class Request(_Line, tag="requests"):
    id: str
    method: str
    digest: _Int
    effect: str
    at_ms: _Milliseconds


class Event(_Line, tag="events"):
    seq: _Count
    source: str
    type: str
    run_id: str
    subject_id: str
    from_state: str
    to_state: str
    reason: str
    payload: str | None
    at: _Seconds
    at_ms: _Milliseconds
    actor_pid: _Int | None
    actor_uid: _Int | None
    actor_session: str | None
    trace_id: str | None
    span_id: str | None
    project_dir: str | None
    source_id: _Count | None
    idempotency_key: str | None


class Cursor(_Line, tag="cursors"):
    consumer: str
    run_id: str
    seq: _Count
    updated_at: _Seconds
    updated_ms: _Milliseconds
    expires_ms: _Milliseconds | None


class HookPosition(_Line, tag="hook_positions"):
    hook: str
    seq: _Count
    started: _Count


class End(_Line, tag="end"):
    """Always the last line: what ends without it was cut off."""


Line = (
    Header | Migration | Counter | State | Sentinel | Request | Event | Cursor | HookPosition | End
)

_STATE = """
SELECT key, scope_id, payload, version, updated_at, expires_at, expires_ms,
       writer_pid, writer_session
FROM state ORDER BY version
"""
_SENTINELS = """
SELECT name, scope_id, last_fired, fired_ms, interval_ms, once, prune_ms, claim_ms, request_id
FROM sentinels ORDER BY name, scope_id
"""
_EVENTS = """
SELECT seq, source, type, run_id, subject_id, from_state, to_state, reason, payload, at, at_ms,
       actor_pid, actor_uid, actor_session, trace_id, span_id, project_dir, source_id,
       idempotency_key
FROM events ORDER BY seq
"""
_CURSORS = """
SELECT consumer, run_id, seq, updated_at, updated_ms, expires_ms
FROM cursors ORDER BY consumer, run_id
"""
# Counters before state: what is taken in must not get a version that was in use over there.
TABLES: list[tuple[type[_Line], str]] = [
    (Migration, "SELECT version, program, applied_at FROM migrations ORDER BY version"),
    (Counter, "SELECT name, value FROM counters ORDER BY name"),
    (State, _STATE),
    (Sentinel, _SENTINELS),
    (Request, "SELECT id, method, digest, effect, at_ms FROM requests ORDER BY id"),
    (Event, _EVENTS),
    (Cursor, _CURSORS),
    (HookPosition, "SELECT hook, seq, started FROM hook_positions ORDER BY hook"),
]

_ROWS = """
SELECT (SELECT count(*) FROM migrations) + (SELECT count(*) FROM counters)
     + (SELECT count(*) FROM state) + (SELECT count(*) FROM sentinels)
     + (SELECT count(*) FROM requests) + (SELECT count(*) FROM events)
     + (SELECT count(*) FROM cursors) + (SELECT count(*) FROM hook_positions)
"""
_COUNT = """
INSERT INTO counters (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
"""
_NEXT = "UPDATE counters SET value = value + 1 WHERE name = 'state' RETURNING value"
_PUT_STATE = """
REPLACE INTO state (key, scope_id, payload, version, updated_at, expires_at, expires_ms,
                    writer_pid, writer_session)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_PUT_SENTINEL = """
REPLACE INTO sentinels (name, scope_id, last_fired, fired_ms, interval_ms, once, prune_ms,
                        claim_ms, request_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_PUT_REQUEST = """
INSERT INTO requests (id, method, digest, effect, at_ms) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
"""
_PUT_EVENT = """
INSERT INTO events (seq, source, type, run_id, subject_id, from_state, to_state, reason, payload,
                    at, at_ms, actor_pid, actor_uid, actor_session, trace_id, span_id,
                    project_dir, source_id, idempotency_key)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_PUT_CURSOR = """
INSERT INTO cursors (consumer, run_id, seq, updated_at, updated_ms, expires_ms)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (consumer, run_id) DO UPDATE SET
    seq = excluded.seq, updated_at = excluded.updated_at, updated_ms = excluded.updated_ms,
    expires_ms = excluded.expires_ms
WHERE excluded.updated_ms > cursors.updated_ms
"""
# What hooks had over there is not delivered here again, as far as its events were taken in.
_PUT_HOOK_POSITION = """
INSERT INTO hook_positions (hook, seq, started) VALUES (?, ?, 0)
ON CONFLICT (hook) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > seq
"""


def export(conn: sqlite3.Connection) -> Iterator[_Line]:
    """All lines, read as they are asked for."""
    yield Header("intercore-export", migrate.version(conn), __version__)
    for kind, select in TABLES:
        for row in conn.execute(select):
            yield kind(*row)
    yield End()


def rows(conn: sqlite3.Connection) -> int:
    """How many lines an export has, beside the first and the last."""
    (found,) = conn.execute(_ROWS).fetchone()
    return int(found)


def check_header(line: Line) -> None:
    if not isinstance(line, Header):
        raise UnreadableInput("the first line is no header", hint="name a file of 'icctl export'")
    if line.schema > migrate.LATEST:
        raise SchemaTooNew(
            f"it has schema v{line.schema}, newer than v{migrate.LATEST} of this intercore "
            f"{__version__}; it was written by intercore {line.program}",
            hint="upgrade intercore; nothing was imported",
        )
    if line.schema < migrate.LATEST:
        raise UnreadableInput(
            f"it has schema v{line.schema}, not v{migrate.LATEST}",
            hint="restore a backup of that time instead, which is upgraded",
        )


def take_in(conn: sqlite3.Connection, line: Line, *, now_ms: int) -> bool | None:
    """Whether the row was written; None if the line is about no row of anybody's."""
    match line:
        case State():
            return _take_state(conn, line, now_ms=now_ms)
        case Sentinel():
            return _take_sentinel(conn, line)
        case Request():
            return conn.execute(_PUT_REQUEST, structs.astuple(line)).rowcount > 0
        case Event():
            return _take_event(conn, line)
        case Cursor():
            return _take_cursor(conn, line, now_ms=now_ms)
        case HookPosition():
            position = line.hook, min(line.seq, events.head(conn))
            return conn.execute(_PUT_HOOK_POSITION, position).rowcount > 0
        case Counter():
            conn.execute(_COUNT, (line.name, line.value))
            if line.name == "events_pruned":  # cursors over there have read that far
                events.go_on_after(conn, line.value)
            return None
        case Migration():
            return None  # this database has a history of its own
        case Header() | End():
            raise UnreadableInput("a header or an end in the middle")


def _take_state(conn: sqlite3.Connection, line: State, *, now_ms: int) -> bool:
    names.check_key(line.key)
    names.check_scope(line.scope_id)
    payloads.check(line.payload.encode())
    there = state.get(conn, line.key, line.scope_id, now_ms=now_ms)
    if (line.expires_at is None) != (line.expires_ms is None):
        raise UnreadableInput("expires_at and expires_ms go together")
    expired = line.expires_ms is not None and line.expires_ms <= now_ms
    if expired or (there is not None and there.updated_at >= line.updated_at):
        return False
    (line.version,) = conn.execute(_NEXT).fetchone()
    conn.execute(_PUT_STATE, structs.astuple(line))
    return True


def _take_sentinel(conn: sqlite3.Connection, line: Sentinel) -> bool:
    names.check_name(line.name)
    names.check_scope(line.scope_id)
    there = sentinels.find(conn, line.name, line.scope_id)
    if there is not None and (there.once or not (line.once or line.fired_ms > there.fired_ms)):
        return False
    conn.execute(_PUT_SENTINEL, structs.astuple(line))
    return True


def _take_event(conn: sqlite3.Connection, line: Event) -> bool:
    fact = events.Fact(line.source, line.type, line.run_id, line.subject_id)
    events.check(fact)
    if line.payload is not None:
        payloads.check(line.payload.encode())
    if line.seq <= events.head(conn):
        return False
    return conn.execute(_PUT_EVENT, structs.astuple(line)).rowcount > 0


def _take_cursor(conn: sqlite3.Connection, line: Cursor, *, now_ms: int) -> bool:
    names.check_name(line.consumer)
    names.check_scope(line.run_id)
    if line.expires_ms is not None and line.expires_ms <= now_ms:
        return False
    return conn.execute(_PUT_CURSOR, structs.astuple(line)).rowcount > 0
