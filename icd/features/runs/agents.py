"""Agents that work on a run, as their starters say.

An agent is a note, not a process: what it does is a dispatch's business, and only `update` changes
its status.  Each note about an agent is a sign of life of its run.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Literal

from icd.db.rows import Column, checked, put, select, values
from icd.errors import AgentNotFound
from icd.features.runs import store as runs
from icd.values.validation import new_id
from icd.values.wire import Result, iso

Status = Literal["active", "completed", "failed"]


class Agent(Result):
    id: str
    run_id: str
    agent_type: str
    status: Status
    created_at: int
    updated_at: int
    name: Column[str | None] = None
    dispatch_id: Column[str | None] = None
    created_at_iso: str = ""
    updated_at_iso: str = ""

    def __post_init__(self) -> None:
        self.created_at_iso = iso(self.created_at)
        self.updated_at_iso = iso(self.updated_at)


_ADD = put(Agent, "run_agents")
_OF_RUN = select(Agent, "run_agents", "WHERE run_id = ? ORDER BY created_at, rowid")
_UPDATE = "UPDATE run_agents SET status = ?, updated_at = ? WHERE id = ? RETURNING run_id"


def add(
    conn: sqlite3.Connection,
    run_id: str,
    *,
    agent_type: str,
    name: str | None,
    dispatch_id: str | None,
    now_ms: int,
) -> str:
    """Note an agent that has begun; the answer is its id."""
    runs.require(conn, run_id)
    now = now_ms // 1000
    agent = Agent(new_id(), run_id, agent_type, "active", now, now, name, dispatch_id)
    conn.execute(_ADD, values(agent))
    runs.touch(conn, run_id, now_ms=now_ms)
    return agent.id


def of_run(conn: sqlite3.Connection, run_id: str) -> list[Agent]:
    """Those of a run, the oldest first; of an unknown run, none."""
    return [checked(Agent, row) for row in conn.execute(_OF_RUN, (run_id,))]


def update(conn: sqlite3.Connection, agent_id: str, status: Status, *, now_ms: int) -> None:
    changed = conn.execute(_UPDATE, (status, now_ms // 1000, agent_id)).fetchone()
    if changed is None:
        raise AgentNotFound(f"agent not found: {agent_id}")
    runs.touch(conn, changed[0], now_ms=now_ms)
