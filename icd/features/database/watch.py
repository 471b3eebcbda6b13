"""db.watch: that something was written, for a page that shows several nouns at once.

A claim of a sentinel is neither a row of state nor an event, and a page that shows claims, runs and
rows would need a stream for each.  This one says "look", never what (ADR 7): who hears it asks for
what it shows.
"""

from msgspec import Struct

from icd.app.call import WRITES, Context, Ended, Look, Params, Topic
from icd.app.verb import Method, Stream
from icd.features.events import store as events
from icd.values.wire import Result


class Watch(Params):
    """Send a notification at once, and whenever the database was written to, until the stream ends.

    It does not say what was written; writes in quick succession are one notification.
    """


class Written(Result):
    """`seq`: the last event of the log."""

    seq: int


def watch(ctx: Context, p: Watch) -> Look:
    return Look(Written(events.head(ctx.conn)), is_empty=False, following=p)


def _writes(_params: Struct) -> Topic:
    return WRITES


WATCH = Method("db.watch", Watch, Ended, watch, stream=Stream(_writes, "db.written"))
