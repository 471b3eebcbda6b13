"""state watch: rows as they change.

Level-triggered: a row that was written twice between two looks differs once, and one that was
written and deleted again does not differ at all.
"""

import sqlite3
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field, structs

from icd import printable
from icd.app import render
from icd.app.call import STATE, Answer, Context, Ended, Look, Params, Topic
from icd.app.invocation import Ask, Output, World
from icd.app.verb import Argument, Command, Method, Stream
from icd.errors import TooManyRows
from icd.features.state import store as state
from icd.features.state.store import Document, Row
from icd.values import validation
from icd.values.validation import shown
from icd.values.wire import Result, Version

# --- what a watcher does not know yet -------------------------------------------------------------

# Rows of one key that are watched together: each look compares all of them.
WATCHED_ROWS = 1000
# Payloads that one look brings; what is more comes with the next, or a look could fill the memory.
WATCHED_BYTES = 1024 * 1024

_WATCHED = """
SELECT scope_id, version, expires_ms FROM state
WHERE key = ? AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY scope_id LIMIT ?
"""


class Differences(Struct):
    """`gone` are scopes; `expires_ms` is the next moment at which a row vanishes by itself."""

    rows: list[Row]
    gone: list[str]
    more: bool
    expires_ms: int | None


def differences(
    conn: sqlite3.Connection,
    key: str,
    scope_id: str | None,
    known: dict[str, int],
    *,
    now_ms: int,
) -> Differences:
    """Compare one row, or all rows of a key, with the versions that the watcher knows."""
    if scope_id is not None:
        return _of_one(conn, key, scope_id, known.get(scope_id, 0), now_ms=now_ms)
    found = conn.execute(_WATCHED, (key, now_ms, WATCHED_ROWS + 1)).fetchall()
    if len(found) > WATCHED_ROWS:
        raise TooManyRows(f"{shown(key)} has more than {WATCHED_ROWS} scopes")
    changed = [scope for scope, version, _ in found if known.get(scope) != version]
    rows = _read(conn, key, changed, now_ms=now_ms)
    there = {scope for scope, _, _ in found}
    return Differences(
        rows,
        gone=[scope for scope in known if scope not in there],
        more=len(rows) < len(changed),
        expires_ms=min((at for _, _, at in found if at is not None), default=None),
    )


def _of_one(
    conn: sqlite3.Connection, key: str, scope_id: str, known: int, *, now_ms: int
) -> Differences:
    row = state.get(conn, key, scope_id, now_ms=now_ms)
    if row is None:
        return Differences([], [scope_id] if known else [], more=False, expires_ms=None)
    rows = [row] if row.version != known else []
    return Differences(rows, [], more=False, expires_ms=row.expires_ms)


def _read(conn: sqlite3.Connection, key: str, scopes: list[str], *, now_ms: int) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for scope_id in scopes:
        row = state.get(conn, key, scope_id, now_ms=now_ms)
        assert row is not None, "it was there in the same transaction"
        rows.append(row)
        size += len(row.payload)
        if size >= WATCHED_BYTES:
            break
    return rows


# --- parameters and results -----------------------------------------------------------------------

Key = Annotated[str, Argument("KEY", "Key of the row."), validation.check_key]
Scope = Annotated[
    str, Argument("SCOPE", "Scope of the row, such as a session id."), validation.check_scope
]


class Watch(Params):
    """Print the payload at once, and again whenever it changes, until interrupted.

    An empty line means that the row is absent.
    Without SCOPE, all rows of KEY are watched, and each line starts with the scope and a tab.
    Changes in quick succession are merged: a line shows the latest payload.
    With --json, a line has the metadata of the row; version 0 means that the row is absent.
    """

    rpc = (
        "Send the row at once, and again whenever it changes, until the stream ends.\n"
        "Without a scope, all rows of the key are watched.\n"
        "Changes in quick succession are merged: a notification has the latest payload.\n"
        "Version 0 means that the row is absent."
    )
    key: Key
    scope_id: Scope | None = None
    known: Annotated[
        dict[str, Version],
        Meta(description="Versions that the watcher already has, by scope."),
    ] = field(default_factory=dict)


class Changed(Result):
    """What a watcher has not seen; `gone` are scopes."""

    key: str
    rows: list[Document]
    gone: list[str]


class Gone(msgspec.Struct):
    """A row that is not there, as `state watch --json` shows it."""

    key: str
    scope_id: str
    version: int = 0


def watch(ctx: Context, p: Watch) -> Look:
    found = differences(ctx.conn, p.key, p.scope_id, p.known, now_ms=ctx.now_ms)
    known = p.known | {row.scope_id: row.version for row in found.rows}
    for scope_id in found.gone:
        del known[scope_id]
    patience_ms = None if found.expires_ms is None else found.expires_ms - ctx.now_ms
    return Look(
        Changed(p.key, [row.document() for row in found.rows], found.gone),
        is_empty=not (found.rows or found.gone),
        following=structs.replace(p, known=known),
        patience_ms=0 if found.more else patience_ms,
    )


def _check_watch(p: Watch) -> None:
    if len(p.known) > WATCHED_ROWS:
        raise TooManyRows(f"known has more than {WATCHED_ROWS} scopes")


def _topic(p: Watch) -> Topic:
    return (*STATE, p.key) if p.scope_id is None else (*STATE, p.key, p.scope_id)


def ask_watch(world: World, p: Watch) -> Ask:
    show = _rows if world.json else _lines if p.scope_id is None else _payloads
    return _watch(p, show, is_first=True)


def _watch(
    params: Watch,
    show: Callable[[Changed], Output],
    patience_ms: int | None = 0,
    *,
    is_first: bool,
) -> Ask:
    def render_news(look: Look) -> Output:
        found: Changed = look.news
        if is_first and look.is_empty and params.scope_id is not None:
            found.gone = [params.scope_id]
        return show(found)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None:
            return None
        look: Look = answer.result
        assert isinstance(look.following, Watch)
        return _watch(look.following, show, look.patience_ms, is_first=False)

    def resume(place: bytes) -> Ask:
        known = msgspec.json.decode(place, type=dict[str, int])
        return _watch(structs.replace(params, known=known), show, is_first=False)

    return Ask(
        "state.watch",
        params,
        render_news,
        follow=follow,
        patience=None if patience_ms is None else patience_ms / 1000,
        place=msgspec.json.encode(params.known),
        resume=resume,
    )


def _rows(found: Changed) -> Output:
    rows = [render.to_json(row).stdout for row in found.rows]
    gone = [render.to_json(Gone(found.key, scope)).stdout for scope in found.gone]
    return Output(0, b"".join(rows + gone))


def _lines(found: Changed) -> Output:
    rows = [_scope(row.scope_id) + _one_line(row) for row in found.rows]
    return Output(0, b"".join(rows + [_scope(scope) + b"\n" for scope in found.gone]))


def _scope(name: str) -> bytes:
    return printable.field(name).encode() + b"\t"


def _payloads(found: Changed) -> Output:
    return Output(0, b"".join([_one_line(row) for row in found.rows] + [b"\n"] * len(found.gone)))


def _one_line(row: Document) -> bytes:
    """Between the tokens of JSON a line break is mere white space; within them there is none."""
    return bytes(row.payload).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"


VERBS = [
    Method(
        "state.watch",
        Watch,
        Ended,
        watch,
        check=_check_watch,
        stream=Stream(_topic, "state.changed"),
    ),
    Command(
        "state watch",
        Watch,
        ask_watch,
        summary="Print a payload whenever it changes.",
        examples=['icctl state watch dispatch "$SESSION"', "icctl state watch dispatch --json"],
    ),
]


# --- what the daemon asks for itself, for its mirror and for watchers: no caller may ask it -------

Page = tuple[list[tuple[str, int]], str | None]

# Read in one call: a version takes a few bytes, while a row may hold a megabyte.
VERSIONS_AT_ONCE = 1000
ROWS_AT_ONCE = 64


class Rows(Params):
    """Read rows of state; None stands for a row that is not there."""

    names: Annotated[list[tuple[str, str]], Meta(description="Rows, by key and scope.")]


class Versions(Params):
    """Read a page of the scopes of a key, with versions, and where the next page begins."""

    key: Annotated[str, Meta(description="Key of the rows.")]
    after: Annotated[str | None, Meta(description="Last scope of the previous page.")]
    since: Annotated[int, Meta(description="Leave out rows last written before this time.")]


def rows(ctx: Context, p: Rows) -> list[Row | None]:
    return [state.get(ctx.conn, key, scope_id, now_ms=ctx.now_ms) for key, scope_id in p.names]


def versions(ctx: Context, p: Versions) -> Page:
    return state.versions(
        ctx.conn, p.key, after=p.after, since=p.since, limit=VERSIONS_AT_ONCE, now_ms=ctx.now_ms
    )


def look(_ctx: Context, _p: Params) -> None:
    """Every call notices what others wrote: this one does nothing else."""


LOOK = Method("watch.look", Params, None, look)
ROWS = Method("mirror.rows", Rows, list[Row | None], rows)
VERSIONS = Method("mirror.versions", Versions, Page, versions)
