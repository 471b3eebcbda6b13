"""run create, run rollback: a run begins, or begins again in an earlier phase.

Both claim what a run is about.  Of all who create a run for one scope of a project, one gets it;
the others are told who has it, how old it is and whether its holder lives.  A run that has shown no
sign of life for as long as the caller says is abandoned in the same transaction, so that no reader
ever sees two, or none.

Whether the holder lives is told, not judged: an agent may go on in another process than the one
that created the run.

Invariants of a rollback
    - only an active or a completed run goes back; a completed one is active again, so its scope
      must be free;
    - the phases after the target, through the one that it was in, are rolled back: their artifacts
      are marked, their skips forgotten, so that the run goes through all of them again;
    - what works for the run stops: its agents have failed, its dispatches are cancelled.

Only the database is changed here: the caller ends the processes of the dispatches named.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Any

from msgspec import field, json

from icd.errors import IcError, PhaseRefused, RollbackRefused, RunTaken
from icd.features.dispatches import store as dispatches
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.features.runs.store import COMPLEXITY, Run
from icd.values import processes
from icd.values.processes import Process, Writer
from icd.values.validation import new_id
from icd.values.wire import Result


def new(
    *,
    project_dir: str,
    goal: str,
    complexity: int = COMPLEXITY,
    chain: tuple[str, ...] | None = None,
    actor: Writer,
    now_ms: int,
    **columns: Any,
) -> Run:
    """A run in the first phase of its chain; `columns` are others of `Run` that the caller sets."""
    owner = Process(0) if actor.pid is None else processes.identify(actor.pid)
    return Run(
        id=new_id(),
        project_dir=project_dir,
        goal=goal,
        status="active",
        phase=(chain or phases.DEFAULT)[0],
        complexity=complexity,
        force_full=False,
        auto_advance=True,
        phases=None if chain is None else json.encode(chain).decode(),
        session=actor.session,
        owner_pid=owner.pid or None,
        owner_start=owner.start or None,
        owner_boot=owner.boot or None,
        owner_pidns=owner.pidns or None,
        created_at=now_ms // 1000,
        created_ms=now_ms,
        updated_at=now_ms // 1000,
        updated_ms=now_ms,
        **columns,
    )


def create(
    conn: sqlite3.Connection,
    run: Run,
    *,
    takeover_after_ms: int | None,
    actor: Writer,
    now_ms: int,
) -> Run | None:
    """Add a run.  The answer is the run that had its scope, and is abandoned."""
    holder = None
    if run.scope_id is not None:
        holder = runs.holder(conn, run.project_dir, run.scope_id)
    if holder is not None:
        _require_stale(holder, takeover_after_ms, now_ms=now_ms)
        silent = span(now_ms - holder.updated_ms)
        transitions.abandon(
            conn,
            holder.id,
            reason=f"idle for {silent}; taken over by run {run.id}",
            successor=run.id,
            actor=actor,
            now_ms=now_ms,
        )
    runs.add(conn, run)
    return holder


def taken(run: Run, *, now_ms: int) -> IcError:
    """The error that says who has a scope."""
    return RunTaken(f"{run.scope_id} is taken by {described(run, now_ms=now_ms)}", run_id=run.id)


def described(run: Run, *, now_ms: int) -> str:
    age, silent = span(now_ms - run.created_ms), span(now_ms - run.updated_ms)
    return (
        f"run {run.id}, created {age} ago, in phase {run.phase}, "
        f"last activity {silent} ago, {_holder(run)}"
    )


def span(ms: int) -> str:
    """A time that passed, roughly; none if the clock went back."""
    seconds = max(0, ms) // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


_LIVENESS = {"alive": "is alive", "dead": "is gone", "unknown": "may be alive"}


def _holder(run: Run) -> str:
    """Who created a run, and whether it is still there."""
    if run.owner is None:
        process = "process unknown"
    else:
        process = f"pid {run.owner.pid} {_LIVENESS[processes.liveness(run.owner)]}"
    return f"{process}, session {run.session}" if run.session else process


def _require_stale(holder: Run, takeover_after_ms: int | None, *, now_ms: int) -> None:
    silent_ms = max(0, now_ms - holder.updated_ms)  # if the clock went back, none that we know of
    if takeover_after_ms is None or silent_ms < takeover_after_ms:
        raise taken(holder, now_ms=now_ms)


# --- going back to an earlier phase ---------------------------------------------------------------


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


def plan_rollback(conn: sqlite3.Connection, run_id: str, to_phase: str, *, now_ms: int) -> Rollback:
    """What going back would take back, or why it is refused."""
    run = runs.require(conn, run_id)
    taken_back = _taken_back(conn, run, to_phase, now_ms=now_ms)
    return Rollback(run.phase, to_phase, taken_back, dry_run=True)


def rollback(
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
        raise taken(holder, now_ms=now_ms)
