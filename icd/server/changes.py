"""Who wants to know that a database changed, and telling them after the commit.

Level-triggered: what is told is "look again", never the change itself, so nothing is lost when
several changes come at once, and nobody who is slow can hold up the lane.  Whoever is told reads
the database anew.  Watchers of anything stored can use it; it knows no keys.
"""

from collections.abc import Callable

import anyio

from icd.rpc.method import Call

# The rows of state that may have changed; None: nobody can tell which.
Touched = set[tuple[str, str]] | None
Listener = Callable[[Touched], None]


class Changes:
    """The changes of one database; used in the event loop only."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._readers: list[Callable[[], None]] = []
        self._signal: anyio.Event | None = None
        self._foreign = 0

    def listen(self, listener: Listener) -> None:
        """Have every change told, from now on."""
        self._listeners.append(listener)

    def listen_to_log(self, reader: Callable[[], None]) -> None:
        """Have it told, from now on, that events may have been appended."""
        self._readers.append(reader)

    def signal(self) -> anyio.Event:
        """An event that the next change sets.  Get it before you read, or you may miss one."""
        if self._signal is None:
            self._signal = anyio.Event()
        return self._signal

    def after(self, calls: list[Call], foreign: int) -> None:
        """A batch has been committed; `foreign` counts the commits of others that were noticed."""
        unknown, self._foreign = foreign != self._foreign, foreign
        if unknown or any(call.method.appends for call in calls):
            self._tell_readers()
        if not (self._listeners or self._signal):
            return
        touched: Touched = None if unknown else _touched(calls)
        if touched is None or touched or any(call.method.appends for call in calls):
            self.tell(touched)

    def tell(self, touched: Touched = None) -> None:
        if self._signal is not None:
            self._signal.set()
            self._signal = None
        for listener in self._listeners:
            listener(touched)

    def tell_all(self) -> None:
        """Anything may have changed, or will not change here any more."""
        self.tell()
        self._tell_readers()

    def _tell_readers(self) -> None:
        for reader in self._readers:
            reader()


def _touched(calls: list[Call]) -> Touched:
    """What the calls may have changed: a failed one changed nothing, and looking does no harm."""
    found: set[tuple[str, str]] = set()
    for call in calls:
        method = call.method
        if method.writes:
            if method.touches is None:
                return None
            found.update(method.touches(call.params))
    return found
