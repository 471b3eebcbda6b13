"""Who may not: sentinels, and what is held: leases, reservations of files, locks."""

from typing import Any

from msgspec import Struct

from icctl.api import Error
from icd.app.invocation import World
from icd.app.verb import Column, Table
from icd.errors import IcError
from icd.features.locks import directory
from icd.features.locks import store as locks
from icd.features.locks.store import Lock
from icd.features.sentinels.store import Sentinel
from icd.top.projects import Project
from icd.top.rows import MOST, Action, Ask, Row, Steps, Tab, field_of, required

# --- sentinels ------------------------------------------------------------------------------------


def _sentinels(project: Project) -> Steps[list[Row]]:
    (found,) = yield [("sentinel.list", {})]
    rows = [Row(project, (project.database, s.name, s.scope_id), s) for s in required(found)]
    rows.sort(key=lambda row: -row.of.last_fired)
    return rows[:MOST]


def _reset(_world: World, ask: Ask, row: Row) -> str:
    ask("sentinel.reset", {"name": row.of.name, "scope_id": row.of.scope_id})
    return f"sentinel {row.of.name} {row.of.scope_id} may fire again"


def _may_fire(row: Row) -> int | None:
    found: Sentinel = row.of
    return None if found.once else found.last_fired + found.interval


SENTINELS = Table(
    Column("SENTINEL", field_of("name")),
    Column("SCOPE", field_of("scope_id")),
    Column("MAY FIRE", _may_fire, "until"),
    Column("FIRED", field_of("last_fired"), "age"),
    Column("INTERVAL", lambda r: None if r.of.once else r.of.interval, "span"),
    empty="No claims yet. Make one: icctl sentinel check NAME SCOPE --interval=5m",
)
RESET = Action(
    "r",
    "reset",
    lambda r: f"Reset sentinel {r.of.name} {r.of.scope_id}, so that it may fire at once?",
    _reset,
)

# --- what is held ---------------------------------------------------------------------------------


class Held(Struct):
    """A lease, a reservation or a lock; `alive` tells of its holder."""

    kind: str
    what: str
    holder: str
    alive: str
    since: int
    expires: int | None
    why: str
    of: Any

    @property
    def pid(self) -> int | None:
        owner = getattr(self.of, "owner", None)
        found: int | None = getattr(self.of, "pid", None) or getattr(owner, "pid", None)
        return found

    @property
    def session(self) -> str | None:
        found: str | None = getattr(self.of, "session", None)
        return found


def _held(project: Project) -> Steps[list[Row]]:
    leases, reservations, sessions = yield [
        ("lease.list", {}),
        ("coordination.list", {"active": True}),
        ("session.list", {"limit": MOST}),
    ]
    known = {} if isinstance(sessions, Error) else {s.session_id: s for s in sessions}
    found = [_lease(each, known) for each in required(leases)]
    found += [_reservation(each, known) for each in required(reservations)]
    return [Row(project, (project.database, h.kind, h.what, h.holder), h) for h in found[:MOST]]


def _lease(each: Any, sessions: dict[str, Any]) -> Held:
    alive = _of_session(sessions.get(each.session or each.owner))
    what = f"{each.name} {each.scope_id}"
    return Held("lease", what, each.owner, alive, each.acquired_at, each.expires_at, "", each)


def _reservation(each: Any, sessions: dict[str, Any]) -> Held:
    alive = each.alive if each.pid else _of_session(sessions.get(each.session or each.owner))
    return Held(
        "reservation", each.pattern, each.owner, alive, each.created_at, each.expires_at,
        each.reason, each,
    )  # fmt: skip


def _of_session(session: Any) -> str:
    """A lease outlives processes: whether its session goes on is all that can be told."""
    return "unknown" if session is None else "alive" if session.ended_at is None else "ended"


def _locks(world: World, _rows: list[Row]) -> list[Row]:
    """Locks lie in a directory, and belong to no project."""
    try:
        return [lock(each) for each in locks.every(directory.place(world.env))[:MOST]]
    except IcError:
        return []


def lock(each: Lock) -> Row:
    owner = each.owner.owner if each.owner else ""
    since = each.owner.created if each.owner else 0
    what = f"{each.name} {each.scope}"
    held = Held("lock", what, owner, each.liveness, since, None, "", each)
    return Row(None, ("", held.kind, what, owner), held)


def _release(world: World, ask: Ask, row: Row) -> str:
    held: Held = row.of
    each = held.of
    if held.kind == "lock":
        locks.release(directory.place(world.env), each.name, each.scope, each.owner)
    elif held.kind == "lease":
        params = {"name": each.name, "scope_id": each.scope_id, "token": each.token}
        ask("lease.release", {**params, "owner": each.owner})
    else:
        ask("coordination.release", {"id": each.id})
    return f"{held.kind} {held.what} is released"


def _kept(row: Row) -> str:
    """Only the owner's record says which lock is meant."""
    is_nameless = row.of.kind == "lock" and row.of.of.owner is None
    return "this lock has no readable owner: icctl lock clean" if is_nameless else ""


def _warned(row: Row) -> str:
    held: Held = row.of
    warning = " Its holder is alive, and is not told." if held.alive == "alive" else ""
    return f"Release the {held.kind} {held.what} of {held.holder or 'an unknown holder'}?{warning}"


HELD = Table(
    Column("KIND", field_of("kind"), "id"),
    Column("WHAT", field_of("what"), "path"),
    Column("HOLDER", field_of("holder")),
    Column("ALIVE", field_of("alive"), "state"),
    Column("FOR", lambda r: (r.of.since, None) if r.of.since else None, "elapsed"),
    Column("EXPIRES", field_of("expires"), "until"),
    Column("WHY", field_of("why"), spare=True),
    empty="Nothing is held: no lease, no lock, no reservation of files.",
)
RELEASE = Action("r", "release", _warned, _release, _kept)

TABS = (
    Tab("Sentinels", "Sent", SENTINELS, _sentinels, actions=(RESET,)),
    Tab("Held", "Held", HELD, _held, _locks, actions=(RELEASE,)),
)
