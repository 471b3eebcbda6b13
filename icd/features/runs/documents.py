"""A run as everybody is shown it, by whichever method."""

import sqlite3

from msgspec import UNSET, Raw, UnsetType, field

from icd.errors import UnknownPhase
from icd.features.runs import phases
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.values import payloads, processes
from icd.values.processes import Liveness
from icd.values.wire import Result, iso


class Document(Result):
    """`owner_liveness` and `skipped` are there where one run is asked for, not in lists."""

    id: str
    project_dir: str
    goal: str
    status: str
    phase: str
    complexity: int
    force_full: bool
    auto_advance: bool
    created_at: int
    created_at_iso: str
    updated_at: int
    updated_at_iso: str
    completed_at: int | None = None
    completed_at_iso: str | None = None
    scope_id: str | None = None
    phases: list[str] | None = None
    gates: Raw | UnsetType = UNSET
    token_budget: int | None = None
    budget_warn_pct: int | None = None
    metadata: str | None = None
    actions: Raw | UnsetType = UNSET
    auto_spawn: bool = False
    session: str | None = None
    owner_pid: int | None = None
    owner_liveness: Liveness | None = None
    skipped: list[str] = field(default_factory=list)


def in_full(conn: sqlite3.Connection, run: Run) -> Document:
    found = document(run)
    found.owner_liveness = None if run.owner is None else processes.liveness(run.owner)
    found.skipped = sorted(runs.skipped(conn, run.id))
    return found


def document(run: Run) -> Document:
    has_budget = run.token_budget is not None
    return Document(
        id=run.id,
        project_dir=run.project_dir,
        goal=run.goal,
        status=run.status,
        phase=run.phase,
        complexity=run.complexity,
        force_full=run.force_full,
        auto_advance=run.auto_advance,
        created_at=run.created_at,
        created_at_iso=iso(run.created_at),
        updated_at=run.updated_at,
        updated_at_iso=iso(run.updated_at),
        completed_at=run.completed_at,
        completed_at_iso=None if run.completed_at is None else iso(run.completed_at),
        scope_id=run.scope_id,
        phases=_own_phases(run),
        gates=_json(run.gates),
        token_budget=run.token_budget,
        budget_warn_pct=run.budget_warn_pct if has_budget else None,
        metadata=run.metadata,
        actions=_json(run.actions),
        auto_spawn=run.auto_spawn,
        session=run.session,
        owner_pid=run.owner_pid,
    )


def _own_phases(run: Run) -> list[str] | None:
    """What cannot be read must not keep anybody from seeing the rest."""
    try:
        return None if run.phases is None else list(phases.chain(run))
    except UnknownPhase:
        return None


def _json(text: str | None) -> Raw | UnsetType:
    """Stored text as it is; what somebody else put there would make the whole answer unreadable."""
    return UNSET if text is None or not payloads.is_json(text) else Raw(text)
