"""`icctl interspect …`: events about agents, in the shape that the original gave them."""

import click
import msgspec
from msgspec import Raw, Struct

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.features.events import methods
from icd.features.events.commands import COUNT, SEQ, UNLIMITED
from icd.features.events.store import Event, Marks


class Evidence(Struct, kw_only=True, omit_defaults=True):
    """In the order of the original."""

    id: int
    run_id: str = ""
    agent_name: str
    event_type: str
    override_reason: str = ""
    context_json: str = ""
    session_id: str = ""
    project_dir: str = ""
    timestamp: str


@click.command("record", add_help_option=False, short_help="Record an event about an agent.")
@click.option("--agent", required=True, metavar="A", help="The agent's name.")
@click.option("--type", "kind", required=True, metavar="T", help="What happened.")
@click.option("--run", default="", metavar="RUN", help="The run that it belongs to.")
@click.option("--reason", default="", metavar="TEXT", help="Why the agent was overridden.")
@click.option("--context", metavar="TEXT", help="More about it.")
@click.option("--session", metavar="SID", help="Whose it is; else $CLAUDE_SESSION_ID.")
@click.option("--project", metavar="DIR", help="Where; else the current directory.")
def record(
    world: World,
    *,
    agent: str,
    kind: str,
    run: str,
    reason: str,
    context: str | None,
    session: str | None,
    project: str | None,
) -> Ask:
    """Record an event about an agent and print its id.

    \b
    Example:
      icctl interspect record --agent=reviewer --type=override --reason=noise
    """
    said = {"agent_name": agent} | ({} if context is None else {"context_json": context})
    params = methods.Record(
        "interspect",
        kind,
        Raw(msgspec.json.encode(said)),
        run_id=run,
        reason=reason,
        session=session,
        project_dir=world.directory(project),
    )

    def show(result: methods.Recorded) -> Output:
        return render.text(str(result.seq))

    return Ask("events.record", params, render.to_json if world.json else show)


@click.command("query", add_help_option=False, short_help="Print such events as JSON lines.")
@click.option("--agent", metavar="A", help="Only about this agent.")
@click.option("--since", type=SEQ, default=0, metavar="ID", help="Only those after this id.")
@click.option("--limit", type=COUNT, default=100, metavar="N", help="At most N (default 100).")
def query(world: World, *, agent: str | None, since: int, limit: int) -> Ask:  # noqa: ARG001
    """Print events about agents in the order in which they happened, one JSON object a line.

    \b
    Examples:
      icctl interspect query --agent=reviewer
      icctl interspect query --since=41 --limit=10
    """

    def show(batch: methods.Batch) -> Output:
        return render.lines([_evidence(event) for event in batch.events])

    params = methods.Tail(
        source="interspect",
        subject_id=agent,
        limit=min(limit, methods.MOST) if limit > 0 else UNLIMITED,
        marks=Marks(interspect=since),
    )
    return Ask("events.tail", params, show)


class _Said(Struct):
    context_json: Raw = Raw(b'""')


def _context(payload: object) -> str:
    """What stands there as text, else as it is written; nothing where it cannot be read."""
    try:
        said = msgspec.json.decode(payload, type=_Said) if isinstance(payload, Raw) else _Said()
        written = bytes(said.context_json)
        return str(msgspec.json.decode(written) if written[:1] == b'"' else written.decode())
    except (msgspec.DecodeError, RecursionError):  # what was imported may be any JSON
        return ""


def _evidence(event: Event) -> Evidence:
    return Evidence(
        id=event.id,
        run_id=event.run_id,
        agent_name=event.subject_id,
        event_type=event.type,
        override_reason=event.reason,
        context_json=_context(event.payload),
        session_id=event.session or "",
        project_dir=event.project_dir or "",
        timestamp=event.timestamp,
    )


COMMANDS = [record, query]
