"""interspect: events about agents, in the shape that the original gave them."""

from typing import Annotated, Protocol

import msgspec
from msgspec import Raw, Struct

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.verb import Column, Command, Option, Table
from icd.features.events.record import Record, Recorded
from icd.features.events.store import Batch, Event, Marks
from icd.features.events.tail import LIMIT, Tail, limited
from icd.features.events.watch import Seq
from icd.values.wire import Int64


class RecordForm(Struct, kw_only=True):
    """Record an event about an agent and print its id."""

    agent: Annotated[str, Option("--agent", "Name of the agent.", "A")]
    type: Annotated[str, Option("--type", "Type of the event.", "T")]
    run_id: Annotated[str, Option("--run", "Id of the run.", "RUN")] = ""
    reason: Annotated[str, Option("--reason", "Reason for the override.", "TEXT")] = ""
    context: Annotated[str | None, Option("--context", "Context, as text.", "TEXT")] = None
    session: Annotated[
        str | None, Option("--session", "Session id (default: the caller's session).", "SID")
    ] = None
    project: Annotated[
        str | None,
        Option("--project", "Project directory (default: the current directory).", "DIR"),
    ] = None


class Query(Struct):
    """Print events about agents in the order of recording, one JSON object per line."""

    agent: Annotated[
        str | None, Option("--agent", "Include only events about this agent.", "A")
    ] = None
    since: Annotated[Seq, Option("--since", "Include only events after this id.", "ID")] = 0
    limit: Annotated[Int64, Option("--limit", "Maximum number of events (default 100).", "N")] = (
        LIMIT
    )


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


class Timed(Protocol):
    @property
    def timestamp(self) -> str: ...


class _Said(Struct):
    context_json: Raw = Raw(b'""')


def ask_record(world: World, f: RecordForm) -> Ask:
    said = {"agent_name": f.agent} | ({} if f.context is None else {"context_json": f.context})
    params = Record(
        "interspect",
        f.type,
        Raw(msgspec.json.encode(said)),
        run_id=f.run_id,
        reason=f.reason,
        session=f.session,
        project_dir=world.directory(f.project),
    )
    return Ask("events.record", params)


def show_record(r: Recorded, _f: RecordForm) -> list[str]:
    return [str(r.seq)]


def ask_query(world: World, f: Query) -> Ask:
    limit, marks = limited(f.limit), Marks(interspect=f.since)
    asked = Tail(source="interspect", subject_id=f.agent, limit=limit, marks=marks)

    def show(batch: Batch) -> Output:
        found = [_evidence(event) for event in batch.events]
        if world.terminal is not None:
            return render.shown(world, found, list, EVIDENCE)
        return render.lines(found)

    return Ask("events.tail", asked, show)


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


def _context(payload: object) -> str:
    """What stands there as text, else as it is written; nothing where it cannot be read."""
    try:
        said = msgspec.json.decode(payload, type=_Said) if isinstance(payload, Raw) else _Said()
        written = bytes(said.context_json)
        return str(msgspec.json.decode(written) if written[:1] == b'"' else written.decode())
    except (msgspec.DecodeError, RecursionError):  # what was imported may be any JSON
        return ""


def seconds(said: Timed) -> int:
    """When it was, of a row that tells that as text."""
    from calendar import timegm  # only a terminal pays for it
    from time import strptime

    return timegm(strptime(said.timestamp, "%Y-%m-%dT%H:%M:%SZ"))


EVIDENCE = Table(
    Column("ID", "id", "number"),
    Column("WHEN", seconds, "age"),
    Column("AGENT", "agent_name"),
    Column("EVENT", "event_type"),
    Column("RUN", "run_id", "id", spare=True),
    Column("SESSION", "session_id", spare=True),
    Column("REASON", "override_reason", spare=True),
    Column("CONTEXT", "context_json", spare=True),
    empty="No events about agents. Record one: icctl interspect record --agent=NAME --type=T",
    filtered=True,
)

VERBS = [
    Command(
        "interspect record",
        RecordForm,
        ask_record,
        show=show_record,
        summary="Record an event about an agent.",
        examples=["icctl interspect record --agent=reviewer --type=override --reason=noise"],
    ),
    Command(
        "interspect query",
        Query,
        ask_query,
        human=EVIDENCE,
        summary="Print events about agents.",
        examples=[
            "icctl interspect query --agent=reviewer",
            "icctl interspect query --since=41 --limit=10",
        ],
    ),
]
