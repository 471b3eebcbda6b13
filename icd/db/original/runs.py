"""Runs, agents, artifacts and dispatches of the original Go program, brought into our tables.

Where it allowed what we do not, the newer row keeps what both claim:
    - of several active runs of a project with one scope, the others are abandoned;
    - of several rows with what is one id for us, one stays; a row without an id does not;
    - a run in its last phase is completed, though a crash may have kept it from saying so: else it
      could neither go on nor come to an end;
    - a chain of phases that no run could have been created with is the default chain;
    - an agent or artifact of a run that is not there is left out.

The phases that runs pass over are read from its own events: our log may have been pruned since.
Its events are in the log already; its tables of them are dropped with the rest.
"""

import os
import sqlite3
from typing import Annotated

import msgspec
from msgspec import Meta

from icd.db import paths
from icd.db.original import dispatches as original_dispatches
from icd.db.original.rows import Row, exists, rows

TABLES = ("runs", "run_agents", "run_artifacts", "dispatches")
_EVENT_TABLES = ("phase_events", "dispatch_events", "interspect_events")

_ENDED = {"completed", "cancelled", "failed"}
# The rules of icd/features/runs/phases.py: what is taken over must come back from an export, too.
_Phase = Annotated[str, Meta(pattern=r"\A[a-zA-Z0-9_-]{1,100}\Z")]
_Chain = Annotated[list[_Phase], Meta(min_length=2, max_length=100)]


def set_aside(conn: sqlite3.Connection) -> None:
    """Free the names that our tables need; a database of ours has none of them."""
    for table in TABLES:
        if exists(conn, table):
            conn.execute(f"ALTER TABLE {table} RENAME TO original_{table}")


def bring_over(conn: sqlite3.Connection, path: str, *, now_ms: int) -> None:
    """Copy what was set aside, then drop it; children before the parents they refer to."""
    root = paths.project_root(os.path.dirname(os.path.dirname(path)))
    _bring_runs(conn, root, now_ms=now_ms)
    runs = {run for (run,) in conn.execute("SELECT id FROM runs")}
    _bring_skips(conn, runs)
    _bring_agents(conn, runs)
    _bring_artifacts(conn, runs)
    original_dispatches.bring_over(conn, root, now_ms=now_ms)
    for table in (*_EVENT_TABLES, *(f"original_{table}" for table in reversed(TABLES))):
        conn.execute(f"DROP TABLE IF EXISTS {table}")


_RUN = """
INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full, auto_advance,
                  auto_spawn, scope_id, phases, token_budget, budget_warn_pct, budget_told,
                  metadata, created_at, created_ms, updated_at, updated_ms, completed_at)
VALUES (:id, :project_dir, :goal, :status, :phase, :complexity, :force_full, :auto_advance,
        0, :scope_id, :phases, :token_budget, :budget_warn_pct, 0,
        :metadata, :created_at, :created_at * 1000, :updated_at, :updated_at * 1000, :completed_at)
"""


def _bring_runs(conn: sqlite3.Connection, root: str, *, now_ms: int) -> None:
    runs = [_run(row, root) for row in rows(conn, "original_runs")]
    holders = {_claim(run): run["id"] for run in runs if run["status"] == "active"}
    for run in runs:
        if run["status"] == "active" and run["scope_id"] and holders[_claim(run)] != run["id"]:
            run |= {"status": "abandoned", "completed_at": now_ms // 1000}
        conn.execute(_RUN, run)


def _claim(run: dict[str, object]) -> tuple[object, object]:
    return run["project_dir"], run["scope_id"]


def _run(row: Row, root: str) -> dict[str, object]:
    created = row.seconds("created_at")
    updated = row.seconds("updated_at", created)
    phase, chain = row.word("phase", "brainstorm"), _chain(row.text("phases"))
    status, completed = row.text("status", "active"), row.seconds("completed_at") or None
    if status == "active" and phase == _last(chain):
        status, completed = "completed", completed or updated
    return {
        "id": row.word("id"),
        "project_dir": _project(row, root),
        "goal": row.text("goal"),
        "status": status if status in _ENDED | {"active"} else "failed",
        "phase": phase,
        "complexity": row.number("complexity", 3, least=1, most=5),
        "force_full": row.number("force_full", 0) != 0,
        "auto_advance": row.number("auto_advance", 1) != 0,
        "scope_id": row.word("scope_id") or None,
        "phases": chain,
        "token_budget": row.number("token_budget") or None,
        "budget_warn_pct": row.number("budget_warn_pct", 80, least=1, most=99),
        "metadata": row.text("metadata") or None,
        "created_at": created,
        "updated_at": updated,
        "completed_at": completed,
    }


def _project(row: Row, root: str) -> str:
    """A relative directory can only be meant from the project that the database is in."""
    try:
        return paths.project_identity(os.path.join(root, row.word("project_dir")))
    except ValueError:  # no file can have that name
        return root


def _chain(text: str) -> str | None:
    try:
        chain = msgspec.json.decode(text, type=_Chain)
    except msgspec.DecodeError:
        return None
    return text if len(set(chain)) == len(chain) else None


def _last(chain: str | None) -> str:
    return "done" if chain is None else msgspec.json.decode(chain, type=_Chain)[-1]


def _bring_skips(conn: sqlite3.Connection, runs: set[str]) -> None:
    for row in rows(conn, "phase_events"):
        is_skip = row.text("event_type") == "skip" and row.word("to_phase") != ""
        if is_skip and row.word("run_id") in runs:
            conn.execute(
                """
                INSERT INTO run_skips (run_id, phase, reason, created_at)
                VALUES (:run_id, :phase, :reason, :created_at)
                ON CONFLICT (run_id, phase) DO NOTHING
                """,
                {
                    "run_id": row.word("run_id"),
                    "phase": row.word("to_phase"),
                    "reason": row.text("reason"),
                    "created_at": row.seconds("created_at"),
                },
            )


def _bring_agents(conn: sqlite3.Connection, runs: set[str]) -> None:
    for row in rows(conn, "original_run_agents"):
        status, created = row.text("status", "active"), row.seconds("created_at")
        if row.word("run_id") in runs:
            conn.execute(
                """
                INSERT INTO run_agents (id, run_id, agent_type, name, status, dispatch_id,
                                        created_at, updated_at)
                VALUES (:id, :run_id, :agent_type, :name, :status, :dispatch_id,
                        :created_at, :updated_at)
                """,
                {
                    "id": row.word("id"),
                    "run_id": row.word("run_id"),
                    "agent_type": row.word("agent_type", "claude"),
                    "name": row.word("name") or None,
                    "status": status if status in {"active", "completed"} else "failed",
                    "dispatch_id": row.word("dispatch_id") or None,
                    "created_at": created,
                    "updated_at": row.seconds("updated_at", created),
                },
            )


def _bring_artifacts(conn: sqlite3.Connection, runs: set[str]) -> None:
    for row in rows(conn, "original_run_artifacts"):
        status = row.text("status")
        if row.word("run_id") in runs:
            conn.execute(
                """
                INSERT INTO run_artifacts (id, run_id, phase, path, type, content_hash,
                                           dispatch_id, status, created_at)
                VALUES (:id, :run_id, :phase, :path, :type, :content_hash,
                        :dispatch_id, :status, :created_at)
                """,
                {
                    "id": row.word("id"),
                    "run_id": row.word("run_id"),
                    "phase": row.word("phase"),
                    "path": row.text("path"),
                    "type": row.word("type", "file"),
                    "content_hash": row.word("content_hash") or None,
                    "dispatch_id": row.word("dispatch_id") or None,
                    "status": "rolled_back" if status == "rolled_back" else "active",
                    "created_at": row.seconds("created_at"),
                },
            )
