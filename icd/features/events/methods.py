"""events.*: the log, and reading it."""

from typing import Annotated

from msgspec import Meta, Raw, field

from icd.app.call import Context, Params
from icd.app.verb import Method, Stream, Writes, no_rows
from icd.features.events import cursor_store as cursors
from icd.features.events import retention, sources
from icd.features.events import store as events
from icd.features.events.store import Event, Fact, Marks, Wanted
from icd.features.events.watch_methods import WATCH, log
from icd.values import payloads
from icd.values import validation as names
from icd.values.processes import Writer
from icd.values.wire import INT64, Milliseconds, Result

# Events in one answer; a reply is put together in memory, and others wait meanwhile.
MOST = 10_000
LIMIT = 100
NOTHING = Raw(b"null")

Seq = Annotated[int, Meta(ge=0, le=INT64 - 1)]
Limit = Annotated[int, Meta(ge=1, le=MOST)]
Reason = Annotated[str, Meta(max_length=payloads.STRING_BYTES)]

_START_OVER = (
    "'icctl events cursor reset {}' starts again at the oldest, "
    "'icctl events cursor set {} SEQ' anywhere else"
)


class Record(Params):
    source: str
    type: str
    payload: Raw = field(default_factory=lambda: NOTHING)  # a default could not be described
    run_id: str = ""
    subject_id: str = ""
    from_state: str = ""
    to_state: str = ""
    reason: Reason = ""
    project_dir: str | None = None
    idempotency_key: str | None = None
    trace_id: str | None = None
    span_id: str | None = None


class Tail(Params):
    run_id: str = ""
    since: Seq = 0
    limit: Limit = LIMIT
    source: str | None = None
    type: str | None = None
    subject_id: str | None = None
    marks: Marks = Marks()


class Consume(Params):
    consumer: str
    run_id: str = ""
    limit: Limit = LIMIT
    source: str | None = None
    type: str | None = None
    since: Seq | None = None
    marks: Marks = Marks()
    acked: Seq | None = None


class Prune(Params):
    older_than_ms: Milliseconds | None = None
    keep: Seq | None = None
    force: bool = False


class Recorded(Result):
    seq: int
    recorded: bool


class Batch(Result):
    """`through`: where to go on; nothing up to there is missing that was asked for."""

    events: list[Event]
    through: int
    more: bool


class Pruned(Result):
    pruned: int
    through: int
    held: int


def record(ctx: Context, p: Record) -> Recorded:
    last = events.head(ctx.conn)
    actor = Writer(
        ctx.writer.pid,
        p.session or ctx.writer.session,
        p.trace_id or ctx.writer.trace_id,
        p.span_id or ctx.writer.span_id,
    )
    seq = events.append(ctx.conn, _fact(p), actor=actor, now_ms=ctx.now_ms)
    return Recorded(seq, seq > last)


def tail(ctx: Context, p: Tail) -> Batch:
    if p.since:  # zero asks for whatever there is
        events.require_kept(ctx.conn, p.since, hint="read on from the oldest, with since 0")
    return _batch(ctx, p)


def consume(ctx: Context, p: Consume) -> Batch:
    place = p.consumer, p.run_id
    if not p.run_id:  # as whoever acknowledges will call it
        place = cursors.locate(ctx.conn, p.consumer, now_ms=ctx.now_ms)
    if p.acked is not None:
        cursors.advance(ctx.conn, *place, p.acked, now_ms=ctx.now_ms)
    cursor = cursors.use(ctx.conn, *place, now_ms=ctx.now_ms)
    if p.since is not None or p.marks != Marks():
        return tail(ctx, _from(p, p.since or 0))
    if cursor is not None:
        hint = _START_OVER.format(cursor.key, cursor.key)
        events.require_kept(ctx.conn, cursor.seq, hint=hint)
    elif cursors.expired(ctx.conn, *place, now_ms=ctx.now_ms):
        ctx.warnings.append(
            f"the cursor of {p.consumer} had not been used for a day and is gone: it starts again "
            f"at the oldest event; 'icctl events cursor register {p.consumer} --durable' keeps it"
        )
    return _batch(ctx, _from(p, cursor.seq if cursor else 0))


def prune(ctx: Context, p: Prune) -> Pruned:
    before_ms = None if p.older_than_ms is None else ctx.now_ms - p.older_than_ms
    done = retention.prune(
        ctx.conn, retention.Rule(before_ms, p.keep), force=p.force, now_ms=ctx.now_ms
    )
    return Pruned(done.pruned, done.through, done.held)


def check_record(p: Record) -> None:
    """Judge it outside the lock: a megabyte takes its time."""
    if p.payload is not NOTHING:
        p.payload = Raw(payloads.check(bytes(p.payload)))
    fact = sources.complete(_fact(p))
    events.check(fact)
    p.subject_id, p.reason, p.idempotency_key = fact.subject_id, fact.reason, fact.idempotency_key


def check_tail(p: Tail) -> None:
    _check_filters(p)


def check_consume(p: Consume) -> None:
    names.check_name(p.consumer)
    _check_filters(p)


def _touched(p: Consume) -> tuple[tuple[str, str], ...]:
    return (cursors.original(p.consumer, p.run_id),)


def _check_filters(p: Tail | Consume) -> None:
    names.check_scope(p.run_id)
    if p.source is not None:
        events.check_source(p.source)


def _fact(p: Record) -> Fact:
    return Fact(
        source=p.source,
        type=p.type,
        run_id=p.run_id,
        subject_id=p.subject_id,
        from_state=p.from_state,
        to_state=p.to_state,
        reason=p.reason,
        payload=None if bytes(p.payload) == bytes(NOTHING) else bytes(p.payload).decode(),
        project_dir=p.project_dir,
        idempotency_key=p.idempotency_key,
    )


def _from(p: Consume, since: int) -> Tail:
    return Tail(
        since=since, limit=p.limit, run_id=p.run_id, source=p.source, type=p.type, marks=p.marks
    )


def _batch(ctx: Context, p: Tail) -> Batch:
    wanted = Wanted(
        since=p.since,
        limit=p.limit,
        run_id=p.run_id,
        source=p.source,
        type=p.type,
        subject_id=p.subject_id,
        marks=p.marks,
    )
    found, more = events.page(ctx.conn, wanted)
    through = found[-1].seq if more else events.head(ctx.conn)
    return Batch(found, through, more)


METHODS = [
    Method(
        "events.record",
        Record,
        Recorded,
        record,
        check=check_record,
        writes=Writes(no_rows, appends=True),
    ),
    Method("events.tail", Tail, Batch, tail, check=check_tail, stream=Stream(log)),
    WATCH,
    # Asking again does no harm: what was acknowledged stays so, and what was not is shown again.
    Method(
        "events.consume",
        Consume,
        Batch,
        consume,
        check=check_consume,
        writes=Writes(_touched, keeps_effects=False),
        stream=Stream(log),
    ),
    # Looks at all cursors, and takes those of the original over.
    Method("events.prune", Prune, Pruned, prune, writes=Writes()),
]
