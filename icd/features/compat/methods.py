"""compat.*: legacy temporary files, as their owner's client has read them."""

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes
from icd.features.compat import store as compat
from icd.features.compat.store import Verdict
from icd.features.sentinels.verbs import Interval
from icd.values import payloads
from icd.values import validation as names
from icd.values.wire import Milliseconds, Result, iso

MANY = 500  # files in one call: a batch must stay short for everybody else
KEYS = 100  # keys in one status

# The year 9999, in milliseconds: the last one that RFC 3339 can show.
Moment = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    scope_id: str
    payload: Raw
    mtime_ms: Moment
    ttl_ms: Milliseconds = 0


class Guard(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    scope_id: str
    mtime_ms: Moment
    interval: Interval


class Status(Params):
    keys: Annotated[list[str], Meta(max_length=KEYS)]


class Check(Params):
    key: str


class Compare(Params):
    documents: Annotated[list[Document], Meta(max_length=MANY)] = field(default_factory=list)
    guards: Annotated[list[Guard], Meta(max_length=MANY)] = field(default_factory=list)


class Import(Compare):
    pass


class Side(Result):
    """What the database holds of a key."""

    key: str
    state: int
    sentinels: int
    state_at: int | None
    state_at_iso: str | None
    sentinels_at: int | None
    sentinels_at_iso: str | None


class Known(Result):
    key: str
    scopes: int


class Verdicts(Result):
    """One verdict per file, in the order of the parameters."""

    documents: list[Verdict]
    guards: list[Verdict]


def status(ctx: Context, p: Status) -> list[Side]:
    found = [compat.side(ctx.conn, key, now_ms=ctx.now_ms) for key in p.keys]
    return [
        Side(
            key=side.key,
            state=side.state,
            sentinels=side.sentinels,
            state_at=side.state_at,
            state_at_iso=_iso(side.state_at),
            sentinels_at=side.sentinels_at,
            sentinels_at_iso=_iso(side.sentinels_at),
        )
        for side in found
    ]


def check(ctx: Context, p: Check) -> Known:
    return Known(p.key, compat.scopes(ctx.conn, p.key, now_ms=ctx.now_ms))


def compare(ctx: Context, p: Compare) -> Verdicts:
    return Verdicts(
        [compat.judge_document(ctx.conn, _document(f), now_ms=ctx.now_ms) for f in p.documents],
        [compat.judge_guard(ctx.conn, _guard(f), now_ms=ctx.now_ms) for f in p.guards],
    )


def import_(ctx: Context, p: Import) -> Verdicts:
    if ctx.recent is not None:
        ctx.recent.clear()
    return Verdicts(
        [
            compat.bring_document(ctx.conn, _document(f), writer=ctx.writer, now_ms=ctx.now_ms)
            for f in p.documents
        ],
        [compat.bring_guard(ctx.conn, _guard(f), now_ms=ctx.now_ms) for f in p.guards],
    )


def check_files(p: Compare) -> None:
    """Judge names and payloads outside the lock."""
    for guard in p.guards:
        names.check_name(guard.name)
        names.check_scope(guard.scope_id)
    for document in p.documents:
        names.check_key(document.key)
        names.check_scope(document.scope_id)
        payloads.check(bytes(document.payload))


def _document(file: Document) -> compat.Document:
    payload = bytes(file.payload).strip().decode()
    return compat.Document(file.key, file.scope_id, payload, file.mtime_ms, file.ttl_ms)


def _guard(file: Guard) -> compat.Guard:
    return compat.Guard(file.name, file.scope_id, file.mtime_ms, file.interval)


def _iso(seconds: int | None) -> str | None:
    return None if seconds is None else iso(seconds)


METHODS = [
    Method("compat.status", Status, list[Side], status),
    Method("compat.check", Check, Known, check),
    Method("compat.compare", Compare, Verdicts, compare, check=check_files),
    # A second attempt changes nothing, so there is no effect to keep.
    Method(
        "compat.import",
        Import,
        Verdicts,
        import_,
        check=check_files,
        writes=Writes(keeps_effects=False),
    ),
]
