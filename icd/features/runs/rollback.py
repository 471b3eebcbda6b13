"""Going back to an earlier phase, and taking back what came of the phases since.

Invariants
    - only an active or a completed run goes back; a completed one is active again, so its scope
      must be free;
    - the phases after the target, through the one that it was in, are rolled back: their artifacts
      are marked, their skips forgotten, so that the run goes through all of them again;
    - whatever works for the run stops: its agents have failed, its dispatches are cancelled.

Only the database is changed here: whoever asked ends the processes of the dispatches named.

Callers run these inside a transaction.
"""

import sqlite3
from collections.abc import Sequence

from msgspec import Struct, json

from icd.errors import PhaseRefused, RollbackRefused, RunTaken
from icd.features.dispatches import store as dispatches
from icd.features.runs import create as claims
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.values.processes import Writer


class Rollback(Struct, frozen=True, kw_only=True):
    """`dispatches` are those that were cancelled."""

    from_phase: str
    to_phase: str
    phases: list[str]
    artifacts: int = 0
    agents: int = 0
    skips: list[str]
    dispatches: list[str]


_MARK = """
UPDATE run_artifacts SET status = 'rolled_back'
WHERE run_id = :run_id AND phase IN (SELECT value FROM json_each(:phases)) AND status = 'active'
"""
_SKIPS = """
SELECT phase FROM run_skips
WHERE run_id = :run_id AND phase IN (SELECT value FROM json_each(:phases)) ORDER BY phase
"""
_UNSKIP = """
DELETE FROM run_skips
WHERE run_id = :run_id AND phase IN (SELECT value FROM json_each(:phases))
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
    return _planned(conn, runs.require(conn, run_id), to_phase, now_ms=now_ms)


def carry_out(
    conn: sqlite3.Connection, run_id: str, to_phase: str, *, reason: str, actor: Writer, now_ms: int
) -> Rollback:
    run = runs.require(conn, run_id)
    planned = _planned(conn, run, to_phase, now_ms=now_ms)
    transitions.move(conn, run, to_phase, status="active", now_ms=now_ms)
    transitions.tell(
        conn, run, "rollback", to_phase=to_phase, reason=reason, actor=actor, now_ms=now_ms
    )
    values = {"run_id": run.id, "phases": _text(planned.phases), "now_ms": now_ms}
    artifacts = conn.execute(_MARK, values).rowcount
    conn.execute(_UNSKIP, values)
    agents = conn.execute(_FAIL, values).rowcount
    if planned.dispatches:
        why = f"rolled back to {to_phase}"
        dispatches.cancel_of_run(conn, run, reason=why, actor=actor, now_ms=now_ms)
    return Rollback(
        from_phase=planned.from_phase,
        to_phase=planned.to_phase,
        phases=planned.phases,
        artifacts=artifacts,
        agents=agents,
        skips=planned.skips,
        dispatches=planned.dispatches,
    )


def _planned(conn: sqlite3.Connection, run: Run, to_phase: str, *, now_ms: int) -> Rollback:
    if "rollback" not in transitions.MAY[run.status]:
        raise RollbackRefused(f"run {run.id} is {run.status}")
    chain = phases.chain(run)
    here = phases.place(chain, run.phase)
    if to_phase not in chain[:here]:
        raise PhaseRefused(f'target phase "{to_phase}" is not behind current phase "{run.phase}"')
    _require_free(conn, run, now_ms=now_ms)
    taken_back = phases.between(chain, to_phase, run.phase)
    values = {"run_id": run.id, "phases": _text(taken_back)}
    return Rollback(
        from_phase=run.phase,
        to_phase=to_phase,
        phases=taken_back,
        skips=[phase for (phase,) in conn.execute(_SKIPS, values)],
        dispatches=[found for (found,) in conn.execute(_DISPATCHES, (run.id,))],
    )


def _require_free(conn: sqlite3.Connection, run: Run, *, now_ms: int) -> None:
    """Somebody else may have begun with the same scope since the run was completed."""
    if run.status == "active" or run.scope_id is None:
        return
    holder = runs.holder(conn, run.project_dir, run.scope_id)
    if holder is not None:
        raise RunTaken(claims.taken(holder, now_ms=now_ms), run_id=holder.id)


def _text(names: Sequence[str]) -> str:
    return json.encode(names).decode()
