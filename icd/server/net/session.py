"""One connection: read a message, have it answered, write the reply, until the peer leaves.

Callbacks instead of a task per connection: a call then costs the loop one event instead of five,
which decides how many hooks a second one daemon can serve (ADR 2).

A session is a small machine.  Events change its mode, whether a message is being answered, and
whether the peer has to read first; after each of them `_pump` looks at the table of modes and does
what they allow: take the next message, read on, close.

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
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, NamedTuple, cast

import anyio

from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call
from icd.app.invocation import UNKNOWN, Ask, Errand, Need, Output, World, line
from icd.app.planner import finish, plan
from icd.errors import DeadlineExceeded, Guard, IcError
from icd.features.daemon import verbs as daemon
from icd.server import limits
from icd.server.logs import log
from icd.server.net import argv_frame, jsonrpc
from icd.server.net.argv_frame import Frame
from icd.server.net.framing import Framing, Message
from icd.server.net.handler import Handler, Planned, off_the_loop
from icd.server.net.jsonrpc import Id
from icd.server.net.jsonrpc_batch import Burst, lone_call
from icd.server.net.outbox import Outbox, cut_off
from icd.server.reexec import Connection
from icd.server.subscriptions.stream import CLOSED, RELOADING, STOPPING, Stream
from icd.server.workers.errands import Visit


class Rules(NamedTuple):
    takes: bool  # begins to answer messages
    reads: bool  # reads what the peer sends


class Mode(Enum):
    OPEN = Rules(takes=True, reads=True)
    # Another daemon may have to answer what was not begun.
    SUSPENDED = Rules(takes=False, reads=False)
    # What was read completely is answered; then we leave.
    CLOSING = Rules(takes=True, reads=False)


class _GivenUp(Exception):
    """What is left of a burst is not carried out here."""


class Session(asyncio.Protocol):
    """One connection; `conversation`: what the daemon before us left of it."""

    def __init__(
        self,
        handler: Handler,
        left: Callable[["Session"], None],
        conversation: Connection | None = None,
    ) -> None:
        self.ended = anyio.Event()
        self._handler = handler
        self._left = left
        self._conversation = conversation
        self._framing = Framing()
        self._outbox = Outbox(self._abort)
        self._stream = handler.stream = Stream(self._outbox, self._drop)
        self._mode = self._mode_before = Mode.OPEN
        self._busy = False  # a message is being answered
        self._reads = True
        self._again = b""  # the frame under way, if another daemon can carry it out as well
        self._visit: Visit | None = None  # what is done in the caller's place is under way
        self._promised: Errand | None = None  # it was done, and the peer may not have heard of it
        self._timer: asyncio.TimerHandle | None = None

    # --- what the event loop tells us ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox.connect(self._transport)
        if self._conversation is not None:
            self._take_over(self._conversation)

    def data_received(self, data: bytes) -> None:
        self._framing.feed(data)
        self._pump()

    def eof_received(self) -> bool:
        """The peer has said all it will; it may still be waiting for our reply.

        Not for a stream: one who left looks the same from here, and would be followed for ever.
        """
        self._stream.end(CLOSED)
        self.stop()
        return True  # what was done in its place is still to be told

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._pump()

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._set_reading()
        # Soon, not now: asyncio would end a connection twice that is closed in here.
        asyncio.get_running_loop().call_soon(self._pump)

    def connection_lost(self, exc: Exception | None) -> None:
        self._mode = Mode.CLOSING
        self._stream.end(CLOSED)
        self._stop_timer()
        self._framing.close()
        self._outbox.close()
        if self._visit is not None:
            self._visit.leave()  # and what is under way leaves after it
        elif self._promised is not None and exc is not None:
            # A peer that closes with our reply unread resets the connection.
            self._handler.tasks.start_soon(self._take_back, self._promised)
        else:
            self._end()

    def _end(self) -> None:
        self.ended.set()
        self._left(self)

    # --- what the daemon tells us ---

    def stop(self) -> None:
        """Answer what was read completely, then leave."""
        self._mode = Mode.CLOSING
        self._stream.end(STOPPING)
        if self._visit is not None:
            self._visit.leave()
        self._pump()

    def suspend(self) -> None:
        """Begin nothing new: another daemon may have to answer it."""
        self._mode_before, self._mode = self._mode, Mode.SUSPENDED
        self._outbox.wake()
        self._stop_timer()
        if self._visit is not None:
            self._visit.suspend()
        self._pump()

    def resume(self) -> None:
        """Begin new messages again: the reload was cancelled."""
        if self._mode is Mode.SUSPENDED:
            self._mode = self._mode_before
        if self._mode is Mode.OPEN:
            self._stream.reopen()
        if self._visit is not None:
            self._visit.resume()
        self._pump()

    @property
    def is_settled(self) -> bool:
        """Nothing is under way that could not be given up."""
        return self.is_quiet or self._stream.is_running

    @property
    def is_quiet(self) -> bool:
        """Nothing of ours is under way."""
        is_resting = self._visit is None or self._visit.rests
        return not self._busy or (bool(self._again) and is_resting)

    def end_stream(self) -> None:
        """End the stream, unless the next daemon can go on with it."""
        if self._stream.is_running and not self._again:
            self._stream.end(RELOADING)

    def conversation(self) -> Connection:
        """All that the next daemon needs to go on with it, once we let go."""
        fd = os.dup(self._transport.get_extra_info("socket").fileno())
        return Connection(
            fd,
            self._framing.sends_frames,
            unsent=self._outbox.unsent,
            unread=self._framing.unread,
            again=self._again,
            shown=self._stream.shown,
            place=self._stream.place,
        )

    def let_go(self) -> None:
        self._transport.abort()

    # --- the machine ---

    def _pump(self) -> None:
        """Do what the mode allows by now."""
        if self._transport.is_closing():
            return
        self._set_reading()
        if self._mode.value.takes and not (self._busy or self._outbox.is_unread):
            self._safely(self._take)

    def _set_reading(self) -> None:
        """Read or pause.  While busy, too, or the end of a stream's peer would not be seen."""
        ahead = len(self._framing.buffer) > limits.AHEAD_BYTES if self._busy else False
        reads = self._mode.value.reads and not (ahead or self._outbox.is_unread)
        if reads != self._reads and not self._transport.is_closing():
            self._reads = reads
            self._transport.resume_reading() if reads else self._transport.pause_reading()

    def _take(self) -> None:
        """Start on the next complete message, or wait for more."""
        try:
            message = self._framing.next()
            if message is not None:
                self._stop_timer()
                self._start(message)
            elif self._mode is Mode.CLOSING:
                self._transport.close()
            elif self._framing.buffer and self._timer is None:
                self._start_timer(limits.PARTIAL_SECONDS, self._lose_patience)
        except IcError as exc:  # what the peer sends can no longer be understood
            self._say_goodbye(exc)

    def _start(self, message: Message) -> None:
        self._busy = True
        self._promised = None  # a peer that goes on has heard the last reply
        self._handler.begin()
        if isinstance(message, Frame):
            self._start_frame(message)
        elif len(message) == 1 and (lone := lone_call(self._handler, message[0])) is not None:
            answered = partial(self._safely, self._call_answered, *lone)
            self._handler.submit([lone[1]], answered)
        else:
            self._start_burst(Burst(self._handler, message))

    def _reply(self, data: bytes) -> None:
        """Write the reply and go on, unless the peer is gone."""
        if self._transport.is_closing():
            return
        self._outbox.write(data)
        self._busy = False
        self._stream.shown = self._stream.place = b""  # the next stream begins anew
        self._again = b""
        self._conversation = None
        if self._framing.buffer or self._mode is not Mode.OPEN or not self._reads:
            # In a turn of its own: a peer that pipelines must not keep other peers waiting.
            asyncio.get_running_loop().call_soon(self._pump)

    # --- command lines, in frames ---

    def _take_over(self, conversation: Connection) -> None:
        """Go on with what the daemon before us has begun."""
        self._framing.go_on(conversation.unread, sends_frames=conversation.is_keyhole)
        self._stream.shown = conversation.shown
        self._stream.place = conversation.place
        if conversation.unsent:
            self._outbox.write(conversation.unsent)
        frame = argv_frame.split(conversation.again) if conversation.again else None
        if frame is not None:
            self._start(frame)
        else:
            self._pump()

    @property
    def _is_again(self) -> bool:
        """The message under way was begun by the daemon before us."""
        return self._conversation is not None and bool(self._conversation.again)

    def _start_frame(self, frame: Frame) -> None:
        try:
            world = argv_frame.world(frame)
        except IcError as exc:
            self._reply_output(Output(exc.exit, b"", line(UNKNOWN, "", exc)))
            return
        if self._is_again:
            world.deadline = time.monotonic() + DEFAULT_DEADLINE_MS / 1000
        self._handler.caller = world.pid
        world.peer = self._handler.pid
        if len(frame.raw) > limits.LARGE_BYTES:
            self._handler.tasks.start_soon(self._run_large, world, frame)
        else:
            self._run(plan(world), frame)

    def _run(self, planned: Planned, frame: Frame) -> None:
        """One call is answered without a task; all that takes longer gets one."""
        if isinstance(planned, Errand) and planned.served is not None:
            self._again = frame.raw
            self._visit = Visit()
            self._handler.tasks.start_soon(self._serve, planned, self._visit)
        elif not isinstance(planned, Ask):
            self._reply_output(self._handler.told(planned))
        elif planned.follow is not None or isinstance(planned.call.params, daemon.Reload):
            self._again = frame.raw
            self._handler.tasks.start_soon(self._run_command, planned)
        elif planned.call.method.run is None:
            answer = self._handler.ask_daemon(planned.call.method, planned.call.params)
            self._reply_output(finish(planned, answer))
        else:
            self._handler.submit([planned.call], partial(self._safely, self._answered, planned))

    def _answered(self, asked: Ask, answers: list[Answer]) -> None:
        calls = [asked.call]
        if answers[0].error is not None:
            self._handler.blame(calls, answers)
        self._reply_output(finish(asked, answers[0]))
        self._handler.count(calls, answers)

    async def _run_command(self, asked: Ask) -> None:
        with Guard(self._fail):
            again = self._is_again
            self._reply_output(await self._handler.command(asked, argv_frame.chunk, again=again))

    async def _serve(self, errand: Errand, visit: Visit) -> None:
        with Guard(self._fail):
            output = await self._handler.serve(errand, visit)
            self._visit = None
            done = isinstance(output, Output) and not output.exit
            owed = errand if done and errand.served and errand.served.undo else None
            if not self._transport.is_closing():
                self._promised = owed
                self._reply_output(output)
            elif owed is not None:
                await self._take_back(owed)
            else:
                self._end()

    async def _take_back(self, errand: Errand) -> None:
        with Guard(self._fail):
            await self._handler.undo(errand)
        self._end()

    async def _run_large(self, world: World, frame: Frame) -> None:
        with Guard(self._fail):
            self._run(await off_the_loop(plan, world, size=len(frame.raw)), frame)

    def _reply_output(self, output: Output | Need) -> None:
        if isinstance(output, Output) and output.bug is not None:
            log.error("a command failed: %s", output.bug, exc_info=output.bug.__cause__)
        self._reply(argv_frame.reply(output))

    # --- JSON-RPC, in lines ---

    def _call_answered(self, request_id: Id, call: Call, answers: list[Answer]) -> None:
        calls, (answer,) = [call], answers
        if answer.error is None:
            data = jsonrpc.success(request_id, answer.result)
        else:
            self._handler.blame(calls, answers)
            data = jsonrpc.failure(request_id, answer.error)
        self._reply(data + b"\n")
        self._handler.count(calls, answers)

    def _start_burst(self, burst: Burst) -> None:
        calls = [] if burst.takes_time else burst.calls()
        if burst.is_done:
            self._reply(burst.settle([]))
        elif calls:
            self._handler.submit(calls, partial(self._safely, self._burst_answered, burst, calls))
        else:
            self._handler.tasks.start_soon(self._run_burst, burst)

    def _burst_answered(self, burst: Burst, calls: list[Call], answers: list[Answer]) -> None:
        self._handler.blame(calls, answers)
        data = burst.settle(answers)
        if burst.is_done:
            self._reply(data)
        else:
            self._outbox.write(data)
            self._handler.tasks.start_soon(self._run_burst, burst)
        self._handler.count(calls, answers)

    async def _run_burst(self, burst: Burst) -> None:
        with Guard(self._fail):
            try:
                await burst.run(self._outbox.write, self._room)
                data = b""
            except _GivenUp:
                data, lines = burst.give_up()
                self._framing.put_back(lines)
            self._reply(data)

    async def _room(self) -> None:
        """Wait until the peer has read what it was sent; not while another daemon may take over."""
        while self._outbox.is_unread:
            if self._mode is Mode.SUSPENDED or self._transport.is_closing():
                raise _GivenUp
            await self._outbox.room()

    # --- endings ---

    def _start_timer(self, seconds: float, function: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, function)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _lose_patience(self) -> None:
        self._say_goodbye(DeadlineExceeded("timed out waiting for the rest of the message"))

    def _say_goodbye(self, error: IcError) -> None:
        if self._framing.sends_frames:
            said = argv_frame.reply(Output(error.exit, b"", line(UNKNOWN, "", error)))
        else:
            said = jsonrpc.failure(None, error) + b"\n"
        self._transport.write(said)
        self._mode = Mode.CLOSING
        self._transport.close()

    def _drop(self) -> None:
        """Leave a peer that does not read: it may find out why, but not keep us for ever."""
        if self._mode is Mode.SUSPENDED:
            self._mode_before = Mode.CLOSING  # nothing new is begun even now
        else:
            self._mode = Mode.CLOSING
        self._start_timer(limits.FAREWELL_SECONDS, self._abort)

    def _safely(self, function: Callable[..., None], *given: Any) -> None:
        """Called by the loop, or by the store of a database: both must go on."""
        try:
            function(*given)
        except Exception as exc:  # noqa: BLE001 -- the last line of defence
            self._fail(exc)

    def _fail(self, exc: Exception) -> None:
        """The last line of defence: a bug ends one conversation, not the daemon."""
        self._abort()  # first: there may be no memory for a line in the log
        log.error("a session failed", exc_info=exc)

    def _abort(self) -> None:
        cut_off(self._transport)
