"""events tail: read the log, from a place or as a consumer, once or for as long as it grows.

A plain tail that follows is a stream: it asks again after the last event that it has seen.
A consumer acknowledges what it has written out, and only its own process knows when that is.  So a
reply to a consumer names the command that acknowledges, and that goes on (ADR 11).
"""

from typing import Annotated, Literal

from msgspec import Meta, structs

from icd.app import render
from icd.app.call import Answer, Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import SPAN
from icd.app.verb import Argument, Command, Method, Option, Stream, Writes, narrow
from icd.errors import ClientTooOld, Usage
from icd.features.events import cursors, store
from icd.features.events.store import Batch, Marks, Wanted
from icd.features.events.watch import Seq, log
from icd.values.validation import check_name, check_scope
from icd.values.wire import Int64, Milliseconds

# Events in one answer; a reply is put together in memory, and others wait meanwhile.
MOST = 10_000
LIMIT = 100
# What a limit of zero or less has always meant.
UNLIMITED = 1000
# A follower asks for at least so many once it goes on: a stream pauses between two questions.
FOLLOWED = 1000

Limit = Annotated[int, Meta(ge=1, le=MOST, description="Maximum number of events.")]
Run = Annotated[str, Argument("RUN", "Include only events of this run."), check_scope]
Source = Annotated[
    str | None, Option("--source", "Include only events of this source.", "S"), store.check_source
]
Type = Annotated[str | None, Option("--type", "Include only events of this type.", "T")]
Since = Option("--since", "Include only events after this sequence number.", "SEQ")
Acked = Annotated[Seq | None, Option("--acked", "Acknowledge events up to this one first.", "SEQ")]
After = Annotated[
    Marks,
    Meta(description="Last ids seen, by source, as in the original; only later events are read."),
]

_START_OVER = (
    "'icctl events cursor reset {}' starts again at the oldest, "
    "'icctl events cursor set {} SEQ' anywhere else"
)


# --- parameters -----------------------------------------------------------------------------------


class Tail(Params):
    """Read events in the order in which they were recorded."""

    run_id: Run = ""
    since: Annotated[Seq, Since] = 0
    limit: Limit = LIMIT
    source: Source = None
    type: Type = None
    subject_id: Annotated[
        str | None, Meta(description="Include only events about this subject.")
    ] = None
    marks: After = Marks()


class Consume(Params):
    """Read the events that a consumer has not acknowledged; `acked` acknowledges some first."""

    consumer: Annotated[
        str,
        Option("--consumer", "Continue from this consumer's cursor, and advance it.", "C"),
        check_name,
    ]
    run_id: Run = ""
    limit: Limit = LIMIT
    source: Source = None
    type: Type = None
    since: Annotated[Seq | None, Since] = None
    marks: After = Marks()
    acked: Acked = None


class TailForm(Params):
    """Print events in the order in which they were recorded, one JSON object per line.

    With --consumer, it starts at the consumer's cursor, and advances the cursor once the lines have
    been written.
    With --ack=manual, the cursor stays: the same events are printed again until --acked or
    'events cursor ack' acknowledges them.
    If the next event was pruned, exit 2; the message names the oldest event.
    """

    run_id: Run = ""
    every: Annotated[
        bool, Option("--all", "Include the events of all runs, and those without a run.")
    ] = False
    follow: Annotated[
        bool,
        Option("--follow", "Follow the log: print events as they are recorded.", aliases=("-f",)),
    ] = False
    consumer: Annotated[
        str | None,
        Option("--consumer", "Continue from this consumer's cursor, and advance it.", "C"),
    ] = None
    ack: Annotated[
        Literal["auto", "manual"],
        Option(
            "--ack",
            "Acknowledge printed events: auto, or manual by 'events cursor ack' (default auto).",
        ),
    ] = "auto"
    acked: Acked = None
    since: Annotated[Seq | None, Since] = None
    since_phase: Annotated[
        Seq, Option("--since-phase", "Include only phase events after ID.", "ID")
    ] = 0
    since_dispatch: Annotated[
        Seq, Option("--since-dispatch", "Include only dispatch events after ID.", "ID")
    ] = 0
    since_discovery: Annotated[
        Seq, Option("--since-discovery", "Include only discovery events after ID.", "ID")
    ] = 0
    limit: Annotated[Int64, Option("--limit", "Maximum number of events (default 100).", "N")] = (
        LIMIT
    )
    source: Source = None
    type: Type = None
    poll_interval: Annotated[
        Milliseconds, SPAN, Option("--poll-interval", "Ignored; kept for compatibility.")
    ] = 500

    @property
    def marks(self) -> Marks:
        return Marks(self.since_phase, self.since_dispatch, self.since_discovery)

    @property
    def moves(self) -> bool:
        """Whether what was written out is acknowledged."""
        return self.consumer is not None and self.ack == "auto"


# --- what is done ---------------------------------------------------------------------------------


def tail(ctx: Context, p: Tail) -> Batch:
    if p.since:  # zero asks for whatever there is
        store.require_kept(ctx.conn, p.since, hint="continue from the oldest event, with since 0")
    return _batch(ctx, p)


def consume(ctx: Context, p: Consume) -> Batch:
    place = p.consumer, p.run_id
    if not p.run_id:  # as the acknowledgement will call it
        place = cursors.locate(ctx.conn, p.consumer, now_ms=ctx.now_ms)
    if p.acked is not None:
        cursors.advance(ctx.conn, *place, p.acked, now_ms=ctx.now_ms)
    cursor = cursors.use(ctx.conn, *place, now_ms=ctx.now_ms)
    if p.since is not None or p.marks != Marks():
        return tail(ctx, _from(p, p.since or 0))
    if cursor is not None:
        hint = _START_OVER.format(cursor.key, cursor.key)
        store.require_kept(ctx.conn, cursor.seq, hint=hint)
    elif cursors.expired(ctx.conn, *place, now_ms=ctx.now_ms):
        ctx.warnings.append(
            f"the cursor of {p.consumer} had not been used for a day and is gone: it starts again "
            f"at the oldest event; 'icctl events cursor register {p.consumer} --durable' keeps it"
        )
    return _batch(ctx, _from(p, cursor.seq if cursor else 0))


def _from(p: "Consume | TailForm", since: int) -> Tail:
    return Tail(p.run_id, since, p.limit, p.source, p.type, marks=p.marks)


def _batch(ctx: Context, p: Tail) -> Batch:
    wanted = Wanted(**{name: getattr(p, name) for name in Wanted.__struct_fields__})
    return store.batch(ctx.conn, wanted)


def _original(p: Consume) -> tuple[tuple[str, str], ...]:
    """Reading takes a cursor of the original over, and its row of state goes."""
    return (cursors.original(p.consumer, p.run_id),)


# --- what is shown --------------------------------------------------------------------------------


def limited(limit: int) -> int:
    """How many events a typed limit means."""
    return min(limit, MOST) if limit > 0 else UNLIMITED


def ask_tail(world: World, f: TailForm) -> Ask:
    if not (f.run_id or f.every):
        raise Usage("pass a run or --all")
    f = structs.replace(f, limit=limited(f.limit))
    if f.consumer is not None:
        if (f.follow or f.moves) and not world.continues:
            raise ClientTooOld("this client cannot confirm that it has written its output")
        return _consume(world, f)
    if f.ack == "manual" or f.acked is not None:
        raise Usage("--ack and --acked require --consumer")
    asked = _from(f, f.since or 0)
    return _follow(asked) if f.follow else Ask("events.tail", asked, _lines, patience=None)


def _lines(batch: Batch) -> Output:
    return render.lines(batch.events)


def _follow(p: Tail, place: bytes = b"", patience: float | None = None) -> Ask:
    """Ask on from where the last answer ended; `place` is that, once there was one."""

    def go_on(since: int, patience: float | None) -> Ask:
        following = structs.replace(p, since=since, limit=max(p.limit, FOLLOWED))
        return _follow(following, b"%d" % since, patience)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None:
            return None
        # Nothing but a write brings events, and a stream is told of writes.
        return go_on(answer.result.through, 0.0 if answer.result.more else None)

    return Ask(
        "events.tail",
        p,
        _lines,
        follow=follow,
        patience=patience,
        place=place,
        resume=lambda left: go_on(int(left), None),
    )


def _consume(world: World, f: TailForm) -> Ask:
    def show(batch: Batch) -> Output:
        output = _lines(batch)
        if batch.events:
            output.then = _then(world, f, batch)
        return output

    def follow(answer: Answer) -> Ask | None:
        """Wait as long as there is nothing to show."""
        if answer.error is not None or answer.result.events:
            return None
        return _consume(world, structs.replace(f, acked=None))

    follows = follow if f.follow else None
    return Ask("events.consume", narrow(f, Consume), show, follow=follows, patience=None)


def _then(world: World, f: TailForm, batch: Batch) -> list[str]:
    """What a consumer runs once it has written the batch."""
    last = batch.events[-1].seq
    chosen = [] if world.db is None else ["--db", world.db]
    chosen += [] if world.timeout_ms is None else [f"--timeout={world.timeout_ms}ms"]
    if not f.follow:
        if not f.moves:
            return []
        run = [f"--run={f.run_id}"] if f.run_id else []
        return [*chosen, "events", "cursor", "ack", *run, "--", str(f.consumer), str(last)]
    explicit = not f.moves or f.since is not None or f.marks != Marks()
    options = {
        "--limit": f.limit,
        "--source": f.source,
        "--type": f.type,
        "--since-phase": f.since_phase or None,
        "--since-dispatch": f.since_dispatch or None,
        "--since-discovery": f.since_discovery or None,
        "--consumer": f.consumer,
        "--ack": None if f.moves else f.ack,
        "--acked": last if f.moves else None,
        "--since": batch.through if explicit else None,
    }
    flags = [f"{name}={value}" for name, value in options.items() if value is not None]
    what = ["--", f.run_id] if f.run_id else ["--all"]
    return [*chosen, "events", "tail", "--follow", *flags, *what]


VERBS = [
    Method("events.tail", Tail, Batch, tail, stream=Stream(log)),
    # Asking again does no harm: what was acknowledged stays so, and what was not is shown again.
    Method(
        "events.consume",
        Consume,
        Batch,
        consume,
        writes=Writes(_original, keeps_effects=False),
        stream=Stream(log),
    ),
    Command(
        "events tail",
        TailForm,
        ask_tail,
        summary="Print events as JSON lines.",
        examples=[
            "icctl events tail --all --since 41",
            'icctl events tail "$RUN" --consumer=notifier',
            "icctl events tail --all -f --source=review",
            "icctl events tail --all --consumer=index --ack=manual --acked=57",
        ],
    ),
]
