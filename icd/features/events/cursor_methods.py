"""cursor.*: how far consumers of events have read."""

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes
from icd.features.events import cursor_store as cursors
from icd.features.events import store as events
from icd.features.events.cursor_store import Cursor
from icd.features.events.methods import Seq
from icd.features.events.store import Marks
from icd.values import validation as names
from icd.values.wire import Result, iso


class List(Params):
    pass


class Get(Params):
    consumer: str
    run_id: str = ""


class Register(Params):
    consumer: str
    durable: bool = False


class Set(Params):
    """Either `seq` or `marks`."""

    consumer: str
    seq: Seq | None = None
    run_id: str = ""
    marks: Marks = Marks()


class Ack(Params):
    consumer: str
    seq: Seq
    run_id: str = ""


class Reset(Params):
    consumer: str


class Place(Result):
    """Where a cursor is; first in the terms of the original, which scripts read."""

    consumer: str
    run_id: str
    phase: int
    dispatch: int
    interspect: int
    discovery: int
    seq: int
    lag: int
    durable: bool
    updated_at: int
    updated_at_iso: str
    expires_at: int | None
    expires_at_iso: str | None
    behind: bool = False


class ResetCount(Result):
    reset: int


def list_(ctx: Context, _p: List) -> list[Place]:
    return [_place(ctx, cursor) for cursor in cursors.every(ctx.conn, now_ms=ctx.now_ms)]


def get(ctx: Context, p: Get) -> Place | None:
    found = cursors.find(ctx.conn, *_names(ctx, p), now_ms=ctx.now_ms)
    return _place(ctx, found) if found else None


def register(ctx: Context, p: Register) -> Place:
    cursor = cursors.register(ctx.conn, p.consumer, durable=p.durable, now_ms=ctx.now_ms)
    return _place(ctx, cursor)


def set_(ctx: Context, p: Set) -> Place:
    consumer, run_id = _names(ctx, p)
    seq = cursors.from_marks(ctx.conn, p.marks, run_id) if p.seq is None else p.seq
    return _place(ctx, cursors.put(ctx.conn, consumer, run_id, seq, now_ms=ctx.now_ms))


def ack(ctx: Context, p: Ack) -> Place:
    moved = cursors.advance(ctx.conn, *_names(ctx, p), p.seq, now_ms=ctx.now_ms)
    return _place(ctx, moved)


def reset(ctx: Context, p: Reset) -> ResetCount:
    return ResetCount(cursors.reset(ctx.conn, p.consumer, now_ms=ctx.now_ms))


def check_names(p: Get | Register | Set | Ack | Reset) -> None:
    names.check_name(p.consumer)
    names.check_scope(getattr(p, "run_id", ""))


def _touched(p: Get | Register | Set | Ack) -> tuple[tuple[str, str], ...]:
    return (cursors.original(p.consumer, getattr(p, "run_id", "")),)


def _names(ctx: Context, p: Get | Set | Ack) -> tuple[str, str]:
    if p.run_id:
        return p.consumer, p.run_id
    return cursors.locate(ctx.conn, p.consumer, now_ms=ctx.now_ms)


def _place(ctx: Context, cursor: Cursor) -> Place:
    marks = cursors.marks(ctx.conn, cursor)
    expires_at = None if cursor.expires_ms is None else -(-cursor.expires_ms // 1000)
    return Place(
        consumer=cursor.consumer,
        run_id=cursor.run_id,
        phase=marks.phase,
        dispatch=marks.dispatch,
        interspect=marks.interspect,
        discovery=marks.discovery,
        seq=cursor.seq,
        lag=max(0, events.head(ctx.conn) - cursor.seq),
        durable=cursor.expires_ms is None,
        updated_at=cursor.updated_at,
        updated_at_iso=iso(cursor.updated_at),
        expires_at=expires_at,
        expires_at_iso=None if expires_at is None else iso(expires_at),
        behind=cursor.seq < events.pruned_through(ctx.conn),
    )


_ONCE = Writes(_touched, keeps_effects=False)

# Those that only look may find a cursor of the original, and take it over.
METHODS = [
    Method("cursor.list", List, list[Place], list_, writes=Writes(keeps_effects=False)),
    Method("cursor.get", Get, Place | None, get, check=check_names, writes=_ONCE),
    Method("cursor.register", Register, Place, register, check=check_names, writes=_ONCE),
    Method("cursor.set", Set, Place, set_, check=check_names, writes=Writes(_touched)),
    # Repeated, it changes nothing.
    Method("cursor.ack", Ack, Place, ack, check=check_names, writes=_ONCE),
    Method("cursor.reset", Reset, ResetCount, reset, check=check_names, writes=Writes()),
]
