"""What a database needs when nobody is asking anything of it.  Runs in its lane."""

import sqlite3
import time

from icd.config import Settings
from icd.core import requests, retention, state
from icd.db.connection import transaction
from icd.db.database import Database
from icd.errors import Locked, NoDatabase
from icd.rpc.method import Clock

# Others may hold the lock; upkeep can wait for the next quiet moment.
PATIENCE_SECONDS = 0.5
CLOSING_SECONDS = 2.0
REQUESTS_AT_ONCE = 1000
# Where events are to be forgotten, a quiet database is looked at this often.
RETENTION_SECONDS = 3600.0
DAY_MS = 24 * 3600 * 1000


def look_after(database: Database, clock: Clock) -> float | None:
    """Prune what expired, checkpoint; the seconds until the next row expires, if any will."""
    try:
        with database.hold(time.monotonic() + PATIENCE_SECONDS):
            conn = database.connection()
            now_ms = clock.now_ms()
            if _prune(conn, now_ms) | _prune_events(conn, database.settings, now_ms):
                return 0.0
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return _next(conn, database.settings, now_ms)
    except NoDatabase:
        database.close()
        return None
    except Locked:
        return PATIENCE_SECONDS


def close(database: Database) -> None:
    if database.is_open:
        with database.hold(time.monotonic() + CLOSING_SECONDS):
            database.close()
    database.lock.close()


def _prune(conn: sqlite3.Connection, now_ms: int) -> bool:
    """Remove a bounded number of rows; whether there may be more."""
    with transaction(conn):
        rows = state.prune_some(conn, now_ms=now_ms)
        ids = requests.prune(conn, limit=REQUESTS_AT_ONCE, now_ms=now_ms)
    return rows >= state.PRUNED_AT_ONCE or ids >= REQUESTS_AT_ONCE


def _prune_events(conn: sqlite3.Connection, settings: Settings, now_ms: int) -> bool:
    days, count = settings.events_keep_days, settings.events_keep_count
    if not (days or count):
        return False
    rule = retention.Rule(now_ms - days * DAY_MS if days else None, count or None)
    with transaction(conn):
        return retention.prune_some(conn, rule, now_ms=now_ms) >= retention.PRUNED_AT_ONCE


def _next(conn: sqlite3.Connection, settings: Settings, now_ms: int) -> float | None:
    expires_ms = state.next_expiry(conn)
    due = [] if expires_ms is None else [max(0, expires_ms - now_ms) / 1000]
    if settings.events_keep_days:
        due.append(RETENTION_SECONDS)
    return min(due, default=None)
