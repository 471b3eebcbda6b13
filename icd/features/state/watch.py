"""`icctl state watch`"""

from collections.abc import Callable

import click
import msgspec
from msgspec import structs

from icd import printable
from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.method import Answer, Look
from icd.features.state import methods


class Gone(msgspec.Struct):
    """A row that is not there, as `state watch --json` shows it."""

    key: str
    scope_id: str
    version: int = 0


@click.command("watch", add_help_option=False, short_help="Print a payload whenever it changes.")
@click.argument("key")
@click.argument("scope", required=False, metavar="[SCOPE]")
def watch(world: World, *, key: str, scope: str | None) -> Ask:
    """Print the payload at once, and again whenever it has changed; goes on until it is stopped.

    An empty line means that there is none.
    Without SCOPE, all rows of KEY are watched, and each line starts with the scope and a tab.
    A line is what the row is by then: of several changes within a moment only the last is shown.
    With --json, a line has what is known about the row; version 0 means that there is none.

    \b
    Examples:
      icctl state watch dispatch "$SESSION"
      icctl state watch dispatch --json
    """
    show = _rows if world.json else _lines if scope is None else _payloads
    return _watch(methods.Watch(key, scope), show, is_first=True)


def _watch(
    params: methods.Watch,
    show: Callable[[methods.Changed], Output],
    patience_ms: int | None = 0,
    *,
    is_first: bool,
) -> Ask:
    def render_news(look: Look) -> Output:
        found: methods.Changed = look.news
        if is_first and look.is_empty and params.scope_id is not None:
            found.gone = [params.scope_id]
        return show(found)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None:
            return None
        look: Look = answer.result
        assert isinstance(look.following, methods.Watch)
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


def _rows(found: methods.Changed) -> Output:
    rows = [render.to_json(row).stdout for row in found.rows]
    gone = [render.to_json(Gone(found.key, scope)).stdout for scope in found.gone]
    return Output(0, b"".join(rows + gone))


def _lines(found: methods.Changed) -> Output:
    rows = [_scope(row.scope_id) + _one_line(row) for row in found.rows]
    return Output(0, b"".join(rows + [_scope(scope) + b"\n" for scope in found.gone]))


def _scope(name: str) -> bytes:
    return printable.field(name).encode() + b"\t"


def _payloads(found: methods.Changed) -> Output:
    return Output(0, b"".join([_one_line(row) for row in found.rows] + [b"\n"] * len(found.gone)))


def _one_line(row: methods.Document) -> bytes:
    """Between the tokens of JSON a line break is mere white space; within them there is none."""
    return bytes(row.payload).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n"
