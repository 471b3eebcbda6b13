"""Agents that work on a run, as whoever started them says.

An agent is a note, not a process: what it does is a dispatch's business, and only `update` changes
how it fares.  Whatever is noted about an agent is a sign of life of its run.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Literal, get_args

from msgspec import Struct

from icd.db.rows import checked
from icd.errors import AgentNotFound
from icd.features.runs import store as runs
from icd.values import ids

Status = Literal["active", "completed", "failed"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Agent(Struct, frozen=True):
    id: str
    run_id: str
    agent_type: str
    name: str | None
    status: Status
    dispatch_id: str | None
    created_at: int
    updated_at: int


_ADD = """
INSERT INTO run_agents
    (id, run_id, agent_type, name, status, dispatch_id, created_at, updated_at)
VALUES (?, ?, ?, ?, 'active', ?, ?, ?)
"""
_OF_RUN = """
SELECT id, run_id, agent_type, name, status, dispatch_id, created_at, updated_at
FROM run_agents WHERE run_id = ? ORDER BY created_at, rowid
"""
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
    """Note an agent that has begun; its id is returned."""
    runs.require(conn, run_id)
    agent_id, now = ids.new(), now_ms // 1000
    conn.execute(_ADD, (agent_id, run_id, agent_type, name, dispatch_id, now, now))
    runs.touch(conn, run_id, now_ms=now_ms)
    return agent_id


def of_run(conn: sqlite3.Connection, run_id: str) -> list[Agent]:
    """Those of a run, the oldest first; of an unknown run, none."""
    return [checked(Agent, row) for row in conn.execute(_OF_RUN, (run_id,))]


def update(conn: sqlite3.Connection, agent_id: str, status: Status, *, now_ms: int) -> None:
    changed = conn.execute(_UPDATE, (status, now_ms // 1000, agent_id)).fetchone()
    if changed is None:
        raise AgentNotFound(f"agent not found: {agent_id}")
    runs.touch(conn, changed[0], now_ms=now_ms)
