"""Runs: what an agent works on, and in which phase it is.

Invariants
    - at most one active run of a project has the same scope; a run without a scope limits no other;
    - a run that has ended never changes again, except that a completed one can be rolled back;
    - `updated_ms` is its last sign of life: everything that is done for an active run moves it.

An agent is a note, not a process: what it does is a dispatch's business, and only `update_agent`
changes its status.  An artifact is a path and, if its adder could read the file at that moment, the
digest of what was in it; nothing here opens the file.  Its phase is a name, which need not be in
the run's chain.  Each note about either is a sign of life of the run.

A column is a field of `Shown`, or of `Run` where it is stored but not shown as it is.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from icd.db.rows import Column, checked, put, select, values
from icd.errors import AgentNotFound, LimitReached, RunNotFound, UnknownPhase
from icd.features.runs import phases as chains
from icd.values import payloads, processes
from icd.values.processes import Liveness, Process
from icd.values.validation import new_id
from icd.values.wire import Result, iso, iso_if

COMPLEXITY = 3
WARN_PCT = 80
ALL = 2**63 - 1


class Shown(Result):
    """What is shown of a run as it is stored."""

    id: str
    project_dir: str
    goal: str
    status: str
    phase: str
    complexity: int
    force_full: bool
    auto_advance: bool
    created_at: int
    updated_at: int
    completed_at: Column[int | None] = None
    scope_id: Column[str | None] = None
    token_budget: Column[int | None] = None
    metadata: Column[str | None] = None
    auto_spawn: Column[bool] = False
    session: Column[str | None] = None
    owner_pid: Column[int | None] = None
    max_agents: Column[int | None] = None
    max_dispatches: Column[int | None] = None
    budget_enforce: Column[bool] = False

    def __post_init__(self) -> None:
        """SQLite has no booleans."""
        self.force_full = bool(self.force_full)
        self.auto_advance = bool(self.auto_advance)
        self.auto_spawn = bool(self.auto_spawn)
        self.budget_enforce = bool(self.budget_enforce)


class Run(Shown):
    """A row; `phases`, `gates` and `actions` are JSON as it is stored."""

    phases: Column[str | None] = None
    gates: Column[str | None] = None
    actions: Column[str | None] = None
    budget_warn_pct: Column[int] = WARN_PCT
    budget_told: Column[int] = 0
    owner_start: Column[int | None] = None
    owner_boot: Column[str | None] = None
    owner_pidns: Column[str | None] = None
    created_ms: Column[int] = 0
    updated_ms: Column[int] = 0

    @property
    def owner(self) -> Process | None:
        if self.owner_pid is None:
            return None
        return Process(
            self.owner_pid, self.owner_start or 0, self.owner_boot or "", self.owner_pidns or ""
        )


class Document(Shown):
    """A run as every method shows it; `owner_liveness` and `skipped` are not there in lists."""

    created_at_iso: str = ""
    updated_at_iso: str = ""
    completed_at_iso: str | None = None
    phases: list[str] | None = None
    gates: Raw | UnsetType = UNSET
    actions: Raw | UnsetType = UNSET
    budget_warn_pct: int | None = None
    owner_liveness: Liveness | None = None
    skipped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.created_at_iso = iso(self.created_at)
        self.updated_at_iso = iso(self.updated_at)
        self.completed_at_iso = iso_if(self.completed_at)


_FIND = select(Run, "runs", "WHERE id = ?")
_MEANT = select(
    Run,
    "runs",
    "WHERE scope_id = ? ORDER BY status = 'active' DESC, created_ms DESC, rowid DESC LIMIT 1",
)
_HOLDER = select(Run, "runs", "WHERE project_dir = ? AND scope_id = ? AND status = 'active'")
_CURRENT = select(
    Run,
    "runs",
    """
WHERE project_dir = ?1 AND status = 'active' AND (session = ?2 OR ?2 IS NULL)
ORDER BY created_ms DESC, rowid DESC LIMIT 1
""",
)
_LIST = select(
    Run,
    "runs",
    """
WHERE (status = :status OR :status IS NULL) AND (scope_id = :scope_id OR :scope_id IS NULL)
      AND (project_dir = :project_dir OR :project_dir IS NULL)
      AND (project_dir IN (:home, :here) OR :home IS NULL
           OR substr(project_dir, 1, length(:home) + 1) = :home || '/'
           OR substr(project_dir, 1, length(:here) + 1) = :here || '/')
ORDER BY created_ms DESC, rowid DESC LIMIT :limit
""",
)
_INSERT = put(Run, "runs")
_TOUCH = "UPDATE runs SET updated_at = ?, updated_ms = ? WHERE id = ? AND status = 'active'"
_SKIPPED = "SELECT phase FROM run_skips WHERE run_id = ?"


def find(conn: sqlite3.Connection, run_id: str) -> Run | None:
    return _one(conn, _FIND, run_id)


def require(conn: sqlite3.Connection, run_id: str) -> Run:
    found = find(conn, run_id)
    if found is None:
        raise RunNotFound(f"not found: {run_id}")
    return found


def meant(conn: sqlite3.Connection, word: str) -> Run | None:
    """The run with this id, else the active, else the latest one with this scope."""
    found = find(conn, word)
    return _one(conn, _MEANT, word) if found is None and word else found


def holder(conn: sqlite3.Connection, project_dir: str, scope_id: str) -> Run | None:
    """The active run of a project that has this scope."""
    return _one(conn, _HOLDER, project_dir, scope_id)


def current(
    conn: sqlite3.Connection, project_dir: str, *, session: str | None = None
) -> Run | None:
    """The newest active run of a project, or of a session in it."""
    return _one(conn, _CURRENT, project_dir, session)


def newest(
    conn: sqlite3.Connection,
    *,
    status: str | None = None,
    scope_id: str | None = None,
    project_dir: str | None = None,
    within: tuple[str, str] | None = None,
    limit: int,
) -> list[Run]:
    """Runs, the newest first; what is None does not matter.

    `within`: those of two directories and of all below them.
    """
    home, here = within or (None, None)
    wanted = {
        "status": status,
        "scope_id": scope_id,
        "project_dir": project_dir,
        "home": home,
        "here": here,
        "limit": limit,
    }
    return [checked(Run, row) for row in conn.execute(_LIST, wanted)]


def add(conn: sqlite3.Connection, run: Run) -> None:
    """Add a run; the caller has made sure that its scope is free."""
    conn.execute(_INSERT, values(run))


def touch(conn: sqlite3.Connection, run_id: str, *, now_ms: int) -> None:
    """Note a sign of life; what has ended shows none, though agents may still be noted for it."""
    conn.execute(_TOUCH, (now_ms // 1000, now_ms, run_id))


def skipped(conn: sqlite3.Connection, run_id: str) -> set[str]:
    """The phases that it passes over."""
    return {phase for (phase,) in conn.execute(_SKIPPED, (run_id,))}


def in_full(conn: sqlite3.Connection, run: Run) -> Document:
    found = document(run)
    found.owner_liveness = None if run.owner is None else processes.liveness(run.owner)
    found.skipped = sorted(skipped(conn, run.id))
    return found


def document(run: Run) -> Document:
    found = Document(*structs.astuple(run)[: len(Shown.__struct_fields__)])
    found.phases = _own_phases(run)
    found.gates = _json(run.gates)
    found.actions = _json(run.actions)
    found.budget_warn_pct = None if run.token_budget is None else run.budget_warn_pct
    return found


def limits(run: Run | Document) -> tuple[int, int | None] | None:
    """Its budget of tokens, and the percentage of it at which to warn."""
    return None if run.token_budget is None else (run.token_budget, run.budget_warn_pct)


def _own_phases(run: Run) -> list[str] | None:
    """None also where they cannot be read: the rest of the run is shown all the same."""
    try:
        return None if run.phases is None else list(chains.chain(run))
    except UnknownPhase:
        return None


def _json(text: str | None) -> Raw | UnsetType:
    """Stored text as it is; what another program put there could make the answer unreadable."""
    return UNSET if text is None or not payloads.is_json(text) else Raw(text)


def _one(conn: sqlite3.Connection, statement: str, *given: str | None) -> Run | None:
    row = conn.execute(statement, given).fetchone()
    return checked(Run, row) if row else None


# --- agents that work on a run, as their starters say ---------------------------------------------


AgentStatus = Literal["active", "completed", "failed"]


class Agent(Result):
    id: str
    run_id: str
    agent_type: str
    status: AgentStatus
    created_at: int
    updated_at: int
    name: Column[str | None] = None
    dispatch_id: Column[str | None] = None
    created_at_iso: str = ""
    updated_at_iso: str = ""

    def __post_init__(self) -> None:
        self.created_at_iso = iso(self.created_at)
        self.updated_at_iso = iso(self.updated_at)


_ADD_AGENT = put(Agent, "run_agents")
_AGENTS = select(
    Agent, "run_agents", "WHERE run_id = ? ORDER BY created_at DESC, rowid DESC LIMIT ?"
)
_ACTIVE = "SELECT count(*) FROM run_agents WHERE run_id = ? AND status = 'active'"
_UPDATE_AGENT = "UPDATE run_agents SET status = ?, updated_at = ? WHERE id = ? RETURNING run_id"


def add_agent(
    conn: sqlite3.Connection,
    run_id: str,
    *,
    agent_type: str,
    name: str | None,
    dispatch_id: str | None,
    now_ms: int,
) -> str:
    """Note an agent that has begun; the answer is its id."""
    run = require(conn, run_id)
    require_room(f"run {run.id}", "active agents", run.max_agents, active_agents(conn, run.id))
    now = now_ms // 1000
    agent = Agent(new_id(), run_id, agent_type, "active", now, now, name, dispatch_id)
    conn.execute(_ADD_AGENT, values(agent))
    touch(conn, run_id, now_ms=now_ms)
    return agent.id


def active_agents(conn: sqlite3.Connection, run_id: str) -> int:
    """How many agents work on a run by now."""
    (count,) = conn.execute(_ACTIVE, (run_id,)).fetchone()
    return int(count)


def require_room(
    whose: str, what: str, limit: int | None, count: int, *, hint: str | None = None
) -> None:
    """Refuse one more where there are as many as there may be."""
    if limit is not None and count >= limit:
        told = f"{whose} has {count} of at most {limit} {what}"
        raise LimitReached(told, hint=hint, limit=limit)


def agents_of(conn: sqlite3.Connection, run_id: str, *, newest: int = ALL) -> list[Agent]:
    """The newest of a run, the oldest of them first; of an unknown run, none."""
    return [checked(Agent, row) for row in conn.execute(_AGENTS, (run_id, newest))][::-1]


def update_agent(
    conn: sqlite3.Connection, agent_id: str, status: AgentStatus, *, now_ms: int
) -> None:
    changed = conn.execute(_UPDATE_AGENT, (status, now_ms // 1000, agent_id)).fetchone()
    if changed is None:
        raise AgentNotFound(f"agent not found: {agent_id}")
    touch(conn, changed[0], now_ms=now_ms)


# --- what a run has produced, phase by phase ------------------------------------------------------


ArtifactStatus = Literal["active", "rolled_back"]


class Artifact(Result):
    id: str
    run_id: str
    phase: str
    path: str
    type: str
    status: ArtifactStatus
    created_at: int
    content_hash: Column[str | None] = None
    dispatch_id: Column[str | None] = None
    created_at_iso: str = ""

    def __post_init__(self) -> None:
        self.created_at_iso = iso(self.created_at)


class Origin(Struct, frozen=True):
    """An artifact with the dispatch that made it, in the order of the original's fields."""

    dispatch_id: str | None
    dispatch_name: str | None
    phase: str
    path: str
    content_hash: str | None
    type: str
    status: ArtifactStatus


_ADD_ARTIFACT = put(Artifact, "run_artifacts")
_ARTIFACTS = select(
    Artifact,
    "run_artifacts",
    """
WHERE run_id = ?1 AND (phase = ?2 OR ?2 IS NULL) ORDER BY created_at DESC, rowid DESC LIMIT ?3
""",
)
_ORIGINS = """
SELECT a.dispatch_id, d.name, a.phase, a.path, a.content_hash, a.type, a.status
FROM run_artifacts AS a LEFT JOIN dispatches AS d ON d.id = a.dispatch_id
WHERE a.run_id = ?1 AND (a.phase = ?2 OR ?2 IS NULL) ORDER BY a.phase, a.created_at, a.rowid
"""


def add_artifact(
    conn: sqlite3.Connection,
    run_id: str,
    *,
    phase: str,
    path: str,
    type: str,  # noqa: A002 -- the field's name
    content_hash: str | None,
    dispatch_id: str | None,
    now_ms: int,
) -> str:
    """Note what a run has produced; the answer is the artifact's id."""
    require(conn, run_id)
    made = Artifact(
        new_id(), run_id, phase, path, type, "active", now_ms // 1000, content_hash, dispatch_id
    )
    conn.execute(_ADD_ARTIFACT, values(made))
    touch(conn, run_id, now_ms=now_ms)
    return made.id


def artifacts_of(
    conn: sqlite3.Connection, run_id: str, phase: str | None = None, *, newest: int = ALL
) -> list[Artifact]:
    """The newest of a run, or of one phase, the oldest first; of an unknown run, none."""
    found = conn.execute(_ARTIFACTS, (run_id, phase, newest))
    return [checked(Artifact, row) for row in found][::-1]


def origins(conn: sqlite3.Connection, run_id: str, phase: str | None = None) -> list[Origin]:
    """What to look at when the code of a run is to be rolled back: by phase, then by age."""
    require(conn, run_id)
    return [checked(Origin, row) for row in conn.execute(_ORIGINS, (run_id, phase))]
