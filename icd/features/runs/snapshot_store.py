"""Everything about a run, read in one transaction: nothing in it contradicts the rest.

Of each kind of row the newest MOST are read, the oldest first, so that no run, however long it
lasts, makes an answer that nobody can hold; `cut` names the kinds of which there is more.

Callers run this inside a transaction.
"""

import sqlite3
from collections.abc import Sized

from msgspec import Struct

from icd.errors import IcError, RunOver
from icd.features.dispatches import store as dispatches
from icd.features.dispatches.store import Dispatch
from icd.features.gates import store as gates
from icd.features.runs import agents, artifacts
from icd.features.runs import budget as budgets
from icd.features.runs import history as histories
from icd.features.runs.agents import Agent
from icd.features.runs.artifacts import Artifact
from icd.features.runs.budget import Budget, Tokens
from icd.features.runs.history import PhaseEvent
from icd.features.runs.store import Run

# Rows of each kind: far beyond a run's usual life, and a few megabytes at most.
MOST = 5_000


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
    history: list[PhaseEvent]
    agents: list[Agent]
    artifacts: list[Artifact]
    dispatches: list[Dispatch]
    tokens: Tokens
    budget: Budget | None
    gate: Gate | None
    cut: list[str]


def read(conn: sqlite3.Connection, run: Run) -> Snapshot:
    history = histories.newest_of_run(conn, run.id, limit=MOST + 1)
    at_work = agents.of_run(conn, run.id)
    produced = artifacts.of_run(conn, run.id)
    started = dispatches.every(conn, run_id=run.id, limit=MOST + 1)[::-1]
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
        tokens=budgets.tokens(conn, run.id),
        budget=budgets.of_run(conn, run),
        gate=_gate(conn, run),
        cut=[kind for kind, found in every.items() if len(found) > MOST],
    )


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
