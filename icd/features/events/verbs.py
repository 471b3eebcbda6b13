"""events: the log of everything that happened, and the cursors of those who read it."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import DURATION
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
)
from icd.errors import Usage
from icd.features.events import cursors, record, retention, review, tail
from icd.features.events.cursors import Place
from icd.features.events.retention import Pruned
from icd.features.events.store import Marks
from icd.features.events.watch import WATCH, Seq
from icd.values.validation import check_name, check_scope
from icd.values.wire import Milliseconds, Result

# --- prune ----------------------------------------------------------------------------------------


class Prune(Params):
    """Delete the oldest events, by age (--older-than) or number (--keep).

    Events that a durable cursor has not read, or that a hook has not received, are kept unless
    --force is given.
    """

    rpc = (
        "Delete the oldest events, by age (`older_than_ms`) or number (`keep`).\n"
        "Events that a durable cursor has not read, or that a hook has not received, are kept "
        "unless `force` is set."
    )
    older_than_ms: Annotated[
        Milliseconds | None,
        DURATION,
        Option("--older-than", "Minimum age of the events to delete."),
    ] = None
    keep: Annotated[Seq | None, Option("--keep", "Number of newest events to keep.", "N")] = None
    force: Annotated[
        bool, Option("--force", "Delete even events that durable cursors have not read.")
    ] = False


def prune(ctx: Context, p: Prune) -> Pruned:
    before_ms = None if p.older_than_ms is None else ctx.now_ms - p.older_than_ms
    rule = retention.Rule(before_ms, p.keep)
    return retention.prune(ctx.conn, rule, force=p.force, now_ms=ctx.now_ms)


def ask_prune(world: World, p: Prune) -> Ask:
    if p.older_than_ms is None and p.keep is None:
        raise Usage("pass --older-than or --keep")

    def show(r: Pruned) -> Output:
        output = render.text(f"{r.pruned} pruned")
        if r.held:
            told = f"{world.program}: events prune: warning: {r.held} more wait for"
            output.stderr = f"{told} durable cursors or hooks; --force deletes them\n".encode()
        return output

    return Ask("events.prune", p, render.to_json if world.json else show)


# --- cursors --------------------------------------------------------------------------------------

Consumer = Annotated[str, Argument("CONSUMER", "Name of the consumer."), check_name]
Run = Annotated[str, Option("--run", "Use the consumer's cursor for this run.", "RUN"), check_scope]

# What the original calls a cursor's payload, and what is ours.
_PAYLOAD = (
    "phase",
    "dispatch",
    "interspect",
    "discovery",
    "seq",
    "lag",
    "durable",
    "expires_at",
    "behind",
)


class List(Params):
    """Print each cursor and its position: C or C:RUN, a tab, and JSON.

    phase, dispatch, interspect and discovery are the last ids of these sources before the cursor;
    lag is the number of later events; behind means that events after the cursor were pruned.
    """

    rpc = (
        "List the cursors with their positions.\n"
        "`phase`, `dispatch`, `interspect` and `discovery` are the last ids of these sources "
        "before the cursor; `lag` is the number of later events; `behind` means that events "
        "after the cursor were pruned."
    )


class Get(Params):
    """Print the position of a cursor as JSON; exit 1 if the cursor is absent."""

    rpc = "Return a cursor, or null if it is absent."
    consumer: Consumer
    run_id: Run = ""


class Register(Params):
    """Register a cursor at the oldest event; an existing cursor keeps its position.

    A durable cursor never expires, and events are not pruned before it has read them.
    """

    consumer: Consumer
    durable: Annotated[
        bool, Option("--durable", "Keep the cursor forever; others expire after a day without use.")
    ] = False


class Set(Params):
    """Move a cursor to SEQ, forward or back.

    Instead of SEQ, the last id of each source may be given, as in the original: the consumer then
    continues with the first event after any of them.
    """

    rpc = (
        "Move a cursor to `seq`, forward or back.\n"
        "Instead of `seq`, the last id of each source may be given, as in the original: the "
        "consumer then continues with the first event after any of them."
    )
    consumer: Consumer
    seq: Annotated[Seq | None, Argument("SEQ", "Sequence number of the last event read.")] = None
    run_id: Run = ""
    marks: Annotated[
        Marks, Meta(description="Last ids by source, as in the original, instead of seq.")
    ] = Marks()


class SetForm(Set):
    __doc__ = Set.__doc__

    phase: Annotated[
        Seq | None, Option("--phase", "Id of the last phase event read, instead of SEQ.", "ID")
    ] = None
    dispatch: Annotated[
        Seq | None, Option("--dispatch", "Id of the last dispatch event read.", "ID")
    ] = None
    discovery: Annotated[
        Seq | None, Option("--discovery", "Id of the last discovery event read.", "ID")
    ] = None


class Ack(Params):
    """Acknowledge all events up to SEQ for a consumer; never moves the cursor back."""

    rpc = "Acknowledge all events up to `seq` for a consumer; never moves the cursor back."
    consumer: Consumer
    seq: Annotated[Seq, Argument("SEQ", "Sequence number of the last event processed.")]
    run_id: Run = ""


class Reset(Params):
    """Delete the cursors of a consumer, for all runs; C:RUN deletes the one for a run.

    The consumer starts again at the oldest event.
    Prints reset or not found, and exits 0 either way.
    """

    rpc = (
        "Delete the cursors of a consumer, for all runs; `consumer:run` deletes the one for a "
        "run.\n"
        "The consumer starts again at the oldest event."
    )
    consumer: Consumer


class ResetCount(Result):
    reset: int


def list_(ctx: Context, _p: List) -> list[Place]:
    found = cursors.every(ctx.conn, now_ms=ctx.now_ms)
    return [cursors.place(ctx.conn, cursor) for cursor in found]


def get(ctx: Context, p: Get) -> Place | None:
    found = cursors.find(ctx.conn, *_names(ctx, p), now_ms=ctx.now_ms)
    return cursors.place(ctx.conn, found) if found else None


def register(ctx: Context, p: Register) -> Place:
    found = cursors.register(ctx.conn, p.consumer, durable=p.durable, now_ms=ctx.now_ms)
    return cursors.place(ctx.conn, found)


def set_(ctx: Context, p: Set) -> Place:
    consumer, run_id = _names(ctx, p)
    seq = cursors.from_marks(ctx.conn, p.marks, run_id) if p.seq is None else p.seq
    moved = cursors.put(ctx.conn, consumer, run_id, seq, now_ms=ctx.now_ms)
    return cursors.place(ctx.conn, moved)


def ack(ctx: Context, p: Ack) -> Place:
    moved = cursors.advance(ctx.conn, *_names(ctx, p), p.seq, now_ms=ctx.now_ms)
    return cursors.place(ctx.conn, moved)


def reset(ctx: Context, p: Reset) -> ResetCount:
    return ResetCount(cursors.reset(ctx.conn, p.consumer, now_ms=ctx.now_ms))


def _names(ctx: Context, p: Get | Set | Ack) -> tuple[str, str]:
    if p.run_id:
        return p.consumer, p.run_id
    return cursors.locate(ctx.conn, p.consumer, now_ms=ctx.now_ms)


def _original(p: Get | Register | Set | Ack) -> tuple[tuple[str, str], ...]:
    """Those that only look may find a cursor of the original, and take it over."""
    return (cursors.original(p.consumer, getattr(p, "run_id", "")),)


def show_list(found: list[Place], _p: List) -> Iterator[str]:
    for place in found:
        key = f"{place.consumer}:{place.run_id}" if place.run_id else place.consumer
        yield render.columns(key, _payload(place))


def show_get(place: Place | None, _p: Get) -> list[str]:
    return [_payload(place)] if place else []


def _payload(place: Place) -> str:
    return msgspec.json.encode({name: getattr(place, name) for name in _PAYLOAD}).decode()


def show_register(place: Place, p: Register) -> list[str]:
    return [f"registered {p.consumer} ({'durable' if place.durable else 'ttl: 24h'})"]


def ask_set(_world: World, f: SetForm) -> Ask:
    given = [mark for mark in (f.phase, f.dispatch, f.discovery) if mark is not None]
    if (f.seq is None) != bool(given):
        raise Usage("pass either SEQ or --phase, --dispatch and --discovery")
    marks = Marks(f.phase or 0, f.dispatch or 0, f.discovery or 0)
    return Ask("cursor.set", narrow(f, Set, marks=marks))


def show_nothing(_r: object, _p: object) -> list[str]:
    return []


def show_reset(r: ResetCount, _p: Reset) -> list[str]:
    return ["reset" if r.reset else "not found"]


_ONCE = Writes(_original, keeps_effects=False)

CURSOR = Card(
    Column("Consumer", "consumer"),
    Column("Run", "run_id", "id"),
    Column("At", "seq", "number"),
    Column("Behind by", "lag", "number"),
    Column("Durable", "durable", "yes"),
    Column("Note", lambda place: "events after it were pruned" if place.behind else None),
    empty="There is no such cursor. Register it: icctl events cursor register NAME",
)
CURSORS = Table(
    Column("CONSUMER", "consumer"),
    Column("RUN", "run_id", "id", spare=True),
    Column("AT", "seq", "number"),
    Column("BEHIND BY", "lag", "number"),
    Column("DURABLE", "durable", "yes"),
    Column("NOTE", lambda place: "events were pruned" if place.behind else None, spare=True),
    empty="No cursors. Register one: icctl events cursor register NAME",
)

VERBS = [
    *tail.VERBS,
    *record.VERBS,
    *review.VERBS,
    WATCH,
    # Looks at all cursors, and takes those of the original over.
    Method("events.prune", Prune, Pruned, prune, writes=Writes()),
    Command(
        "events prune",
        Prune,
        ask_prune,
        summary="Delete the oldest events.",
        examples=["icctl events prune --older-than=90d", "icctl events prune --keep=100000"],
    ),
    Verb(
        "events cursor list",
        List,
        list[Place],
        list_,
        method="cursor.list",
        writes=Writes(keeps_effects=False),
        show=show_list,
        human=CURSORS,
        summary="List the cursors.",
        examples=["icctl events cursor list"],
    ),
    Verb(
        "events cursor get",
        Get,
        Place | None,
        get,
        method="cursor.get",
        writes=_ONCE,
        show=show_get,
        human=CURSOR,
        summary="Show a cursor; exit 1 if it is absent.",
        examples=[
            "icctl events cursor get notifier",
            'icctl events cursor get notifier --run="$RUN"',
        ],
    ),
    Verb(
        "events cursor register",
        Register,
        Place,
        register,
        method="cursor.register",
        writes=_ONCE,
        show=show_register,
        summary="Register a cursor.",
        examples=[
            "icctl events cursor register notifier",
            "icctl events cursor register index --durable",
        ],
    ),
    Method("cursor.set", Set, Place, set_, writes=Writes(_original)),
    Command(
        "events cursor set",
        SetForm,
        ask_set,
        show=show_nothing,
        summary="Move a cursor, forward or back.",
        examples=[
            "icctl events cursor set notifier 41",
            "icctl events cursor set notifier --phase=9 --dispatch=4",
        ],
    ),
    Verb(
        "events cursor reset",
        Reset,
        ResetCount,
        reset,
        method="cursor.reset",
        writes=Writes(),
        show=show_reset,
        summary="Delete the cursors of a consumer.",
        examples=["icctl events cursor reset notifier"],
    ),
    # Repeated, it changes nothing.
    Verb(
        "events cursor ack",
        Ack,
        Place,
        ack,
        method="cursor.ack",
        writes=_ONCE,
        show=show_nothing,
        summary="Acknowledge events.",
        examples=["icctl events cursor ack index 57"],
    ),
]
