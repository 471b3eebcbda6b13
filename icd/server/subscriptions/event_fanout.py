"""New events of one database, read once for all that follow them.

Promises
    - a member gets every event after the position that it joined with, once and in order, until it
      leaves or is sent away: then it reads on for itself, from its own position;
    - however many members there are, an event is read once, and one that no member wants is only
      compared;
    - no member is waited for: one without room is sent away.

Callbacks of the event loop, without a task of its own.
"""

import asyncio
import time
from typing import Protocol

from icd.app.call import EVENTS, Answer
from icd.errors import Guard
from icd.features.events.store import Event
from icd.features.events.watch import WATCH, Appended, Watch
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.store import Store, inquiry


class Member(Protocol):
    """A follower of the log that has everything up to `position`."""

    position: int

    def offer(self, events: list[Event], seq: int) -> bool:
        """Send those that are wanted; there are no others up to `seq`.  False: there is no room."""

    def send_away(self) -> None:
        """Nothing comes from here any more."""


class Feed:
    """A listener of the store's changes, while it has members."""

    topic = EVENTS

    def __init__(self, store: Store) -> None:
        self._store = store
        self._members: set[Member] = set()
        self._position = 0
        self._is_reading = False
        self._is_told = False
        self._read_at = 0.0

    def join(self, member: Member) -> bool:
        """Whether it is told of what is new, from now on; if not, it has to read on first."""
        if self._store.is_closed or (self._members and member.position < self._position):
            return False
        first = not self._members
        self._members.add(member)
        if first:
            self._position = member.position
            self._store.changes.add(self)
            self.set()  # there may be news since the member looked
        return True

    def leave(self, member: Member) -> None:
        self._members.discard(member)
        if not self._members:
            self._store.changes.remove(self)

    def set(self) -> None:
        """Read and deliver soon: there may be something new."""
        self._is_told = True
        if not self._is_reading:
            self._is_reading = True
            pause = self._read_at + limits.FEED_GAP_SECONDS - time.monotonic()
            if pause > 0:
                asyncio.get_running_loop().call_later(pause, self._read)
            else:
                self._read()

    def _read(self) -> None:
        self._is_told = False
        self._read_at = time.monotonic()
        if self._store.is_closed or not self._members:
            self._is_reading = False
            self._send_all_away()
            return
        call = inquiry(self._store.path, WATCH, Watch(since=self._position))
        self._store.submit([call], self._deliver)

    def _deliver(self, answers: list[Answer]) -> None:
        """Called by the store, which must go on."""
        with Guard(self._fail):
            self._is_reading = False
            self._take(answers[0])

    def _fail(self, exc: Exception) -> None:
        """The members can read for themselves."""
        log.error("event delivery failed", exc_info=exc)
        self._send_all_away()

    def _take(self, answer: Answer) -> None:
        if answer.error is not None and answer.error.retryable:
            self.set()
        elif answer.error is not None or answer.moved:
            self._send_all_away()  # and each will be told why
        else:
            self._hand_out(answer.result.news)
            if answer.result.patience_ms == 0 or self._is_told:
                self.set()

    def _hand_out(self, news: Appended) -> None:
        self._position = news.seq
        if news.events:
            for member in list(self._members):
                if not member.offer(news.events, news.seq):
                    self.leave(member)
                    member.send_away()

    def _send_all_away(self) -> None:
        for member in list(self._members):
            self.leave(member)
            member.send_away()
