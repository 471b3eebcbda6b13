"""Dispatches of the original Go program, brought into our table.

- A dispatch belongs to the run whose id, or else whose scope, it was given as its scope; of
  several runs with that scope, to the active one, else to the newest.
- One that was alive has failed if its process is not there any more: another one may have its
  number, which is told by the moment of its start.
- One that is still alive has no runner: its end is found out by looking.
"""

import os
import sqlite3

from icd import procfs
from icd.db.original.rows import Row, rows

_LIVE = {"spawned", "running"}
_STATUSES = _LIVE | {"completed", "failed", "timeout", "cancelled"}

# What a process may take from the row of the original to its start, and clocks may differ.
_TOLERANCE_S = 60

_GONE = "its process was gone when the database was taken over"

_DISPATCH = """
INSERT INTO dispatches (id, run_id, scope_id, parent_id, agent_type, status, name, model, sandbox,
                        project_dir, prompt_file, prompt_hash, output_file, verdict_file,
                        timeout_ms, pid, pid_start, boot, pidns, exit_code, verdict_status,
                        verdict_summary, error_message, turns, commands, messages, input_tokens,
                        output_tokens, cache_hits, created_at, created_ms, started_at,
                        completed_at, version)
VALUES (:id, :run_id, :scope_id, :parent_id, :agent_type, :status, :name, :model, :sandbox,
        :project_dir, :prompt_file, :prompt_hash, :output_file, :verdict_file,
        :timeout_ms, :pid, :pid_start, :boot, :pidns, :exit_code, :verdict_status,
        :verdict_summary, :error_message, :turns, :commands, :messages, :input_tokens,
        :output_tokens, :cache_hits, :created_at, :created_at * 1000, :started_at,
        :completed_at, 1)
"""
_RUN_OF = """
SELECT id FROM runs WHERE id = ?1 OR scope_id = ?1
ORDER BY id = ?1 DESC, status = 'active' DESC, created_ms DESC, rowid DESC LIMIT 1
"""
_WORDS = ("scope_id", "parent_id", "name", "model", "sandbox", "prompt_hash", "verdict_status")
_TEXTS = ("prompt_file", "output_file", "verdict_file", "verdict_summary", "error_message")
_COUNTS = ("turns", "commands", "messages", "input_tokens", "output_tokens")


def bring_over(conn: sqlite3.Connection, root: str, *, now_ms: int) -> None:
    """Copy what was set aside; our runs are there already."""
    for row in rows(conn, "original_dispatches"):
        dispatch = _dispatch(row, root)
        run = conn.execute(_RUN_OF, (dispatch["scope_id"],)).fetchone()
        dispatch["run_id"] = run[0] if run else None
        if dispatch["status"] in _LIVE:
            dispatch |= _process(row) or _end(now_ms)
        conn.execute(_DISPATCH, dispatch)


def _dispatch(row: Row, root: str) -> dict[str, object]:
    status = row.text("status", "spawned")
    return {
        "id": row.word("id"),
        "agent_type": row.word("agent_type", "codex"),
        "status": status if status in _STATUSES else "failed",
        "project_dir": os.path.normpath(os.path.join(root, row.word("project_dir"))),
        "timeout_ms": row.seconds("timeout_sec") * 1000 or None,
        "pid": row.number("pid") or None,
        "pid_start": None,
        "boot": None,
        "pidns": None,
        "exit_code": _or_null(row, "exit_code", least=-(2**31)),
        "cache_hits": _or_null(row, "cache_hits"),
        "created_at": row.seconds("created_at"),
        "started_at": row.seconds("started_at") or None,
        "completed_at": row.seconds("completed_at") or None,
        **{name: row.word(name) or None for name in _WORDS},
        **{name: row.text(name) or None for name in _TEXTS},
        **{name: row.number(name) for name in _COUNTS},
    }


def _or_null(row: Row, name: str, *, least: int = 0) -> int | None:
    """Zero is an answer, too."""
    unknown = least - 1
    found = row.number(name, unknown, least=least)
    return None if found == unknown else found


def _process(row: Row) -> dict[str, object] | None:
    """Which process it is, if that began when the original says it did."""
    pid, booted = row.number("pid"), procfs.booted_at()
    found = procfs.stat(pid) if pid else None
    if found is None or found.has_ended or booted is None:
        return None
    began = booted + found.start // os.sysconf("SC_CLK_TCK")
    if abs(began - row.seconds("created_at")) > _TOLERANCE_S:
        return None
    return {"pid_start": found.start, "boot": procfs.boot(), "pidns": procfs.namespace()}


def _end(now_ms: int) -> dict[str, object]:
    return {"status": "failed", "error_message": _GONE, "completed_at": now_ms // 1000}
