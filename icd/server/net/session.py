"""One connection: read a message, have it answered, write the reply, until the peer leaves.

Callbacks instead of a task per connection: a call then costs the loop one event instead of five,
which decides how many hooks a second one daemon can serve (docs/adr/0002).

Invariants
    - one message of a peer is answered at a time; what it sends meanwhile waits, up to a limit
      beyond which we stop reading;
    - a peer that does not read its replies is not read from either, and nothing more is carried out
      for it;
    - whatever goes wrong here ends this session and nothing else.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import anyio
from anyio.abc import TaskGroup

from icd.app.call import DEFAULT_DEADLINE_MS
from icd.app.invocation import Errand, Need, Output, Plan, World, line
from icd.app.planner import plan, resume
from icd.errors import DeadlineExceeded, IcError
from icd.server import limits
from icd.server.handover import Connection
from icd.server.logs import log
from icd.server.net import argv_frame as keyhole
from icd.server.net import jsonrpc
from icd.server.net.framing import Inbox
from icd.server.net.handler import Desk, goes_on, off_the_loop, waits_for_reload
from icd.server.net.jsonrpc_batch import Burst, Room
from icd.server.net.outbox import Outbox, cut_off
from icd.server.subscriptions.streams import CLOSED, RELOADING, STOPPING, Outlet


class _GivenUp(Exception):
    """What is left of a burst is not carried out here."""


class Session(asyncio.Protocol):
    """`conversation`: what the daemon before us left of it."""

    def __init__(
        self,
        desk: Desk,
        tasks: TaskGroup,
        left: Callable[["Session"], None],
        conversation: Connection | None = None,
    ) -> None:
        self.ended = anyio.Event()
        self._desk = desk
        self._desk.failed = self._abort
        self._desk.outlet = self._outlet = Outlet(self._write, self._drop)
        self._tasks = tasks
        self._left = left
        self._inbox = Inbox()
        self._busy = False
        self._closing = False
        self._suspended = False
        self._conversation = conversation
        self._outbox = Outbox(self._abort)
        self._gap: anyio.Event | None = None  # set when a burst that waits for its peer may go on
        self._again = b""  # the frame under way, if another daemon can carry it out as well
        self._patience: asyncio.TimerHandle | None = None

    # --- what the event loop tells us ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox.connect(self._transport)
        if self._conversation is not None:
            self._take_up(self._conversation)

    def data_received(self, data: bytes) -> None:
        self._inbox.feed(data)
        if not (self._busy or self._outbox.is_unread or self._suspended):
            self._next()
        elif len(self._inbox) > limits.AHEAD_BYTES:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer has said all it will; it may still be waiting for our reply.

        Not for a stream: one who left looks the same from here, and would be followed for ever.
        """
        self._outlet.end(CLOSED)
        self.stop()
        return True

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._outlet.pause()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._outbox.resume()
        if self._outbox.is_unread:
            return
        self._outlet.resume()
        self._wake()
        self._read_on()
        # Soon, not now: asyncio would end a connection twice that is closed in here.
        asyncio.get_running_loop().call_soon(self._go_on)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._closing = True
        self._outlet.end(CLOSED)
        self._stop_waiting()
        self._inbox.close()
        self._outbox.close()
        self._wake()
        self.ended.set()
        self._left(self)

    # --- what the daemon tells us ---

    def stop(self) -> None:
        """Answer what was read completely, then leave."""
        self._closing = True
        self._suspended = False
        self._outlet.end(STOPPING)
        self._transport.pause_reading()
        self._go_on()

    def suspend(self) -> None:
        """Begin nothing new: somebody else may have to answer it."""
        self._suspended = True
        self._wake()
        self._stop_waiting()
        self._transport.pause_reading()

    def resume(self) -> None:
        """Nobody else will."""
        self._suspended = False
        if not self._closing:
            self._outlet.open_again()
        self._read_on()
        self._go_on()

    @property
    def is_settled(self) -> bool:
        """Nothing is under way that could not be given up."""
        return self.is_quiet or self._outlet.is_streaming

    @property
    def is_quiet(self) -> bool:
        """Nothing of ours is under way."""
        return not self._busy or bool(self._again)

    def end_stream(self) -> None:
        """Unless the next daemon can go on with it."""
        if self._outlet.is_streaming and not self._again:
            self._outlet.end(RELOADING)

    def conversation(self) -> Connection:
        """All that somebody else needs to go on with it, once we let go."""
        fd = os.dup(self._transport.get_extra_info("socket").fileno())
        return Connection(
            fd,
            self._inbox.framing,
            unsent=self._outbox.unsent,
            unread=self._inbox.unread,
            again=self._again,
            shown=self._outlet.shown,
            place=self._outlet.place,
        )

    def let_go(self) -> None:
        self._transport.abort()

    # --- one message after the other ---

    def _take_up(self, conversation: Connection) -> None:
        self._inbox.go_on(conversation.unread, is_keyhole=conversation.is_keyhole)
        self._outlet.shown = conversation.shown
        self._outlet.place = conversation.place
        if conversation.unsent:
            self._write(conversation.unsent)
        if conversation.again:
            self._busy = True
            self._desk.begin()
            self._handle_frame(conversation.again)
        else:
            self._next()

    def _next(self) -> None:
        """Start on the next complete message, or wait for more."""
        try:
            message = self._inbox.next()
            if message is not None:
                self._stop_waiting()
                self._busy = True
                self._desk.begin()
                self._handle(message)
            elif self._closing:
                self._transport.close()
            elif len(self._inbox) and self._patience is None:
                loop = asyncio.get_running_loop()
                self._patience = loop.call_later(limits.PARTIAL_SECONDS, self._lose_patience)
        except IcError as exc:  # what the peer sends can no longer be understood
            self._say_goodbye(exc)
        except Exception:  # noqa: BLE001 -- the last line of defence
            self._fail()

    def _handle(self, message: bytes | list[bytes]) -> None:
        if isinstance(message, bytes):
            self._handle_frame(message)
            return
        burst = Burst(self._desk, message)
        if burst.takes_time:
            self._tasks.start_soon(self._handle_in_parts, burst, burst.run_in_order)
        else:
            burst.run(partial(self._reply_to, burst))

    def _handle_frame(self, frame: bytes) -> None:
        try:
            invocation = keyhole.invocation(frame)
        except IcError as exc:
            self._reply_output(Output(exc.exit, b"", line("icctl", "", exc)))
            return
        if self._is_again:
            invocation.deadline = time.monotonic() + DEFAULT_DEADLINE_MS / 1000
        self._desk.caller = invocation.pid
        if len(frame) > limits.LARGE_BYTES:
            self._tasks.start_soon(self._handle_large, invocation, frame)
        else:
            self._carry_out(plan(invocation), frame)

    def _carry_out(self, planned: Plan | Errand | Need | Output, frame: bytes) -> None:
        if goes_on(planned):
            if self._is_again:
                planned = resume(planned, self._outlet.place)
            self._again = frame
            self._tasks.start_soon(self._handle_stream, planned)
        elif waits_for_reload(planned):
            self._again = frame
            self._desk.reload(planned, self._reply_output, again=self._is_again)
        else:
            self._desk.carry_out(planned, self._reply_output)

    @property
    def _is_again(self) -> bool:
        """The message under way was begun by the daemon before us."""
        return self._conversation is not None and bool(self._conversation.again)

    async def _handle_stream(self, planned: Plan) -> None:
        try:
            self._reply_output(await self._desk.stream(planned, keyhole.chunk))
        except Exception:  # noqa: BLE001 -- the last line of defence
            self._fail()

    def _reply_to(self, burst: Burst, data: bytes) -> None:
        if burst.is_done:
            self._reply(data)
        else:
            self._write(data)
            self._tasks.start_soon(self._handle_in_parts, burst, burst.run_rest)

    async def _handle_in_parts(
        self, burst: Burst, run: Callable[[Callable[[bytes], None], Room], Awaitable[None]]
    ) -> None:
        try:
            await run(self._write, self._room)
            self._reply(b"")
        except _GivenUp:
            data, lines = burst.give_up()
            self._inbox.put_back(lines)
            self._reply(data)
        except Exception:  # noqa: BLE001 -- the last line of defence
            self._fail()

    async def _room(self) -> None:
        """Wait until the peer has read what it was sent; not while another daemon may take over."""
        while self._outbox.is_unread:
            if self._suspended or self._transport.is_closing():
                raise _GivenUp
            self._gap = anyio.Event()
            await self._gap.wait()

    def _wake(self) -> None:
        if self._gap is not None:
            self._gap.set()
            self._gap = None

    async def _handle_large(self, invocation: World, frame: bytes) -> None:
        try:
            self._carry_out(await off_the_loop(plan, invocation, size=len(frame)), frame)
        except Exception:  # noqa: BLE001 -- the last line of defence
            self._fail()

    def _reply_output(self, output: Output | Need) -> None:
        self._reply(keyhole.reply(output))

    def _write(self, data: bytes) -> None:
        """Unless the peer is gone."""
        self._outbox.write(data)
        if self._outbox.is_unread:
            self._outlet.pause()

    def _reply(self, data: bytes) -> None:
        """Write the reply and go on, unless the peer is gone."""
        if self._transport.is_closing():
            return
        self._write(data)
        self._busy = False
        self._outlet.shown = self._outlet.place = b""  # the next stream begins anew
        self._again = b""
        self._conversation = None
        if len(self._inbox) or self._closing:
            # In a turn of its own: a peer that pipelines must not keep everybody else waiting.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _read_on(self) -> None:
        """While busy, too, or the end of a stream's peer would not be seen."""
        stays = self._closing or self._suspended or self._outbox.is_unread
        if self._busy and not stays and len(self._inbox) <= limits.AHEAD_BYTES:
            self._transport.resume_reading()

    def _go_on(self) -> None:
        waits = self._busy or self._outbox.is_unread or self._suspended
        if not (waits or self._transport.is_closing()):
            if not self._closing and not self._transport.is_reading():
                self._transport.resume_reading()
            self._next()

    # --- endings ---

    def _lose_patience(self) -> None:
        self._say_goodbye(DeadlineExceeded("the rest of the message did not arrive in time"))

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _say_goodbye(self, error: IcError) -> None:
        if self._inbox.is_keyhole:
            self._transport.write(keyhole.reply(Output(error.exit, b"", line("icctl", "", error))))
        else:
            self._transport.write(jsonrpc.failure(None, error) + b"\n")
        self._closing = True
        self._transport.close()

    def _fail(self) -> None:
        self._abort()  # first: there may be no memory for a line in the log
        log.exception("a session failed")

    def _drop(self) -> None:
        """A peer that does not read: it may find out why, but not keep us waiting for ever."""
        self._closing = True
        self._stop_waiting()
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(limits.FAREWELL_SECONDS, self._abort)

    def _abort(self) -> None:
        cut_off(self._transport)
