"""The log: everything that happened, in one sequence.

Invariants
    - an event gets the next sequence number, in the transaction of what it describes: either both
      are there or neither is;
    - order is the sequence, whatever the clock does; a number is never given twice, not even after
      everything was pruned;
    - what is pruned is a beginning of the log, so a reader that is past it has missed nothing;
    - an idempotency key is recorded once per source, as long as its event is kept.

Callers run these inside a transaction; nothing here begins or commits one.
"""

import os
import re
import sqlite3
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from icd.db.rows import checked, document, select
from icd.errors import CursorAhead, CursorBehind, InvalidName
from icd.values.processes import Writer
from icd.values.validation import check_name, check_scope, shown
from icd.values.wire import Result, iso

# Payloads in one answer; the last may go beyond it, so that there is always one.
BATCH_CHARACTERS = 8 * 1024 * 1024

SOURCE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
# No event comes after this one.
LAST = 2**63 - 1
# The payload of an event that has none, as JSON.
NOTHING = Raw(b"null")


class Fact(Struct, frozen=True):
    """What is to be recorded.  `payload` is JSON that was checked already."""

    source: str
    type: str
    run_id: str = ""
    subject_id: str = ""
    from_state: str = ""
    to_state: str = ""
    reason: str = ""
    payload: str | None = None
    project_dir: str | None = None
    idempotency_key: str | None = None


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as callers see it: first the fields of the original, in its order.

    `id` is the number that the original gave the event within its source; for all others, and for
    all that count, it is the sequence number.
    """

    id: int
    run_id: str
    source: str
    type: str
    from_state: str
    to_state: str
    reason: str = ""
    timestamp: str
    seq: int
    at_ms: int
    subject_id: str = ""
    payload: Raw | UnsetType = UNSET
    session: str | None = None
    pid: int | None = None
    uid: int | None = None
    trace_id: str | None = None
    span_id: str | None = None
    project_dir: str | None = None
    idempotency_key: str | None = None

    @property
    def value(self) -> Any:
        """The payload, as Python's JSON; None if there is none."""
        return msgspec.json.decode(self.payload) if isinstance(self.payload, Raw) else None


class Batch(Result):
    """`through`: where to go on; nothing up to there is missing that was asked for."""

    events: list[Event]
    through: int
    more: bool


# What a database can compare with.
Mark = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class Marks(Struct, frozen=True):
    """The original's positions, one for each of its tables: later ids are wanted."""

    phase: Mark = 0
    dispatch: Mark = 0
    discovery: Mark = 0
    interspect: Mark = 0


class _Row(Struct, gc=False):
    """A row of the log; its columns are the fields."""

    seq: int
    source_id: int | None
    source: str
    type: str
    run_id: str
    subject_id: str
    from_state: str
    to_state: str
    reason: str
    payload: str | None
    at: int
    at_ms: int
    actor_session: str | None
    actor_pid: int | None
    actor_uid: int | None
    trace_id: str | None
    span_id: str | None
    project_dir: str | None
    idempotency_key: str | None


_NOTED = "at, at_ms, actor_pid, actor_uid, actor_session, trace_id, span_id"
_APPEND = f"""
INSERT INTO events ({", ".join(Fact.__struct_fields__)}, {_NOTED})
VALUES ({", ".join("?" * (len(Fact.__struct_fields__) + 7))})
"""  # noqa: S608 -- structs name the columns
_BY_KEY = "SELECT seq FROM events WHERE source = ? AND idempotency_key = ?"
# What narrows a search further is looked at row by row.
_REST = """
  AND (type = :type OR :type IS NULL)
  AND (subject_id = :subject_id OR :subject_id IS NULL)
  AND (actor_session = :session OR :session IS NULL)
  AND NOT (source = 'phase' AND coalesce(source_id, seq) <= :phase)
  AND NOT (source = 'dispatch' AND coalesce(source_id, seq) <= :dispatch)
  AND NOT (source = 'discovery' AND coalesce(source_id, seq) <= :discovery)
  AND NOT (source = 'interspect' AND coalesce(source_id, seq) <= :interspect)
ORDER BY seq {} LIMIT :limit
"""
_RANGE = "seq > :since AND seq <= :until"
_OF_RUN = "run_id = :run_id AND run_id <> '' AND (source || '' = :source OR :source IS NULL)"


def _select(condition: str, order: str) -> str:
    return select(_Row, "events", f"WHERE {condition} AND {_RANGE} {_REST.format(order)}")


ALL = select(_Row, "events", f"WHERE {_RANGE} {_REST.format('')}")
OF_SOURCE = _select("source = :source", "")
OF_RUN = _select(_OF_RUN, "")
# From the end of the log, which is where people look.
NEWEST = select(_Row, "events", f"WHERE {_RANGE} {_REST.format('DESC')}")
NEWEST_OF_SOURCE = _select("source = :source", "DESC")
NEWEST_OF_RUN = _select(_OF_RUN, "DESC")
# Read in the order of the log, not of time, and from its end: most ask for what was just now.
LAST_BEFORE = "SELECT seq FROM events WHERE +at_ms < ? ORDER BY seq DESC LIMIT 1"
_HAS_RUN = "SELECT 1 FROM events WHERE run_id = ? AND run_id <> '' LIMIT 1"
_HEAD = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
_RAISE_HEAD = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'events'"
_SET_HEAD = "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)"
_OLDEST = "SELECT seq FROM events ORDER BY seq LIMIT 1"
_PRUNED = "SELECT value FROM counters WHERE name = 'events_pruned'"


def append(conn: sqlite3.Connection, fact: Fact, *, actor: Writer, now_ms: int) -> int:
    """Record what happened; the sequence number is returned, of a known key that of its event."""
    if fact.idempotency_key is not None:
        known = conn.execute(_BY_KEY, (fact.source, fact.idempotency_key)).fetchone()
        if known:
            return int(known[0])
    # The daemon serves its own user only, and without it the caller is this process.
    noted = (now_ms // 1000, now_ms, actor.pid, os.geteuid(), actor.session)
    row = (*structs.astuple(fact), *noted, actor.trace_id, actor.span_id)
    added = conn.execute(_APPEND, row)
    assert added.lastrowid is not None
    return added.lastrowid


class Wanted(Struct, frozen=True, kw_only=True):
    """Which events a caller asks for; what is left out does not matter."""

    since: int = 0
    limit: int
    run_id: str = ""
    source: str | None = None
    type: str | None = None
    subject_id: str | None = None
    session: str | None = None
    marks: Marks = Marks()
    until: int = LAST
    newest: bool = False  # the last `limit`, instead of the first


def read(
    conn: sqlite3.Connection,
    *,
    since: int = 0,
    limit: int,
    run_id: str = "",
    source: str | None = None,
    type: str | None = None,  # noqa: A002 -- the field's name
) -> list[Event]:
    """Events after `since`, in order: at most `limit`, and fewer where payloads are large."""
    wanted = Wanted(since=since, limit=limit, run_id=run_id, source=source, type=type)
    return page(conn, wanted)[0]


def page(conn: sqlite3.Connection, wanted: Wanted) -> tuple[list[Event], bool]:
    """Read as `read` does, and tell whether there may be more."""
    first, last = _statements(wanted)
    values = structs.asdict(wanted) | structs.asdict(wanted.marks)
    del values["marks"], values["newest"]
    found: list[Event] = []
    size = 0
    for columns in conn.execute(last if wanted.newest else first, values):
        row = checked(_Row, columns)
        found.append(_event(row))
        size += len(row.payload or "") + len(row.reason)
        if size >= BATCH_CHARACTERS:
            break
    if wanted.newest:  # what is left out is before them
        return found[::-1], False
    return found, len(found) >= wanted.limit or size >= BATCH_CHARACTERS


def _statements(wanted: Wanted) -> tuple[str, str]:
    """To read from the beginning, and from the end."""
    if wanted.run_id:
        return OF_RUN, NEWEST_OF_RUN
    return (ALL, NEWEST) if wanted.source is None else (OF_SOURCE, NEWEST_OF_SOURCE)


def batch(conn: sqlite3.Connection, wanted: Wanted) -> Batch:
    """Read a page, and tell where the next one begins."""
    found, more = page(conn, wanted)
    return Batch(found, found[-1].seq if more else head(conn), more)


def head(conn: sqlite3.Connection) -> int:
    """The sequence number of the last event that was ever recorded."""
    row = conn.execute(_HEAD).fetchone()
    return int(row[0]) if row else 0


def last_before(conn: sqlite3.Connection, at_ms: int) -> int:
    """The last event that was recorded before a moment: what follows is not older, as clocks go."""
    row = conn.execute(LAST_BEFORE, (at_ms,)).fetchone()
    return int(row[0]) if row else 0


def go_on_after(conn: sqlite3.Connection, seq: int) -> None:
    """Give no number up to this one to any later event."""
    if not conn.execute(_RAISE_HEAD, (seq,)).rowcount:
        conn.execute(_SET_HEAD, (seq,))


def has_run(conn: sqlite3.Connection, run_id: str) -> bool:
    """Whether anything is known to have happened in that run."""
    return conn.execute(_HAS_RUN, (run_id,)).fetchone() is not None


def oldest(conn: sqlite3.Connection) -> int:
    """The first sequence number that can be read; of an empty log, that of the next event."""
    row = conn.execute(_OLDEST).fetchone()
    return int(row[0]) if row else head(conn) + 1


def pruned_through(conn: sqlite3.Connection) -> int:
    (value,) = conn.execute(_PRUNED).fetchone()
    return int(value)


def require_kept(conn: sqlite3.Connection, since: int, *, hint: str) -> None:
    """Tell a reader that goes on from `since` if it would skip events: those that were pruned, or
    recorded since the log went back.
    """
    last = head(conn)
    if since > last:
        raise CursorAhead(f"there is no event {since}; the last event is {last}", last=last)
    if since < pruned_through(conn):
        first = oldest(conn)
        raise CursorBehind(
            f"events after {since} have been pruned; the oldest is {first}", oldest=first, hint=hint
        )


def check(fact: Fact) -> None:
    """Whether the names in a fact are fit to be recorded."""
    check_source(fact.source)
    check_name(fact.type)
    for text in (fact.run_id, fact.subject_id, fact.from_state, fact.to_state):
        check_scope(text)
    if fact.idempotency_key is not None:
        check_name(fact.idempotency_key)


def check_source(source: str) -> None:
    if not SOURCE.fullmatch(source):
        raise InvalidName(
            f"invalid source {shown(source)}",
            hint="use a lower-case word such as review, at most 64 characters of a-z, 0-9, _ and -",
        )


def _event(row: _Row) -> Event:
    run_id, reason = row.run_id, row.reason
    if row.source == "discovery":  # the original shows a discovery where others show their run
        run_id, reason = run_id or row.subject_id, reason or row.payload or ""
    return Event(
        id=row.seq if row.source_id is None else row.source_id,
        run_id=run_id,
        source=row.source,
        type=row.type,
        from_state=row.from_state,
        to_state=row.to_state,
        reason=reason,
        timestamp=iso(row.at),
        seq=row.seq,
        at_ms=row.at_ms,
        subject_id=row.subject_id,
        payload=UNSET if row.payload is None else document(row.payload),
        session=row.actor_session,
        pid=row.actor_pid,
        uid=row.actor_uid,
        trace_id=row.trace_id,
        span_id=row.span_id,
        project_dir=row.project_dir,
        idempotency_key=row.idempotency_key,
    )
