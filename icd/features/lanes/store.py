"""Lanes: a name, what it is for, and the issues that are in it.

Invariants
    - a lane is known by its id and by its name; no two have the same name, closed ones included;
    - `sync` says what is in a lane; what it leaves out has left the lane at that moment, and what
      it names again has come back;
    - what has left a lane stays known, because that is how much the lane gets done: the log may be
      pruned;
    - a lane is closed once; its members and its texts may still change;
    - every change is an event, and a sync that changes nothing is one, too: it was asked.

Callers run these inside a transaction.
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from icd.db.rows import checked, one, put, select, values
from icd.errors import LaneClosed, LaneExists, UnknownLane
from icd.features.events import store as events
from icd.features.events.store import LAST, Fact, Wanted
from icd.values import validation
from icd.values.processes import Writer
from icd.values.validation import new_id
from icd.values.wire import Result

SOURCE = "lane"
LaneType = Literal["standing", "arc"]
Status = Literal["active", "closed", "archived"]

# What an open issue weighs, of which nothing is known here: that of the original's middle priority.
WEIGHT = 3
# A lane that gets nothing done starves, but not without limit.
LEAST_THROUGHPUT = 0.1
DAY = 86_400


class Lane(Result):
    """`metadata` is a JSON object, as text."""

    id: str
    name: str
    lane_type: LaneType
    status: Status
    description: str
    intent: str
    metadata: str
    created_at: int
    updated_at: int
    closed_at: int | None


class Row(Lane):
    updated_ms: int


class Member(Result):
    """`removed_at` is null while the issue is in the lane."""

    lane_id: str
    bead_id: str
    added_at: int
    removed_at: int | None
    changed_ms: int


class Document(Lane):
    """A lane with its issues, the longest there first, and the number of its events."""

    member_count: int
    members: list[str]
    event_count: int


class Happened(Result):
    """`payload` is JSON, as text; `id` is the number that the event has in the log."""

    id: int
    lane_id: str
    event_type: str
    payload: str
    created_at: int


class Synced(Result):
    lane_id: str
    name: str
    member_count: int
    added: list[str]
    removed: list[str]


class Velocity(Result):
    """`closed`: how many issues left the lane within the days; `throughput` is the same number."""

    lane_id: str
    name: str
    open_beads: int
    closed: int
    throughput: float
    starvation: float


class _Count(Struct):
    """How many issues are in a lane, and how many left it."""

    id: str
    name: str
    there: int
    left: int


_BY_ID = select(Row, "lanes", "WHERE id = ?")
_BY_NAME = select(Row, "lanes", "WHERE name = ?")
_LIST = select(Lane, "lanes", "WHERE (status = ?1 OR ?1 IS NULL) ORDER BY name")
_PUT = put(Row, "lanes", key=("id",))
_MEMBERS = select(
    Member,
    "lane_members",
    "WHERE lane_id = ? AND removed_at IS NULL ORDER BY added_at, bead_id",
)
_PUT_MEMBER = put(Member, "lane_members", key=("lane_id", "bead_id"))
_REMOVE = "UPDATE lane_members SET removed_at = ?, changed_ms = ? WHERE lane_id = ? AND bead_id = ?"
_COUNT_EVENTS = "SELECT count(1) FROM events WHERE source = 'lane' AND subject_id = ?"
_VELOCITY = """
SELECT l.id, l.name, count(m.bead_id) - count(m.removed_at),
       coalesce(sum(CASE WHEN m.removed_at >= ? THEN 1 ELSE 0 END), 0)
FROM lanes AS l LEFT JOIN lane_members AS m ON m.lane_id = l.id
WHERE l.status = 'active' GROUP BY l.id, l.name
"""


def create(
    conn: sqlite3.Connection,
    name: str,
    *,
    lane_type: LaneType,
    description: str,
    intent: str,
    metadata: str,
    actor: Writer,
    now_ms: int,
) -> Row:
    if find(conn, name) is not None:
        raise LaneExists(f"there is a lane {validation.shown(name)}")
    now = now_ms // 1000
    lane = Row(
        new_id(), name, lane_type, "active", description, intent, metadata, now, now, None, now_ms
    )
    conn.execute(_PUT, values(lane))
    said = {"name": name, "lane_type": lane_type}
    _tell(conn, "created", lane, said, actor=actor, now_ms=now_ms)
    return lane


def find(conn: sqlite3.Connection, word: str) -> Row | None:
    """The lane with that id, else the one with that name."""
    return one(conn, Row, _BY_ID, (word,)) or one(conn, Row, _BY_NAME, (word,))


def require(conn: sqlite3.Connection, word: str) -> Row:
    found = find(conn, word)
    if found is None:
        raise UnknownLane(f"there is no lane {validation.shown(word)}")
    return found


def every(conn: sqlite3.Connection, status: str | None = None) -> list[Lane]:
    return [checked(Lane, row) for row in conn.execute(_LIST, (status,))]


def shown(row: Row) -> Lane:
    return Lane(*structs.astuple(row)[: len(Lane.__struct_fields__)])


def members(conn: sqlite3.Connection, lane: Lane) -> list[str]:
    return [checked(Member, row).bead_id for row in conn.execute(_MEMBERS, (lane.id,))]


def in_full(conn: sqlite3.Connection, lane: Row) -> Document:
    there = members(conn, lane)
    (count,) = conn.execute(_COUNT_EVENTS, (lane.id,)).fetchone()
    facts = structs.asdict(shown(lane))
    return Document(**facts, member_count=len(there), members=there, event_count=count)


def sync(
    conn: sqlite3.Connection, lane: Row, beads: Sequence[str], *, actor: Writer, now_ms: int
) -> Synced:
    """Have exactly these issues in the lane."""
    before = set(members(conn, lane))
    wanted = list(dict.fromkeys(beads))
    added = [bead for bead in wanted if bead not in before]
    removed = sorted(before.difference(wanted))
    now = now_ms // 1000
    came = (Member(lane.id, bead, now, None, now_ms) for bead in added)
    conn.executemany(_PUT_MEMBER, map(values, came))
    conn.executemany(_REMOVE, ((now, now_ms, lane.id, bead) for bead in removed))
    _touch(conn, lane, now_ms=now_ms)
    said = {"count": len(wanted), "added": added, "removed": removed}
    _tell(conn, "snapshot", lane, said, actor=actor, now_ms=now_ms)
    return Synced(lane.id, lane.name, len(wanted), added, removed)


def update(
    conn: sqlite3.Connection, lane: Row, changes: dict[str, str], *, actor: Writer, now_ms: int
) -> Row:
    """Change texts of a lane; the event has what they are now."""
    changed = structs.replace(lane, **changes)
    _touch(conn, changed, now_ms=now_ms)
    _tell(conn, "updated", lane, changes, actor=actor, now_ms=now_ms)
    return changed


def close(conn: sqlite3.Connection, lane: Row, *, actor: Writer, now_ms: int) -> Row:
    if lane.status != "active":
        raise LaneClosed(f"the lane {validation.shown(lane.name)} is {lane.status}")
    closed = structs.replace(lane, status="closed", closed_at=now_ms // 1000)
    _touch(conn, closed, now_ms=now_ms)
    _tell(conn, "closed", lane, {}, actor=actor, now_ms=now_ms)
    return closed


def velocity(conn: sqlite3.Connection, *, days: int, now_ms: int) -> list[Velocity]:
    """What each active lane gets done; the one that starves most comes first."""
    since = now_ms // 1000 - days * DAY
    found = [_velocity(checked(_Count, row)) for row in conn.execute(_VELOCITY, (since,))]
    return sorted(found, key=lambda each: (-each.starvation, each.name))


def _velocity(lane: _Count) -> Velocity:
    starvation = lane.there * WEIGHT / max(lane.left, LEAST_THROUGHPUT)
    return Velocity(lane.id, lane.name, lane.there, lane.left, float(lane.left), starvation)


def happened(conn: sqlite3.Connection, lane: Lane, *, limit: int) -> list[Happened]:
    """The newest events of a lane, in their order."""
    wanted = Wanted(limit=limit, source=SOURCE, subject_id=lane.id, until=LAST, newest=True)
    return [
        Happened(event.seq, lane.id, event.type, _payload(event), event.at_ms // 1000)
        for event in events.page(conn, wanted)[0]
    ]


def _payload(event: events.Event) -> str:
    return bytes(event.payload).decode() if isinstance(event.payload, msgspec.Raw) else "{}"


def _touch(conn: sqlite3.Connection, lane: Row, *, now_ms: int) -> None:
    conn.execute(_PUT, values(structs.replace(lane, updated_at=now_ms // 1000, updated_ms=now_ms)))


def _tell(
    conn: sqlite3.Connection,
    change: str,
    lane: Lane,
    said: dict[str, Any],
    *,
    actor: Writer,
    now_ms: int,
) -> None:
    payload = msgspec.json.encode(said).decode()
    fact = Fact(SOURCE, change, subject_id=lane.id, payload=payload)
    events.append(conn, fact, actor=actor, now_ms=now_ms)
