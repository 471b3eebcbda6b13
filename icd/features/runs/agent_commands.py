"""`icctl run agent …`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.features.runs import agent_methods as methods
from icd.features.runs.agents import STATUSES, Status


@click.command("add", add_help_option=False, short_help="Note that an agent works on a run.")
@click.argument("run")
@click.option("--type", "kind", default="claude", metavar="T", help="What it is (default claude).")
@click.option("--name", metavar="NAME", help="What it is called.")
@click.option("--dispatch-id", metavar="ID", help="The dispatch that it runs in.")
def add(world: World, *, run: str, kind: str, name: str | None, dispatch_id: str | None) -> Ask:
    """Note that an agent works on a run, and print the agent's id; exit 1 if there is no such run.

    \b
    Examples:
      icctl run agent add "$RUN" --name=reviewer
      icctl run agent add "$RUN" --type=codex --name=fixer --dispatch-id="$ID"
    """

    def show(added: methods.Added) -> Output:
        return render.text(added.id)

    params = methods.Add(run, agent_type=kind, name=name, dispatch_id=dispatch_id)
    return Ask("agent.add", params, render.to_json if world.json else show)


@click.command("list", add_help_option=False, short_help="List the agents of a run.")
@click.argument("run")
def list_(world: World, *, run: str) -> Ask:
    """Print id, type, status and name of the agents of a run, the oldest first.

    \b
    Examples:
      icctl run agent list "$RUN"
      icctl run agent list "$RUN" --json
    """

    def show(found: list[methods.Agent]) -> Output:
        return render.text(*map(line, found))

    return Ask("agent.list", methods.List(run), render.to_json if world.json else show)


@click.command("update", add_help_option=False, short_help="Say how an agent fares.")
@click.argument("agent")
@click.option("--status", required=True, type=click.Choice(STATUSES), help="How it is now.")
def update(world: World, *, agent: str, status: Status) -> Ask:
    """Say how an agent fares; exit 1 if there is no such agent.

    The gate between executing and review waits for agents that are active.

    \b
    Example:
      icctl run agent update "$AGENT" --status=completed
    """

    def show(_: methods.Updated) -> Output:
        return render.text("updated")

    params = methods.Update(agent, status)
    return Ask("agent.update", params, render.to_json if world.json else show)


def line(agent: methods.Agent) -> str:
    return render.columns(agent.id, agent.agent_type, agent.status, agent.name or "")


COMMANDS = [add, list_, update]
