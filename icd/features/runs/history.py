"""What happened to a run, as the log tells it; what was pruned there is not known here.

Callers run these inside a transaction.
"""

import sqlite3

import msgspec
from msgspec import Raw, Struct

from icd.features.events import store as events
from icd.features.events.store import Event, Wanted
from icd.features.runs.store import Run
from icd.values.wire import iso

# Of one run in one answer; an agent that is paused once a minute gets there in a week.
MOST = 10_000


class PhaseEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event of a run in the words of the original."""

    id: int
    run_id: str
    from_phase: str
    to_phase: str
    event_type: str
    gate_result: str | None = None
    gate_tier: str | None = None
    reason: str | None = None
    created_at: int
    created_at_iso: str
    session: str | None = None
    pid: int | None = None


class _Gate(Struct):
    gate_result: str | None = None
    gate_tier: str | None = None


class _Condition(Struct):
    check: str
    result: str
    detail: str | None = None


class _Evidence(Struct):
    conditions: list[_Condition]


_LAST_MOVE = """
SELECT type, to_state, at, actor_session, actor_pid FROM events
WHERE run_id = ? AND run_id <> '' AND source || '' = 'phase' AND from_state = ?
      AND type IN ('advance', 'override', 'rollback')
ORDER BY seq DESC LIMIT 1
"""

_FROM_THE_END = """
SELECT seq FROM events WHERE run_id = ? AND run_id <> '' AND source || '' = 'phase'
ORDER BY seq DESC LIMIT 1 OFFSET ?
"""


def of_run(conn: sqlite3.Connection, run_id: str) -> list[PhaseEvent]:
    """The first events of a run, in their order."""
    return _after(conn, run_id, 0)


def newest_of_run(conn: sqlite3.Connection, run_id: str, *, limit: int) -> list[PhaseEvent]:
    """The last ones, in their order."""
    first = conn.execute(_FROM_THE_END, (run_id, limit - 1)).fetchone()
    return _after(conn, run_id, first[0] - 1 if first else 0)


def why_not_in(conn: sqlite3.Connection, run: Run, expected: str) -> str:
    """What became of a run that a caller believed to be in another phase."""
    where = f"the run is in {run.phase}, not in {expected}"
    row = conn.execute(_LAST_MOVE, (run.id, expected)).fetchone()
    if row is None:
        return where
    what, to_phase, at, session, pid = row
    names = [f"session {session}"] if session else []
    names += [f"pid {pid}"] if pid else []
    who = f" by {', '.join(names)}" if names else ""
    return f"{where}: {what} from {expected} to {to_phase} at {iso(at)}{who}"


def why(event: PhaseEvent) -> str | None:
    """The reason in words: what a gate has recorded is JSON, of which the failures matter."""
    reason = event.reason
    if reason is None or not reason.startswith("{"):
        return reason
    try:
        found = msgspec.json.decode(reason, type=_Evidence).conditions
    except (msgspec.DecodeError, RecursionError):
        return reason
    return ", ".join(each.detail or each.check for each in found if each.result != "pass") or None


def _after(conn: sqlite3.Connection, run_id: str, since: int) -> list[PhaseEvent]:
    found: list[Event] = []
    more = bool(run_id)
    while more and len(found) < MOST:
        wanted = Wanted(since=since, limit=MOST - len(found), run_id=run_id, source="phase")
        page, more = events.page(conn, wanted)
        more = more and bool(page)
        since = page[-1].seq if page else 0
        found += page
    return [_phase_event(event) for event in found]


def _phase_event(event: Event) -> PhaseEvent:
    gate = _Gate()
    if isinstance(event.payload, Raw):
        try:
            gate = msgspec.json.decode(event.payload, type=_Gate)
        except (
            msgspec.DecodeError,
            RecursionError,
        ):  # any program may record events of this source
            gate = _Gate()
    return PhaseEvent(
        id=event.id,
        run_id=event.run_id,
        from_phase=event.from_state,
        to_phase=event.to_state,
        event_type=event.type,
        gate_result=gate.gate_result,
        gate_tier=gate.gate_tier,
        reason=event.reason or None,
        created_at=event.at_ms // 1000,
        created_at_iso=event.timestamp,
        session=event.session,
        pid=event.pid,
    )
