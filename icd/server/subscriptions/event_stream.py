"""`events.watch`: the log as it grows, for one peer.

A follower that is up to date is handed what is new by the feed of its database.  One that is not,
because it starts from an old event or did not read for a while, reads pages of its own; the log
keeps them for it, and nothing else does.
"""

import time
from collections.abc import Callable

import anyio
from msgspec import structs

from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call, Ended, Look
from icd.errors import SlowConsumer
from icd.features.events import watch as watches
from icd.features.events.store import Event
from icd.features.events.watch import Appended
from icd.server import limits
from icd.server.net import jsonrpc
from icd.server.net.jsonrpc import Id
from icd.server.subscriptions.event_fanout import Feed
from icd.server.subscriptions.streams import Outlet
from icd.server.subscriptions.watches import Asking, has_room


class Follower:
    """`feed` is that of the database that is meant by now; None while it is not open."""

    def __init__(
        self, outlet: Outlet, ask: Asking, feed: Callable[[], Feed | None], request_id: Id
    ) -> None:
        self.position = 0
        self._outlet = outlet
        self._ask = ask
        self._feed = feed
        self._id = request_id
        self._wanted = watches.Watch()
        self._sent_away = anyio.Event()

    async def run(self, call: Call) -> Answer:
        """Send what there is to send until the end; what the final response says is returned."""
        assert isinstance(call.params, watches.Watch)
        self._wanted = call.params
        (answer,) = await self._ask([call])
        if answer.error is not None:
            return answer
        self._send(answer.result.news)  # even if it is empty: it tells where the log is
        with self._outlet.until_end():
            return await self._go_on(call, answer.result)
        return Answer(result=Ended(self._outlet.reason, self.position))

    async def _go_on(self, call: Call, look: Look) -> Answer:
        is_behind = look.patience_ms is not None
        while True:
            if not is_behind:
                await self._follow()
            if not await has_room(self._outlet):
                self._outlet.drop()
                sentence = f"the watcher does not read; it was sent events up to {self.position}"
                return Answer(error=SlowConsumer(sentence, seq=self.position))
            call = structs.replace(
                call,
                params=structs.replace(self._wanted, since=self.position),
                deadline=time.monotonic() + DEFAULT_DEADLINE_MS / 1000,
                background=True,
            )
            (answer,) = await self._ask([call])
            if answer.error is None:
                news: Appended = answer.result.news
                if news.events:
                    self._send(news)
                self.position = news.seq
                is_behind = answer.result.patience_ms is not None
            elif answer.error.retryable:  # it was not executed: it will be
                await anyio.sleep(limits.WATCH_GAP_SECONDS)
            else:
                return answer

    async def _follow(self) -> None:
        """Be handed what is new, until we are sent away."""
        feed = self._feed()
        if feed is None:
            return
        self._sent_away = anyio.Event()
        if feed.join(self):
            try:
                await self._sent_away.wait()
            finally:
                feed.leave(self)

    def take(self, events: list[Event], seq: int) -> bool:
        found = [
            event
            for event in events
            if event.seq > self.position and watches.matches(self._wanted, event)
        ]
        if found and not self._outlet.has_room:
            return False
        if found:
            self._send(Appended(found, seq))
        self.position = max(seq, self.position)
        return True

    def send_away(self) -> None:
        self._sent_away.set()

    def _send(self, news: Appended) -> None:
        self._outlet.write(jsonrpc.notification(watches.NOTIFICATION, self._id, news))
        self.position = news.seq
