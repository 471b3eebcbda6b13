"""Answering a retried write with what its first attempt did.

A client that does not know how its call ended asks again with the same random id.  The effect of a
write is kept under that id, in the same transaction as the write itself; an attempt that changed
nothing leaves nothing.  Sentinel claims keep their id in their own row instead, which costs a third
of this.

Invariant: an id is kept for as long as its client may ask again, whatever the wall clock does.
Clients count by the monotonic clock, rows carry the wall clock, so the difference of the two is
kept beside them.  While it stays what it was, ages are true.  Once it has changed, because the
clock was set, the machine slept or was started anew, nothing is forgotten until every id from
before is as old as any must become.  All processes of a machine share both clocks, so this
holds without a daemon, too.

The table stays bounded: ids of `KEEP_MS`, and those of the times in which nothing was forgotten.
If the clock steps again and again, the oldest of more than `HELD_MOST` go at each step.
"""

from __future__ import annotations

import sqlite3
from zlib import crc32

import msgspec

from icd.app.call import Call, Context, Params
from icd.errors import RequestMismatch

# The longest total deadline a call may ask for.  Ids are kept ten times as long, so that an id can
# never be forgotten while its client may still ask with it.
MAX_DEADLINE_MS = 300_000
KEEP_MS = 10 * MAX_DEADLINE_MS
PRUNED_PER_WRITE = 4
# How far the two clocks may drift apart, either way, before ages are no longer believed: an id
# still lives twice the longest deadline if both ways were used up.
DRIFT_MS = 4 * MAX_DEADLINE_MS
# After a step nothing is forgotten for so long, so that no id lives shorter because of it.
HOLD_MS = KEEP_MS
HELD_MOST = 10_000
PRUNED_PER_STEP = 1000
# What upkeep may forget is noted once a minute: each note is one more page to write.
NOTE_MS = 60_000

_FIND = "SELECT method, digest, effect FROM requests WHERE id = ?"
_RECORD = "INSERT INTO requests (id, method, digest, effect, at_ms) VALUES (?, ?, ?, ?, ?)"
_PRUNE = """
DELETE FROM requests WHERE id IN (
    SELECT id FROM requests WHERE at_ms < ? ORDER BY at_ms LIMIT ?)
"""
# The wall clock minus the monotonic one; since when, by the monotonic clock, that has not changed;
# and the moment before which ids may go.
_CLOCKS = """
SELECT (SELECT value FROM counters WHERE name = 'requests_offset_ms'),
       (SELECT value FROM counters WHERE name = 'requests_steady_ms'),
       (SELECT value FROM counters WHERE name = 'requests_before_ms')
"""
_NOTE = """
INSERT INTO counters (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_TOO_MANY = "SELECT count(*) > ?1 FROM (SELECT 1 FROM requests LIMIT ?1 + 1) AS few"
_EVER = 2**63 - 1
_ENVELOPE = frozenset(Params.__struct_fields__)


def run_once(ctx: Context, call: Call) -> object:
    """Run the method, unless its effect is already known under the caller's request id."""
    method, request_id = call.method, call.params.request_id
    assert method.run is not None
    assert request_id is not None
    digest = _digest(call.params)
    effect = find(ctx.conn, request_id, method=method.name, digest=digest)
    if effect is not None:
        return msgspec.json.decode(effect, type=method.result)
    result = method.run(ctx, call.params)
    if ctx.changed:
        record(
            ctx.conn,
            request_id,
            method=method.name,
            digest=digest,
            effect=msgspec.json.encode(result).decode(),
            now_ms=ctx.now_ms,
            monotonic_ms=int(ctx.monotonic * 1000),
        )
    return result


def _digest(params: Params) -> int:
    """A fingerprint of the method's own parameters: deadlines differ between two attempts."""
    own = [getattr(params, f) for f in params.__struct_fields__ if f not in _ENVELOPE]
    return crc32(msgspec.json.encode(own))


def find(conn: sqlite3.Connection, request_id: str, *, method: str, digest: int) -> str | None:
    """The effect recorded under `request_id`; an id that stood for another call is an error."""
    row = conn.execute(_FIND, (request_id,)).fetchone()
    if row is None:
        return None
    if row[:2] != (method, digest):
        raise RequestMismatch("this request_id was used for a different call")
    return str(row[2])


def record(
    conn: sqlite3.Connection,
    request_id: str,
    *,
    method: str,
    digest: int,
    effect: str,
    now_ms: int,
    monotonic_ms: int,
) -> None:
    """Keep an effect, and forget a few that are old enough."""
    conn.execute(_RECORD, (request_id, method, digest, effect, now_ms))
    offset_ms, steady_ms, before_ms = conn.execute(_CLOCKS).fetchone()
    if (
        steady_ms is None
        or steady_ms > monotonic_ms  # of an earlier start of the machine
        or abs(now_ms - monotonic_ms - offset_ms) > DRIFT_MS
    ):
        _note_step(conn, now_ms=now_ms, monotonic_ms=monotonic_ms)
    elif monotonic_ms - steady_ms >= HOLD_MS:
        if now_ms - KEEP_MS >= before_ms + NOTE_MS:
            conn.execute(_NOTE, ("requests_before_ms", now_ms - KEEP_MS))
        conn.execute(_PRUNE, (now_ms - KEEP_MS, PRUNED_PER_WRITE))


def prune(conn: sqlite3.Connection, *, limit: int, now_ms: int) -> int:
    """Forget what the last write has found to be old enough; no clock is believed for that."""
    before_ms = conn.execute(_CLOCKS).fetchone()[2]
    if before_ms is None:
        return 0
    return conn.execute(_PRUNE, (min(before_ms, now_ms - KEEP_MS), limit)).rowcount


def _note_step(conn: sqlite3.Connection, *, now_ms: int, monotonic_ms: int) -> None:
    notes = [
        ("requests_offset_ms", now_ms - monotonic_ms),
        ("requests_steady_ms", monotonic_ms),
        ("requests_before_ms", 0),
    ]
    conn.executemany(_NOTE, notes)
    if conn.execute(_TOO_MANY, (HELD_MOST,)).fetchone()[0]:
        conn.execute(_PRUNE, (_EVER, PRUNED_PER_STEP))
