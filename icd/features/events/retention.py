"""Forgetting the beginning of the log, by age or by number.

Only ever a beginning: an event that is older than its neighbours, because the clock was wrong,
goes with them, and one that seems younger keeps those after it.  Nothing goes that a durable
cursor has yet to read, or a hook to get, unless that is asked for.
"""

import sqlite3

from msgspec import Struct

from icd.features.events import cursors
from icd.features.events import store as events
from icd.features.triggers import store as hooks
from icd.values.wire import Result

PRUNED_AT_ONCE = 5000


class Rule(Struct, frozen=True):
    """What may go: events from before a moment, and all but the last so many.  None: no limit."""

    before_ms: int | None = None
    keep: int | None = None


class Pruned(Result):
    """`held`: how many more would have gone if no durable cursor or hook needed them."""

    pruned: int
    through: int
    held: int


# Read in the order of the log, not of time: it stops at the first that stays.
_FIRST_SINCE = "SELECT seq FROM events WHERE +at_ms >= ? ORDER BY seq LIMIT 1"
_LAST_BUT = "SELECT seq FROM events ORDER BY seq DESC LIMIT 1 OFFSET ?"
_COUNT = "SELECT count(*) FROM events WHERE seq > ? AND seq <= ?"
_DELETE = "DELETE FROM events WHERE seq <= ?"
_NTH = "SELECT seq FROM events WHERE seq <= ? ORDER BY seq LIMIT 1 OFFSET ?"
_NOTE = "UPDATE counters SET value = max(value, ?) WHERE name = 'events_pruned'"


def prune(conn: sqlite3.Connection, rule: Rule, *, force: bool, now_ms: int) -> Pruned:
    """Delete what the rule lets go of; `force`: also what durable cursors still need."""
    wanted = _end(conn, rule)
    end = wanted if force else _allowed(conn, wanted, now_ms=now_ms)
    (held,) = conn.execute(_COUNT, (end, wanted)).fetchone()
    return Pruned(_delete(conn, end), events.pruned_through(conn), held)


def prune_some(conn: sqlite3.Connection, rule: Rule, *, now_ms: int) -> int:
    """A bounded piece of it, so that a daemon keeps no caller waiting."""
    end = _allowed(conn, _end(conn, rule), now_ms=now_ms)
    far = conn.execute(_NTH, (end, PRUNED_AT_ONCE - 1)).fetchone()
    return _delete(conn, int(far[0]) if far else end)


def _end(conn: sqlite3.Connection, rule: Rule) -> int:
    """The last event that may go."""
    ends = [0]
    if rule.before_ms is not None:
        first = conn.execute(_FIRST_SINCE, (rule.before_ms,)).fetchone()
        ends.append(int(first[0]) - 1 if first else events.head(conn))
    # Numbers may be missing but never double: only if there could be more is it worth counting.
    if rule.keep is not None and events.head(conn) - events.oldest(conn) >= rule.keep:
        last = conn.execute(_LAST_BUT, (rule.keep,)).fetchone()
        ends.append(int(last[0]) if last else 0)
    return max(ends)


def _allowed(conn: sqlite3.Connection, end: int, *, now_ms: int) -> int:
    floors = (cursors.floor(conn, now_ms=now_ms), hooks.floor(conn))
    return min([end, *(floor for floor in floors if floor is not None)])


def _delete(conn: sqlite3.Connection, end: int) -> int:
    gone = conn.execute(_DELETE, (end,)).rowcount
    if gone:
        conn.execute(_NOTE, (end,))
    return gone
