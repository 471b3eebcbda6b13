"""events tail: read the log, from a place or as a consumer, once or for as long as it grows.

A plain tail that follows is a stream: it asks again after the last event that it has seen.
A consumer acknowledges what it has written out, and only its own process knows when that is.  So a
reply to a consumer names the command that acknowledges, and that goes on (ADR 11).
"""

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, structs

from icd.app import render
from icd.app.call import Answer, Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import MOMENT, SPAN, Moment
from icd.app.verb import Argument, Command, Method, Option, Stream, Writes, narrow
from icd.errors import ClientTooOld, Usage
from icd.features.events import cursors, store
from icd.features.events.people import log as log_of_people
from icd.features.events.store import Batch, Marks, Wanted
from icd.features.events.watch import Seq, log
from icd.values.validation import check_name, check_scope
from icd.values.wire import INT64, Int64, Milliseconds

# Events in one answer; a reply is put together in memory, and others wait meanwhile.
MOST = 10_000
LIMIT = 100
# What a limit of zero or less has always meant.
UNLIMITED = 1000
# A follower asks for at least so many once it goes on: a stream pauses between two questions.
FOLLOWED = 1000
# What a person sees who asks for nothing in particular.
SCREENFUL = 20

Limit = Annotated[int, Meta(ge=1, le=MOST, description="Maximum number of events.")]
Run = Annotated[str, Argument("RUN", "Include only events of this run."), check_scope]
Source = Annotated[
    str | None, Option("--source", "Include only events of this source.", "S"), store.check_source
]
Type = Annotated[str | None, Option("--type", "Include only events of this type.", "T")]
Session = Annotated[
    str | None, Option("--session", "Include only events of this session.", "S"), check_scope
]
Since = Option(
    "--since",
    "Include only events after SEQ, or since a time, such as 1h or 2026-01-31T12:00Z.",
    "SEQ|TIME",
)
Newest = Annotated[int, Meta(ge=0, le=MOST)]
Unix = Annotated[int, Meta(ge=0, le=INT64 - 1)]
Acked = Annotated[Seq | None, Option("--acked", "Acknowledge events up to this one first.", "SEQ")]
After = Annotated[
    Marks,
    Meta(description="Last ids seen, by source, as in the original; only later events are read."),
]

Show = Callable[[Batch], Output]

_START_OVER = (
    "'icctl events cursor reset {}' starts again at the oldest, "
    "'icctl events cursor set {} SEQ' anywhere else"
)


# --- parameters -----------------------------------------------------------------------------------


class Tail(Params):
    """Read events in the order in which they were recorded."""

    run_id: Run = ""
    since: Annotated[Seq, Meta(description="Include only events after this sequence number.")] = 0
    limit: Limit = LIMIT
    source: Source = None
    type: Type = None
    subject_id: Annotated[
        str | None, Meta(description="Include only events about this subject.")
    ] = None
    marks: After = Marks()
    session_id: Session = None
    newest: Annotated[
        Newest | None,
        Meta(description="Read so many of the newest events, instead of `limit` of the oldest."),
    ] = None
    until: Annotated[
        Seq | None, Meta(description="Include only events up to this sequence number.")
    ] = None
    since_ms: Annotated[
        Unix | None, Meta(description="Include only events recorded since this Unix time.")
    ] = None
    until_ms: Annotated[
        Unix | None, Meta(description="Include only events recorded until this Unix time.")
    ] = None
    max_age_ms: Annotated[
        Milliseconds | None, Meta(description="Include only events of at most this age.")
    ] = None
    min_age_ms: Annotated[
        Milliseconds | None, Meta(description="Include only events of at least this age.")
    ] = None


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
    since: Annotated[
        Seq | None, Meta(description="Include only events after this sequence number.")
    ] = None
    marks: After = Marks()
    acked: Acked = None


class TailForm(Params):
    """Print events in the order in which they were recorded, one JSON object per line.

    Without RUN, the events of all runs are printed, and those without a run.
    Of many, the first 100 are printed; -n prints the newest instead.
    On a terminal, the newest 20 are printed, a line each: when, source, what, and who.
    A time is a duration back from now (1h, 7d), or a date with or without a time of day (UTC).

    With --consumer, it starts at the consumer's cursor, and advances the cursor once the lines have
    been written.
    With --ack=manual, the cursor stays: the same events are printed again until --acked or
    'events cursor ack' acknowledges them.
    If the next event was pruned, exit 2; the message names the oldest event.
    """

    run_id: Run = ""
    every: Annotated[
        bool, Option("--all", "Include the events of all runs, and those without a run (default).")
    ] = False
    follow: Annotated[
        bool,
        Option("--follow", "Follow the log: print events as they are recorded.", aliases=("-f",)),
    ] = False
    newest: Annotated[
        Newest | None,
        Option("--lines", "Print the newest N events.", "N", aliases=("-n",)),
    ] = None
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
    since: Annotated[Moment | None, MOMENT, Since] = None
    until: Annotated[
        Moment | None,
        MOMENT,
        Option("--until", "Include only events up to SEQ, or until a time.", "SEQ|TIME"),
    ] = None
    since_phase: Annotated[
        Seq, Option("--since-phase", "Include only phase events after ID.", "ID")
    ] = 0
    since_dispatch: Annotated[
        Seq, Option("--since-dispatch", "Include only dispatch events after ID.", "ID")
    ] = 0
    since_discovery: Annotated[
        Seq, Option("--since-discovery", "Include only discovery events after ID.", "ID")
    ] = 0
    limit: Annotated[
        Int64 | None, Option("--limit", "Maximum number of events (default 100).", "N")
    ] = None
    source: Source = None
    type: Type = None
    session_id: Session = None
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
    return store.batch(ctx.conn, _wanted(ctx, p))


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
    return store.batch(ctx.conn, _wanted(ctx, _from(p, cursor.seq if cursor else 0)))


def _from(p: Consume, since: int) -> Tail:
    return Tail(p.run_id, since, p.limit, p.source, p.type, marks=p.marks)


def _wanted(ctx: Context, p: Tail) -> Wanted:
    """A time is a place in the log, which goes by its own order whatever the clock did."""
    since, until = p.since, store.LAST if p.until is None else p.until
    starts = [p.since_ms, None if p.max_age_ms is None else ctx.now_ms - p.max_age_ms]
    ends = [p.until_ms, None if p.min_age_ms is None else ctx.now_ms - p.min_age_ms]
    for start in (ms for ms in starts if ms is not None):
        since = max(since, store.last_before(ctx.conn, start))
    for end in (ms for ms in ends if ms is not None):
        until = min(until, store.last_before(ctx.conn, end + 1))
    return Wanted(
        since=since,
        until=until,
        limit=p.limit if p.newest is None else p.newest,
        newest=p.newest is not None,
        run_id=p.run_id,
        source=p.source,
        type=p.type,
        subject_id=p.subject_id,
        session=p.session_id,
        marks=p.marks,
    )


def _original(p: Consume) -> tuple[tuple[str, str], ...]:
    """Reading takes a cursor of the original over, and its row of state goes."""
    return (cursors.original(p.consumer, p.run_id),)


# --- what is shown --------------------------------------------------------------------------------


def limited(limit: int) -> int:
    """How many events a typed limit means."""
    return min(limit, MOST) if limit > 0 else UNLIMITED


def ask_tail(world: World, f: TailForm) -> Ask:
    if f.consumer is not None:
        if (f.follow or f.moves) and not world.continues:
            raise ClientTooOld("this client cannot confirm that it has written its output")
        _refuse_choice(f)
        return _consume(world, structs.replace(f, limit=limited(f.limit or LIMIT)))
    if f.ack == "manual" or f.acked is not None:
        raise Usage("--ack and --acked require --consumer")
    if f.follow and f.until is not None:
        raise Usage("pass either --follow or --until")
    asked, show = _asked(f, is_person=world.terminal is not None), _shown(world, f)
    if f.follow:
        return _follow(asked, show)
    return Ask("events.tail", asked, show, patience=None)


def _refuse_choice(f: TailForm) -> None:
    """A consumer reads everything behind its cursor, in order."""
    is_time = f.since is not None and f.since.seq is None
    if is_time or f.until is not None or f.newest is not None or f.session_id is not None:
        raise Usage("--consumer takes no time, --until, --lines or --session")


def _asked(f: TailForm, *, is_person: bool) -> Tail:
    since, until = f.since or Moment(0), f.until or Moment()
    # Who names a time wants all of it.
    usual = LIMIT if since.seq is not None and f.until is None else MOST
    # A person wants the newest; a script that says nothing starts where it always did.
    is_bare = (f.newest, f.limit, f.since, f.until) == (None,) * 4 and f.marks == Marks()
    newest = SCREENFUL if is_person and is_bare else f.newest
    return Tail(
        f.run_id,
        since.seq or 0,
        usual if f.limit is None else limited(f.limit),
        f.source,
        f.type,
        marks=f.marks,
        session_id=f.session_id,
        newest=newest,
        until=until.seq,
        since_ms=since.at_ms,
        until_ms=until.at_ms,
        max_age_ms=since.age_ms,
        min_age_ms=until.age_ms,
    )


def _lines(batch: Batch) -> Output:
    return render.lines(batch.events)


def _shown(world: World, f: TailForm) -> Show:
    """JSON lines, or lines for a person."""
    terminal = world.terminal
    if terminal is None:
        return _lines

    def people(batch: Batch) -> Output:
        from icd.app.human import screen  # only a person pays for it

        return screen.output(terminal, log_of_people, batch, f)

    return people


def _follow(p: Tail, show: Show, place: bytes = b"", patience: float | None = None) -> Ask:
    """Ask on from where the last answer ended; `place` is that, once there was one."""

    def go_on(since: int, patience: float | None) -> Ask:
        # From here on, the log decides: a clock that goes back must hide no event.
        following = structs.replace(
            p,
            since=since,
            limit=max(p.limit, FOLLOWED),
            newest=None,
            since_ms=None,
            max_age_ms=None,
        )
        return _follow(following, show, b"%d" % since, patience)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None:
            return None
        # Nothing but a write brings events, and a stream is told of writes.
        return go_on(answer.result.through, 0.0 if answer.result.more else None)

    return Ask(
        "events.tail",
        p,
        show,
        follow=follow,
        patience=patience,
        place=place,
        resume=lambda left: go_on(int(left), None),
    )


def _consume(world: World, f: TailForm) -> Ask:
    lines = _shown(world, f)

    def show(batch: Batch) -> Output:
        output = lines(batch)
        if batch.events:
            output.then = _then(world, f, batch)
        return output

    def follow(answer: Answer) -> Ask | None:
        """Wait as long as there is nothing to show."""
        if answer.error is not None or answer.result.events:
            return None
        return _consume(world, structs.replace(f, acked=None))

    follows = follow if f.follow else None
    since = None if f.since is None else f.since.seq
    asked = narrow(f, Consume, since=since)
    return Ask("events.consume", asked, show, follow=follows, patience=None)


def _then(world: World, f: TailForm, batch: Batch) -> list[str]:
    """What a consumer runs once it has written the batch."""
    last = batch.events[-1].seq
    chosen = [] if world.db is None else ["--db", world.db]
    chosen += [] if world.timeout_ms is None else [f"--timeout={world.timeout_ms}ms"]
    if world.json_errors:
        chosen.append("--json-errors")
    if not f.follow:
        if not f.moves:
            return []
        run = [f"--run={f.run_id}"] if f.run_id else []
        return [*chosen, "events", "cursor", "ack", *run, "--", str(f.consumer), str(last)]
    # As the first lines were: a terminal is told of again with every call.
    if world.is_plain:
        chosen.append("--plain")
    elif world.terminal is not None and world.terminal.absolute:
        chosen.append("--absolute")
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
        human=log_of_people,
        summary="Print events, for scripts as JSON lines.",
        examples=[
            "icctl events tail -n 20",
            "icctl events tail --since=1h --until=10m --session=s1",
            "icctl events tail --all --since 41",
            'icctl events tail "$RUN" --consumer=notifier',
            "icctl events tail --all -f --source=review",
            "icctl events tail --all --consumer=index --ack=manual --acked=57",
        ],
    ),
]
