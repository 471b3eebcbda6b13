"""Every row as a line that can be kept anywhere, and taken in again.

Invariants
    - taking in the same lines twice changes nothing the second time;
    - of two rows of one name the later one wins, of two as late the one that is there; a sentinel
      that was claimed once and for all wins over any other claim;
    - of two leases the one with the later token wins, else the one that was renewed later;
    - a row that has expired is not taken in;
    - a version never repeats: rows of state get new ones, above those of both databases; so do
      the fencing tokens of leases that are acquired afterwards;
    - an event keeps its number and is taken in only beyond the end of the log: what consumers have
      read stays as they have read it;
    - runs and what belongs to them: see `dump_runs`; discoveries, theirs and the profile: see
      `dump_discoveries`.

Callers run these inside a transaction; the tables are listed in the order that this needs.
"""

import sqlite3
from collections.abc import Iterator

from msgspec import structs

from icd import __version__
from icd.db import migrate
from icd.db.rows import checked
from icd.errors import SchemaTooNew, UnreadableInput
from icd.features.database import dump_discoveries, dump_runs
from icd.features.database.dump_lines import (
    TABLES,
    Counter,
    Cursor,
    Discovery,
    Dispatch,
    Embedding,
    EmbeddingSource,
    End,
    Event,
    Feedback,
    Header,
    HookPosition,
    Lease,
    Line,
    Migration,
    Profile,
    Request,
    Row,
    Run,
    RunAgent,
    RunArtifact,
    RunSkip,
    Sentinel,
    State,
)
from icd.features.events import store as events
from icd.features.leases import store as leases
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.values import payloads
from icd.values import validation as names

_ROWS = """
SELECT (SELECT count(1) FROM migrations)
     + (SELECT count(1) FROM counters WHERE name NOT GLOB 'requests_*')
     + (SELECT count(1) FROM state) + (SELECT count(1) FROM sentinels)
     + (SELECT count(1) FROM requests) + (SELECT count(1) FROM events)
     + (SELECT count(1) FROM cursors) + (SELECT count(1) FROM hook_positions)
     + (SELECT count(1) FROM runs) + (SELECT count(1) FROM run_skips)
     + (SELECT count(1) FROM run_agents) + (SELECT count(1) FROM run_artifacts)
     + (SELECT count(1) FROM dispatches) + (SELECT count(1) FROM leases)
     + (SELECT count(1) FROM discoveries) + (SELECT count(1) FROM embedding_sources)
     + (SELECT count(1) FROM embeddings) + (SELECT count(1) FROM feedback_signals)
     + (SELECT count(1) FROM interest_profile)
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
# A token counts acquisitions, and a renewal keeps it.
_PUT_LEASE = f"{leases.PUT} WHERE (excluded.token, excluded.renewed_at) > (token, renewed_at)"


def export(conn: sqlite3.Connection) -> Iterator[Row]:
    """All lines, read as they are asked for."""
    yield Header("intercore-export", migrate.version(conn), __version__)
    for kind, select in TABLES:
        for row in conn.execute(select):
            yield checked(kind, row)
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


def take_in(conn: sqlite3.Connection, line: Line, *, brought: set[str], now_ms: int) -> bool | None:
    """Whether the row was written; None if the line is about no row of anybody's.

    `brought` is what earlier lines of the same file have brought, as far as later ones need to
    know; it is added to.
    """
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
        case Run() | RunSkip() | RunAgent() | RunArtifact() | Dispatch():
            return dump_runs.take_in(conn, line, brought=brought, now_ms=now_ms)
        case Lease():
            return _take_lease(conn, line, now_ms=now_ms)
        case Discovery() | EmbeddingSource() | Embedding() | Feedback() | Profile():
            return dump_discoveries.take_in(conn, line, brought=brought)
        case Counter() | Migration():
            _keep_books(conn, line)
            return None
        case Header() | End():
            raise UnreadableInput("a header or an end in the middle")


def _keep_books(conn: sqlite3.Connection, line: Counter | Migration) -> None:
    if isinstance(line, Migration):  # this database has a history of its own
        return
    conn.execute(_COUNT, (line.name, line.value))
    if line.name == "events_pruned":  # cursors over there have read that far
        events.go_on_after(conn, line.value)


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
    # No more than that: it may quote what is no payload, such as the title of a discovery.
    if line.payload is not None and not payloads.is_json(line.payload):
        raise UnreadableInput("the payload of an event is not JSON")
    if line.seq <= events.head(conn):
        return False
    return conn.execute(_PUT_EVENT, structs.astuple(line)).rowcount > 0


def _take_cursor(conn: sqlite3.Connection, line: Cursor, *, now_ms: int) -> bool:
    names.check_name(line.consumer)
    names.check_scope(line.run_id)
    if line.expires_ms is not None and line.expires_ms <= now_ms:
        return False
    return conn.execute(_PUT_CURSOR, structs.astuple(line)).rowcount > 0


def _take_lease(conn: sqlite3.Connection, line: Lease, *, now_ms: int) -> bool:
    names.check_name(line.name)
    names.check_scope(line.scope_id)
    if line.expires_ms <= now_ms:
        return False
    # Whoever acquires one afterwards must get a larger token, whatever the file's counter says.
    conn.execute(_COUNT, ("leases", line.token))
    return conn.execute(_PUT_LEASE, structs.astuple(line)).rowcount > 0
