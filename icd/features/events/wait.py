"""wait: block until an event is recorded, or a row of state is there."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from icd.app import render
from icd.app.call import Answer, Look, Params
from icd.app.invocation import Ask, Output, World
from icd.app.verb import Command, Option
from icd.errors import Usage
from icd.features.events import watch
from icd.features.events.watch import Seq
from icd.features.state import watch as state

# What the news of a look are shown as; None: it has not happened yet.
Show = Callable[[Any], Output | None]


class Wait(Struct):
    """Wait for an event or a row of state, and print it.

    With --timeout, exit 1 at the deadline; without it, wait indefinitely.
    New events match; with --since, all events after that sequence number match.
    An existing row matches; with --since, only a version above that number does.
    An event is printed as a line of JSON, a row as its payload (--json: with its metadata).
    """

    type: Annotated[str | None, Option("--event", "Wait for an event of this type.", "TYPE")] = None
    source: Annotated[str | None, Option("--source", "Accept only events of this source.", "S")] = (
        None
    )
    run_id: Annotated[str | None, Option("--run", "Accept only events of this run.", "RUN")] = None
    row: Annotated[
        tuple[str, str] | None,
        Option("--state", "Wait for this row of state.", "KEY SCOPE", nargs=2),
    ] = None
    since: Annotated[
        Seq | None,
        Option(
            "--since",
            "Accept events after sequence number N, or a row with a version above N.",
            "N",
        ),
    ] = None


def ask_wait(world: World, f: Wait) -> Ask:
    ends_at = None if world.timeout_ms is None else time.monotonic() + world.timeout_ms / 1000
    if (f.type is None) == (f.row is None):
        raise Usage("pass either --event TYPE or --state KEY SCOPE")
    if f.row is not None:
        if f.source is not None or f.run_id is not None:
            raise Usage("--source and --run require --event")
        return _wait("state.watch", state.Watch(*f.row), _row(world, f.since or 0), ends_at)
    wanted = watch.Watch(f.since, f.run_id or "", f.source, f.type)
    return _wait("events.watch", wanted, _event, ends_at)


def _event(news: watch.Appended) -> Output | None:
    return render.lines(news.events[:1]) if news.events else None


def _row(world: World, since: int) -> Show:
    def show(news: state.Changed) -> Output | None:
        found = [row for row in news.rows if row.version > since]
        if not found:
            return None
        return render.to_json(found[0]) if world.json else render.payload(found[0].payload)

    return show


class _Place(Struct):
    """Where a waiting is by now: the moment of its end stays what it was."""

    params: msgspec.Raw
    ends_at: float | None


def _wait(
    method: str, params: Params, show: Show, ends_at: float | None, patience_ms: int | None = 0
) -> Ask:
    def follow(answer: Answer) -> Ask | None:
        is_over = ends_at is not None and time.monotonic() >= ends_at
        if answer.error is not None or is_over or show(answer.result.news) is not None:
            return None
        look: Look = answer.result
        return _wait(method, look.following, show, ends_at, look.patience_ms)

    def resume(place: bytes) -> Ask:
        left = msgspec.json.decode(place, type=_Place)
        again = msgspec.json.decode(left.params, type=type(params))
        return _wait(method, again, show, left.ends_at)

    return Ask(
        method,
        params,
        lambda look: show(look.news) or Output(1),
        follow=follow,
        patience=None if patience_ms is None else patience_ms / 1000,
        ends_at=ends_at,
        cut_short=2,
        place=msgspec.json.encode(_Place(msgspec.Raw(msgspec.json.encode(params)), ends_at)),
        resume=resume,
    )


VERBS = [
    Command(
        "wait",
        Wait,
        ask_wait,
        summary="Wait for an event or a row of state.",
        examples=[
            'icctl wait --event=advance --run="$RUN" --timeout=10m',
            'icctl wait --state ready "$SESSION" --timeout=30s',
            "icctl wait --state leader build --since=7",
        ],
    ),
]
