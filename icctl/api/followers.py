"""Streams that block: what is new, as an iterator, over restarts of the daemon.

A stream has a connection of its own: on one that streams, everything else waits.  When it breaks,
the same question goes on from where it was (icctl/api/places.py), so nothing is missed.  Without a
daemon it looks every second.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from icctl.api.daemon import Lost
from icctl.api.places import BREAK_SECONDS, PLACES, TAG, Bookmark
from icctl.client import Absent, Expired

if TYPE_CHECKING:
    from icctl.api.blocking import Client, Connection
    from icd.features.events.store import Event

T = TypeVar("T")


class Stream(Generic[T]):
    """What is new, for as long as it is asked for.  `close` ends it, also from another thread."""

    def __init__(self, client: "Client", name: str, params: Mapping[str, Any]) -> None:
        self._client = client
        self._place = PLACES[name](name, params, client.target)
        self._connection: Connection | None = None
        self._is_used = False
        self._patience = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        self._is_used = True
        try:
            while not (self._place.found or self._place.is_closed):
                self._look()
        except BaseException:
            self._drop()
            raise
        finally:
            self._is_used = False
        if not self._place.found:
            self._drop()
            raise StopIteration
        found: T = self._place.found.popleft()
        return found

    def close(self) -> None:
        """A thread that reads is woken up, and closes: else it could read what is not its own."""
        self._place.is_closed = True
        found = self._connection
        if found is not None:
            with suppress(OSError):
                found.sock.shutdown(SHUT_RDWR)
        if not self._is_used:
            self._drop()

    def _look(self) -> None:
        question = self._place.question()
        limit = self._client.limit([question], None)
        deadline = time.monotonic() + limit
        try:
            if self._connection is None:
                self._connection = self._client.connect(deadline)
                self._connection.send(question.line(TAG, limit))
                goes_on = self._place.hear(self._connection.read(deadline))
            else:
                goes_on = self._place.hear(self._connection.read(None))
        except (Lost, Expired):
            goes_on = False
        except msgspec.DecodeError:
            self._place.misread()
        except Absent:
            return self._do_without(limit)
        if not goes_on:
            self._drop()
            self._pause(BREAK_SECONDS)
        return None

    def _do_without(self, limit: float) -> None:
        """Look once; then a daemon is looked for again."""
        if self._client.mode == "daemon":
            self._pause(self._place.miss(limit))
        else:
            self._pause(self._patience)
            self._patience = self._place.look(limit)

    def _pause(self, seconds: float) -> None:
        if not self._place.is_closed:
            time.sleep(seconds)

    def _drop(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            found.close()


class Consumer:
    """Events that a consumer has not acknowledged, for as long as they are asked for.

    A caller who asks for the next event is done with the one before, which is acknowledged with
    the next question, or by `close`, which leaving a `with` block does.  If the loop is left by
    `break` or by an exception, the event at hand comes again.
    """

    def __init__(self, client: "Client", params: Mapping[str, Any]) -> None:
        self._client = client
        self._bookmark = Bookmark(params)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "Event":
        while True:
            if self._bookmark.is_closed:
                raise StopIteration
            event = self._bookmark.turn()
            if event is not None:
                return event
            self._fill()

    def close(self) -> None:
        """Acknowledge what is done."""
        self._bookmark.is_closed = True
        receipt = self._bookmark.receipt()
        if receipt is not None:
            self._client.ask("cursor.ack", receipt)
            self._bookmark.acknowledged = self._bookmark.done

    def _fill(self) -> None:
        batch = self._client.ask("events.consume", self._bookmark.question())
        self._bookmark.fill(batch)
        if not batch.events:
            with self._client.watch("events.watch", self._bookmark.news_after(batch)) as news:
                next(news)
