"""Reservations of the original Go program, from a database that is taken over.

Only those that still stand are brought: it kept what was released or had expired for ever.  Its
patterns are written anew as ours are; `**`, which it read as `*`, covers more here.  What is no
pattern here, and what another owner's reservation is in the way of, stays behind.
"""

import sqlite3

from icd.db.original.tables import Row, rows
from icd.db.rows import values
from icd.errors import IcError
from icd.features.coordination import names, store
from icd.features.coordination.names import Place
from icd.features.coordination.records import Lock
from icd.values.validation import check_owner

TABLE = "coordination_locks"
_TYPES = {"file_reservation", "named_lock", "write_set"}


def bring(conn: sqlite3.Connection, path: str, *, now_ms: int) -> None:
    """Copy what stands; the table is dropped by the caller."""
    here = names.place(path, None)
    for row in rows(conn, TABLE):
        lock = _lock(row, here)
        if lock is None or (lock.expires_ms is not None and lock.expires_ms <= now_ms):
            continue
        lock.key = _key(conn, lock, now_ms=now_ms) or ""
        if lock.key:
            conn.execute(store.PUT, values(lock))


def _key(conn: sqlite3.Connection, lock: Lock, *, now_ms: int) -> str | None:
    is_exclusive = bool(lock.exclusive)
    return store.key_if_free(
        conn, lock.scope, lock.pattern, lock.owner, exclusive=is_exclusive, now_ms=now_ms
    )


def _lock(row: Row, here: Place) -> Lock | None:
    """The row as one of ours; None: it was given up, or it says nothing that we understand."""
    kind, owner = row.text("type"), row.word("owner")
    if row.number("released_at") or kind not in _TYPES:
        return None
    try:
        check_owner(owner)
        pattern = names.pattern(row.text("pattern"), here).text
    except IcError:
        return None
    created, expires = row.seconds("created_at"), row.seconds("expires_at") or None
    return Lock(
        id=row.word("id"),
        type=kind,
        owner=owner,
        scope=names.scope_of(row.word("scope"), here),
        pattern=pattern,
        exclusive=row.number("exclusive", 1) != 0,
        reason=row.word("reason"),
        ttl_ms=None if expires is None else row.seconds("ttl_seconds") * 1000,
        run_id=row.word("run_id"),
        dispatch_id=row.word("dispatch_id"),
        created_at=created,
        renewed_ms=created * 1000,
        expires_at=expires,
        expires_ms=None if expires is None else expires * 1000,
        session=None,
        pid=None,
        pid_start=None,
        pid_boot=None,
        pid_ns=None,
        key="",
    )
