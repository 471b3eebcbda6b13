"""Runs, agents, artifacts and dispatches of the original Go program, brought into our tables.

Where it allowed what we do not, the newer row keeps what both claim:
    - of several active runs of a project with one scope, the others are abandoned;
    - of several rows with what is one id for us, one stays; a row without an id does not;
    - a run in its last phase is completed, though a crash may have kept it from saying so: else it
      could neither go on nor come to an end;
    - a chain of phases that no run could have been created with is the default chain;
    - rules of gates that no run could have been created with are the default rules;
    - an agent or artifact of a run that is not there is left out.

A dispatch belongs to the run whose id, or else whose scope, it was given as its scope; of several
runs with that scope, to the active one, else to the newest.  One that was alive has failed if its
process is not there any more: another one may have its number, which is told by the moment of its
start.  One that is still alive has no runner: its end is found out by looking.

The phases that runs pass over are read from its own events: our log may have been pruned since.
Its events are in the log already; its tables of them are dropped with the rest.
"""

import os
import sqlite3
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from icd import procfs
from icd.db import paths
from icd.db.original.tables import Row, put, rows

RUNS = ("runs", "run_agents", "run_artifacts", "dispatches")
_EVENT_TABLES = ("phase_events", "dispatch_events", "interspect_events")

# What a run counts with: the default, the least and the most.
RUN_NUMBERS = {"complexity": (3, 1, 5), "budget_warn_pct": (80, 1, 99)}
# What later schemas of the original limit: 0 was any number.
RUN_LIMITS = ("max_agents", "max_dispatches", "budget_enforce")
Limits = dict[str, object]
_SET_LIMITS = """
UPDATE runs SET max_agents = nullif(:max_agents, 0), max_dispatches = nullif(:max_dispatches, 0),
                budget_enforce = :budget_enforce <> 0
WHERE id = :id
"""
_ENDED = {"completed", "cancelled", "failed"}
# The rules of icd/features/runs/phases.py: what is taken over must come back from an export, too.
_Phase = Annotated[str, Meta(pattern=r"\A[a-zA-Z0-9_-]{1,100}\Z")]
_Chain = Annotated[list[_Phase], Meta(min_length=2, max_length=100)]


class _Check(msgspec.Struct, frozen=True, omit_defaults=True):
    check: Literal["artifact_exists", "agents_complete", "verdict_exists", "budget_not_exceeded"]
    phase: Annotated[str, Meta(pattern=r"\A[a-zA-Z0-9_-]{0,100}\Z")] = ""
    tier: Literal["hard", "soft", ""] = ""


_Step = Annotated[str, Meta(pattern=r"\A[a-zA-Z0-9_-]{1,100}→[a-zA-Z0-9_-]{1,100}\Z")]
_Checks = Annotated[list[_Check], Meta(max_length=8)]
_Rules = Annotated[dict[_Step, _Checks], Meta(min_length=1, max_length=100)]
_RULES_BYTES = 64 * 1024


def bring_runs(conn: sqlite3.Connection, path: str, *, now_ms: int) -> None:
    """Copy what was set aside, then drop it; children before the parents they refer to."""
    root = paths.project_root(os.path.dirname(os.path.dirname(path)))
    _bring_runs(conn, root, now_ms=now_ms)
    runs = {run for (run,) in conn.execute("SELECT id FROM runs")}
    _bring_skips(conn, runs)
    _bring_agents(conn, runs)
    _bring_artifacts(conn, runs)
    _bring_dispatches(conn, root, now_ms=now_ms)
    for table in (*_EVENT_TABLES, *(f"original_{table}" for table in reversed(RUNS))):
        conn.execute(f"DROP TABLE IF EXISTS {table}")


def limits_of(conn: sqlite3.Connection) -> list[Limits]:
    """What limits the runs that are set aside: our table has no room for it yet."""
    return [
        {"id": row.word("id"), **{name: row.number(name, most=1_000_000) for name in RUN_LIMITS}}
        for row in rows(conn, "original_runs")
    ]


def bring_limits(conn: sqlite3.Connection, limits: list[Limits]) -> None:
    conn.executemany(_SET_LIMITS, limits)


def _bring_runs(conn: sqlite3.Connection, root: str, *, now_ms: int) -> None:
    runs = [_run(row, root) for row in rows(conn, "original_runs")]
    holders = {_claim(run): run["id"] for run in runs if run["status"] == "active"}
    for run in runs:
        if run["status"] == "active" and run["scope_id"] and holders[_claim(run)] != run["id"]:
            run |= {"status": "abandoned", "completed_at": now_ms // 1000}
        put(conn, "runs", run)


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
        "project_dir": project(row, root),
        "goal": row.text("goal"),
        "status": status if status in _ENDED | {"active"} else "failed",
        "phase": phase,
        "force_full": row.number("force_full", 0) != 0,
        "auto_advance": row.number("auto_advance", 1) != 0,
        "auto_spawn": False,
        "scope_id": row.word("scope_id") or None,
        "phases": chain,
        "gates": _rules(row.text("gate_rules")),
        "token_budget": row.number("token_budget") or None,
        "budget_told": 0,
        "metadata": row.text("metadata") or None,
        "created_at": created,
        "created_ms": created * 1000,
        "updated_at": updated,
        "updated_ms": updated * 1000,
        "completed_at": completed,
        **{name: row.number(name, *limits) for name, limits in RUN_NUMBERS.items()},
    }


def project(row: Row, root: str) -> str:
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


def _rules(text: str) -> str | None:
    """As the list that `run create` would have stored: each check once, and what is meant."""
    try:
        found = msgspec.json.decode(text, type=_Rules)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    rules = []
    for step, checks in found.items():
        from_phase, _, to_phase = step.partition("→")
        meant = dict.fromkeys(_meant(each, from_phase) for each in checks)
        if meant:
            rules.append({"from": from_phase, "to": to_phase, "checks": [*meant]})
    kept = msgspec.json.encode(rules)
    return kept.decode() if len(kept) <= _RULES_BYTES else None


def _meant(check: _Check, from_phase: str) -> _Check:
    """A check of artifacts is about the phase that it leaves, if it does not say; for any other a
    phase means nothing."""
    phase = (check.phase or from_phase) if check.check == "artifact_exists" else ""
    return msgspec.structs.replace(check, phase=phase)


def _last(chain: str | None) -> str:
    return "done" if chain is None else msgspec.json.decode(chain, type=_Chain)[-1]


def _bring_skips(conn: sqlite3.Connection, runs: set[str]) -> None:
    for row in rows(conn, "phase_events"):
        skip: dict[str, object] = {
            "run_id": row.word("run_id"),
            "phase": row.word("to_phase"),
            "reason": row.text("reason"),
            "created_at": row.seconds("created_at"),
        }
        if row.text("event_type") == "skip" and skip["phase"] and skip["run_id"] in runs:
            put(conn, "run_skips", skip, "ON CONFLICT (run_id, phase) DO NOTHING")


def _bring_agents(conn: sqlite3.Connection, runs: set[str]) -> None:
    for row in rows(conn, "original_run_agents"):
        status, created = row.text("status", "active"), row.seconds("created_at")
        agent: dict[str, object] = {
            "id": row.word("id"),
            "run_id": row.word("run_id"),
            "agent_type": row.word("agent_type", "claude"),
            "name": row.word("name") or None,
            "status": status if status in {"active", "completed"} else "failed",
            "dispatch_id": row.word("dispatch_id") or None,
            "created_at": created,
            "updated_at": row.seconds("updated_at", created),
        }
        if agent["run_id"] in runs:
            put(conn, "run_agents", agent)


def _bring_artifacts(conn: sqlite3.Connection, runs: set[str]) -> None:
    for row in rows(conn, "original_run_artifacts"):
        artifact: dict[str, object] = {
            "id": row.word("id"),
            "run_id": row.word("run_id"),
            "phase": row.word("phase"),
            "path": row.text("path"),
            "type": row.word("type", "file"),
            "content_hash": row.word("content_hash") or None,
            "dispatch_id": row.word("dispatch_id") or None,
            "status": "rolled_back" if row.text("status") == "rolled_back" else "active",
            "created_at": row.seconds("created_at"),
        }
        if artifact["run_id"] in runs:
            put(conn, "run_artifacts", artifact)


# --- dispatches -----------------------------------------------------------------------------------

_LIVE = {"spawned", "running"}
_STATUSES = _LIVE | {"completed", "failed", "timeout", "cancelled"}

# What a process may take from the row of the original to its start, and clocks may differ.
_TOLERANCE_S = 60

_GONE = "its process was gone when the database was taken over"

_RUN_OF = """
SELECT id FROM runs WHERE id = ?1 OR scope_id = ?1
ORDER BY id = ?1 DESC, status = 'active' DESC, created_ms DESC, rowid DESC LIMIT 1
"""
_WORDS = ("scope_id", "parent_id", "name", "model", "sandbox", "prompt_hash", "verdict_status")
_TEXTS = ("prompt_file", "output_file", "verdict_file", "verdict_summary", "error_message")
_COUNTS = ("turns", "commands", "messages", "input_tokens", "output_tokens")


def _bring_dispatches(conn: sqlite3.Connection, root: str, *, now_ms: int) -> None:
    for row in rows(conn, "original_dispatches"):
        dispatch = _dispatch(row, root)
        run = conn.execute(_RUN_OF, (dispatch["scope_id"],)).fetchone()
        dispatch["run_id"] = run[0] if run else None
        if dispatch["status"] in _LIVE:
            dispatch |= _process(row) or _end(now_ms)
        put(conn, "dispatches", dispatch)


def _dispatch(row: Row, root: str) -> dict[str, object]:
    status, created = row.text("status", "spawned"), row.seconds("created_at")
    return {
        "id": row.word("id"),
        "agent_type": row.word("agent_type", "codex"),
        "status": status if status in _STATUSES else "failed",
        "project_dir": os.path.normpath(os.path.join(root, row.word("project_dir"))),
        "timeout_ms": row.seconds("timeout_sec") * 1000 or None,
        "pid": row.number("pid") or None,
        "exit_code": _or_null(row, "exit_code", least=-(2**31)),
        "cache_hits": _or_null(row, "cache_hits"),
        "created_at": created,
        "created_ms": created * 1000,
        "started_at": row.seconds("started_at") or None,
        "completed_at": row.seconds("completed_at") or None,
        "version": 1,
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
