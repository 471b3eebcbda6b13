"""state: small JSON documents by key and scope."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Raw

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import SPAN
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
from icd.errors import InvalidName, InvalidParams, InvalidPayload, InvalidTtl, SecretRefused, Usage
from icd.features.state import store, watch
from icd.features.state.store import Document, Name, Row, Written
from icd.features.state.watch import Key, Scope
from icd.values import payloads, secrets, validation
from icd.values.validation import check_scope
from icd.values.wire import Int64, Milliseconds, Result, Version


def check_ttl(ttl_ms: int) -> None:
    if 0 < ttl_ms < 1000:
        raise InvalidTtl(f"TTL must be at least 1 second (got {ttl_ms}ms)")


def _refuse_secret(name: str) -> None:
    """Names are stored and listed like values; looked at first, so that no message repeats them."""
    kind = secrets.looks_like(name)
    if kind is not None:
        raise SecretRefused(
            f"the key or the scope contains a likely secret ({kind})",
            hint="use the name of the variable that holds it, or a digest of the value",
        )


NewKey = Annotated[str, Argument("KEY", "Key of the row."), _refuse_secret, validation.check_key]
NewScope = Annotated[
    str, Argument("SCOPE", "Scope of the row, such as a session id."), _refuse_secret, check_scope
]
Span = Annotated[Milliseconds, SPAN]
Ttl = Annotated[Span, check_ttl]
_EMPTY = "send one JSON value, or pass it with --value, or a file with @FILE"


# --- parameters -----------------------------------------------------------------------------------


class Get(Params):
    """Print the payload exactly as it was stored; exit 1 if the row is absent.

    --meta prints the metadata of the row, one field per line; --json prints both.
    """

    rpc = "Return a row, or null if it is absent."
    key: Key
    scope_id: Scope


class GetForm(Get):
    __doc__ = Get.__doc__

    meta: Annotated[
        bool, Option("--meta", "Print version, times and writer instead of the payload.")
    ] = False


class Set(Params):
    """Store a JSON payload."""

    key: NewKey
    scope_id: NewScope
    payload: Annotated[Raw, Meta(description="JSON document, stored byte for byte.")]
    ttl_ms: Annotated[Ttl, Option("--ttl", "Expire the row after this time.")] = 0
    if_version: Annotated[
        Version | None,
        Option("--if-version", "Write only if the row is at this version (0: absent).", "N"),
    ] = None
    debounce_ms: Annotated[
        Span, Option("--debounce", "Skip a write of an unchanged payload within this time.")
    ] = 0


class SetForm(Set):
    """Store a JSON payload, read from stdin unless @FILE or --value is given.

    A write replaces the row, its TTL included, and gives it a new version.
    With --if-version, exit 1 if the row is at another version.
    --debounce skips a write whose payload has not changed within the window; it cannot be combined
    with --ttl or --if-version, and has no effect without a daemon.
    """

    payload: Raw = Raw()
    file: Annotated[str | None, Argument("@FILE", "File with the payload.")] = None
    value: Annotated[
        str | None, Option("--value", "Payload, instead of stdin or a file.", "JSON")
    ] = None


class Incr(Params):
    """Add to a counter atomically and print its new value; a counter starts at 0.

    An existing counter keeps its expiry, so --ttl makes one counter per window.
    """

    rpc = "Add to a counter atomically and return its value; an existing counter keeps its expiry."
    key: NewKey
    scope_id: NewScope
    by: Annotated[Int64, Option("--by", "Number to add (default 1).", "N")] = 1
    ttl_ms: Annotated[Ttl, Option("--ttl", "Expiry of a counter that this call creates.")] = 0


class Touch(Params):
    """Change the expiry of a row and keep its payload; exit 1 if the row is absent.

    The row gets a new version, so that watchers and --if-version notice the change.
    """

    rpc = "Change the expiry of a row, which gets a new version; null if the row is absent."
    key: Key
    scope_id: Scope
    ttl_ms: Annotated[Ttl, Option("--ttl", "Expire the row after this time; 0: never.")]


class Delete(Params):
    """Delete a row."""

    key: Key
    scope_id: Scope


class DeleteAll(Params):
    """Delete the rows of a key in all scopes."""

    key: Key


class DeleteForm(DeleteAll):
    """Delete a row; print deleted or not found, and exit 0 either way."""

    scope: Scope | None = None
    every: Annotated[bool, Option("--all", "Delete KEY in all scopes.")] = False


class List(Params):
    """Print the scopes of a key, one per line; without a key, print every key and scope."""

    rpc = "List the rows of a key, of all keys with a prefix, or all, without their payloads."
    key: Key | None = None
    prefix: Annotated[
        str | None,
        Option("--prefix", "List only keys that start with P, with their scopes.", "P"),
        validation.check_key_prefix,
    ] = None


class Prune(Params):
    """Delete expired rows now; reads ignore them already."""


# --- results --------------------------------------------------------------------------------------


class Deleted(Result):
    deleted: int


class Pruned(Result):
    pruned: int


# --- what is done ---------------------------------------------------------------------------------


def get(ctx: Context, p: Get) -> Document | None:
    row = store.get(ctx.conn, p.key, p.scope_id, now_ms=ctx.now_ms)
    return None if row is None else row.document()


def set_(ctx: Context, p: Set) -> Written:
    payload = bytes(p.payload).decode()
    if p.debounce_ms and ctx.recent is not None:
        stands: Row | None = ctx.recent.unchanged(
            p.key, p.scope_id, payload, ctx.writer, window=p.debounce_ms / 1000, at=ctx.monotonic
        )
        if stands is not None:
            ctx.changed = False
            return stands.written(skipped=True)
    row = store.set(
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
    return row.written()


def incr(ctx: Context, p: Incr) -> Written:
    row = store.incr(
        ctx.conn,
        p.key,
        p.scope_id,
        by=p.by,
        ttl_ms=p.ttl_ms,
        writer=ctx.writer,
        now_ms=ctx.now_ms,
    )
    _remember(ctx, row)
    return row.written(value=int(row.payload))


def touch(ctx: Context, p: Touch) -> Written | None:
    row = store.touch(
        ctx.conn, p.key, p.scope_id, ttl_ms=p.ttl_ms, writer=ctx.writer, now_ms=ctx.now_ms
    )
    if row is None:
        ctx.changed = False
        return None
    _remember(ctx, row)
    return row.written()


def delete(ctx: Context, p: Delete) -> Deleted:
    if ctx.recent is not None:
        ctx.recent.forget(p.key, p.scope_id)
    return Deleted(store.delete(ctx.conn, p.key, p.scope_id, now_ms=ctx.now_ms))


def delete_all(ctx: Context, p: DeleteAll) -> Deleted:
    if ctx.recent is not None:
        ctx.recent.clear()
    return Deleted(store.delete_all(ctx.conn, p.key, now_ms=ctx.now_ms))


def list_(ctx: Context, p: List) -> list[Name]:
    if p.key is not None:
        return store.scopes(ctx.conn, p.key, now_ms=ctx.now_ms)
    return store.by_prefix(ctx.conn, p.prefix or "", now_ms=ctx.now_ms)


def prune(ctx: Context, _p: Prune) -> Pruned:
    return Pruned(store.prune(ctx.conn, now_ms=ctx.now_ms))


def _check_set(p: Set) -> None:
    """Judge the payload outside the lock: a megabyte takes its time."""
    if p.debounce_ms and (p.ttl_ms or p.if_version is not None):
        raise InvalidParams("debounce cannot be combined with ttl or if-version")
    p.payload = Raw(payloads.check(bytes(p.payload)))


def _check_list(p: List) -> None:
    if p.key is not None and p.prefix is not None:
        raise InvalidName("pass either a key or a prefix", hint="icctl state list KEY")


def _remember(ctx: Context, row: Row) -> None:
    if ctx.recent is not None:
        ctx.recent.remember(row, ctx.writer, at=ctx.monotonic)


def _row(p: Set | Incr | Touch | Delete) -> tuple[tuple[str, str], ...]:
    return ((p.key, p.scope_id),)


# --- what is shown --------------------------------------------------------------------------------


def ask_get(_world: World, f: GetForm) -> Ask:
    return Ask("state.get", narrow(f, Get))


def show_get(row: Document, f: GetForm) -> Iterator[str] | Output:
    return _meta(row) if f.meta else render.payload(row.payload)


def _meta(row: Document) -> Iterator[str]:
    for name in Document.__struct_fields__:
        value = getattr(row, name)
        if name != "payload":
            yield render.columns(name, "" if value is None else value)


META = Card(
    Column("Key", "key"),
    Column("Scope", "scope_id"),
    Column("Version", "version"),
    Column("Updated", "updated_at", "age"),
    Column("Expires", "expires_at", "until"),
    Column("Process", "writer_pid"),
    Column("Session", "writer_session"),
    empty="There is no such row.",
)


def _get(row: Document, f: GetForm, screen: Any) -> list[str]:
    shown: list[str] = screen.show(META, row) if f.meta else screen.document(row.payload)
    return shown


def ask_set(world: World, f: SetForm) -> Ask:
    if f.debounce_ms and (f.ttl_ms or f.if_version is not None):
        raise Usage("--debounce cannot be combined with --ttl or --if-version")
    return Ask("state.set", narrow(f, Set, payload=Raw(_payload(world, f))))


def _payload(world: World, f: SetForm) -> bytes:
    if f.file is not None and f.value is not None:
        raise Usage("pass either @FILE or --value")
    if f.value is not None:
        return f.value.encode()
    if f.file is None:
        return _piped(world)
    if not f.file.startswith("@"):
        raise Usage(f"unexpected argument {f.file!r}: use @FILE, or --value for inline JSON")
    return world.read_file(f.file[1:])


def _piped(world: World) -> bytes:
    given = world.read_stdin()
    if not given.strip():
        raise InvalidPayload("invalid JSON payload: stdin is empty", hint=_EMPTY)
    return given


def show_nothing(_r: object, _p: object) -> list[str]:
    return []


def show_value(r: Written, _p: Incr) -> list[str]:
    return [str(r.value)]


def ask_delete(_world: World, f: DeleteForm) -> Ask:
    if f.every == (f.scope is not None):
        raise Usage("pass either a scope or --all")
    if f.every:
        return Ask("state.delete_all", narrow(f, DeleteAll))
    return Ask("state.delete", Delete(f.key, f.scope or ""))


def show_delete(r: Deleted, f: DeleteForm) -> list[str]:
    if f.every:
        return [f"{r.deleted} deleted"]
    return ["deleted" if r.deleted else "not found"]


def _either(p: List) -> None:
    if p.key is not None and p.prefix is not None:
        raise Usage("pass either a key or --prefix")


def show_list(found: list[Name], p: List) -> Iterator[str]:
    if p.key is not None:
        return (render.columns(row.scope_id) for row in found)
    return (render.columns(row.key, row.scope_id) for row in found)


def show_prune(r: Pruned, _p: Prune) -> list[str]:
    return [f"{r.pruned} pruned"]


VERBS = [
    Method("state.set", Set, Written, set_, check=_check_set, writes=Writes(_row)),
    Command(
        "state set",
        SetForm,
        ask_set,
        show=show_nothing,
        order=("value", "ttl_ms", "if_version", "debounce_ms"),
        summary="Store a JSON payload.",
        examples=[
            """echo '{"phase":"executing"}' | icctl state set dispatch "$SESSION\"""",
            'icctl state set dispatch "$SESSION" @payload.json --ttl=5m',
            "icctl state set leader build --value '\"me\"' --if-version 0",
        ],
    ),
    Method("state.get", Get, Document | None, get),
    Command(
        "state get",
        GetForm,
        ask_get,
        show=show_get,
        human=_get,
        summary="Print a payload; exit 1 if it is absent.",
        examples=[
            'icctl state get dispatch "$SESSION"',
            'icctl state get dispatch "$SESSION" --meta',
        ],
    ),
    Method("state.delete", Delete, Deleted, delete, writes=Writes(_row)),
    Method("state.delete_all", DeleteAll, Deleted, delete_all, writes=Writes()),
    Command(
        "state delete",
        DeleteForm,
        ask_delete,
        show=show_delete,
        summary="Delete a row, or all rows of a key.",
        examples=['icctl state delete dispatch "$SESSION"', "icctl state delete --all dispatch"],
    ),
    Verb(
        "state incr",
        Incr,
        Written,
        incr,
        writes=Writes(_row),
        show=show_value,
        summary="Increment a counter and print it.",
        examples=[
            'icctl state incr turns "$SESSION"',
            'icctl state incr tokens "$SESSION" --by=1200 --ttl=1h',
        ],
    ),
    Verb(
        "state touch",
        Touch,
        Written | None,
        touch,
        writes=Writes(_row),
        show=show_nothing,
        summary="Change the expiry of a row.",
        examples=['icctl state touch dispatch "$SESSION" --ttl=5m'],
    ),
    Verb(
        "state list",
        List,
        list[Name],
        list_,
        check=_check_list,
        usage=_either,
        show=show_list,
        human=Table(
            Column("KEY", "key"),
            Column("SCOPE", "scope_id"),
            empty="No rows. Write one: icctl state set KEY SCOPE --value='{\"a\": 1}'",
            filtered=True,
        ),
        summary="List the scopes of a key, or all rows.",
        examples=["icctl state list", "icctl state list dispatch", "icctl state list --prefix=d."],
    ),
    Verb(
        "state prune",
        Prune,
        Pruned,
        prune,
        writes=Writes(),
        show=show_prune,
        summary="Delete expired rows now.",
        examples=["icctl state prune"],
    ),
    *watch.VERBS,
]
