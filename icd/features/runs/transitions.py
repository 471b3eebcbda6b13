"""What can happen to a run: one function a transition, its event in the same transaction.

Strategy
    A run has a status and a phase.  `MAY` says what may be done in which status; phases.py says
    where a phase leads.  A transition reads the run, decides with these two, changes the row by
    one statement that compares id, status and phase with what was read, and appends one event.
    So of an advance and a cancel at once, the first that commits decides, and the other finds
    that it came too late; nothing is ever half of one and half of the other.

    active --advance, override--> active in a later phase, or completed in the last one
    active --advance--> the same, with the event `pause` or `block`: it was asked, and may not
    active --skip, set--> the same phase
    active --cancel--> cancelled        active --abandon--> abandoned
    active, completed --rollback--> active in an earlier phase (create.py)

    Folding the events of a run gives its row: `advance`, `override` and `rollback` go from
    `from_state` to `to_state`, all others stay where they are.

Callers run these inside a transaction; nothing here begins or commits one.
"""

import sqlite3
from collections.abc import Collection

from msgspec import UNSET, Struct, UnsetType, json

from icd.errors import PhaseRefused, RunOver
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.gates import store as gates
from icd.features.gates.store import Verdict
from icd.features.runs import actions, history, phases
from icd.features.runs import store as runs
from icd.features.runs.actions import Action
from icd.features.runs.store import Run
from icd.values import payloads
from icd.values.processes import Writer

# What is not listed is refused.
MAY: dict[str, frozenset[str]] = {
    "active": frozenset({"advance", "override", "skip", "set", "cancel", "abandon", "rollback"}),
    "completed": frozenset({"rollback"}),
    "cancelled": frozenset(),
    "failed": frozenset(),
    "abandoned": frozenset(),
}
# Entering it starts the agents of a run that asked for that.
SPAWNING = "executing"


class Advance(Struct):
    """What an advance came to; `reason` is empty if there is nothing to say.

    `actions` are those of the new phase, if there are any; see actions.py.
    """

    event_type: str
    from_phase: str
    to_phase: str
    gate_result: str = "none"
    gate_tier: str = "none"
    reason: str = ""
    spawns: bool = False
    advanced: bool = False
    actions: list[Action] | UnsetType = UNSET

    def __post_init__(self) -> None:
        self.advanced = self.event_type in ("advance", "override")


_MOVE = """
UPDATE runs SET phase = :to_phase, status = :to_status, completed_at = :completed_at,
                updated_at = :now_ms / 1000, updated_ms = :now_ms
WHERE id = :id AND status = :status AND phase = :phase
RETURNING id
"""
_SET = """
UPDATE runs SET complexity = coalesce(:complexity, complexity),
                auto_advance = coalesce(:auto_advance, auto_advance),
                force_full = coalesce(:force_full, force_full),
                max_agents = nullif(coalesce(:max_agents, max_agents), 0),
                max_dispatches = nullif(coalesce(:max_dispatches, max_dispatches), 0),
                metadata = coalesce(:metadata, metadata),
                updated_at = :now_ms / 1000, updated_ms = :now_ms
WHERE id = :id AND status = :status AND phase = :phase
RETURNING id
"""
_SKIP = """
INSERT INTO run_skips (run_id, phase, reason, created_at) VALUES (?, ?, ?, ?)
ON CONFLICT (run_id, phase) DO UPDATE SET reason = excluded.reason
"""


def advance(
    conn: sqlite3.Connection,
    run_id: str,
    *,
    priority: int = gates.DEFAULT_PRIORITY,
    disable_gates: bool = False,
    skip_reason: str = "",
    if_phase: str | None = None,
    raised: Collection[str] = (),
    actor: Writer,
    now_ms: int,
) -> Advance:
    """Go to the next phase that is not skipped, if nothing is in the way; what is, is recorded."""
    run = runs.require(conn, run_id)
    chain = phases.chain(run)
    if if_phase is not None and if_phase not in chain:
        raise PhaseRefused(f'phase "{if_phase}" is not in the chain of run {run.id}')
    if if_phase is not None and run.phase != if_phase:
        # Another caller was faster: nothing changes, and nothing is recorded.
        why = history.why_not_in(conn, run, if_phase)
        return Advance("stale", run.phase, run.phase, reason=why)
    to_phase = next_phase(conn, run)
    if run.auto_advance or skip_reason:
        verdict = gates.evaluate(
            conn, run, to_phase, priority=priority, disabled=disable_gates, raised=raised
        )
        found = _judged(run, to_phase, verdict, skip_reason)
    else:
        found = Advance("pause", run.phase, to_phase, reason="auto_advance disabled")
    if found.advanced:
        move(conn, run, to_phase, now_ms=now_ms)
    else:
        runs.touch(conn, run.id, now_ms=now_ms)
    _record(conn, run, found, actor=actor, now_ms=now_ms)
    if found.advanced:
        found.actions = actions.resolved(conn, run, to_phase) or UNSET
    return found


def override(
    conn: sqlite3.Connection,
    run_id: str,
    reason: str,
    *,
    category: str | None = None,
    actor: Writer,
    now_ms: int,
) -> Advance:
    """Go to the very next phase, skipped or not; its gate is not asked.

    `category`: whether the gate was wrong, or only in the way; see icd/features/gates/signals.py.
    """
    run = runs.require(conn, run_id)
    require_may(run, "override")
    found = Advance("override", run.phase, _ahead(run, ()), "fail", "hard", reason)
    move(conn, run, found.to_phase, now_ms=now_ms)
    said = {} if category is None else {"override_category": category}
    _record(conn, run, found, said, actor=actor, now_ms=now_ms)
    return found


def skip(
    conn: sqlite3.Connection,
    run_id: str,
    phase: str,
    *,
    reason: str,
    actor: Writer,
    now_ms: int,
) -> None:
    """Pass over a phase ahead, but not over the gates on the way; see `gates.evaluate`."""
    run = runs.require(conn, run_id)
    require_may(run, "skip")
    chain = phases.chain(run)
    if phase not in chain:
        raise PhaseRefused(f'phase "{phase}" is not in the chain of run {run.id}')
    if phase == chain[-1]:
        raise PhaseRefused(f'phase "{phase}" is the last one and cannot be skipped')
    if phases.place(chain, phase) <= phases.place(chain, run.phase):
        raise PhaseRefused(f'phase "{phase}" is not ahead of current phase "{run.phase}"')
    conn.execute(_SKIP, (run.id, phase, reason, now_ms // 1000))
    runs.touch(conn, run.id, now_ms=now_ms)
    tell(conn, run, "skip", to_phase=phase, reason=reason, actor=actor, now_ms=now_ms)


def cancel(conn: sqlite3.Connection, run_id: str, *, actor: Writer, now_ms: int) -> None:
    run = runs.require(conn, run_id)
    require_may(run, "cancel")
    move(conn, run, run.phase, status="cancelled", now_ms=now_ms)
    tell(conn, run, "cancel", actor=actor, now_ms=now_ms)


def abandon(
    conn: sqlite3.Connection,
    run_id: str,
    *,
    reason: str = "",
    successor: str | None = None,
    actor: Writer,
    now_ms: int,
) -> None:
    """End a run that no agent works on; `successor` is the run that takes its scope."""
    run = runs.require(conn, run_id)
    require_may(run, "abandon")
    move(conn, run, run.phase, status="abandoned", now_ms=now_ms)
    said = None if successor is None else {"taken_over_by": successor}
    tell(conn, run, "abandon", reason=reason, said=said, actor=actor, now_ms=now_ms)


def configure(
    conn: sqlite3.Connection,
    run_id: str,
    *,
    complexity: int | None = None,
    auto_advance: bool | None = None,
    force_full: bool | None = None,
    max_agents: int | None = None,
    max_dispatches: int | None = None,
    merge: str | None = None,
    actor: Writer,
    now_ms: int,
) -> None:
    """Change settings; what is None stays as it is.  `merge` is an object for the metadata."""
    run = runs.require(conn, run_id)
    require_may(run, "set")
    metadata = (
        None if merge is None else payloads.merged(run.metadata or "{}", merge, f"run {run.id}")
    )
    wanted = {
        "complexity": complexity,
        "auto_advance": auto_advance,
        "force_full": force_full,
        "max_agents": max_agents,
        "max_dispatches": max_dispatches,
    }
    _require_one(conn, _SET, run, now_ms=now_ms, metadata=metadata, **wanted)
    if merge is not None:
        wanted["metadata"] = True
    reason = ", ".join(
        f"{name}={json.encode(value).decode()}"
        for name, value in wanted.items()
        if value is not None
    )
    tell(conn, run, "set", reason=reason, actor=actor, now_ms=now_ms)


def next_phase(conn: sqlite3.Connection, run: Run) -> str:
    """Where an advance would take the run."""
    require_may(run, "advance")
    return _ahead(run, runs.skipped(conn, run.id))


def require_may(run: Run, what: str) -> None:
    if what in MAY.get(run.status, ()):
        return
    if what in ("advance", "override", "skip"):
        raise RunOver(f"run is in a terminal status ({run.status})")
    raise RunOver(f"run already {run.status}")


def move(
    conn: sqlite3.Connection, run: Run, to_phase: str, *, status: str | None = None, now_ms: int
) -> None:
    """Change status and phase of exactly the run that was read."""
    to_status = status or ("completed" if to_phase == phases.chain(run)[-1] else "active")
    completed_at = None if to_status == "active" else now_ms // 1000
    _require_one(
        conn,
        _MOVE,
        run,
        to_phase=to_phase,
        to_status=to_status,
        completed_at=completed_at,
        now_ms=now_ms,
    )


def tell(
    conn: sqlite3.Connection,
    run: Run,
    what: str,
    *,
    to_phase: str | None = None,
    reason: str = "",
    said: dict[str, str] | None = None,
    actor: Writer,
    now_ms: int,
) -> None:
    fact = Fact(
        "phase",
        what,
        run_id=run.id,
        from_state=run.phase,
        to_state=run.phase if to_phase is None else to_phase,
        reason=reason,
        payload=None if said is None else json.encode(said).decode(),
        project_dir=run.project_dir,
    )
    events.append(conn, fact, actor=actor, now_ms=now_ms)


def _judged(run: Run, to_phase: str, verdict: Verdict, skip_reason: str) -> Advance:
    """What becomes of an advance that meets gates."""
    is_blocked = verdict.tier == "hard" and verdict.result == "fail"
    return Advance(
        "block" if is_blocked else "advance",
        run.phase,
        to_phase,
        gate_result=verdict.result,
        gate_tier=verdict.tier,
        reason=" | ".join(filter(None, (skip_reason, verdict.evidence_json()))),
        spawns=run.auto_spawn and not is_blocked and to_phase == SPAWNING,
    )


def _ahead(run: Run, skipped: Collection[str]) -> str:
    found = phases.ahead(phases.chain(run), run.phase, skipped)
    if found is None:
        raise RunOver("run is already in terminal phase")
    return found


def _record(
    conn: sqlite3.Connection,
    run: Run,
    found: Advance,
    more: dict[str, str] | None = None,
    *,
    actor: Writer,
    now_ms: int,
) -> None:
    said = {"gate_result": found.gate_result, "gate_tier": found.gate_tier, **(more or {})}
    tell(
        conn,
        run,
        found.event_type,
        to_phase=found.to_phase,
        reason=found.reason,
        said=said,
        actor=actor,
        now_ms=now_ms,
    )


def _require_one(
    conn: sqlite3.Connection, statement: str, run: Run, **changes: str | int | bool | None
) -> None:
    compared = {"id": run.id, "status": run.status, "phase": run.phase}
    if not conn.execute(statement, compared | changes).fetchall():
        raise PhaseRefused(f"run {run.id} was changed by another call")
