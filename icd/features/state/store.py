"""Small JSON documents by (key, scope), with a version, an optional expiry, and their writer.

Invariants
    - an expired row behaves exactly like one that was never written, for every operation;
    - every change takes the next number of one counter as the row's version, so a version never
      repeats, not even after a deletion;
    - a row lives at least as long as its TTL asked: milliseconds decide, seconds are shown.

Callers run these inside a transaction and check names and payloads first.
"""

import sqlite3
from typing import Any

import msgspec
from msgspec import Raw, Struct

from icd.db.rows import checked, document, one, put, select, values
from icd.errors import NotAnInteger, VersionConflict
from icd.values.processes import Writer
from icd.values.wire import INT64, Result, iso, iso_if

PRUNED_AT_ONCE = 1000
# What `config set` keeps: rows of this scope whose key begins like this.
KERNEL, KERNEL_SCOPE = "kernel.", "global"


class Row(Struct, frozen=True):
    key: str
    scope_id: str
    payload: str
    version: int
    updated_at: int
    expires_at: int | None
    expires_ms: int | None
    writer_pid: int | None
    writer_session: str | None

    def document(self) -> "Document":
        return Document(
            key=self.key,
            scope_id=self.scope_id,
            payload=document(self.payload),
            version=self.version,
            updated_at=self.updated_at,
            updated_at_iso=iso(self.updated_at),
            expires_at=self.expires_at,
            expires_at_iso=iso_if(self.expires_at),
            writer_pid=self.writer_pid,
            writer_session=self.writer_session,
        )

    def written(self, *, value: int | None = None, skipped: bool = False) -> "Written":
        return Written(
            key=self.key,
            scope_id=self.scope_id,
            version=self.version,
            updated_at=self.updated_at,
            updated_at_iso=iso(self.updated_at),
            expires_at=self.expires_at,
            expires_at_iso=iso_if(self.expires_at),
            value=value,
            skipped=skipped,
        )


class Document(Result):
    """A row with everything that is known about it."""

    key: str
    scope_id: str
    payload: Raw
    version: int
    updated_at: int
    updated_at_iso: str
    expires_at: int | None
    expires_at_iso: str | None
    writer_pid: int | None
    writer_session: str | None

    @property
    def value(self) -> Any:
        """The payload, as Python's JSON."""
        return msgspec.json.decode(self.payload)


class Written(Result):
    """What a write did; `value` only after incr, `skipped` when debounced."""

    key: str
    scope_id: str
    version: int
    updated_at: int
    updated_at_iso: str
    expires_at: int | None
    expires_at_iso: str | None
    value: int | None = None
    skipped: bool = False


class Name(Struct, frozen=True):
    key: str
    scope_id: str


_GET = select(
    Row, "state", "WHERE key = ? AND scope_id = ? AND (expires_ms IS NULL OR expires_ms > ?)"
)
# A page is bounded by what is read, not by what is found: rows that expired count, too.
_PAGE_END = (
    "SELECT scope_id FROM state WHERE key = ? AND scope_id > ? ORDER BY scope_id LIMIT 1 OFFSET ?"
)
_PAGE = """
SELECT scope_id, version FROM state
WHERE key = ?1 AND scope_id > ?2 AND (scope_id <= ?3 OR ?3 IS NULL)
      AND updated_at >= ?4 AND (expires_ms IS NULL OR expires_ms > ?5)
ORDER BY scope_id
"""
_NEXT = "UPDATE counters SET value = value + 1 WHERE name = 'state' RETURNING value"
_PUT = put(Row, "state", key=("key", "scope_id"))
_DELETE = "DELETE FROM state WHERE key = ? AND scope_id = ? RETURNING expires_ms"
_DELETE_ALL = "DELETE FROM state WHERE key = ? RETURNING expires_ms"
_SCOPES = """
SELECT key, scope_id FROM state
WHERE key = ? AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY scope_id
"""
_BY_PREFIX = """
SELECT key, scope_id FROM state
WHERE key >= ? AND key < ? AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY key, scope_id
"""
_PRUNE = "DELETE FROM state WHERE expires_ms <= ?"
_PRUNE_SOME = """
DELETE FROM state WHERE (key, scope_id) IN (
    SELECT key, scope_id FROM state WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?)
"""
_NEXT_EXPIRY = """
SELECT expires_ms FROM state WHERE expires_ms IS NOT NULL ORDER BY expires_ms LIMIT 1
"""


def get(conn: sqlite3.Connection, key: str, scope_id: str, *, now_ms: int) -> Row | None:
    return one(conn, Row, _GET, (key, scope_id, now_ms))


def kernel_limit(conn: sqlite3.Connection, name: str, *, now_ms: int) -> int | None:
    """A number that `config set` keeps; None without one, and where zero stands for no limit."""
    row = get(conn, KERNEL + name, KERNEL_SCOPE, now_ms=now_ms)
    is_number = row is not None and row.payload.isascii() and row.payload.isdigit()
    return int(row.payload[:18]) or None if row is not None and is_number else None


def set(  # noqa: A001 -- the verb of the contract
    conn: sqlite3.Connection,
    key: str,
    scope_id: str,
    payload: str,
    *,
    ttl_ms: int = 0,
    if_version: int | None = None,
    writer: Writer,
    now_ms: int,
) -> Row:
    """Write a row; with `if_version`, only over exactly that version (0: over nothing)."""
    if if_version is not None:
        _require_version(conn, key, scope_id, if_version, now_ms=now_ms)
    expires_ms = now_ms + ttl_ms if ttl_ms else None
    return _put(conn, key, scope_id, payload, expires_ms=expires_ms, writer=writer, now_ms=now_ms)


def incr(
    conn: sqlite3.Connection,
    key: str,
    scope_id: str,
    *,
    by: int = 1,
    ttl_ms: int = 0,
    writer: Writer,
    now_ms: int,
) -> Row:
    """Add to an integer, which starts at 0.  A running counter keeps its expiry."""
    row = get(conn, key, scope_id, now_ms=now_ms)
    value = _integer(row) + by
    if not -INT64 <= value < INT64:
        raise NotAnInteger(f"{key} {scope_id} would exceed the range of 64-bit integers")
    expires_ms = row.expires_ms if row else now_ms + ttl_ms if ttl_ms else None
    return _put(
        conn, key, scope_id, str(value), expires_ms=expires_ms, writer=writer, now_ms=now_ms
    )


def touch(
    conn: sqlite3.Connection, key: str, scope_id: str, *, ttl_ms: int, writer: Writer, now_ms: int
) -> Row | None:
    """Let a row expire `ttl_ms` from now, or never if that is 0; None: there is no such row."""
    row = get(conn, key, scope_id, now_ms=now_ms)
    if row is None:
        return None
    expires_ms = now_ms + ttl_ms if ttl_ms else None
    return _put(
        conn, key, scope_id, row.payload, expires_ms=expires_ms, writer=writer, now_ms=now_ms
    )


def delete(conn: sqlite3.Connection, key: str, scope_id: str, *, now_ms: int) -> int:
    """Remove a row; the answer counts what was still visible."""
    return _count_visible(conn, conn.execute(_DELETE, (key, scope_id)), now_ms=now_ms)


def delete_all(conn: sqlite3.Connection, key: str, *, now_ms: int) -> int:
    return _count_visible(conn, conn.execute(_DELETE_ALL, (key,)), now_ms=now_ms)


def scopes(conn: sqlite3.Connection, key: str, *, now_ms: int) -> list[Name]:
    return [checked(Name, row) for row in conn.execute(_SCOPES, (key, now_ms))]


def by_prefix(conn: sqlite3.Connection, prefix: str, *, now_ms: int) -> list[Name]:
    """Rows whose key starts with `prefix`: a range of the primary key, since keys are ASCII."""
    return [
        checked(Name, row) for row in conn.execute(_BY_PREFIX, (prefix, prefix + "\x7f", now_ms))
    ]


def versions(
    conn: sqlite3.Connection, key: str, *, after: str | None, since: int, limit: int, now_ms: int
) -> tuple[list[tuple[str, int]], str | None]:
    """One page of a key: scopes with the version of each row that was written since a moment.

    Reads at most `limit` rows beyond the scope `after`; the second answer is where the next page
    starts, or None if this was the last.
    """
    # Scopes are not empty in what callers look for; one that is sorts before every other.
    start = after or ""
    last = conn.execute(_PAGE_END, (key, start, limit - 1)).fetchone()
    end = last[0] if last else None
    return conn.execute(_PAGE, (key, start, end, since, now_ms)).fetchall(), end


def prune(conn: sqlite3.Connection, *, now_ms: int) -> int:
    return conn.execute(_PRUNE, (now_ms,)).rowcount


def prune_some(conn: sqlite3.Connection, *, now_ms: int) -> int:
    """A bounded piece of `prune`, for a daemon whose callers must not wait for it."""
    return conn.execute(_PRUNE_SOME, (now_ms, PRUNED_AT_ONCE)).rowcount


def next_expiry(conn: sqlite3.Connection) -> int | None:
    """The moment in milliseconds at which the next row expires."""
    row = conn.execute(_NEXT_EXPIRY).fetchone()
    return int(row[0]) if row else None


def _require_version(
    conn: sqlite3.Connection, key: str, scope_id: str, expected: int, *, now_ms: int
) -> None:
    row = get(conn, key, scope_id, now_ms=now_ms)
    actual = row.version if row else 0
    if actual != expected:
        found = f"is at version {actual}" if actual else "does not exist"
        told = f"{found}, expected version {expected}"
        if not expected:
            told = f"already exists (version {actual})"
        raise VersionConflict(f"{key} {scope_id} {told}")


def _put(
    conn: sqlite3.Connection,
    key: str,
    scope_id: str,
    payload: str,
    *,
    expires_ms: int | None,
    writer: Writer,
    now_ms: int,
) -> Row:
    (version,) = conn.execute(_NEXT).fetchone()
    expires_at = None if expires_ms is None else -(-expires_ms // 1000)
    row = Row(
        key,
        scope_id,
        payload,
        version,
        now_ms // 1000,
        expires_at,
        expires_ms,
        writer.pid,
        writer.session,
    )
    conn.execute(_PUT, values(row))
    return row


def _integer(row: Row | None) -> int:
    if row is None:
        return 0
    digits = row.payload.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise NotAnInteger(f"{row.key} {row.scope_id} does not hold an integer")
    return int(row.payload)


def _count_visible(conn: sqlite3.Connection, deleted: sqlite3.Cursor, *, now_ms: int) -> int:
    rows = deleted.fetchall()
    if rows:
        conn.execute(_NEXT).fetchone()  # a deletion is a change, too
    return sum(expires_ms is None or expires_ms > now_ms for (expires_ms,) in rows)
