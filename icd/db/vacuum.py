"""Giving space that is no longer used back to the disk."""

import os
import sqlite3

from icd.db.connection import until
from icd.db.health import FREE_BYTES_NEEDED, free_bytes
from icd.errors import DiskFull

# SQLite writes a new database, and then all of it once more through the write-ahead log.
COPIES = 2


def vacuum(conn: sqlite3.Connection, path: str, *, deadline: float) -> tuple[int, int]:
    """Rebuild the file; its bytes before and after.  The caller holds the lock."""
    before = _bytes(conn)
    free = free_bytes(os.path.dirname(path))
    needed = COPIES * before + FREE_BYTES_NEEDED
    if free < needed:
        raise DiskFull(f"disk too full to vacuum: {free} bytes available (need {needed})")
    with until(conn, deadline):
        conn.execute("VACUUM")
    # It is done: what follows only makes the file as small as the database.
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return before, _bytes(conn)


def _bytes(conn: sqlite3.Connection) -> int:
    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    (size,) = conn.execute("PRAGMA page_size").fetchone()
    return int(pages * size)
