"""One connection: read a message, have it answered, write the reply, until the peer leaves.

Callbacks instead of a task per connection: a call then costs the loop one event instead of five,
which decides how many hooks a second one daemon can serve (docs/adr/0002).

Invariants
    - one message of a peer is answered at a time; what it sends meanwhile waits, up to a limit
      beyond which we stop reading;
    - a peer that does not read its replies is not read from either;
    - whatever goes wrong here ends this session and nothing else.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import anyio
from anyio.abc import TaskGroup

from icd.cli.invocation import Errand, Invocation, Need, Output, Plan, line
from icd.cli.main import plan
from icd.errors import DeadlineExceeded, IcError
from icd.server import jsonrpc, keyhole, limits
from icd.server.bursts import Burst
from icd.server.desk import Desk, goes_on, off_the_loop
from icd.server.inbox import Inbox
from icd.server.logs import log
from icd.server.streams import Outlet

STOPPING = b"icctl: the daemon is stopping; ask again\n"


class Session(asyncio.Protocol):
    def __init__(self, desk: Desk, tasks: TaskGroup, left: Callable[["Session"], None]) -> None:
        self.ended = anyio.Event()
        self._desk = desk
        self._desk.failed = self._abort
        self._desk.outlet = self._outlet = Outlet(self._write)
        self._tasks = tasks
        self._left = left
        self._inbox = Inbox()
        self._busy = False
        self._unread = False
        self._closing = False
        self._patience: asyncio.TimerHandle | None = None

    # --- what the event loop tells us ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._inbox.feed(data)
        if not (self._busy or self._unread):
            self._next()
        elif len(self._inbox) > limits.AHEAD_BYTES:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The peer has said all it will; it may still be waiting for our reply.

        Not for a stream: one who left looks the same from here, and would be followed for ever.
        """
        self._outlet.end()
        self.stop()
        return True

    def pause_writing(self) -> None:
        self._unread = True
        self._outlet.pause()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._unread = False
        self._outlet.resume()
        if self._busy and not self._closing and len(self._inbox) <= limits.AHEAD_BYTES:
            self._transport.resume_reading()  # or the end of a stream's peer would not be seen
        self._go_on()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._closing = True
        self._outlet.end()
        self._stop_waiting()
        self._inbox.close()
        self.ended.set()
        self._left(self)

    # --- what the daemon tells us ---

    def stop(self) -> None:
        """Answer what was read completely, then leave."""
        self._closing = True
        self._outlet.end(STOPPING)
        self._transport.pause_reading()
        self._go_on()

    # --- one message after the other ---

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
            self._tasks.start_soon(self._handle_slowly, burst)
        else:
            burst.run(self._reply)

    def _handle_frame(self, frame: bytes) -> None:
        try:
            invocation = keyhole.invocation(frame)
        except IcError as exc:
            self._reply_output(Output(exc.exit, b"", line("icctl", "", exc)))
            return
        self._desk.caller = invocation.pid
        if len(frame) > limits.LARGE_BYTES:
            self._tasks.start_soon(self._handle_large, invocation, len(frame))
        else:
            self._carry_out(plan(invocation))

    def _carry_out(self, planned: Plan | Errand | Need | Output) -> None:
        if goes_on(planned):
            self._tasks.start_soon(self._handle_stream, planned)
        else:
            self._desk.carry_out(planned, self._reply_output)

    async def _handle_stream(self, planned: Plan) -> None:
        try:
            self._reply_output(await self._desk.stream(planned, keyhole.chunk))
        except Exception:  # noqa: BLE001 -- the last line of defence
            self._fail()

    async def _handle_slowly(self, burst: Burst) -> None:
        try:
            await burst.run_in_order(self._write)
            self._reply(b"")
        except Exception:  # noqa: BLE001 -- the last line of defence
            self._fail()

    async def _handle_large(self, invocation: Invocation, size: int) -> None:
        try:
            self._carry_out(await off_the_loop(plan, invocation, size=size))
        except Exception:  # noqa: BLE001 -- the last line of defence
            self._fail()

    def _reply_output(self, output: Output | Need) -> None:
        self._reply(keyhole.reply(output))

    def _write(self, data: bytes) -> None:
        """Unless the peer is gone."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def _reply(self, data: bytes) -> None:
        """Write the reply and go on, unless the peer is gone."""
        if self._transport.is_closing():
            return
        self._transport.write(data)
        self._busy = False
        if len(self._inbox) or self._closing:
            # In a turn of its own: a peer that pipelines must not keep everybody else waiting.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if not (self._busy or self._unread or self._transport.is_closing()):
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
        log.exception("a session failed")
        self._abort()

    def _abort(self) -> None:
        self._transport.abort()
