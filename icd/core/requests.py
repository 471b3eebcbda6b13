"""Answering a retried write with what its first attempt did.

A client that does not know how its call ended asks again with the same random id.  The effect of a
write is kept under that id, in the same transaction as the write itself; an attempt that changed
nothing leaves nothing.  Sentinel claims keep their id in their own row instead, which costs a third
of this.
"""

import sqlite3

from icd.errors import RequestMismatch

# The longest total deadline a call may ask for.  Ids are kept ten times as long, so that an id can
# never be forgotten while somebody may still ask with it.
MAX_DEADLINE_MS = 300_000
KEEP_MS = 10 * MAX_DEADLINE_MS
PRUNED_PER_WRITE = 4

_FIND = "SELECT method, digest, effect FROM requests WHERE id = ?"
_RECORD = "INSERT INTO requests (id, method, digest, effect, at_ms) VALUES (?, ?, ?, ?, ?)"
_PRUNE = """
DELETE FROM requests WHERE id IN (
    SELECT id FROM requests WHERE at_ms < ? ORDER BY at_ms LIMIT ?)
"""


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
) -> None:
    conn.execute(_RECORD, (request_id, method, digest, effect, now_ms))
    conn.execute(_PRUNE, (now_ms - KEEP_MS, PRUNED_PER_WRITE))


def prune(conn: sqlite3.Connection, *, limit: int, now_ms: int) -> int:
    return conn.execute(_PRUNE, (now_ms - KEEP_MS, limit)).rowcount
