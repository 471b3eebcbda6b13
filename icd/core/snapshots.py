"""Everything about a run, read in one transaction: nothing in it contradicts the rest.

Of each kind of row the newest MOST are read, the oldest first, so that no run, however long it
lasts, makes an answer that nobody can hold; `cut` names the kinds of which there is more.

Callers run this inside a transaction.
"""

import sqlite3
from collections.abc import Sized

import msgspec
from msgspec import Struct

from icd.core import agents, artifacts, budgets, gates, runs
from icd.core.agents import Agent
from icd.core.artifacts import Artifact
from icd.core.budgets import Budget, Tokens
from icd.core.runs import Run
from icd.errors import IcError, RunOver

# Rows of each kind: far beyond a run's usual life, and a few megabytes at most.
MOST = 5_000


class Transition(Struct, frozen=True):
    """What happened to the phase, from the log; empty texts say nothing."""

    id: int
    event_type: str
    from_phase: str
    to_phase: str
    reason: str
    created_at: int
    gate_result: str = ""
    gate_tier: str = ""


class _Judged(Struct, frozen=True):
    """What the payload of such an event tells; anybody may record one, with anything in it."""

    gate_result: str = ""
    gate_tier: str = ""


class Dispatch(Struct, frozen=True):
    """What is shown of a process that was started for the run."""

    id: str
    run_id: str
    agent_type: str
    status: str
    project_dir: str
    turns: int
    commands: int
    messages: int
    input_tokens: int
    output_tokens: int
    created_at: int
    cache_hits: int | None
    started_at: int | None
    completed_at: int | None
    name: str | None
    model: str | None
    prompt_file: str | None
    output_file: str | None
    pid: int | None
    exit_code: int | None
    verdict_status: str | None
    verdict_summary: str | None
    error_message: str | None
    scope_id: str | None
    parent_id: str | None


class Gate(Struct, frozen=True):
    """Whether the run may go on to its next phase; `evidence` is JSON.

    `error`: why that cannot be told, such as rules of a newer program.
    """

    to_phase: str
    result: str
    tier: str
    evidence: str | None
    error: str = ""


class Snapshot(Struct, frozen=True):
    """`gate` is None for a run that goes nowhere any more."""

    run: Run
    history: list[Transition]
    agents: list[Agent]
    artifacts: list[Artifact]
    dispatches: list[Dispatch]
    tokens: Tokens
    budget: Budget | None
    gate: Gate | None
    cut: list[str]


_HISTORY = """
SELECT coalesce(source_id, seq), type, from_state, to_state, reason, at, payload
FROM events WHERE run_id = ? AND run_id <> '' AND +source = 'phase' ORDER BY seq DESC LIMIT ?
"""
_DISPATCHES = """
SELECT id, run_id, agent_type, status, project_dir, turns, commands, messages, input_tokens,
       output_tokens, created_at, cache_hits, started_at, completed_at, name, model, prompt_file,
       output_file, pid, exit_code, verdict_status, verdict_summary, error_message, scope_id,
       parent_id
FROM dispatches WHERE run_id = ? ORDER BY created_ms DESC, rowid DESC LIMIT ?
"""
_CURRENT = """
SELECT id FROM runs WHERE status = 'active' AND project_dir = ?
ORDER BY created_ms DESC, rowid DESC LIMIT 1
"""


def current(conn: sqlite3.Connection, project_dir: str) -> str | None:
    """The id of the newest active run of a project, given by its identity."""
    row = conn.execute(_CURRENT, (project_dir,)).fetchone()
    return None if row is None else str(row[0])


def read(conn: sqlite3.Connection, run_id: str) -> Snapshot:
    run = runs.require(conn, run_id)
    history = _history(conn, run_id)
    at_work = agents.of_run(conn, run_id)
    produced = artifacts.of_run(conn, run_id)
    started = _dispatches(conn, run_id)
    every: dict[str, Sized] = {
        "events": history,
        "agents": at_work,
        "artifacts": produced,
        "dispatches": started,
    }
    return Snapshot(
        run=run,
        history=history[-MOST:],
        agents=at_work[-MOST:],
        artifacts=produced[-MOST:],
        dispatches=started[-MOST:],
        tokens=budgets.tokens(conn, run_id),
        budget=budgets.of_run(conn, run),
        gate=_gate(conn, run),
        cut=[kind for kind, found in every.items() if len(found) > MOST],
    )


def _history(conn: sqlite3.Connection, run_id: str) -> list[Transition]:
    newest_first = conn.execute(_HISTORY, (run_id, MOST + 1))
    return [_transition(*row) for row in newest_first][::-1]


def _transition(*columns: *tuple[int, str, str, str, str, int, str | None]) -> Transition:
    try:
        judged = msgspec.json.decode(columns[-1] or "{}", type=_Judged)
    except msgspec.DecodeError:
        judged = _Judged()
    return Transition(*columns[:-1], judged.gate_result, judged.gate_tier)


def _dispatches(conn: sqlite3.Connection, run_id: str) -> list[Dispatch]:
    newest_first = conn.execute(_DISPATCHES, (run_id, MOST + 1))
    return [Dispatch(*row) for row in newest_first][::-1]


def _gate(conn: sqlite3.Connection, run: Run) -> Gate | None:
    to_phase = ""
    try:
        to_phase = gates.next_phase(conn, run)
        verdict = gates.evaluate(conn, run, to_phase, priority=gates.DEFAULT_PRIORITY)
    except RunOver:
        return None
    except IcError as exc:  # the rest is worth knowing all the same
        return Gate(to_phase, "unknown", "none", None, exc.message)
    return Gate(to_phase, verdict.result, verdict.tier, verdict.evidence_json())
