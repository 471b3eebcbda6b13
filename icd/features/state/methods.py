"""state.*: small JSON documents by key and scope."""

from typing import Annotated

from msgspec import Meta, Raw, field, structs

from icd.app.method import STATE, Context, Ended, Look, Method, Params, Topic
from icd.app.results import Result
from icd.db.rows import document
from icd.errors import InvalidName, InvalidParams, InvalidTtl, SecretRefused, TooManyRows
from icd.features.state import diff as differences
from icd.features.state import store as state
from icd.features.state.store import INT64, Name, Row
from icd.values import payloads, secrets
from icd.values import validation as names
from icd.values.validation import iso

# A century: beyond it, arithmetic in milliseconds would no longer be safe.
MAX_TTL_MS = 100 * 366 * 24 * 3600 * 1000

Milliseconds = Annotated[int, Meta(ge=0, le=MAX_TTL_MS)]
Version = Annotated[int, Meta(ge=0, le=INT64 - 1)]
Int64 = Annotated[int, Meta(ge=-INT64, le=INT64 - 1)]


class Get(Params):
    key: str
    scope_id: str


class Set(Params):
    key: str
    scope_id: str
    payload: Raw
    ttl_ms: Milliseconds = 0
    if_version: Version | None = None
    debounce_ms: Milliseconds = 0


class Incr(Params):
    key: str
    scope_id: str
    by: Int64 = 1
    ttl_ms: Milliseconds = 0


class Delete(Params):
    key: str
    scope_id: str


class DeleteAll(Params):
    key: str


class List(Params):
    key: str | None = None
    prefix: str | None = None


class Prune(Params):
    pass


class Watch(Params):
    """`known`: the versions, by scope, that the watcher has already."""

    key: str
    scope_id: str | None = None
    known: dict[str, Version] = field(default_factory=dict)


class Document(Result):
    """A row with everything that is known about it."""

    key: str
    scope_id: str
    payload: Raw
    version: int
    updated_at: int
    updated_at_iso: str
    expires_at: int | None
    expires_at_iso: str | None
    writer_pid: int | None
    writer_session: str | None


class Written(Result):
    """What a write did; `value` only after incr, `skipped` when debounced."""

    key: str
    scope_id: str
    version: int
    updated_at: int
    updated_at_iso: str
    expires_at: int | None
    expires_at_iso: str | None
    value: int | None = None
    skipped: bool = False


class Deleted(Result):
    deleted: int


class Pruned(Result):
    pruned: int


class Changed(Result):
    """What a watcher has not seen; `gone` are scopes."""

    key: str
    rows: list[Document]
    gone: list[str]


def get(ctx: Context, p: Get) -> Document | None:
    row = state.get(ctx.conn, p.key, p.scope_id, now_ms=ctx.now_ms)
    return None if row is None else _document(row)


def _document(row: Row) -> Document:
    return Document(
        key=row.key,
        scope_id=row.scope_id,
        payload=document(row.payload),
        version=row.version,
        updated_at=row.updated_at,
        updated_at_iso=row.updated_at_iso,
        expires_at=row.expires_at,
        expires_at_iso=_iso(row.expires_at),
        writer_pid=row.writer_pid,
        writer_session=row.writer_session,
    )


def set_(ctx: Context, p: Set) -> Written:
    payload = bytes(p.payload).decode()
    if p.debounce_ms and ctx.recent is not None:
        stands = ctx.recent.unchanged(
            p.key, p.scope_id, payload, ctx.writer, window=p.debounce_ms / 1000, at=ctx.monotonic
        )
        if stands is not None:
            ctx.changed = False
            return _written(stands, skipped=True)
    row = state.set(
        ctx.conn,
        p.key,
        p.scope_id,
        payload,
        ttl_ms=p.ttl_ms,
        if_version=p.if_version,
        writer=ctx.writer,
        now_ms=ctx.now_ms,
    )
    _remember(ctx, row)
    return _written(row)


def incr(ctx: Context, p: Incr) -> Written:
    row = state.incr(
        ctx.conn,
        p.key,
        p.scope_id,
        by=p.by,
        ttl_ms=p.ttl_ms,
        writer=ctx.writer,
        now_ms=ctx.now_ms,
    )
    _remember(ctx, row)
    return _written(row, value=int(row.payload))


def delete(ctx: Context, p: Delete) -> Deleted:
    if ctx.recent is not None:
        ctx.recent.forget(p.key, p.scope_id)
    return Deleted(state.delete(ctx.conn, p.key, p.scope_id, now_ms=ctx.now_ms))


def delete_all(ctx: Context, p: DeleteAll) -> Deleted:
    if ctx.recent is not None:
        ctx.recent.clear()
    return Deleted(state.delete_all(ctx.conn, p.key, now_ms=ctx.now_ms))


def list_(ctx: Context, p: List) -> list[Name]:
    if p.key is not None:
        return state.scopes(ctx.conn, p.key, now_ms=ctx.now_ms)
    return state.by_prefix(ctx.conn, p.prefix or "", now_ms=ctx.now_ms)


def prune(ctx: Context, _p: Prune) -> Pruned:
    return Pruned(state.prune(ctx.conn, now_ms=ctx.now_ms))


def watch(ctx: Context, p: Watch) -> Look:
    found = differences.find(ctx.conn, p.key, p.scope_id, p.known, now_ms=ctx.now_ms)
    known = p.known | {row.scope_id: row.version for row in found.rows}
    for scope_id in found.gone:
        del known[scope_id]
    patience_ms = None if found.expires_ms is None else found.expires_ms - ctx.now_ms
    return Look(
        Changed(p.key, [_document(row) for row in found.rows], found.gone),
        is_empty=not (found.rows or found.gone),
        following=structs.replace(p, known=known),
        patience_ms=0 if found.more else patience_ms,
    )


def check_row(p: Get | Delete) -> None:
    names.check_key(p.key)
    names.check_scope(p.scope_id)


def check_incr(p: Incr) -> None:
    _refuse_secret_names(p)
    names.check_key(p.key)
    names.check_scope(p.scope_id)
    check_ttl(p.ttl_ms)


def check_ttl(ttl_ms: int) -> None:
    if 0 < ttl_ms < 1000:
        raise InvalidTtl(f"TTL must be at least 1 second (got {ttl_ms}ms)")


def check_set(p: Set) -> None:
    """Judge the payload outside the lock: a megabyte takes its time."""
    _refuse_secret_names(p)
    names.check_key(p.key)
    names.check_scope(p.scope_id)
    check_ttl(p.ttl_ms)
    if p.debounce_ms and (p.ttl_ms or p.if_version is not None):
        raise InvalidParams("debounce goes with neither ttl nor if-version")
    p.payload = Raw(payloads.check(bytes(p.payload)))


def _refuse_secret_names(p: Set | Incr) -> None:
    """Names are stored and listed like values; looked at first, so that no message repeats them."""
    kind = secrets.looks_like(f"{p.key}\n{p.scope_id}")
    if kind is not None:
        raise SecretRefused(
            f"the key or the scope holds a likely secret ({kind})",
            hint="use the name of the variable that holds it, or a digest of the value",
        )


def check_delete_all(p: DeleteAll) -> None:
    names.check_key(p.key)


def check_watch(p: Watch) -> None:
    names.check_key(p.key)
    if p.scope_id is not None:
        names.check_scope(p.scope_id)
    if len(p.known) > differences.WATCHED_ROWS:
        raise TooManyRows(f"known has more than {differences.WATCHED_ROWS} scopes")


def check_list(p: List) -> None:
    if (p.key is None) == (p.prefix is None):
        raise InvalidName("give either a key or a prefix", hint="icctl state list KEY")
    if p.key is not None:
        names.check_key(p.key)
    else:
        names.check_key_prefix(p.prefix or "")


def _remember(ctx: Context, row: Row) -> None:
    if ctx.recent is not None:
        ctx.recent.remember(row, ctx.writer, at=ctx.monotonic)


def _written(row: Row, *, value: int | None = None, skipped: bool = False) -> Written:
    return Written(
        key=row.key,
        scope_id=row.scope_id,
        version=row.version,
        updated_at=row.updated_at,
        updated_at_iso=row.updated_at_iso,
        expires_at=row.expires_at,
        expires_at_iso=_iso(row.expires_at),
        value=value,
        skipped=skipped,
    )


def _row(p: Set | Incr | Delete) -> tuple[tuple[str, str], ...]:
    return ((p.key, p.scope_id),)


def _topic(p: Watch) -> Topic:
    return (*STATE, p.key) if p.scope_id is None else (*STATE, p.key, p.scope_id)


def _iso(seconds: int | None) -> str | None:
    return None if seconds is None else iso(seconds)


METHODS = [
    Method("state.get", Get, Document | None, get, check=check_row),
    Method("state.set", Set, Written, set_, check=check_set, writes=True, touches=_row),
    Method("state.incr", Incr, Written, incr, check=check_incr, writes=True, touches=_row),
    Method("state.delete", Delete, Deleted, delete, check=check_row, writes=True, touches=_row),
    Method("state.delete_all", DeleteAll, Deleted, delete_all, check=check_delete_all, writes=True),
    Method("state.list", List, list[Name], list_, check=check_list),
    Method("state.prune", Prune, Pruned, prune, writes=True),
    Method(
        "state.watch",
        Watch,
        Ended,
        watch,
        check=check_watch,
        hears=_topic,
        notifies="state.changed",
    ),
]
