"""Going back to an earlier phase, and taking back what came of the phases since.

Invariants
    - only an active or a completed run goes back; a completed one is active again, so its scope
      must be free;
    - the phases after the target, through the one that it was in, are rolled back: their artifacts
      are marked, their skips forgotten, so that the run goes through all of them again;
    - what works for the run stops: its agents have failed, its dispatches are cancelled.

Only the database is changed here: the caller ends the processes of the dispatches named.

Callers run these inside a transaction.
"""

import sqlite3

from msgspec import field, json

from icd.errors import PhaseRefused, RollbackRefused
from icd.features.dispatches import store as dispatches
from icd.features.runs import create as claims
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.values.processes import Writer
from icd.values.wire import Result


class Rollback(Result):
    """What a dry run leaves out has not been done; `dispatches` are those that were cancelled."""

    from_phase: str
    to_phase: str
    rolled_back_phases: list[str]
    dry_run: bool = False
    reason: str | None = None
    marked_artifacts: int | None = None
    failed_agents: int | None = None
    cancelled_dispatches: int | None = None
    dispatches: list[str] = field(default_factory=list)
    cleared_skips: list[str] = field(default_factory=list)


_MARK = """
UPDATE run_artifacts SET status = 'rolled_back'
WHERE run_id = :run_id AND phase IN (SELECT value FROM json_each(:phases)) AND status = 'active'
"""
_UNSKIP = """
DELETE FROM run_skips
WHERE run_id = :run_id AND phase IN (SELECT value FROM json_each(:phases)) RETURNING phase
"""
_FAIL = """
UPDATE run_agents SET status = 'failed', updated_at = :now_ms / 1000
WHERE run_id = :run_id AND status = 'active'
"""
_DISPATCHES = """
SELECT id FROM dispatches WHERE run_id = ? AND status IN ('spawned', 'running') ORDER BY rowid
"""


def plan(conn: sqlite3.Connection, run_id: str, to_phase: str, *, now_ms: int) -> Rollback:
    """What going back would take back, or why it is refused."""
    run = runs.require(conn, run_id)
    taken_back = _taken_back(conn, run, to_phase, now_ms=now_ms)
    return Rollback(run.phase, to_phase, taken_back, dry_run=True)


def carry_out(
    conn: sqlite3.Connection, run_id: str, to_phase: str, *, reason: str, actor: Writer, now_ms: int
) -> Rollback:
    run = runs.require(conn, run_id)
    taken_back = _taken_back(conn, run, to_phase, now_ms=now_ms)
    transitions.move(conn, run, to_phase, status="active", now_ms=now_ms)
    transitions.tell(
        conn, run, "rollback", to_phase=to_phase, reason=reason, actor=actor, now_ms=now_ms
    )
    values = {"run_id": run.id, "phases": json.encode(taken_back).decode(), "now_ms": now_ms}
    live = [found for (found,) in conn.execute(_DISPATCHES, (run.id,))]
    done = Rollback(
        run.phase,
        to_phase,
        taken_back,
        reason=reason,
        marked_artifacts=conn.execute(_MARK, values).rowcount,
        failed_agents=conn.execute(_FAIL, values).rowcount,
        cancelled_dispatches=len(live),
        dispatches=live,
        cleared_skips=sorted(phase for (phase,) in conn.execute(_UNSKIP, values)),
    )
    if live:
        why = f"rolled back to {to_phase}"
        dispatches.cancel_of_run(conn, run, reason=why, actor=actor, now_ms=now_ms)
    return done


def _taken_back(conn: sqlite3.Connection, run: Run, to_phase: str, *, now_ms: int) -> list[str]:
    """The phases after the target, if the run may go back to it."""
    if "rollback" not in transitions.MAY.get(run.status, ()):
        raise RollbackRefused(f"run {run.id} is {run.status}")
    chain = phases.chain(run)
    if to_phase not in chain[: phases.place(chain, run.phase)]:
        raise PhaseRefused(f'target phase "{to_phase}" is not behind current phase "{run.phase}"')
    _require_free(conn, run, now_ms=now_ms)
    return phases.between(chain, to_phase, run.phase)


def _require_free(conn: sqlite3.Connection, run: Run, *, now_ms: int) -> None:
    """Another run may have begun with the same scope since this one was completed."""
    if run.status == "active" or run.scope_id is None:
        return
    holder = runs.holder(conn, run.project_dir, run.scope_id)
    if holder is not None:
        raise claims.taken(holder, now_ms=now_ms)
