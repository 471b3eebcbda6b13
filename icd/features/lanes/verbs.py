"""lane: streams of work, and the issues that each of them holds."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, World
from icd.app.verb import (
    Argument,
    Card,
    Column,
    Command,
    Method,
    Option,
    Table,
    Verb,
    Writes,
    narrow,
    no_rows,
)
from icd.errors import InvalidParams
from icd.features.lanes import store
from icd.features.lanes.store import (
    Document,
    Happened,
    Lane,
    LaneType,
    Status,
    Synced,
    Velocity,
)
from icd.values import payloads, validation
from icd.values.wire import Result, iso

# A lane that people and agents still overlook has dozens; the event of a sync names all of them.
MEMBERS = 5000
BEAD_CHARACTERS = 200
MOST = 10_000
LIMIT = 1000
DAYS = 7
_WRITES = Writes(no_rows, appends=True)


def _check_beads(beads: list[str]) -> None:
    for bead in beads:
        validation.check_name(bead)


Word = Annotated[str, Argument("LANE", "Id or name of the lane."), validation.check_name]
Text = Annotated[str, Meta(max_length=payloads.STRING_BYTES)]
Bead = Annotated[str, Meta(max_length=BEAD_CHARACTERS)]


# --- parameters -----------------------------------------------------------------------------------


class Create(Params):
    """Create a lane and print its id; exit 2 if the name is taken."""

    rpc = "Create a lane."
    name: Annotated[str, Option("--name", "Name of the lane.", "NAME"), validation.check_name]
    lane_type: Annotated[
        LaneType,
        Option("--type", "A standing theme, or an arc that ends (default standing)."),
    ] = "standing"
    description: Annotated[
        Text, Option("--description", "Description of what belongs to it.", "TEXT")
    ] = ""
    intent: Annotated[Text, Option("--intent", "Goal that it is to achieve.", "TEXT")] = ""
    metadata: Annotated[
        str,
        Option("--metadata", "JSON object about the lane (default {}).", "JSON"),
        payloads.check_object,
    ] = "{}"


class List(Params):
    """Print name, type, status and id of the lanes, by name."""

    rpc = "List the lanes, by name."
    active: Annotated[bool, Option("--active", "List only active lanes.")] = False
    status: Annotated[Status | None, Option("--status", "List only lanes of this status.")] = None


class Show(Params):
    """Show a lane and what is in it; exit 2 if it is unknown."""

    rpc = "Return a lane and what is in it."
    lane: Word


class Members(Params):
    """Print the issues in a lane, one per line, the longest there first."""

    rpc = "List the issues in a lane, the longest there first."
    lane: Word


class Sync(Params):
    """Set which issues are in a lane; the others have left it."""

    lane: Word
    bead_ids: Annotated[
        list[Bead], Meta(max_length=MEMBERS, description="Issues in the lane."), _check_beads
    ]


class SyncForm(Show):
    """Set which issues are in a lane; the others have left it.

    An empty list leaves none in it.
    """

    bead_ids: Annotated[str, Option("--bead-ids", "Issues, separated by commas.", "A,B")]


class Events(Params):
    """Print what happened to a lane: time, event and its payload, oldest first."""

    rpc = "List what happened to a lane, oldest first."
    lane: Word
    limit: Annotated[
        int,
        Meta(ge=1, le=MOST),
        Option("--limit", f"List at most this many, the newest (default {LIMIT}).", "N"),
    ] = LIMIT


class Close(Params):
    """Close a lane, for good; exit 2 if it is unknown or closed."""

    rpc = "Close a lane, for good."
    lane: Word


class Update(Params):
    """Change what a lane says of itself.

    --metadata replaces the whole object; --metadata-merge replaces the members that it names;
    objects in both are merged in the same way.
    """

    rpc = (
        "Change what a lane says of itself.\n"
        "`metadata` replaces the whole object; `metadata_merge` replaces the members that it "
        "names; objects in both are merged in the same way."
    )
    lane: Annotated[str, Option("--name", "Id or name of the lane.", "LANE"), validation.check_name]
    description: Annotated[
        Text | None, Option("--description", "Description of what belongs to it.", "TEXT")
    ] = None
    intent: Annotated[Text | None, Option("--intent", "Goal that it is to achieve.", "TEXT")] = None
    metadata: Annotated[
        str | None,
        Option("--metadata", "JSON object about the lane.", "JSON"),
        payloads.check_object,
    ] = None
    metadata_merge: Annotated[
        str | None,
        Option("--metadata-merge", "JSON object to merge into it.", "JSON"),
        payloads.check_object,
    ] = None


class Rates(Params):
    """Print what each active lane gets done, the one that starves most first.

    An issue that left the lane counts as closed: whether it is, another program knows.
    starvation is three for each issue in the lane, divided by how many left it within the days, or
    by 0.1 if none did.
    """

    rpc = (
        "List what each active lane gets done, the one that starves most first.\n"
        "An issue that left the lane counts as closed: whether it is, another program knows.\n"
        "`starvation` is three for each issue in the lane, divided by how many left it within the "
        "days, or by 0.1 if none did."
    )

    days: Annotated[
        int,
        Meta(ge=1, le=36_500),
        Option("--days", f"Days to look back (default {DAYS}).", "N"),
    ] = DAYS


class Created(Result):
    id: str
    name: str
    lane_type: str


# --- what is done ---------------------------------------------------------------------------------


def create(ctx: Context, p: Create) -> Created:
    made = store.create(
        ctx.conn,
        p.name,
        lane_type=p.lane_type,
        description=p.description,
        intent=p.intent,
        metadata=p.metadata.strip(),
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return Created(made.id, made.name, made.lane_type)


def list_(ctx: Context, p: List) -> list[Lane]:
    return store.every(ctx.conn, "active" if p.active else p.status)


def status(ctx: Context, p: Show) -> Document:
    return store.in_full(ctx.conn, store.require(ctx.conn, p.lane))


def members(ctx: Context, p: Members) -> list[str]:
    return store.members(ctx.conn, store.require(ctx.conn, p.lane))


def sync(ctx: Context, p: Sync) -> Synced:
    lane = store.require(ctx.conn, p.lane)
    return store.sync(ctx.conn, lane, p.bead_ids, actor=ctx.writer, now_ms=ctx.now_ms)


def events(ctx: Context, p: Events) -> list[Happened]:
    return store.happened(ctx.conn, store.require(ctx.conn, p.lane), limit=p.limit)


def close(ctx: Context, p: Close) -> Lane:
    lane = store.require(ctx.conn, p.lane)
    return store.shown(store.close(ctx.conn, lane, actor=ctx.writer, now_ms=ctx.now_ms))


def update(ctx: Context, p: Update) -> Lane:
    lane = store.require(ctx.conn, p.lane)
    changes = _changes(p)
    if p.metadata_merge is not None:
        changes["metadata"] = payloads.merged(lane.metadata, p.metadata_merge, f"lane {lane.name}")
    return store.shown(store.update(ctx.conn, lane, changes, actor=ctx.writer, now_ms=ctx.now_ms))


def _changes(p: Update) -> dict[str, str]:
    told = {"description": p.description, "intent": p.intent, "metadata": p.metadata}
    return {name: text for name, text in told.items() if text is not None}


def velocity(ctx: Context, p: Rates) -> list[Velocity]:
    return store.velocity(ctx.conn, days=p.days, now_ms=ctx.now_ms)


def _check_status(p: List) -> None:
    if p.active and p.status not in (None, "active"):
        raise InvalidParams(f"active and {p.status} are mutually exclusive")


def _check_update(p: Update) -> None:
    if not _changes(p) and p.metadata_merge is None:
        raise InvalidParams(
            "nothing to update", hint="pass --intent, --description, --metadata or --metadata-merge"
        )
    if p.metadata is not None and p.metadata_merge is not None:
        raise InvalidParams(
            "metadata and metadata_merge are mutually exclusive", hint="pass one of them"
        )


# --- what is shown --------------------------------------------------------------------------------


def ask_sync(_world: World, f: SyncForm) -> Ask:
    beads = [word.strip() for word in f.bead_ids.split(",")]
    return Ask("lane.sync", narrow(f, Sync, bead_ids=[bead for bead in beads if bead]))


def show_list(found: list[Lane], _p: List) -> Iterator[str]:
    if not found:
        yield "no lanes"
        return
    yield f"{'NAME':<12} {'TYPE':<10} {'STATUS':<8} ID"
    for each in found:
        yield f"{render.one_line(each.name):<12} {each.lane_type:<10} {each.status:<8} {each.id}"


def show_status(found: Document, _p: Show) -> Iterator[str]:
    yield f"Lane: {render.one_line(found.name)} ({found.id})"
    yield f"Type: {found.lane_type}  Status: {found.status}"
    if found.description:
        yield f"Description: {render.one_line(found.description)}"
    if found.intent:
        yield f"Intent: {render.one_line(found.intent)}"
    yield f"Members: {found.member_count}  Events: {found.event_count}"
    yield f"Created: {iso(found.created_at)}"
    if found.members:
        yield f"Members ({found.member_count}): {render.one_line(', '.join(found.members))}"


def show_members(found: list[str], _p: Members) -> list[str]:
    return [render.one_line(bead) for bead in found] or ["no members"]


def show_events(found: list[Happened], _p: Events) -> Iterator[str]:
    for each in found:
        at = iso(each.created_at)[:16].replace("T", " ")
        yield f"{at}  {render.one_line(each.event_type):<14}  {render.one_line(each.payload)}"


def show_update(changed: Lane, p: Update) -> list[str]:
    told = [*_changes(p), *(["metadata"] if p.metadata_merge else [])]
    return [f"updated {render.one_line(changed.name)} {', '.join(told)}"]


def show_velocity(found: list[Velocity], _p: Rates) -> Iterator[str]:
    if not found:
        yield "no active lanes"
        return
    yield f"{'LANE':<12} {'OPEN':>5} {'CLOSED':>6} {'THRPUT':>8} {'STARV':>10}"
    for each in found:
        yield (
            f"{render.one_line(each.name):<12} {each.open_beads:>5} {each.closed:>6} "
            f"{each.throughput:>8.1f} {each.starvation:>10.1f}"
        )


VERBS = [
    Verb(
        "lane create",
        Create,
        Created,
        create,
        writes=_WRITES,
        show=lambda r, _: [r.id],
        summary="Create a lane and print its id.",
        examples=[
            'icctl lane create --name=kernel --description="the core"',
            'icctl lane create --name=parser --type=arc --intent="ship it in June"',
        ],
    ),
    Verb(
        "lane list",
        List,
        list[Lane],
        list_,
        check=_check_status,
        show=show_list,
        human=Table(
            Column("LANE", "name"),
            Column("TYPE", "lane_type"),
            Column("STATE", "status", "state"),
            Column("ID", "id", "id"),
            Column("UPDATED", "updated_at", "age"),
            Column("INTENT", "intent", spare=True),
            Column("DESCRIPTION", "description", spare=True),
            empty="No lanes. Create one: icctl lane create --name=NAME",
        ),
        summary="List lanes by name.",
        examples=["icctl lane list --active", "icctl lane list --status=closed --json"],
    ),
    Verb(
        "lane status",
        Show,
        Document,
        status,
        show=show_status,
        human=Card(
            Column("Lane", "name"),
            Column("Id", "id", "id"),
            Column("Type", "lane_type"),
            Column("State", "status", "state"),
            Column("Description", "description"),
            Column("Intent", "intent"),
            Column("Metadata", lambda lane: None if lane.metadata == "{}" else lane.metadata),
            Column("Created", "created_at", "age"),
            Column("Updated", "updated_at", "age"),
            Column("Closed", "closed_at", "age"),
            Column("Events", "event_count", "number"),
            Column("Issues", lambda lane: ", ".join(lane.members) or "none"),
        ),
        summary="Show a lane.",
        examples=[
            "icctl lane status kernel",
            "icctl lane status kernel --json | jq -r '.metadata | fromjson | .paused'",
        ],
    ),
    Method("lane.sync", Sync, Synced, sync, writes=_WRITES),
    Command(
        "lane sync",
        SyncForm,
        ask_sync,
        show=lambda r, _: [f"synced {r.member_count} members to lane {render.one_line(r.name)}"],
        summary="Set which issues are in a lane.",
        examples=[
            "icctl lane sync kernel --bead-ids=B-1,B-2",
            'icctl lane sync kernel --bead-ids="$OPEN"',
        ],
    ),
    Verb(
        "lane members",
        Members,
        list[str],
        members,
        show=show_members,
        human=Table(
            Column("ISSUE", lambda bead: bead),
            empty="No issues in this lane. Say which: icctl lane sync LANE --bead-ids=A,B",
        ),
        summary="List the issues in a lane.",
        examples=["icctl lane members kernel", "icctl lane members kernel --json"],
    ),
    Verb(
        "lane events",
        Events,
        list[Happened],
        events,
        show=show_events,
        human=Table(
            Column("WHEN", "created_at", "age"),
            Column("EVENT", "event_type", "state"),
            Column("SEQ", "id", "number", spare=True),
            Column("WHAT", "payload"),
            empty="Its events were pruned.",
        ),
        summary="Print the history of a lane.",
        examples=["icctl lane events kernel", "icctl lane events kernel --limit=5 --json"],
    ),
    Verb(
        "lane close",
        Close,
        Lane,
        close,
        writes=_WRITES,
        show=lambda _r, _p: ["closed"],
        summary="Close a lane.",
        examples=["icctl lane close launch"],
    ),
    Verb(
        "lane velocity",
        Rates,
        list[Velocity],
        velocity,
        show=show_velocity,
        human=Table(
            Column("LANE", "name"),
            Column("OPEN", "open_beads", "number"),
            Column("CLOSED", "closed", "number"),
            Column("STARVATION", lambda each: f"{each.starvation:.1f}"),
            empty="No active lanes. Create one: icctl lane create --name=NAME",
        ),
        summary="Compare what lanes get done.",
        examples=["icctl lane velocity", "icctl lane velocity --days=30 --json"],
    ),
    Verb(
        "lane update",
        Update,
        Lane,
        update,
        check=_check_update,
        writes=_WRITES,
        show=show_update,
        summary="Change what a lane says of itself.",
        examples=[
            'icctl lane update --name=kernel --intent="fewer locks"',
            """icctl lane update --name=kernel --metadata-merge='{"paused":true}'""",
        ],
    ),
]
