"""run agent: who works on a run."""

from collections.abc import Iterator
from typing import Annotated

from icd.app import render
from icd.app.call import Context, Params
from icd.app.verb import Argument, Column, Option, Table, Verb, Writes, no_rows
from icd.features.runs import store as runs
from icd.features.runs.store import Agent, AgentStatus
from icd.features.runs.verbs import RunId
from icd.values import validation
from icd.values.wire import Result


class Add(Params):
    """Add an agent to a run and print the agent's id; exit 1 if the run is unknown."""

    rpc = "Add an agent to a run."
    run_id: RunId
    agent_type: Annotated[
        str, Option("--type", "Type of the agent (default claude).", "T"), validation.check_name
    ] = "claude"
    name: Annotated[
        str | None, Option("--name", "Name of the agent.", "NAME"), validation.check_scope
    ] = None
    dispatch_id: Annotated[
        str | None,
        Option("--dispatch-id", "Id of its dispatch.", "ID"),
        validation.check_scope,
    ] = None


class List(Params):
    """Print id, type, status and name of the agents of a run, oldest first."""

    rpc = "List the agents of a run, oldest first."
    run_id: RunId


class Update(Params):
    """Update an agent's status; exit 1 if the agent is unknown.

    The gate between executing and review waits for active agents.
    """

    rpc = (
        "Update an agent's status.\nThe gate between executing and review waits for active agents."
    )
    agent_id: Annotated[str, Argument("AGENT", "Id of the agent.")]
    status: Annotated[AgentStatus, Option("--status", "New status.")]


class Added(Result):
    id: str


class Updated(Result):
    id: str
    status: str


def add(ctx: Context, p: Add) -> Added:
    found = runs.add_agent(
        ctx.conn,
        p.run_id,
        agent_type=p.agent_type,
        name=p.name or None,
        dispatch_id=p.dispatch_id or None,
        now_ms=ctx.now_ms,
    )
    return Added(found)


def list_(ctx: Context, p: List) -> list[Agent]:
    return runs.agents_of(ctx.conn, p.run_id)


def update(ctx: Context, p: Update) -> Updated:
    runs.update_agent(ctx.conn, p.agent_id, p.status, now_ms=ctx.now_ms)
    return Updated(p.agent_id, p.status)


def show_list(found: list[Agent], _p: List) -> Iterator[str]:
    return (render.columns(a.id, a.agent_type, a.status, a.name or "") for a in found)


VERBS = [
    Verb(
        "run agent add",
        Add,
        Added,
        add,
        method="agent.add",
        writes=Writes(no_rows),
        show=lambda r, _: [r.id],
        summary="Add an agent to a run.",
        examples=[
            'icctl run agent add "$RUN" --name=reviewer',
            'icctl run agent add "$RUN" --type=codex --name=fixer --dispatch-id="$ID"',
        ],
    ),
    Verb(
        "run agent list",
        List,
        list[Agent],
        list_,
        method="agent.list",
        show=show_list,
        human=Table(
            Column("AGENT", "id", "id"),
            Column("STATE", "status", "state"),
            Column("TYPE", "agent_type"),
            Column("NAME", "name"),
            Column("DISPATCH", "dispatch_id", "id", spare=True),
            Column("UPDATED", "updated_at", "age"),
            empty="No agents yet. Add one: icctl run agent add RUN --name=reviewer",
        ),
        summary="List the agents of a run.",
        examples=['icctl run agent list "$RUN"', 'icctl run agent list "$RUN" --json'],
    ),
    Verb(
        "run agent update",
        Update,
        Updated,
        update,
        method="agent.update",
        writes=Writes(no_rows),
        show=lambda _r, _p: ["updated"],
        summary="Update an agent's status.",
        examples=['icctl run agent update "$AGENT" --status=completed'],
    ),
]
