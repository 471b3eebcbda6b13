"""`icctl wait`"""

import time
from collections.abc import Callable
from typing import Any

import click
import msgspec

from icd.app import render
from icd.app.call import Answer, Look, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import Whole
from icd.errors import Usage
from icd.features.events import watch_methods as watches
from icd.features.state import watch as state
from icd.values.wire import INT64

NUMBER = Whole(0, INT64 - 1)

# What the news of a look are shown as; None: it has not happened yet.
Show = Callable[[Any], Output | None]


@click.command("wait", add_help_option=False, short_help="Block until something happens.")
@click.option("--event", "kind", metavar="TYPE", help="Wait for an event of this type.")
@click.option("--source", metavar="S", help="Only an event of this source.")
@click.option("--run", "run_id", metavar="RUN", help="Only an event of this run.")
@click.option("--state", "row", nargs=2, metavar="KEY SCOPE", help="Wait for this row of state.")
@click.option("--since", type=NUMBER, metavar="N", help="Also what happened after N; see below.")
def wait(
    world: World,
    *,
    kind: str | None,
    source: str | None,
    run_id: str | None,
    row: tuple[str, str] | None,
    since: int | None,
) -> Ask:
    """Block until an event is recorded or a row of state is there, and print it.

    With --timeout, exit 1 when the time is up; without, it waits for as long as it takes.
    An event counts from now on; with --since, all events after that sequence number count.
    A row counts also if it is there already; with --since, if its version is later than that.
    An event is printed as a line of JSON, a row as its payload (--json: all that is known of it).

    \b
    Examples:
      icctl wait --event=advance --run="$RUN" --timeout=10m
      icctl wait --state ready "$SESSION" --timeout=30s
      icctl wait --state leader build --since=7
    """
    ends_at = None if world.timeout_ms is None else time.monotonic() + world.timeout_ms / 1000
    if (kind is None) == (row is None):
        raise Usage("say what to wait for: either --event TYPE or --state KEY SCOPE")
    if row is not None:
        if source is not None or run_id is not None:
            raise Usage("--source and --run go with --event")
        return _wait("state.watch", state.Watch(*row), _row(world, since or 0), ends_at)
    wanted = watches.Watch(since=since, run_id=run_id or "", source=source, type=kind)
    return _wait("events.watch", wanted, _event, ends_at)


def _event(news: watches.Appended) -> Output | None:
    return render.lines(news.events[:1]) if news.events else None


def _row(world: World, since: int) -> Show:
    def show(news: state.Changed) -> Output | None:
        found = [row for row in news.rows if row.version > since]
        if not found:
            return None
        return render.to_json(found[0]) if world.json else render.payload(found[0].payload)

    return show


class _Place(msgspec.Struct):
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


COMMANDS = [wait]
