"""Forgetting discoveries that were dismissed long ago, with their embeddings and feedback.

The log keeps what happened to them.  Whoever finds one of them again may submit it again: a
dismissed discovery is also the memory that it was seen.

Callers run these inside a transaction.
"""

import sqlite3

# Each comes with an embedding of some kilobytes: a piece takes the lane some milliseconds.
PRUNED_AT_ONCE = 1000
_ALL = -1

_DUE = """
SELECT id FROM discoveries WHERE dismissed_ms <= ? AND status = 'dismissed'
ORDER BY dismissed_ms LIMIT ?
"""
_OLDEST = """
SELECT dismissed_ms FROM discoveries WHERE dismissed_ms IS NOT NULL AND status = 'dismissed'
ORDER BY dismissed_ms LIMIT 1
"""
_FORGET_FEEDBACK = "DELETE FROM feedback_signals WHERE discovery_id = ?"
# Its embedding goes with it, by the foreign key.
_FORGET = "DELETE FROM discoveries WHERE id = ?"
# Whoever keeps discoveries in memory learns from these that some are gone.
_COUNT = "UPDATE counters SET value = value + ? WHERE name = 'discoveries_deleted'"
_CHANGE = "UPDATE counters SET value = value + 1 WHERE name = 'discoveries'"


def prune(conn: sqlite3.Connection, *, before_ms: int) -> int:
    """Delete all that were dismissed by that moment."""
    return _delete(conn, before_ms, _ALL)


def prune_some(conn: sqlite3.Connection, *, before_ms: int) -> int:
    """A bounded number of them, for a daemon that does not want to keep anybody waiting."""
    return _delete(conn, before_ms, PRUNED_AT_ONCE)


def oldest_ms(conn: sqlite3.Connection) -> int | None:
    """When the first of those that are still there was dismissed."""
    row = conn.execute(_OLDEST).fetchone()
    return None if row is None else int(row[0])


def _delete(conn: sqlite3.Connection, before_ms: int, limit: int) -> int:
    due = conn.execute(_DUE, (before_ms, limit)).fetchall()
    if due:
        conn.executemany(_FORGET_FEEDBACK, due)
        conn.executemany(_FORGET, due)
        conn.execute(_COUNT, (len(due),))
        conn.execute(_CHANGE)
    return len(due)
