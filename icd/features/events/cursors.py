"""How far each consumer has read the log, so that it goes on there.

Invariants
    - a cursor moves forward only, except by `put` and `reset`; registering never moves it;
    - a durable one never expires, nor do those of single runs of the same consumer; others expire a
      day after they were last used, and one that has expired behaves like one that never was;
    - the original kept cursors as rows of state; the first look makes a cursor of such a row, at a
      place from which nothing is missed.

Callers run these inside a transaction.
"""

import json
import re
import sqlite3

from msgspec import Struct, structs

from icd.db.rows import checked, select, values
from icd.db.rows import put as put_statement
from icd.errors import NoSuchEvent
from icd.features.events import store as events
from icd.features.events.store import Marks
from icd.features.state import store as state
from icd.values.wire import Result, iso, iso_if

DAY_MS = 24 * 3600 * 1000
# Cursors of sessions that are long over; kept for a while, so that their expiry can be told.
FORGET_MS = 30 * DAY_MS
FORGOTTEN_AT_ONCE = 4
# What the original called its rows of state.
STATE_KEY = "cursor"
_RUN_ID = re.compile(r"[a-z0-9]{8}")


class Cursor(Struct, frozen=True):
    """A row of the table; `expires_ms` is None for a durable one."""

    consumer: str
    run_id: str
    seq: int
    updated_at: int
    updated_ms: int
    expires_ms: int | None

    @property
    def key(self) -> str:
        return f"{self.consumer}:{self.run_id}" if self.run_id else self.consumer


class Place(Result, kw_only=True):
    """Where a cursor is; first in the terms of the original, which scripts read.

    `lag` counts the events after it; `behind`: events after it were pruned.
    """

    consumer: str
    run_id: str
    phase: int
    dispatch: int
    interspect: int
    discovery: int
    seq: int
    lag: int
    durable: bool
    updated_at: int
    updated_at_iso: str = ""
    expires_at: int | None
    expires_at_iso: str | None = ""
    behind: bool = False

    def __post_init__(self) -> None:
        self.updated_at_iso = iso(self.updated_at)
        self.expires_at_iso = iso_if(self.expires_at)


_FIND = select(Cursor, "cursors", "WHERE consumer = ? AND run_id = ?")
_ALIVE = "WHERE expires_ms IS NULL OR expires_ms > ?"
_LIST = select(Cursor, "cursors", f"{_ALIVE} ORDER BY consumer, run_id")
_BEHIND = select(Cursor, "cursors", f"{_ALIVE} ORDER BY seq LIMIT ?")
_PUT = put_statement(Cursor, "cursors", key=("consumer", "run_id"))
_RESET = """
DELETE FROM cursors
WHERE consumer = ?1 OR (run_id <> '' AND consumer || ':' || run_id = ?1)
RETURNING expires_ms
"""
_KEEP_FOR_EVER = "UPDATE cursors SET expires_ms = NULL WHERE consumer = ?"
_FORGET = """
DELETE FROM cursors WHERE (consumer, run_id) IN (
    SELECT consumer, run_id FROM cursors WHERE expires_ms < ? ORDER BY expires_ms LIMIT ?)
"""
_FLOOR = "SELECT min(seq) FROM cursors WHERE expires_ms IS NULL"
_UNSEEN = """
SELECT seq FROM events
WHERE source = ?1 AND coalesce(source_id, seq) > ?2 AND (?3 = '' OR run_id = ?3)
ORDER BY seq LIMIT 1
"""
_LAST_OF = """
SELECT coalesce(source_id, seq) FROM events
WHERE source = ?1 AND seq <= ?2 AND (?3 = '' OR run_id = ?3)
ORDER BY seq DESC LIMIT 1
"""


def find(conn: sqlite3.Connection, consumer: str, run_id: str, *, now_ms: int) -> Cursor | None:
    """The cursor if it is alive."""
    _adopt(conn, consumer, run_id, now_ms=now_ms)
    cursor = _find(conn, consumer, run_id)
    return cursor if cursor and not _is_over(cursor, now_ms) else None


def use(conn: sqlite3.Connection, consumer: str, run_id: str, *, now_ms: int) -> Cursor | None:
    """The cursor of a reader: a day without news must not cost it its place."""
    cursor = find(conn, consumer, run_id, now_ms=now_ms)
    if cursor and cursor.expires_ms is not None and cursor.expires_ms < now_ms + DAY_MS // 2:
        return _put(conn, consumer, run_id, cursor.seq, now_ms=now_ms)
    return cursor


def expired(conn: sqlite3.Connection, consumer: str, run_id: str, *, now_ms: int) -> bool:
    """Whether there was a cursor once: its consumer starts again, and should know it."""
    cursor = _find(conn, consumer, run_id)
    return cursor is not None and _is_over(cursor, now_ms)


def every(conn: sqlite3.Connection, *, now_ms: int) -> list[Cursor]:
    _adopt_all(conn, now_ms=now_ms)
    return [checked(Cursor, row) for row in conn.execute(_LIST, (now_ms,))]


def lags(conn: sqlite3.Connection, *, limit: int, now_ms: int) -> dict[str, int]:
    """How many events were written since each consumer's last; those furthest behind first."""
    head = events.head(conn)
    found = [checked(Cursor, row) for row in conn.execute(_BEHIND, (now_ms, limit))]
    return {cursor.key: max(0, head - cursor.seq) for cursor in found}


def locate(conn: sqlite3.Connection, key: str, *, now_ms: int) -> tuple[str, str]:
    """Consumer and run that a word names: `C`, or `C:RUN` as the original has it.

    Names of consumers may have a colon themselves, so what follows it must be known as a run.
    """
    consumer, colon, run_id = key.rpartition(":")
    if not colon or find(conn, key, "", now_ms=now_ms):
        return key, ""
    happened = _RUN_ID.fullmatch(run_id) and events.has_run(conn, run_id)
    known = happened or find(conn, consumer, run_id, now_ms=now_ms)
    return (consumer, run_id) if consumer and known else (key, "")


def advance(
    conn: sqlite3.Connection, consumer: str, run_id: str, seq: int, *, now_ms: int
) -> Cursor:
    """Note that everything up to `seq` has been dealt with; never moves back."""
    _require_event(conn, seq)
    found = find(conn, consumer, run_id, now_ms=now_ms)
    return _put(conn, consumer, run_id, max(seq, found.seq if found else 0), now_ms=now_ms)


def put(conn: sqlite3.Connection, consumer: str, run_id: str, seq: int, *, now_ms: int) -> Cursor:
    """Move the cursor, in whichever direction."""
    _require_event(conn, seq)
    find(conn, consumer, run_id, now_ms=now_ms)
    return _put(conn, consumer, run_id, seq, now_ms=now_ms)


def register(conn: sqlite3.Connection, consumer: str, *, durable: bool, now_ms: int) -> Cursor:
    """Register a cursor: at the oldest event, or where it is already."""
    found = find(conn, consumer, "", now_ms=now_ms)
    seq = found.seq if found else events.pruned_through(conn)
    cursor = _put(conn, consumer, "", seq, now_ms=now_ms)
    if durable:
        conn.execute(_KEEP_FOR_EVER, (consumer,))
    return _find(conn, consumer, "") or cursor


def reset(conn: sqlite3.Connection, key: str, *, now_ms: int) -> int:
    """Forget the cursors of a consumer, those of single runs included; how many there were."""
    _adopt_all(conn, now_ms=now_ms)
    gone = conn.execute(_RESET, (key,)).fetchall()
    return sum(expires_ms is None or expires_ms > now_ms for (expires_ms,) in gone)


def floor(conn: sqlite3.Connection, *, now_ms: int) -> int | None:
    """What no durable cursor needs any more ends here; None if there is no durable cursor."""
    _adopt_all(conn, now_ms=now_ms)
    (seq,) = conn.execute(_FLOOR).fetchone()
    return None if seq is None else int(seq)


def place(conn: sqlite3.Connection, cursor: Cursor) -> Place:
    """The cursor as callers see it."""
    expires_ms = cursor.expires_ms
    return Place(
        consumer=cursor.consumer,
        run_id=cursor.run_id,
        seq=cursor.seq,
        lag=max(0, events.head(conn) - cursor.seq),
        durable=expires_ms is None,
        updated_at=cursor.updated_at,
        expires_at=None if expires_ms is None else -(-expires_ms // 1000),
        behind=cursor.seq < events.pruned_through(conn),
        **structs.asdict(marks(conn, cursor)),
    )


def marks(conn: sqlite3.Connection, cursor: Cursor) -> Marks:
    """The same place in the terms of the original: the last id of each source."""

    def last(source: str) -> int:
        row = conn.execute(_LAST_OF, (source, cursor.seq, cursor.run_id)).fetchone()
        return int(row[0]) if row else 0

    return Marks(*map(last, Marks.__struct_fields__))


def from_marks(conn: sqlite3.Connection, given: Marks, run_id: str) -> int:
    """The place before the first event that the marks leave out: what follows may be known already,
    but nothing is missed.

    The original showed no interspect events, and those of a run only of two kinds.
    """
    sources = ["phase", "dispatch"] if run_id else ["phase", "dispatch", "discovery"]
    if given.interspect and not run_id:
        sources.append("interspect")
    unseen = [
        int(row[0])
        for source in sources
        if (row := conn.execute(_UNSEEN, (source, getattr(given, source), run_id)).fetchone())
    ]
    return min(unseen) - 1 if unseen else events.head(conn)


def _find(conn: sqlite3.Connection, consumer: str, run_id: str) -> Cursor | None:
    row = conn.execute(_FIND, (consumer, run_id)).fetchone()
    return checked(Cursor, row) if row else None


def _is_over(cursor: Cursor, now_ms: int) -> bool:
    return cursor.expires_ms is not None and cursor.expires_ms <= now_ms


def _put(conn: sqlite3.Connection, consumer: str, run_id: str, seq: int, *, now_ms: int) -> Cursor:
    """A cursor stays what it is; a new one of a run is what its consumer's is."""
    like = _find(conn, consumer, run_id) or _find(conn, consumer, "")
    durable = like is not None and like.expires_ms is None
    expires_ms = None if durable else now_ms + DAY_MS
    cursor = Cursor(consumer, run_id, seq, now_ms // 1000, now_ms, expires_ms)
    conn.execute(_PUT, values(cursor))
    conn.execute(_FORGET, (now_ms - FORGET_MS, FORGOTTEN_AT_ONCE))
    return cursor


def _require_event(conn: sqlite3.Connection, seq: int) -> None:
    """What has not happened yet cannot have been read, and would never be shown."""
    head = events.head(conn)
    if seq > head:
        raise NoSuchEvent(f"there is no event {seq}; the last event is {head}")


# --- cursors of the original ---


def original(consumer: str, run_id: str) -> tuple[str, str]:
    """The row of state, by key and scope, that vanishes when the cursor is taken over."""
    return STATE_KEY, f"{consumer}:{run_id}" if run_id else consumer


def _adopt(conn: sqlite3.Connection, consumer: str, run_id: str, *, now_ms: int) -> None:
    row = state.get(conn, *original(consumer, run_id), now_ms=now_ms)
    if row is None:
        return
    seq = from_marks(conn, _marks(row.payload), run_id)
    found = _find(conn, consumer, run_id)
    if found and not _is_over(found, now_ms):
        seq, durable = max(seq, found.seq), found.expires_ms is None
    else:
        durable = row.expires_ms is None
    expires_ms = None if durable else row.expires_ms or now_ms + DAY_MS
    conn.execute(_PUT, (consumer, run_id, seq, now_ms // 1000, now_ms, expires_ms))
    state.delete(conn, *original(consumer, run_id), now_ms=now_ms)


def _adopt_all(conn: sqlite3.Connection, *, now_ms: int) -> None:
    for name in state.scopes(conn, STATE_KEY, now_ms=now_ms):
        consumer, _, run_id = name.scope_id.rpartition(":")
        if consumer and _RUN_ID.fullmatch(run_id):
            _adopt(conn, consumer, run_id, now_ms=now_ms)
        else:
            _adopt(conn, name.scope_id, "", now_ms=now_ms)


def _marks(payload: str) -> Marks:
    """What cannot be read counts as nothing, as it always has."""
    try:
        given = json.loads(payload)
    except (ValueError, RecursionError):
        given = None
    found = given if isinstance(given, dict) else {}
    numbers = [found.get(name) for name in Marks.__struct_fields__]
    return Marks(*(n if isinstance(n, int) and 0 <= n < 2**63 else 0 for n in numbers))
