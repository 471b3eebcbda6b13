"""Commands that go on: ask, show, and ask again when the database has changed.

Promises
    - the first answer is sent at once, and after it only news;
    - a peer that does not read is not asked for: it gets the latest when it reads again, and
      neither the lane nor the memory notices;
    - a stream ends with a final reply when the command is done, the peer says that it is, or the
      daemon stops.
"""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call
from icd.app.invocation import Ask, Output, Plan
from icd.app.planner import advance
from icd.server import limits
from icd.server.stores.ears import Ear

# Why a stream ends that has not come to its own end, and what a command says about it.
CLOSED = "closed"  # by the peer
STOPPING = "stopping"
RELOADING = "reloading"
FAREWELLS = {
    CLOSED: b"",
    STOPPING: b"icctl: the daemon is stopping; ask again\n",
    RELOADING: b"icctl: the daemon is being reloaded; ask again\n",
}


class Outlet:
    """The way to one peer: whether it reads, and whether its stream is to end.

    Every connection has one, and few have a stream: what only a stream needs is made for it.
    """

    def __init__(
        self, write: Callable[[bytes], None], drop: Callable[[], None] = lambda: None
    ) -> None:
        self.write = write
        self.drop = drop  # the peer gets what it was sent already, and nothing more
        self.shown = b""  # by a stream, last
        self.place = b""  # where a stream is by now
        self.reason = ""
        self._is_over = False
        self._scope: anyio.CancelScope | None = None
        self._room: anyio.Event | None = None  # None: there is room

    @property
    def is_streaming(self) -> bool:
        return self._scope is not None

    @property
    def has_room(self) -> bool:
        return self._room is None

    def pause(self) -> None:
        if self._room is None:
            self._room = anyio.Event()

    def resume(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def end(self, reason: str) -> None:
        """End the stream that is running, and any that is still to come."""
        if not self._is_over:
            self._is_over = True
            self.reason = reason
            if self._scope is not None:
                self._scope.cancel()

    def open_again(self) -> None:
        """For streams that are still to come."""
        self._is_over = False

    async def room(self) -> None:
        while self._room is not None:
            await self._room.wait()

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
                self.shown = (
                    b""  # the next stream begins with what there is, even if it is the same
                )


class Stream:
    """One command that goes on, for one peer.

    `ear` listens to what concerns a call; `frame` makes of an output what the peer gets.
    """

    def __init__(
        self,
        outlet: Outlet,
        ask: Callable[[list[Call]], Awaitable[list[Answer]]],
        ear: Callable[[Call], Ear],
        frame: Callable[[Output], bytes],
    ) -> None:
        self._outlet = outlet
        self._ask = ask
        self._ear = ear
        self._frame = frame

    async def run(self, planned: Plan) -> Output:
        """Send what there is to send until the end; the final reply is returned."""
        with self._ear(planned.call) as ear:
            hears = ear.listen()  # before asking, or a change could be missed
            output, following = advance(planned, (await self._ask([planned.call]))[0])
            if following is None:
                return output
            self._begin(output, following)
            if not hears:  # it has just been opened: look again soon, and listen from then on
                following.ask.patience = 0.0
            with self._outlet.until_end():
                return await self._go_on(following, ear)
        return Output(planned.ask.cut_short, b"", FAREWELLS[self._outlet.reason])

    def _begin(self, output: Output, following: Plan) -> None:
        """Also if it is empty: it tells the peer that a stream has begun.

        Not if it is what the peer was shown last, by the daemon before us.
        """
        self._outlet.place = following.ask.place
        if self._frame(output) != self._outlet.shown:
            self._send(output)

    async def _go_on(self, planned: Plan, ear: Ear) -> Output:
        while True:
            await self._wait(planned, ear)
            planned.call.deadline = time.monotonic() + DEFAULT_DEADLINE_MS / 1000
            ear.listen()
            output, following = advance(planned, (await self._ask([planned.call]))[0])
            if following is None:
                return output
            if output.stdout or output.stderr:
                self._send(output)
            self._outlet.place = following.ask.place
            planned = following

    async def _wait(self, planned: Plan, ear: Ear) -> None:
        """For news, and for a peer that has room for them; the first of many is not delayed."""
        asked_at = time.monotonic()
        await ear.wait(_patience(planned.ask, asked_at))
        await anyio.sleep(max(0.0, asked_at + limits.WATCH_GAP_SECONDS - time.monotonic()))
        await self._outlet.room()

    def _send(self, output: Output) -> None:
        self._outlet.shown = self._frame(output)
        self._outlet.write(self._outlet.shown)


def _patience(ask: Ask, now: float) -> float | None:
    if ask.ends_at is None:
        return ask.patience
    left = max(0.0, ask.ends_at - now)
    return left if ask.patience is None else min(left, ask.patience)
