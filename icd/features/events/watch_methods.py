"""events.watch: the log, as it grows."""

from typing import Annotated

from msgspec import Meta, structs

from icd.app.call import EVENTS, Context, Ended, Look, Params, Topic
from icd.app.verb import Method, Stream
from icd.features.events import store as events
from icd.features.events.store import Event, Wanted
from icd.values import validation as names
from icd.values.wire import INT64, Result

# What one look brings; what is more comes with the next.
EVENTS_AT_ONCE = 100

BEHIND = "go on from an event that is still there, and know that those before it are lost"


class Watch(Params):
    """`since`: the last event that the watcher has; None: only what comes from now on."""

    since: Annotated[int, Meta(ge=0, le=INT64 - 1)] | None = None
    run_id: str = ""
    source: str | None = None
    type: str | None = None


class Appended(Result):
    """`seq`: everything up to here has been looked at, and what fits was sent."""

    events: list[Event]
    seq: int


def watch(ctx: Context, p: Watch) -> Look:
    head = events.head(ctx.conn)
    if p.since is None:
        return _look(p, [], head, more=False)
    events.require_kept(ctx.conn, p.since, hint=BEHIND)
    wanted = Wanted(
        since=p.since, limit=EVENTS_AT_ONCE, run_id=p.run_id, source=p.source, type=p.type
    )
    found, more = events.page(ctx.conn, wanted)
    return _look(p, found, found[-1].seq if more else head, more=more)


def _look(p: Watch, found: list[Event], seq: int, *, more: bool) -> Look:
    return Look(
        Appended(found, seq),
        is_empty=not found,
        following=structs.replace(p, since=seq),
        patience_ms=0 if more else None,
    )


def matches(p: Watch, event: Event) -> bool:
    """Whether the log, if it were asked, would show the event."""
    # A discovery of no run is shown with its own id instead.
    is_own = event.source == "discovery" and event.run_id == event.subject_id
    return (
        (not p.run_id or (event.run_id == p.run_id and not is_own))
        and (p.source is None or event.source == p.source)
        and (p.type is None or event.type == p.type)
    )


def check_watch(p: Watch) -> None:
    names.check_scope(p.run_id)
    if p.source is not None:
        events.check_source(p.source)
    if p.type is not None:
        names.check_name(p.type)


def log(_params: Params) -> Topic:
    """For methods whose answers change with the log only."""
    return EVENTS


NOTIFICATION = "events.appended"
WATCH = Method(
    "events.watch", Watch, Ended, watch, check=check_watch, stream=Stream(log, NOTIFICATION)
)
