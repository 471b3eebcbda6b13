"""Streams: one loop for everything that goes on.  Listen, ask, send, wait, ask again.

What differs is the question (`Subscription`): a command that follows, a typed watch, the log.

Promises
    - the first answer is sent at once, even if it is empty, and after it only news: from then on
      nothing is missed;
    - a subscriber is asked for when something was written that concerns it, not every second;
    - a command whose peer does not read is not asked for: it gets the latest when it reads again.
      A typed watcher that does not read is told so and dropped.  Until then either costs what its
      socket holds, and neither the database's thread nor another peer waits for it;
    - a stream ends with a final reply when it is done, its peer says that it is, or the daemon
      stops.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import anyio
from msgspec import structs

from icd.app.call import DEFAULT_DEADLINE_MS, EVENTS, Answer, Call, Ended, Look
from icd.app.invocation import Ask, Output
from icd.app.planner import advance
from icd.errors import SlowConsumer
from icd.features.events import watch as events
from icd.features.events.store import Event
from icd.features.events.watch import Appended
from icd.server import limits
from icd.server.net import jsonrpc
from icd.server.net.jsonrpc import Id
from icd.server.net.outbox import Outbox
from icd.server.stores.notify import ChangeWaiter
from icd.server.subscriptions.event_fanout import Feed

# Why a stream ends that has not come to its own end, and what a command says about it.
CLOSED = "closed"  # by the peer
STOPPING = "stopping"
RELOADING = "reloading"
FAREWELLS = {
    CLOSED: b"",
    STOPPING: b"icctl: the daemon is stopping; ask again\n",
    RELOADING: b"icctl: the daemon is being reloaded; ask again\n",
}

AskAll = Callable[[list[Call]], Awaitable[list[Answer]]]


class Stream:
    """The stream of one connection, if it has one: whether it is to end, and where it is.

    `drop` lets the peer have what it was sent already, and nothing more.
    """

    def __init__(self, outbox: Outbox, drop: Callable[[], None] = lambda: None) -> None:
        self.outbox = outbox
        self.drop = drop
        self.shown = b""  # last
        self.place = b""  # where it is by now, for the daemon after this one
        self.reason = ""
        self._is_over = False
        self._scope: anyio.CancelScope | None = None

    @property
    def is_running(self) -> bool:
        return self._scope is not None

    def end(self, reason: str) -> None:
        """End the stream that is running, and any that is still to come."""
        if not self._is_over:
            self._is_over = True
            self.reason = reason
            if self._scope is not None:
                self._scope.cancel()

    def reopen(self) -> None:
        """Allow streams again: the reload was cancelled."""
        self._is_over = False

    @contextmanager
    def until_end(self) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            if self._is_over:
                scope.cancel()
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None
                self.shown = b""  # the next stream begins with what there is, even if it is this


class Subscription:
    """What a stream asks, and what it sends of each answer.  `outcome` is set when it is over."""

    drops_slow = True

    def __init__(self, call: Call, waiter: ChangeWaiter) -> None:
        self.call = call
        self.waiter = waiter
        # Ask again after this long though nothing was written; None: there is no need to.
        self.patience: float | None = None
        self.outcome: Any = None
        self.is_first = True

    def take(self, answer: Answer) -> bytes:
        """What to send of an answer, if anything."""
        raise NotImplementedError

    def cut_short(self, reason: str) -> Any:
        """The outcome, if the stream is ended before its time."""
        return Answer(result=Ended(reason))

    def too_slow(self) -> Any:
        return Answer(error=SlowConsumer("the watcher does not read"))

    async def wait(self) -> None:
        """Wait for news; the first of many is not delayed."""
        asked_at = time.monotonic()
        await self.waiter.wait(self.patience)
        await anyio.sleep(max(0.0, asked_at + limits.WATCH_GAP_SECONDS - time.monotonic()))


async def follow(
    subscription: Subscription,
    stream: Stream,
    ask: AskAll,
    counted: AbstractContextManager[None],
) -> Any:
    """Send what there is to send until the end; the outcome is returned.

    It is `counted` from its first look on: what happens from then on it does not miss, not even
    while the daemon reloads.
    """
    with subscription.waiter as waiter:
        hears = waiter.listen()  # before asking, or a change could be missed
        await _ask(subscription, stream, ask)
        if subscription.outcome is not None:
            return subscription.outcome
        subscription.is_first = False
        if not hears:  # it has just been opened: look again soon, and listen from then on
            subscription.patience = 0.0
        with counted, stream.until_end():
            while subscription.outcome is None:
                await subscription.wait()
                if not await _has_room(subscription, stream.outbox):
                    stream.drop()
                    return subscription.too_slow()
                waiter.listen()
                subscription.call.deadline = time.monotonic() + DEFAULT_DEADLINE_MS / 1000
                await _ask(subscription, stream, ask)
            return subscription.outcome
    return subscription.cut_short(stream.reason)


async def _ask(subscription: Subscription, stream: Stream, ask: AskAll) -> None:
    (answer,) = await ask([subscription.call])
    data = subscription.take(answer)
    if data:
        stream.outbox.write(data)


async def _has_room(subscription: Subscription, outbox: Outbox) -> bool:
    """Whether the peer reads; it may take its time."""
    with anyio.move_on_after(limits.SLOW_SECONDS if subscription.drops_slow else None):
        while not await outbox.room():
            pass
        return True
    return False


class CommandStream(Subscription):
    """A command that goes on; `frame` makes of an output what the peer gets."""

    drops_slow = False

    def __init__(
        self, asked: Ask, waiter: ChangeWaiter, stream: Stream, frame: Callable[[Output], bytes]
    ) -> None:
        super().__init__(asked.call, waiter)
        self._asked = asked
        self._stream = stream
        self._frame = frame

    def take(self, answer: Answer) -> bytes:
        output, following = advance(self._asked, answer)
        if following is None:
            self.outcome = output
            return b""
        self._asked, self.call = following, following.call
        self.patience = _patience(following)
        self._stream.place = following.place
        return self._show(output)

    def _show(self, output: Output) -> bytes:
        """The first part is sent even if it is empty: it tells the peer that a stream has begun.

        Not if it is what the daemon before us has shown last.
        """
        shown = self._frame(output)
        if shown == self._stream.shown if self.is_first else not (output.stdout or output.stderr):
            return b""
        self._stream.shown = shown
        return shown

    def cut_short(self, reason: str) -> Output:
        return Output(self._asked.cut_short, b"", FAREWELLS[reason])


def _patience(asked: Ask) -> float | None:
    if asked.ends_at is None:
        return asked.patience
    left = max(0.0, asked.ends_at - time.monotonic())
    return left if asked.patience is None else min(left, asked.patience)


class TypedStream(Subscription):
    """A method that is asked with what its last `Look` says, as notifications of JSON-RPC."""

    def __init__(self, call: Call, waiter: ChangeWaiter, request_id: Id) -> None:
        super().__init__(call, waiter)
        assert call.method.stream is not None, "a stream is asked for"
        self._notification = call.method.stream.notifies
        self._id = request_id

    def take(self, answer: Answer) -> bytes:
        if answer.error is not None:
            if not self.is_first and answer.error.retryable:
                self.patience = 0.0  # it was not executed: it will be
            else:
                self.outcome = answer
            return b""
        look: Look = answer.result
        self.patience = None if look.patience_ms is None else look.patience_ms / 1000
        self.call = structs.replace(self.call, params=look.following, background=True)
        return self._told(look.news) if self.is_first or not look.is_empty else b""

    def _told(self, news: Any) -> bytes:
        return jsonrpc.notification(self._notification, self._id, news)


class EventStream(TypedStream):
    """`events.watch`: the log as it grows.

    A stream that is up to date is handed what is new by the feed of its database.  One that is
    not, because it starts from an old event or did not read for a while, reads pages of its own;
    the log keeps them for it, and nothing else does.

    `feed` is that of the database that is meant by now; None while it is not open.
    """

    def __init__(
        self, call: Call, request_id: Id, outbox: Outbox, feed: Callable[[], Feed | None]
    ) -> None:
        # The feed tells of news, once for all: a waiter that finds no store hears nothing.
        super().__init__(call, ChangeWaiter(lambda: None, EVENTS), request_id)
        assert isinstance(call.params, events.Watch)
        self.position = 0
        self._wanted = call.params
        self._outbox = outbox
        self._feed = feed
        self._is_behind = False
        self._is_refused = False
        self._sent_away = anyio.Event()

    def take(self, answer: Answer) -> bytes:
        self._is_refused = answer.error is not None
        if answer.error is None:
            self._is_behind = answer.result.patience_ms is not None
            self.position = answer.result.news.seq
        data = super().take(answer)
        self.call = structs.replace(
            self.call, params=structs.replace(self._wanted, since=self.position), background=True
        )
        return data

    def cut_short(self, reason: str) -> Answer:
        return Answer(result=Ended(reason, self.position))

    def too_slow(self) -> Answer:
        sentence = f"the watcher does not read; it received events up to {self.position}"
        return Answer(error=SlowConsumer(sentence, seq=self.position))

    async def wait(self) -> None:
        """Be handed what is new, until we are sent away."""
        if self._is_refused:  # it was not executed: it will be
            await anyio.sleep(limits.WATCH_GAP_SECONDS)
        feed = None if self._is_behind else self._feed()
        if feed is None:
            return
        self._sent_away = anyio.Event()
        if feed.join(self):
            try:
                await self._sent_away.wait()
            finally:
                feed.leave(self)

    # --- a member of the feed ---

    def offer(self, found: list[Event], seq: int) -> bool:
        """Send those that are wanted; there are no others up to `seq`.  False: there is no room."""
        wanted = [
            event
            for event in found
            if event.seq > self.position and events.matches(self._wanted, event)
        ]
        if wanted and self._outbox.is_unread:
            return False
        if wanted:
            self._outbox.write(self._told(Appended(wanted, seq)))
        self.position = max(seq, self.position)
        return True

    def send_away(self) -> None:
        """Nothing comes from the feed any more."""
        self._sent_away.set()
