"""Agents of a run that nobody has started yet.

An agent is started once: whoever starts it claims it in the transaction that creates the dispatch
(`dispatches.claim_agent`), so of two who find the same agent here one is refused.

Callers run these inside a transaction.
"""

import sqlite3

from msgspec import Struct

from icd.errors import RunOver
from icd.features.runs import store as runs


class Due(Struct, frozen=True):
    """An agent to start; as the last dispatch of its name in this run, if there was one."""

    agent_id: str
    agent_type: str
    name: str | None
    project_dir: str
    prompt_file: str | None
    model: str | None
    sandbox: str | None


_DUE = """
SELECT a.id, a.agent_type, a.name, d.prompt_file, d.model, d.sandbox
FROM run_agents AS a LEFT JOIN dispatches AS d ON d.id =
       (SELECT id FROM dispatches
        WHERE run_id = a.run_id AND name = a.name AND prompt_file IS NOT NULL
        ORDER BY created_ms DESC, rowid DESC LIMIT 1)
WHERE a.run_id = ? AND a.status = 'active' AND a.dispatch_id IS NULL
ORDER BY a.created_at, a.rowid
"""


def due(conn: sqlite3.Connection, run_id: str) -> list[Due]:
    run = runs.require(conn, run_id)
    if run.status != "active":
        raise RunOver(f"run {run_id} is {run.status}")
    return [
        Due(agent_id, agent_type, name, run.project_dir, *earlier)
        for agent_id, agent_type, name, *earlier in conn.execute(_DUE, (run_id,))
    ]
