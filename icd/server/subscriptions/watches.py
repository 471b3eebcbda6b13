"""Typed streams over JSON-RPC: what there is at once, then a notification for whatever is new.

Promises
    - the first notification comes at once, even if it is empty: from then on nothing is missed;
    - a watcher is looked for when something was written that concerns it, not every second;
    - one that does not read is told so and dropped: until then it costs what its socket holds, and
      neither the lane nor anybody else waits for it;
    - the final response says why the stream has ended.
"""

import time
from collections.abc import Awaitable, Callable

import anyio
from msgspec import structs

from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call, Ended, Look
from icd.errors import SlowConsumer
from icd.server import limits
from icd.server.net import jsonrpc
from icd.server.net.jsonrpc import Id
from icd.server.stores.ears import Ear
from icd.server.subscriptions.streams import Outlet

Asking = Callable[[list[Call]], Awaitable[list[Answer]]]


class Watch:
    """One typed stream, for one peer."""

    def __init__(
        self,
        outlet: Outlet,
        ask: Asking,
        ear: Callable[[Call], Ear],
        request_id: Id,
    ) -> None:
        self._outlet = outlet
        self._ask = ask
        self._ear = ear
        self._id = request_id

    async def run(self, call: Call) -> Answer:
        """Send what there is to send until the end; what the final response says is returned."""
        with self._ear(call) as ear:
            hears = ear.listen()  # before asking, or a change could be missed
            (answer,) = await self._ask([call])
            if answer.error is not None:
                return answer
            look: Look = answer.result
            if not hears:  # it has just been opened: look again soon, and listen from then on
                look.patience_ms = 0
            self._send(call, look)
            with self._outlet.until_end():
                return await self._go_on(call, look, ear)
        return Answer(result=Ended(self._outlet.reason))

    async def _go_on(self, call: Call, look: Look, ear: Ear) -> Answer:
        while True:
            asked_at = time.monotonic()
            await ear.wait(None if look.patience_ms is None else look.patience_ms / 1000)
            await anyio.sleep(max(0.0, asked_at + limits.WATCH_GAP_SECONDS - time.monotonic()))
            if not await has_room(self._outlet):
                self._outlet.drop()
                return Answer(error=SlowConsumer("the watcher does not read what it asked for"))
            ear.listen()
            deadline = time.monotonic() + DEFAULT_DEADLINE_MS / 1000
            call = structs.replace(call, params=look.following, deadline=deadline, background=True)
            (answer,) = await self._ask([call])
            if answer.error is None:
                look = answer.result
                if not look.is_empty:
                    self._send(call, look)
            elif answer.error.retryable:  # it was not executed: it will be
                look.patience_ms = 0
            else:
                return answer

    def _send(self, call: Call, look: Look) -> None:
        stream = call.method.stream
        assert stream is not None, "a stream is asked for"
        self._outlet.write(jsonrpc.notification(stream.notifies, self._id, look.news))


async def has_room(outlet: Outlet) -> bool:
    """Whether the peer reads; it may take its time."""
    with anyio.move_on_after(limits.SLOW_SECONDS) as waited:
        await outlet.room()
    return not waited.cancelled_caught
