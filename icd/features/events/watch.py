"""events.watch: the log, as it grows."""

from typing import Annotated

from msgspec import Meta, structs

from icd.app.call import EVENTS, Context, Ended, Look, Params, Topic
from icd.app.verb import Method, Stream
from icd.features.events import store
from icd.features.events.store import Event, Wanted
from icd.values.validation import check_name, check_scope
from icd.values.wire import INT64, Result

# What one look brings; what is more comes with the next.
EVENTS_AT_ONCE = 100

BEHIND = "continue from an event that still exists; those before it are lost"

Seq = Annotated[int, Meta(ge=0, le=INT64 - 1)]


class Watch(Params):
    """Send events as they are recorded, in events.appended notifications, until the stream ends."""

    since: Annotated[
        Seq | None,
        Meta(description="Sequence number of the last event seen; default: only new events."),
    ] = None
    run_id: Annotated[str, Meta(description="Include only events of this run."), check_scope] = ""
    source: Annotated[
        str | None, Meta(description="Include only events of this source."), store.check_source
    ] = None
    type: Annotated[
        str | None, Meta(description="Include only events of this type."), check_name
    ] = None


class Appended(Result):
    """`seq`: everything up to here has been looked at, and what fits was sent."""

    events: list[Event]
    seq: int


def watch(ctx: Context, p: Watch) -> Look:
    if p.since is None:
        return _look(p, Appended([], store.head(ctx.conn)), more=False)
    store.require_kept(ctx.conn, p.since, hint=BEHIND)
    wanted = Wanted(
        since=p.since, limit=EVENTS_AT_ONCE, run_id=p.run_id, source=p.source, type=p.type
    )
    batch = store.batch(ctx.conn, wanted)
    return _look(p, Appended(batch.events, batch.through), more=batch.more)


def _look(p: Watch, news: Appended, *, more: bool) -> Look:
    return Look(
        news,
        is_empty=not news.events,
        following=structs.replace(p, since=news.seq),
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


def log(_params: Params) -> Topic:
    """For methods whose answers change with the log only."""
    return EVENTS


NOTIFICATION = "events.appended"
WATCH = Method("events.watch", Watch, Ended, watch, stream=Stream(log, NOTIFICATION))
