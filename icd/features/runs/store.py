"""Runs: what an agent works on, and in which phase it is.

Invariants
    - at most one active run of a project has the same scope; a run without a scope limits nobody;
    - a run that has ended never changes again, except that a completed one can be rolled back;
    - `updated_ms` is its last sign of life: whatever is done for an active run moves it.

Callers run these inside a transaction.
"""

import sqlite3

from msgspec import Struct, structs

from icd.db.rows import checked
from icd.errors import RunNotFound
from icd.values.processes import Process


class Run(Struct, frozen=True):
    """A row; `phases`, `gates`, `metadata` and `actions` are text as it is stored."""

    id: str
    project_dir: str
    goal: str
    status: str
    phase: str
    complexity: int
    force_full: bool
    auto_advance: bool
    auto_spawn: bool
    scope_id: str | None
    phases: str | None
    gates: str | None
    token_budget: int | None
    budget_warn_pct: int
    budget_told: int
    metadata: str | None
    actions: str | None
    session: str | None
    owner_pid: int | None
    owner_start: int | None
    owner_boot: str | None
    owner_pidns: str | None
    created_at: int
    created_ms: int
    updated_at: int
    updated_ms: int
    completed_at: int | None

    @property
    def owner(self) -> Process | None:
        if self.owner_pid is None:
            return None
        return Process(
            self.owner_pid, self.owner_start or 0, self.owner_boot or "", self.owner_pidns or ""
        )


_COLUMNS = """
SELECT id, project_dir, goal, status, phase, complexity, force_full, auto_advance, auto_spawn,
       scope_id, phases, gates, token_budget, budget_warn_pct, budget_told, metadata, actions,
       session, owner_pid, owner_start, owner_boot, owner_pidns, created_at, created_ms,
       updated_at, updated_ms, completed_at
FROM runs
"""
_FIND = f"{_COLUMNS} WHERE id = ?"
_MEANT = f"""
{_COLUMNS} WHERE scope_id = ?
ORDER BY status = 'active' DESC, created_ms DESC, rowid DESC LIMIT 1
"""
_TOUCH = "UPDATE runs SET updated_at = ?, updated_ms = ? WHERE id = ? AND status = 'active'"
_SKIPPED = "SELECT phase FROM run_skips WHERE run_id = ?"
_HOLDER = f"{_COLUMNS} WHERE project_dir = ? AND scope_id = ? AND status = 'active'"
_CURRENT = f"""
{_COLUMNS} WHERE project_dir = ?1 AND status = 'active' AND (?2 IS NULL OR session = ?2)
ORDER BY created_ms DESC, rowid DESC LIMIT 1
"""
_LIST = f"""
{_COLUMNS}
WHERE (:status IS NULL OR status = :status) AND (:scope_id IS NULL OR scope_id = :scope_id)
      AND (:project_dir IS NULL OR project_dir = :project_dir)
      AND (:home IS NULL OR project_dir IN (:home, :here)
           OR substr(project_dir, 1, length(:home) + 1) = :home || '/'
           OR substr(project_dir, 1, length(:here) + 1) = :here || '/')
ORDER BY created_ms DESC, rowid DESC LIMIT :limit
"""
_INSERT = """
INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full, auto_advance,
                  auto_spawn, scope_id, phases, gates, token_budget, budget_warn_pct, budget_told,
                  metadata, actions, session, owner_pid, owner_start, owner_boot, owner_pidns,
                  created_at, created_ms, updated_at, updated_ms, completed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def find(conn: sqlite3.Connection, run_id: str) -> Run | None:
    row = conn.execute(_FIND, (run_id,)).fetchone()
    return made(row) if row else None


def require(conn: sqlite3.Connection, run_id: str) -> Run:
    found = find(conn, run_id)
    if found is None:
        raise RunNotFound(f"not found: {run_id}")
    return found


def meant(conn: sqlite3.Connection, word: str) -> Run | None:
    """The run with this id, else the active, else the latest one with this scope."""
    found = find(conn, word)
    if found is None and word:
        row = conn.execute(_MEANT, (word,)).fetchone()
        found = made(row) if row else None
    return found


def holder(conn: sqlite3.Connection, project_dir: str, scope_id: str) -> Run | None:
    """The active run of a project that has this scope."""
    row = conn.execute(_HOLDER, (project_dir, scope_id)).fetchone()
    return made(row) if row else None


def current(
    conn: sqlite3.Connection, project_dir: str, *, session: str | None = None
) -> Run | None:
    """The newest active run of a project, or of a session in it."""
    row = conn.execute(_CURRENT, (project_dir, session)).fetchone()
    return made(row) if row else None


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
    values = {
        "status": status,
        "scope_id": scope_id,
        "project_dir": project_dir,
        "home": home,
        "here": here,
        "limit": limit,
    }
    return [made(row) for row in conn.execute(_LIST, values)]


def add(conn: sqlite3.Connection, run: Run) -> None:
    """Whoever calls has made sure that its scope is free."""
    conn.execute(_INSERT, structs.astuple(run))


def touch(conn: sqlite3.Connection, run_id: str, *, now_ms: int) -> None:
    """A sign of life; what has ended shows none, though agents may still be noted for it."""
    conn.execute(_TOUCH, (now_ms // 1000, now_ms, run_id))


def skipped(conn: sqlite3.Connection, run_id: str) -> set[str]:
    """The phases that it passes over."""
    return {phase for (phase,) in conn.execute(_SKIPPED, (run_id,))}


def made(row: tuple[object, ...]) -> Run:
    """SQLite has no booleans."""
    columns = list(row)
    for position in (6, 7, 8):
        if columns[position] in (0, 1):
            columns[position] = bool(columns[position])
    return checked(Run, tuple(columns))
