"""Runs, agents, artifacts and dispatches of the original Go program, brought into our tables.

Its columns came with its versions, and some of its own upgrades left them out: what is missing has
its default.  Where it allowed what we do not, the newer row keeps what both claim:
    - of several active runs of a project with one scope, the others are abandoned;
    - a dispatch whose process is not there any more has failed;
    - a dispatch belongs to the run whose id, or else whose scope, it was given as its scope.

The events of the original are in the log already; its tables of them are dropped with the rest.
"""

import os
import sqlite3
from collections.abc import Iterator
from typing import Any

from icd.db import paths

TABLES = ("runs", "run_agents", "run_artifacts", "dispatches")
_EVENT_TABLES = ("phase_events", "dispatch_events", "interspect_events")
_ENDED = {"completed", "cancelled", "failed"}
_DISPATCH_STATUSES = {"spawned", "running", "timeout"} | _ENDED

# What a process may take from the row of the original to its start, and clocks may differ.
_TOLERANCE_S = 60


def set_aside(conn: sqlite3.Connection) -> None:
    """Free the names that our tables need; a database of ours has none of them."""
    for table in TABLES:
        if _exists(conn, table):
            conn.execute(f"ALTER TABLE {table} RENAME TO original_{table}")


def bring_over(conn: sqlite3.Connection, path: str, *, now_ms: int) -> None:
    """Copy what was set aside, then drop it; children before the parents they refer to."""
    root = paths.project_root(os.path.dirname(os.path.dirname(path)))
    _bring_runs(conn, root)
    _bring_skips(conn)
    _bring_agents(conn)
    _bring_artifacts(conn)
    _bring_dispatches(conn, root, now_ms=now_ms)
    for table in (*_EVENT_TABLES, *(f"original_{table}" for table in reversed(TABLES))):
        conn.execute(f"DROP TABLE IF EXISTS {table}")


_RUN = """
INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full, auto_advance,
                  auto_spawn, scope_id, phases, token_budget, budget_warn_pct, budget_told,
                  metadata, created_at, created_ms, updated_at, updated_ms, completed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?)
"""


def _bring_runs(conn: sqlite3.Connection, root: str) -> None:
    claimed: set[tuple[str, str]] = set()
    for row in _rows(conn, "runs", newest_first=True):
        project = paths.project_identity(os.path.join(root, _text(row.get("project_dir"))))
        status, scope = _text(row.get("status"), "active"), _text(row.get("scope_id")) or None
        if status == "active" and scope is not None:
            status = "abandoned" if (project, scope) in claimed else status
            claimed.add((project, scope))
        elif status not in _ENDED | {"active"}:
            status = "failed"
        created = _number(row.get("created_at"))
        updated = _number(row.get("updated_at"), created)
        conn.execute(
            _RUN,
            (
                _text(row["id"]),
                project,
                _text(row.get("goal")),
                status,
                _text(row.get("phase"), "brainstorm"),
                _number(row.get("complexity"), 3),
                int(bool(_number(row.get("force_full")))),
                int(bool(_number(row.get("auto_advance"), 1))),
                scope,
                _text(row.get("phases")) or None,
                _number(row.get("token_budget")) or None,
                _number(row.get("budget_warn_pct"), 80),
                _text(row.get("metadata")) or None,
                created,
                created * 1000,
                updated,
                updated * 1000,
                _number(row.get("completed_at")) or None,
            ),
        )


def _bring_skips(conn: sqlite3.Connection) -> None:
    conn.execute(
        """
        INSERT OR IGNORE INTO run_skips (run_id, phase, reason, created_at)
        SELECT run_id, to_state, reason, at FROM events
        WHERE source = 'phase' AND type = 'skip' AND run_id IN (SELECT id FROM runs)
        """
    )


def _bring_agents(conn: sqlite3.Connection) -> None:
    for row in _of_runs(conn, "run_agents"):
        status = _text(row.get("status"), "active")
        created = _number(row.get("created_at"))
        conn.execute(
            """
            INSERT INTO run_agents (id, run_id, agent_type, name, status, dispatch_id,
                                    created_at, updated_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            (
                _text(row["id"]),
                _text(row["run_id"]),
                _text(row.get("agent_type"), "claude"),
                _text(row.get("name")) or None,
                status if status in {"active", "completed"} else "failed",
                _text(row.get("dispatch_id")) or None,
                created,
                _number(row.get("updated_at"), created),
            ),
        )


def _bring_artifacts(conn: sqlite3.Connection) -> None:
    for row in _of_runs(conn, "run_artifacts"):
        conn.execute(
            """
            INSERT INTO run_artifacts (id, run_id, phase, path, type, content_hash, dispatch_id,
                                       status, created_at)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """,
            (
                _text(row["id"]),
                _text(row["run_id"]),
                _text(row.get("phase")),
                _text(row.get("path")),
                _text(row.get("type"), "file"),
                _text(row.get("content_hash")) or None,
                _text(row.get("dispatch_id")) or None,
                "rolled_back" if row.get("status") == "rolled_back" else "active",
                _number(row.get("created_at")),
            ),
        )


_DISPATCH = """
INSERT INTO dispatches (id, run_id, scope_id, parent_id, agent_type, status, name, model, sandbox,
                        project_dir, prompt_file, prompt_hash, output_file, verdict_file,
                        timeout_ms, pid, pid_start, boot, exit_code, verdict_status,
                        verdict_summary, error_message, turns, commands, messages, input_tokens,
                        output_tokens, cache_hits, created_at, created_ms, started_at,
                        completed_at, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, 1)
"""
_RUN_OF = """
SELECT id FROM runs WHERE id = ?1 OR scope_id = ?1
ORDER BY id = ?1 DESC, status = 'active' DESC, created_ms DESC LIMIT 1
"""


def _bring_dispatches(conn: sqlite3.Connection, root: str, *, now_ms: int) -> None:
    for row in _rows(conn, "dispatches"):
        scope = _text(row.get("scope_id")) or None
        run = conn.execute(_RUN_OF, (scope,)).fetchone() if scope else None
        created, timeout = _number(row.get("created_at")), _number(row.get("timeout_sec"))
        end = _end(row, created, now_ms)
        conn.execute(
            _DISPATCH,
            (
                _text(row["id"]),
                run[0] if run else None,
                scope,
                _text(row.get("parent_id")) or None,
                _text(row.get("agent_type"), "codex"),
                end["status"],
                *(_text(row.get(name)) or None for name in ("name", "model", "sandbox")),
                os.path.normpath(os.path.join(root, _text(row.get("project_dir")))),
                *(
                    _text(row.get(name)) or None
                    for name in ("prompt_file", "prompt_hash", "output_file", "verdict_file")
                ),
                timeout * 1000 or None,
                _number(row.get("pid")) or None,
                end["pid_start"],
                end["boot"],
                row.get("exit_code") if isinstance(row.get("exit_code"), int) else None,
                _text(row.get("verdict_status")) or None,
                _text(row.get("verdict_summary")) or None,
                end["error_message"],
                *(
                    _number(row.get(name))
                    for name in ("turns", "commands", "messages", "input_tokens", "output_tokens")
                ),
                row.get("cache_hits") if isinstance(row.get("cache_hits"), int) else None,
                created,
                created * 1000,
                _number(row.get("started_at")) or None,
                end["completed_at"],
            ),
        )


def _end(row: dict[str, Any], created: int, now_ms: int) -> dict[str, Any]:
    """How it ended, or which process it still is."""
    status = _text(row.get("status"), "spawned")
    found = {
        "status": status if status in _DISPATCH_STATUSES else "failed",
        "pid_start": None,
        "boot": None,
        "error_message": _text(row.get("error_message")) or None,
        "completed_at": _number(row.get("completed_at")) or None,
    }
    if found["status"] in {"spawned", "running"}:
        start = _start(_number(row.get("pid")), created)
        if start is None:
            found["status"], found["completed_at"] = "failed", now_ms // 1000
            found["error_message"] = "its process was gone when the database was taken over"
        else:
            found["pid_start"], found["boot"] = start
    return found


def _start(pid: int, created: int) -> tuple[int, str] | None:
    """The start and the boot of the process, if it began when the original says it did."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read(4096).rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="ascii") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith("btime"))
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read(100).strip()
    except (OSError, IndexError, StopIteration, ValueError):
        return None
    began = booted + ticks // os.sysconf("SC_CLK_TCK")
    return (ticks, boot) if pid > 0 and abs(began - created) <= _TOLERANCE_S else None


def _of_runs(conn: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """Rows of runs that exist; the original did not always look."""
    runs = {row[0] for row in conn.execute("SELECT id FROM runs")}
    return (row for row in _rows(conn, table) if _text(row.get("run_id")) in runs)


def _rows(
    conn: sqlite3.Connection, table: str, *, newest_first: bool = False
) -> list[dict[str, Any]]:
    """All rows, in the order of their creation."""
    if not _exists(conn, f"original_{table}"):
        return []
    found = conn.execute(f"SELECT * FROM original_{table} ORDER BY rowid")  # noqa: S608 -- ours
    names = [column[0] for column in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found if row[0] is not None]
    return sorted(rows, key=lambda row: _number(row.get("created_at")), reverse=newest_first)


def _exists(conn: sqlite3.Connection, table: str) -> bool:
    found = conn.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    return found is not None


def _text(value: object, default: str = "") -> str:
    """The original's columns hold whatever was put into them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return default if value is None else str(value)


def _number(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default
