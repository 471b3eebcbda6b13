"""Beginning a run, and with it the claim on what it is about.

Of all who create a run for one scope of a project, one gets it; the others are told who has it, how
old it is and whether its holder lives.  A run that has shown no sign of life for as long as the
caller says is abandoned in the same transaction, so that no reader ever sees two, or none.

Whether the holder lives is told, not judged: an agent may go on in another process than the one
that created the run.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Any

from msgspec import json

from icd.errors import IcError, RunTaken
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.features.runs.store import COMPLEXITY, Run
from icd.values import processes
from icd.values.processes import Process, Writer
from icd.values.validation import new_id


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
            reason=f"no sign of life for {silent}; taken over by run {run.id}",
            successor=run.id,
            actor=actor,
            now_ms=now_ms,
        )
    runs.add(conn, run)
    return holder


def taken(run: Run, *, now_ms: int) -> IcError:
    """Says who has a scope."""
    return RunTaken(f"{run.scope_id} is taken by {described(run, now_ms=now_ms)}", run_id=run.id)


def described(run: Run, *, now_ms: int) -> str:
    age, silent = span(now_ms - run.created_ms), span(now_ms - run.updated_ms)
    return (
        f"run {run.id}, created {age} ago, in phase {run.phase}, "
        f"last sign of life {silent} ago, {_holder(run)}"
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
