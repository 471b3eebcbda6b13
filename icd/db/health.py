"""Is this database fit to be used?  Each check is one sentence when it fails."""

import os
import sqlite3
from contextlib import suppress

from icd.db import check, migrate
from icd.db.connection import journal_mode, until
from icd.db.files import permissions as access
from icd.errors import Corrupt, DeadlineExceeded, DiskFull, Unhealthy

FREE_BYTES_NEEDED = 10 * 1024 * 1024


def examine(conn: sqlite3.Connection, path: str, *, thorough: bool) -> None:
    """Raise what is wrong.  `thorough` reads every page, so it takes time on a large database."""
    conn.execute("SELECT count(1) FROM migrations").fetchone()
    if not migrate.is_current(conn):
        raise Unhealthy(
            f"the schema is v{migrate.version(conn)}, not v{migrate.LATEST}",
            hint="run 'icctl init' to upgrade it",
        )
    mode = journal_mode(conn)
    if mode != "wal":
        raise Unhealthy(
            f"the journal mode is {mode}, not wal",
            hint="move the database to a local filesystem that supports shared memory",
        )
    obstacle = access.obstacle(path)
    if obstacle is not None:
        raise obstacle
    free = free_bytes(os.path.dirname(path))
    if free <= FREE_BYTES_NEEDED:
        raise DiskFull(f"disk full: {free} bytes available (need {FREE_BYTES_NEEDED})")
    if thorough:
        _read_every_page(conn)
        damaged = check.first_row(conn)
        if damaged is not None:
            raise damaged


def refuse_damage(conn: sqlite3.Connection, *, deadline: float) -> None:
    """Raise if damage is found before the deadline; what is too large to be read is trusted."""
    with suppress(DeadlineExceeded), until(conn, deadline):
        _read_every_page(conn)


def _read_every_page(conn: sqlite3.Connection) -> None:
    damage = check.first(conn)
    if damage:
        # What can be read although it breaks the schema has a row and a column to be named.
        raise check.first_row(conn) or Corrupt(f"the database is damaged: {damage}")


def free_bytes(directory: str) -> int:
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize
