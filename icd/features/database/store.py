"""The database as a whole: how many rows it holds, and the space that they take."""

import os
import sqlite3

from icd.db.check import FREE_BYTES_NEEDED, free_bytes
from icd.db.connection import page_bytes, until
from icd.errors import DiskFull

# Tables that hold what users store; not those with which intercore keeps its own books.
COUNTED = (
    *("state", "sentinels", "requests", "events", "cursors"),
    *("runs", "run_skips", "run_agents", "run_artifacts", "run_actions", "dispatches", "leases"),
    "reservations",
    *("sessions", "attributions", "lanes", "lane_members"),
    *("discoveries", "embeddings", "embedding_sources", "feedback_signals", "interest_profile"),
)
# SQLite writes a new database, and then all of it once more through the write-ahead log.
COPIES = 2


def counts(conn: sqlite3.Connection) -> dict[str, int]:
    """How many rows each table holds, for people who look inside.

    SQLite reads the smallest index of a table for it, every page: a million rows take some 20 ms.
    """
    return {table: count(conn, table) for table in COUNTED}


def count(conn: sqlite3.Connection, table: str, rest: str = "") -> int:
    """With `count(1)`, which can be stopped; see icd/db/connection.py."""
    which = rest.partition("ORDER BY")[0]
    (found,) = conn.execute(f"SELECT count(1) FROM {table} {which}").fetchone()  # noqa: S608
    return int(found)


def vacuum(conn: sqlite3.Connection, path: str, *, deadline: float) -> tuple[int, int]:
    """Rebuild the file; its bytes before and after.  The caller holds the lock."""
    before = page_bytes(conn)
    free = free_bytes(os.path.dirname(path))
    needed = COPIES * before + FREE_BYTES_NEEDED
    if free < needed:
        raise DiskFull(f"disk too full to vacuum: {free} bytes available (need {needed})")
    with until(conn, deadline):
        conn.execute("VACUUM")
    # It is done: what follows only makes the file as small as the database.
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return before, page_bytes(conn)
