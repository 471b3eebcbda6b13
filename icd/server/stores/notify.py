"""Who wants to know that a database changed, and telling them after the commit.

Level-triggered: what is told is "look again", never the change itself, so nothing is lost when
several changes come at once, and a slow listener cannot hold up the database's thread.  Listeners
read the database anew.

A change is told to those whom it concerns: a thousand watchers of other rows cost nothing.
"""

from collections.abc import Callable
from typing import Protocol, Self

import anyio

from icd.app.call import ANYTHING, EVENTS, STATE, WRITES, Call, Topic
from icd.app.invocation import LOOK_AGAIN_SECONDS
from icd.server import limits

# The rows of state that may have changed; None: it is not known which.
Touched = set[tuple[str, str]] | None
Listener = Callable[[Touched], None]


class Told(Protocol):
    """A listener to one topic."""

    topic: Topic

    def set(self) -> None: ...


class Signal:
    """Set by the next change of its topic, until it is renewed.  Renew it before you read."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._event = anyio.Event()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()

    def renew(self) -> None:
        if self._event.is_set():
            self._event = anyio.Event()

    async def wait(self) -> None:
        await self._event.wait()


class Changes:
    """The changes of one database; used in the event loop only.

    `watched` is told when the first signal is added.
    """

    def __init__(self, watched: Callable[[], None] = lambda: None) -> None:
        self._watched = watched
        self._listeners: list[Listener] = []
        self._readers: list[Callable[[], None]] = []
        self._signals: dict[Topic, set[Told]] = {}
        self.is_watched = False  # a signal relies on being told, also of what others write
        self.is_heard = False  # or a listener is told
        self.foreign = 0  # commits of others that were noticed

    def listen(self, listener: Listener) -> None:
        """Tell the listener of every change of state, from now on."""
        self._listeners.append(listener)
        self.is_heard = True

    def listen_to_log(self, reader: Callable[[], None]) -> None:
        """Tell the listener, from now on, that events may have been appended."""
        self._readers.append(reader)
        self.is_heard = True

    def add(self, signal: Told) -> None:
        self._signals.setdefault(signal.topic, set()).add(signal)
        if not self.is_watched:
            self.is_watched = self.is_heard = True
            self._watched()

    def remove(self, signal: Told) -> None:
        found = self._signals.get(signal.topic)
        if found is not None:
            found.discard(signal)
            if not found:
                del self._signals[signal.topic]
            self.is_watched = bool(self._signals)
            self.is_heard = bool(self._listeners or self._readers or self._signals)

    def after(self, calls: list[Call], foreign: int) -> None:
        """A batch has been committed; `foreign` counts the commits of others that were noticed."""
        unknown, self.foreign = foreign != self.foreign, foreign
        if unknown:
            self.tell()
            return
        touched = _touched(calls)
        if touched is None or touched:
            self._tell_rows(touched)
        methods = {call.method for call in calls}
        if any(method.writes and method.writes.appends for method in methods):
            self._tell_log()
        if any(method.writes for method in methods):
            self._tell_topic(WRITES)

    def tell(self) -> None:
        """Anything may have changed."""
        self._tell_rows(None)
        self._tell_log()
        self._tell_topic(WRITES)

    def _tell_log(self) -> None:
        for reader in self._readers:
            reader()
        self._tell_topic(EVENTS)
        self._tell_topic(ANYTHING)

    def _tell_rows(self, touched: Touched) -> None:
        for listener in self._listeners:
            listener(touched)
        self._tell_topic(STATE)
        self._tell_topic(ANYTHING)
        if touched is None:
            for topic in list(self._signals):
                if topic[:1] == STATE:
                    self._tell_topic(topic)
            return
        for key, scope_id in touched:
            self._tell_topic((*STATE, key))
            self._tell_topic((*STATE, key, scope_id))

    def _tell_topic(self, topic: Topic) -> None:
        for signal in list(self._signals.get(topic, ())):
            signal.set()


class ChangeWaiter:
    """Waits for a change of the database that a caller means, whichever that is by now.

    A database may be opened, closed, deleted or replaced meanwhile: this goes with the caller's
    words, not with the file.  `find` gives the changes of the open store; None while none is open.
    """

    def __init__(self, find: Callable[[], "Changes | None"], topic: Topic) -> None:
        self._find = find
        self._signal = Signal(topic)
        self._changes: Changes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._move(None)

    def listen(self) -> bool:
        """Listen from now on; call it before each look.  Whether there is something to hear."""
        self._move(self._find())
        self._signal.renew()
        return self._changes is not None

    async def wait(self, patience: float | None) -> None:
        """Wait for a change, or for so long; None: for as long as it takes."""
        longest = limits.REST_SECONDS if patience is None else min(patience, limits.REST_SECONDS)
        if self._changes is None:  # its creation would not be told
            longest = min(longest, LOOK_AGAIN_SECONDS)
        with anyio.move_on_after(longest):
            await self._signal.wait()

    def _move(self, changes: Changes | None) -> None:
        if changes is not self._changes:
            if self._changes is not None:
                self._changes.remove(self._signal)
            if changes is not None:
                changes.add(self._signal)
            self._changes = changes


def _touched(calls: list[Call]) -> Touched:
    """What the calls may have changed: a failed one changed nothing, and looking does no harm."""
    found: set[tuple[str, str]] = set()
    for call in calls:
        writes = call.method.writes
        if writes is not None:
            if writes.rows is None:
                return None
            if writes.rows:
                found.update(writes.rows(call.params))
    return found
