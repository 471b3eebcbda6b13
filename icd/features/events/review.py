"""events emit and events list-review: what came of the findings of reviews.

An event of a review is one of the log like any other, whose payload names the finding, what each
agent said of it, and what was decided.  `list-review` shows such events in the shape that the
original gave them.
"""

import json
from typing import Annotated, Literal

from msgspec import Meta, Raw, field

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import Whole
from icd.app.verb import Column, Command, Option, Table, Verb
from icd.errors import InvalidPayload
from icd.features.events import record, store
from icd.features.events.interspect import seconds
from icd.features.events.record import RecordForm
from icd.features.events.store import NOTHING, Event, Wanted
from icd.features.events.watch import Seq
from icd.values import payloads
from icd.values.wire import INT64, Result

SOURCE = "review"
# Of the original; and how many there may be in one answer, which is put together in memory.
LIMIT = 1000
MOST = 10_000


def _limit(_world: World, given: int | None) -> int:
    """Zero or less means the usual number."""
    return LIMIT if given is None or given <= 0 else min(given, MOST)


class EmitForm(RecordForm, kw_only=True):
    """Record what came of a finding of a review, and print the id of the event.

    The type is disagreement_resolved or execution_defect.
    The context names the finding, what each agent said of it, and what was decided: finding_id,
    agents, resolution, chosen_severity, impact, and perhaps dismissal_reason.
    """

    source: Annotated[
        Literal["review"],
        Option("--source", "Source of the event; review is the only one (default)."),
    ] = "review"
    payload: Annotated[
        Raw,
        Option(
            "--context",
            "Context, as JSON; @FILE reads a file.",
            "JSON",
            aliases=("--payload",),
            resolve=record.read_payload,
        ),
    ] = field(default_factory=lambda: NOTHING)  # a default could not be described


class ListReview(Params):
    """Print the events of reviews in the order of recording, one JSON object per line.

    The id of the last one is where the next call goes on, with --since.
    """

    rpc = "List the events of reviews in the order of recording."
    since: Annotated[Seq, Option("--since", "Include only events after this id.", "ID")] = 0
    limit: Annotated[
        int,
        Meta(ge=1, le=MOST),
        Whole(-INT64, INT64 - 1),
        Option("--limit", f"Maximum number of events (default {LIMIT}).", "N", resolve=_limit),
    ] = LIMIT


class Review(Result, kw_only=True):
    """In the order of the original; `agents_json` is the JSON object of what each agent said."""

    id: int
    run_id: str = ""
    finding_id: str
    agents_json: str
    resolution: str
    dismissal_reason: str = ""
    chosen_severity: str
    impact: str
    event_type: str
    session_id: str = ""
    project_dir: str = ""
    timestamp: str


def list_review(ctx: Context, p: ListReview) -> list[Review]:
    wanted = Wanted(since=p.since, limit=p.limit, source=SOURCE)
    found, _ = store.page(ctx.conn, wanted)
    return [_review(event) for event in found]


def _review(event: Event) -> Review:
    """What was recorded by another program, or imported, may lack anything."""
    said = _said(event)
    agents = said.get("agents")
    return Review(
        id=event.seq,
        run_id=event.run_id,
        finding_id=_word(said.get("finding_id")),
        agents_json=json.dumps(agents if isinstance(agents, dict) else {}, separators=(",", ":")),
        resolution=_word(said.get("resolution")),
        dismissal_reason=_word(said.get("dismissal_reason")),
        chosen_severity=_word(said.get("chosen_severity")),
        impact=_word(said.get("impact")),
        event_type=event.type,
        session_id=event.session or "",
        project_dir=event.project_dir or "",
        timestamp=event.timestamp,
    )


def _said(event: Event) -> dict[str, object]:
    try:
        found = json.loads(bytes(event.payload)) if isinstance(event.payload, Raw) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _word(value: object) -> str:
    """As text that can be sent: JSON can spell lone surrogates."""
    text = value if isinstance(value, str) else ""
    return text.encode("utf-8", "backslashreplace").decode()


def ask_emit(world: World, f: EmitForm) -> Ask:
    if bytes(f.payload) == bytes(NOTHING):
        raise InvalidPayload("--context is missing", hint="pass --context=JSON, or --context=@FILE")
    said = json.loads(payloads.check(bytes(f.payload)))
    if isinstance(said, dict) and said.get("agents") == {}:
        raise InvalidPayload("agents in the context is empty", hint="say which agents disagreed")
    return record.ask_record(world, f)


def show_list(found: list[Review], _p: ListReview) -> Output:
    return render.lines(found)


REVIEWS = Table(
    Column("ID", "id", "number"),
    Column("WHEN", seconds, "age"),
    Column("FINDING", "finding_id"),
    Column("RESOLUTION", "resolution"),
    Column("SEVERITY", "chosen_severity"),
    Column("IMPACT", "impact"),
    Column("TYPE", "event_type", spare=True),
    Column("DISMISSED", "dismissal_reason", spare=True),
    Column("AGENTS", "agents_json", spare=True),
    Column("RUN", "run_id", "id", spare=True),
    empty="No events of reviews. Record one: icctl events emit --type=T --context=JSON",
)

VERBS = [
    Command(
        "events emit",
        EmitForm,
        ask_emit,
        show=record.show_record,
        order=record.ORDER,
        summary="Record an event of a review.",
        examples=[
            "icctl events emit --type=disagreement_resolved --context=@finding.json",
            'icctl events emit --source=review --type=execution_defect --context="$JSON"',
        ],
    ),
    Verb(
        "events list-review",
        ListReview,
        list[Review],
        list_review,
        method="events.reviews",
        show=show_list,
        json=show_list,
        human=REVIEWS,
        summary="Print the events of reviews.",
        examples=["icctl events list-review", "icctl events list-review --since=41 --limit=10"],
    ),
]
