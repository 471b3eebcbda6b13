"""Beginning a run, and with it the claim on what it is about.

Of all who create a run for one scope of a project, one gets it; the others are told who has it, how
old it is and whether its holder lives.  A run that has shown no sign of life for as long as the
caller says is abandoned in the same transaction, so that nobody ever sees two, or none.

Whether the holder lives is told, not judged: an agent may go on in another process than the one
that created the run.

Callers run these inside a transaction.
"""

import sqlite3

from msgspec import Struct, json

from icd.errors import RunTaken
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.values import ids, processes
from icd.values.processes import Process, Writer

COMPLEXITY = 3
WARN_PCT = 80


class Wanted(Struct, frozen=True, kw_only=True):
    """What somebody wants to have done; texts as they are stored."""

    project_dir: str
    goal: str
    complexity: int = COMPLEXITY
    scope_id: str | None = None
    chain: tuple[str, ...] | None = None
    gates: str | None = None
    token_budget: int | None = None
    budget_warn_pct: int = WARN_PCT
    metadata: str | None = None
    actions: str | None = None
    auto_spawn: bool = False


class Created(Struct, frozen=True):
    """`took_over` had the scope before, and is abandoned."""

    run: Run
    took_over: Run | None


def create(
    conn: sqlite3.Connection,
    wanted: Wanted,
    *,
    takeover_after_ms: int | None,
    actor: Writer,
    now_ms: int,
) -> Created:
    run = _made(wanted, actor=actor, now_ms=now_ms)
    holder = None
    if run.scope_id is not None:
        holder = runs.holder(conn, run.project_dir, run.scope_id)
    if holder is not None:
        _require_stale(holder, takeover_after_ms, now_ms=now_ms)
        silent = span(now_ms - holder.updated_ms)
        transitions.abandon(
            conn,
            holder.id,
            reason=f"no sign of life for {silent}; taken over by run {run.id}",
            successor=run.id,
            actor=actor,
            now_ms=now_ms,
        )
    runs.add(conn, run)
    return Created(run, holder)


def taken(run: Run, *, now_ms: int) -> str:
    """Who has a scope, for whoever cannot get it."""
    return f"{run.scope_id} is taken by {described(run, now_ms=now_ms)}"


def described(run: Run, *, now_ms: int) -> str:
    age, silent = span(now_ms - run.created_ms), span(now_ms - run.updated_ms)
    return (
        f"run {run.id}, created {age} ago, in phase {run.phase}, "
        f"last sign of life {silent} ago, {holder_of(run)}"
    )


def holder_of(run: Run) -> str:
    """Who created a run, and whether it is still there."""
    if run.owner is None:
        process = "process unknown"
    else:
        process = f"pid {run.owner.pid} {_LIVENESS[processes.liveness(run.owner)]}"
    return f"{process}, session {run.session}" if run.session else process


_LIVENESS = {"alive": "is alive", "dead": "is gone", "unknown": "may be alive"}


def span(ms: int) -> str:
    """A time that passed, roughly; none if the clock went back."""
    seconds = max(0, ms) // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _require_stale(holder: Run, takeover_after_ms: int | None, *, now_ms: int) -> None:
    silent_ms = max(0, now_ms - holder.updated_ms)  # if the clock went back, none that we know of
    if takeover_after_ms is None or silent_ms < takeover_after_ms:
        raise RunTaken(taken(holder, now_ms=now_ms), run_id=holder.id)


def _made(wanted: Wanted, *, actor: Writer, now_ms: int) -> Run:
    owner = Process(0) if actor.pid is None else processes.identify(actor.pid)
    return Run(
        id=ids.new(),
        project_dir=wanted.project_dir,
        goal=wanted.goal,
        status="active",
        phase=(wanted.chain or phases.DEFAULT)[0],
        complexity=wanted.complexity,
        force_full=False,
        auto_advance=True,
        auto_spawn=wanted.auto_spawn,
        scope_id=wanted.scope_id,
        phases=None if wanted.chain is None else json.encode(wanted.chain).decode(),
        gates=wanted.gates,
        token_budget=wanted.token_budget,
        budget_warn_pct=wanted.budget_warn_pct,
        budget_told=0,
        metadata=wanted.metadata,
        actions=wanted.actions,
        session=actor.session,
        owner_pid=owner.pid or None,
        owner_start=owner.start or None,
        owner_boot=owner.boot or None,
        owner_pidns=owner.pidns or None,
        created_at=now_ms // 1000,
        created_ms=now_ms,
        updated_at=now_ms // 1000,
        updated_ms=now_ms,
        completed_at=None,
    )
