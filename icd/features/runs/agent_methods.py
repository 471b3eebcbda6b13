"""agent.*: who works on a run."""

from functools import partial
from typing import Any

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes, no_rows
from icd.features.runs import agents
from icd.features.runs.agents import Status
from icd.values import validation as names
from icd.values.wire import Result, iso


class Add(Params):
    run_id: str
    agent_type: str = "claude"
    name: str | None = None
    dispatch_id: str | None = None


class List(Params):
    run_id: str


class Update(Params):
    agent_id: str
    status: Status


class Added(Result):
    id: str


class Agent(Result):
    id: str
    run_id: str
    agent_type: str
    status: str
    created_at: int
    created_at_iso: str
    updated_at: int
    updated_at_iso: str
    name: str | None = None
    dispatch_id: str | None = None


class Updated(Result):
    id: str
    status: str


def add(ctx: Context, p: Add) -> Added:
    found = agents.add(
        ctx.conn,
        p.run_id,
        agent_type=p.agent_type,
        name=p.name or None,
        dispatch_id=p.dispatch_id or None,
        now_ms=ctx.now_ms,
    )
    return Added(found)


def list_(ctx: Context, p: List) -> list[Agent]:
    return [shown(agent) for agent in agents.of_run(ctx.conn, p.run_id)]


def update(ctx: Context, p: Update) -> Updated:
    agents.update(ctx.conn, p.agent_id, p.status, now_ms=ctx.now_ms)
    return Updated(p.agent_id, p.status)


def shown(agent: agents.Agent) -> Agent:
    return Agent(
        id=agent.id,
        run_id=agent.run_id,
        agent_type=agent.agent_type,
        status=agent.status,
        created_at=agent.created_at,
        created_at_iso=iso(agent.created_at),
        updated_at=agent.updated_at,
        updated_at_iso=iso(agent.updated_at),
        name=agent.name,
        dispatch_id=agent.dispatch_id,
    )


def check_add(p: Add) -> None:
    names.check_name(p.agent_type)
    names.check_scope(p.name or "")
    names.check_scope(p.dispatch_id or "")


_WRITES = partial(Method[Any, Any], writes=Writes(no_rows))

METHODS = [
    _WRITES("agent.add", Add, Added, add, check=check_add),
    Method("agent.list", List, list[Agent], list_),
    _WRITES("agent.update", Update, Updated, update),
]
