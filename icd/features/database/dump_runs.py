"""Runs and what belongs to them, taken in from the lines of an export.

Invariants, beside those of `dumps`
    - of two runs of one id, the one with the later sign of life wins, and with it the phases that
      it passes over: a skip that was taken back does not return;
    - an active run whose claim is held by another active run here is taken in as abandoned;
    - of two agents of one id, the later change wins; of two artifacts, the one that was rolled
      back: that is never undone; of two dispatches, the one that changed more often;
    - a dispatch that was alive over there stays as it is: whoever polls it finds out;
    - what belongs to a run that is not there is refused.

Callers run these inside a transaction.
"""

import sqlite3

from msgspec import structs

from icd.errors import InvalidChain, InvalidGates, UnreadableInput
from icd.features.database.dump_lines import Dispatch, Run, RunAgent, RunArtifact, RunSkip
from icd.features.gates import store as gates
from icd.features.runs import phases
from icd.values import payloads
from icd.values import validation as names

_UPDATED_MS = "SELECT updated_ms FROM runs WHERE id = ?"
_HOLDER = """
SELECT 1 FROM runs WHERE project_dir = ? AND scope_id = ? AND status = 'active' AND id != ?
"""
_PUT_RUN = """
REPLACE INTO runs (id, project_dir, goal, status, phase, complexity, force_full, auto_advance,
                   auto_spawn, scope_id, phases, gates, token_budget, budget_warn_pct, budget_told,
                   metadata, actions, session, owner_pid, owner_start, owner_boot, owner_pidns,
                   created_at, created_ms, updated_at, updated_ms, completed_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_FORGET_SKIPS = "DELETE FROM run_skips WHERE run_id = ?"
_PUT_SKIP = "REPLACE INTO run_skips (run_id, phase, reason, created_at) VALUES (?, ?, ?, ?)"
_PUT_AGENT = """
INSERT INTO run_agents (id, run_id, agent_type, name, status, dispatch_id, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    run_id = excluded.run_id, agent_type = excluded.agent_type, name = excluded.name,
    status = excluded.status, dispatch_id = excluded.dispatch_id,
    created_at = excluded.created_at, updated_at = excluded.updated_at
WHERE excluded.updated_at > run_agents.updated_at
"""
_PUT_ARTIFACT = """
INSERT INTO run_artifacts (id, run_id, phase, path, type, content_hash, dispatch_id, status,
                           created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET status = excluded.status
WHERE excluded.status = 'rolled_back' AND run_artifacts.status = 'active'
"""
_VERSION = "SELECT version FROM dispatches WHERE id = ?"
_PUT_DISPATCH = """
REPLACE INTO dispatches (id, run_id, scope_id, parent_id, agent_type, status, name, model, sandbox,
                         project_dir, prompt_file, prompt_hash, output_file, verdict_file,
                         timeout_ms, runner_pid, runner_start, pid, pid_start, boot, pidns,
                         exit_code, verdict_status, verdict_summary, error_message, turns, commands,
                         messages, input_tokens, output_tokens, cache_hits, session, created_at,
                         created_ms, started_at, completed_at, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?, ?, ?, ?, ?)
"""


def take_in(
    conn: sqlite3.Connection,
    line: Run | RunSkip | RunAgent | RunArtifact | Dispatch,
    *,
    brought: set[str],
    now_ms: int,
) -> bool:
    """Whether the row was written; `brought` is added to, see `dumps.take_in`."""
    match line:
        case Run():
            return _take_run(conn, line, brought=brought, now_ms=now_ms)
        case RunSkip():
            return _take_skip(conn, line, brought=brought)
        case RunAgent():
            _check_part(conn, line)
            return conn.execute(_PUT_AGENT, structs.astuple(line)).rowcount > 0
        case RunArtifact():
            _check_part(conn, line)
            return conn.execute(_PUT_ARTIFACT, structs.astuple(line)).rowcount > 0
        case Dispatch():
            return _take_dispatch(conn, line)


def _take_run(conn: sqlite3.Connection, line: Run, *, brought: set[str], now_ms: int) -> bool:
    names.check_name(line.id)
    names.check_name(line.phase)
    names.check_scope(line.scope_id or "")
    _check_texts(line)
    there = conn.execute(_UPDATED_MS, (line.id,)).fetchone()
    if there is not None and there[0] >= line.updated_ms:
        return False
    claim = line.project_dir, line.scope_id, line.id
    if line.status == "active" and conn.execute(_HOLDER, claim).fetchone():
        line.status, line.completed_at = "abandoned", now_ms // 1000
    conn.execute(_FORGET_SKIPS, (line.id,))
    conn.execute(_PUT_RUN, structs.astuple(line))
    brought.add(line.id)
    return True


def _take_skip(conn: sqlite3.Connection, line: RunSkip, *, brought: set[str]) -> bool:
    names.check_name(line.phase)
    _require_run(conn, line.run_id)
    if line.run_id not in brought:
        return False
    conn.execute(_PUT_SKIP, structs.astuple(line))
    return True


def _take_dispatch(conn: sqlite3.Connection, line: Dispatch) -> bool:
    names.check_name(line.id)
    names.check_scope(line.scope_id or "")
    there = conn.execute(_VERSION, (line.id,)).fetchone()
    if there is not None and there[0] >= line.version:
        return False
    conn.execute(_PUT_DISPATCH, structs.astuple(line))
    return True


def _check_part(conn: sqlite3.Connection, line: RunAgent | RunArtifact) -> None:
    names.check_name(line.id)
    _require_run(conn, line.run_id)


def _require_run(conn: sqlite3.Connection, run_id: str) -> None:
    if conn.execute(_UPDATED_MS, (run_id,)).fetchone() is None:
        raise UnreadableInput(f"there is no run {names.shown(run_id)} before it")


def _check_texts(line: Run) -> None:
    """What no run could have been created with would make every command on it fail."""
    try:
        if line.phases is not None:
            phases.parse(line.phases)
        if line.gates is not None:
            gates.parse(line.gates)
    except (InvalidChain, InvalidGates) as exc:
        raise UnreadableInput(exc.message) from exc
    if line.actions is not None:
        payloads.check(line.actions.encode())
