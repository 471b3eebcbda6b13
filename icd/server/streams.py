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

from icd.cli.invocation import LOOK_AGAIN_SECONDS, Output, Plan
from icd.cli.main import advance
from icd.db.paths import Where
from icd.rpc.method import DEFAULT_DEADLINE_MS, Answer, Call
from icd.server import limits


class Outlet:
    """The way to one peer: whether it reads, and whether its stream is to end.

    Every connection has one, and few have a stream: what only a stream needs is made for it.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = write
        self.shown = b""  # by a stream, last
        self.farewell = b""
        self._is_over = False
        self._scope: anyio.CancelScope | None = None
        self._room: anyio.Event | None = None  # None: there is room

    @property
    def is_streaming(self) -> bool:
        return self._scope is not None

    def pause(self) -> None:
        if self._room is None:
            self._room = anyio.Event()

    def resume(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def end(self, farewell: bytes = b"") -> None:
        """End the stream that is running, and any that is still to come."""
        if not self._is_over:
            self._is_over = True
            self.farewell = farewell
            if self._scope is not None:
                self._scope.cancel()

    def open_again(self) -> None:
        """For streams that are still to come."""
        self._is_over = False
        self.farewell = b""

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

    `signal` gives the event that the next change of the caller's database sets, None if it is not
    open; `frame` makes of an output what the peer gets.
    """

    def __init__(
        self,
        outlet: Outlet,
        ask: Callable[[list[Call]], Awaitable[list[Answer]]],
        signal: Callable[[Where], anyio.Event | None],
        frame: Callable[[Output], bytes],
    ) -> None:
        self._outlet = outlet
        self._ask = ask
        self._signal = signal
        self._frame = frame

    async def run(self, planned: Plan) -> Output:
        """Send what there is to send until the end; the final reply is returned."""
        changed = self._signal(planned.call.where)  # before asking, or a change could be missed
        if changed is None:  # it is about to be opened: look again soon, and listen from then on
            changed = anyio.Event()
            changed.set()
        output, following = advance(planned, (await self._ask([planned.call]))[0])
        if following is None:
            return output
        self._begin(output)
        with self._outlet.until_end():
            return await self._go_on(following, changed)
        return Output(0, b"", self._outlet.farewell)

    def _begin(self, output: Output) -> None:
        """Also if it is empty: it tells the peer that a stream has begun.

        Not if it is what the peer was shown last, by the daemon before us.
        """
        if self._frame(output) != self._outlet.shown:
            self._send(output)

    async def _go_on(self, planned: Plan, changed: anyio.Event | None) -> Output:
        while True:
            await self._wait(changed)
            planned.call.deadline = time.monotonic() + DEFAULT_DEADLINE_MS / 1000
            changed = self._signal(planned.call.where)
            output, following = advance(planned, (await self._ask([planned.call]))[0])
            if following is None:
                return output
            if output.stdout or output.stderr:
                self._send(output)
            planned = following

    async def _wait(self, changed: anyio.Event | None) -> None:
        """For news, and for a peer that has room for them."""
        await anyio.sleep(limits.WATCH_GAP_SECONDS)
        with anyio.move_on_after(LOOK_AGAIN_SECONDS):
            await (changed or anyio.Event()).wait()
        await self._outlet.room()

    def _send(self, output: Output) -> None:
        self._outlet.shown = self._frame(output)
        self._outlet.write(self._outlet.shown)
