"""state watch: rows as they change."""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, field, structs

from icd import printable
from icd.app import render
from icd.app.call import STATE, Answer, Context, Ended, Look, Params, Topic
from icd.app.invocation import Ask, Output, World
from icd.app.verb import Argument, Command, Method, Stream
from icd.errors import TooManyRows
from icd.features.state import diff
from icd.features.state.store import Document
from icd.values import validation
from icd.values.wire import Result, Version

Key = Annotated[str, Argument("KEY", "What the document is about."), validation.check_key]
Scope = Annotated[
    str, Argument("SCOPE", "Whose it is, such as a session's."), validation.check_scope
]


class Watch(Params):
    """Print the payload at once, and again whenever it has changed; goes on until it is stopped.

    An empty line means that there is none.
    Without SCOPE, all rows of KEY are watched, and each line starts with the scope and a tab.
    A line is what the row is by then: of several changes within a moment only the last is shown.
    With --json, a line has what is known about the row; version 0 means that there is none.
    """

    key: Key
    scope_id: Scope | None = None
    known: Annotated[
        dict[str, Version],
        Meta(description="The versions, by scope, that the watcher has already."),
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
    found = diff.find(ctx.conn, p.key, p.scope_id, p.known, now_ms=ctx.now_ms)
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
    if len(p.known) > diff.WATCHED_ROWS:
        raise TooManyRows(f"known has more than {diff.WATCHED_ROWS} scopes")


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
