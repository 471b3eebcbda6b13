"""JSON-RPC: all the lines that have arrived, answered as one burst.

The calls of a burst reach the database together and in order, so a pipelining client shares commits
with itself; the replies come back in the same order.

A peer that does not read costs a bounded amount: when the replies become large, they are sent, and
what is left of the burst is carried out once the peer has read them.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec import UNSET

from icd.app import registry
from icd.app.call import Answer, Call, Params
from icd.app.idempotency import MAX_DEADLINE_MS
from icd.app.invocation import Ask, Need, Output, World
from icd.app.planner import plan
from icd.app.verb import Method
from icd.errors import IcError, InvalidParams, InvalidRequest, Overloaded
from icd.features.daemon import verbs as daemon
from icd.server import limits
from icd.server.logs import log
from icd.server.net import jsonrpc
from icd.server.net.handler import Handler, off_the_loop
from icd.server.net.jsonrpc import Id, Request

# Waits until the peer has read what it was sent.
Room = Callable[[], Awaitable[None]]

ALONE = "send it outside a batch, and with an id"


class _Slot:
    """One request's place in the burst.  A notification gets no reply, whatever happens."""

    __slots__ = ("call", "id", "is_settled", "later", "ran", "reply", "silent")

    def __init__(self, request_id: Id, *, silent: bool) -> None:
        self.id = request_id
        self.silent = silent
        self.call: Call | None = None
        self.later: Callable[[], Awaitable[Call | Answer]] | None = None
        self.reply = b""
        self.is_settled = False
        self.ran = False  # it may have had an effect

    def settle(self, answer: Answer) -> None:
        if answer.later:
            return
        self.ran = self.call is not None or self.later is not None
        self.is_settled = True
        self.call = None
        if self.silent:
            return
        if answer.error is None:
            self.reply = jsonrpc.success(self.id, answer.result)
        else:
            self.reply = jsonrpc.failure(self.id, answer.error)


class _Line:
    """The requests of one line, whose replies are sent as they come: one of them, or an array."""

    __slots__ = ("_batch", "_is_open", "_sent", "slots", "text")

    def __init__(self, text: bytes, slots: list[_Slot], *, batch: bool) -> None:
        self.text = text
        self.slots = slots
        self._batch = batch
        self._sent = 0
        self._is_open = False  # an array that was begun

    @property
    def is_begun(self) -> bool:
        return self._sent > 0 or any(slot.ran for slot in self.slots)

    @property
    def is_unsent(self) -> bool:
        return self._sent < len(self.slots)

    def take(self) -> list[bytes]:
        """What can be sent now, and was not sent yet."""
        parts: list[bytes] = []
        for slot in self.slots[self._sent :]:
            if not slot.is_settled:
                break
            self._sent += 1
            if slot.reply:
                parts += self._framed(slot.reply)
            slot.reply = b""
        if self._is_open and not self.is_unsent:
            self._is_open = False
            parts.append(b"]\n")
        return parts

    def _framed(self, reply: bytes) -> tuple[bytes, bytes]:
        if not self._batch:
            return reply, b"\n"
        before, self._is_open = b"," if self._is_open else b"[", True
        return before, reply


class Burst:
    """Lines, the calls they ask for, and their replies."""

    def __init__(self, handler: Handler, lines: list[bytes]) -> None:
        self._handler = handler
        self._lines: list[_Line] = []
        for line in lines:
            decoded = jsonrpc.decode_line(line)
            items = decoded if isinstance(decoded, list) else [decoded]
            batch = isinstance(decoded, list)
            slots = [_prepare(handler, item, len(line), batch=batch) for item in items]
            self._lines.append(_Line(line, slots, batch=batch))
        self._slots = [slot for line in self._lines for slot in line.slots]

    @property
    def is_done(self) -> bool:
        return not [slot for slot in self._slots if not slot.is_settled]

    @property
    def takes_time(self) -> bool:
        """Whether something has to be awaited before, or instead of, its call."""
        return bool([slot for slot in self._slots if slot.later is not None])

    def calls(self) -> list[Call]:
        """What can be carried out together, and next: all up to what takes time."""
        found: list[Call] = []
        for slot in self._slots:
            if slot.later is not None and not slot.is_settled and slot.call is None:
                break
            if slot.call is not None:
                slot.call.may_wait = bool(found)
                found.append(slot.call)
        return found

    def settle(self, calls: list[Call], answers: list[Answer]) -> bytes:
        """What can be sent by now, given answers to the calls."""
        answered = {id(call): answer for call, answer in zip(calls, answers, strict=True)}
        for slot in self._slots:
            answer = answered.get(id(slot.call))
            if answer is not None:
                slot.settle(answer)
        return self._ready()

    async def run(self, write: Callable[[bytes], None], room: Room) -> None:
        """One after the other, as much at once as a peer can read; the next may be a stream.

        What came first must be seen by what came later.
        """
        write(self._ready())
        while not self.is_done:
            since = time.monotonic()
            await room()
            self._handler.begin()
            if calls := self.calls():
                for call in calls:
                    call.deadline += time.monotonic() - since  # the peer's own time
                write(self.settle(calls, await self._handler.ask(calls)))
            else:
                await self._catch_up(next(slot for slot in self._slots if not slot.is_settled))
                write(self._ready())

    async def _catch_up(self, slot: _Slot) -> None:
        assert slot.later is not None
        try:
            found = await slot.later()
        except IcError as exc:
            found = Answer(error=exc)
        if isinstance(found, Call):
            slot.call = found
        else:
            slot.settle(found)

    def give_up(self) -> tuple[bytes, list[bytes]]:
        """Carry out nothing more: the last replies, and the lines that another daemon can answer.

        A line of which something was carried out, or that comes before such a line, is not left.
        """
        begun = max((i for i, line in enumerate(self._lines, 1) if line.is_begun), default=0)
        left = self._lines[begun:]
        del self._lines[begun:]
        for slot in (slot for line in self._lines for slot in line.slots):
            if not slot.is_settled:
                slot.settle(Answer(error=Overloaded("the daemon is being reloaded")))
        return self._ready(), [line.text for line in left]

    def _ready(self) -> bytes:
        """What can be sent now; no reply overtakes another."""
        parts: list[bytes] = []
        for line in self._lines:
            parts += line.take()
            if line.is_unsent:
                break
        return b"".join(parts)


def _prepare(handler: Handler, item: Request | IcError, size: int, *, batch: bool) -> _Slot:
    """A slot with its reply, with the call that will produce it, or with work to be done first."""
    if isinstance(item, IcError):
        slot = _Slot(None, silent=False)
        slot.settle(Answer(error=item))
        return slot
    slot = _Slot(None if item.id is UNSET else item.id, silent=item.id is UNSET)
    try:
        method, params = jsonrpc.parameters(item)
        if isinstance(params, daemon.Run):
            frame = None if batch or slot.silent else partial(jsonrpc.output, slot.id)
            slot.later = partial(_command, handler, params, size, frame)
        elif isinstance(params, daemon.Reload):
            slot.later = partial(handler.reload, method)
        elif method.stream is not None and method.stream.notifies:
            if batch or slot.silent:
                raise InvalidRequest("a stream needs its own line and id", hint=ALONE)
            slot.later = partial(_watch, handler, method, params, slot.id)
        elif method.run is None:
            slot.settle(handler.ask_daemon(method, params))
        elif size > limits.LARGE_BYTES:
            slot.later = partial(_large_call, handler, method, params, size)
        else:
            slot.call = _call(handler, method, params)
    except IcError as exc:
        handler.refuse("method" if registry.find(item.method) is None else item.method, exc)
        slot.settle(Answer(error=exc))
    return slot


async def _watch(
    handler: Handler, method: Method[Any, Any], params: Params, request_id: Id
) -> Answer:
    return await handler.watch(_call(handler, method, params), request_id)


async def _large_call(
    handler: Handler, method: Method[Any, Any], params: Params, size: int
) -> Call:
    try:
        return await off_the_loop(lambda _: _call(handler, method, params), None, size=size)
    except IcError as exc:
        handler.refuse(method.name, exc)
        raise


def _call(handler: Handler, method: Method[Any, Any], params: Params) -> Call:
    cwd = _directory(params)
    if not cwd and params.db is None:
        raise InvalidParams("pass db or cwd to select the database")
    if method.check is not None:
        method.check(params)
    return Call(
        method=method,
        params=params,
        where=handler.where(cwd, params.db),
        writer=handler.writer(params.session),
        deadline=_deadline(handler, params),
    )


def _directory(params: Params) -> str:
    """The caller's directory; a relative one would be judged in the daemon's."""
    if params.cwd is not None and not params.cwd.startswith("/"):
        raise InvalidParams(f"cwd must be an absolute path, not {params.cwd!r}")
    return params.cwd or ""


def _deadline(handler: Handler, params: Params) -> float:
    return handler.began + min(max(params.deadline_ms, 0), MAX_DEADLINE_MS) / 1000


async def _command(
    handler: Handler, params: daemon.Run, size: int, frame: Callable[[Output], bytes] | None
) -> Answer:
    if params.cwd is None:
        raise InvalidParams("cli.run needs cwd, the working directory of the command")
    world = World(
        argv=params.argv,
        cwd=_directory(params),
        deadline=_deadline(handler, params),
        program=params.program,
        env=params.env,
        pid=handler.pid,
        request_id=params.request_id,
        stdin=None if params.stdin is None else params.stdin.encode(),
        files={path: content.encode() for path, content in params.files.items()},
    )
    planned = await off_the_loop(plan, world, size=size)
    if frame is None and isinstance(planned, Ask) and planned.follow is not None:
        raise InvalidRequest(
            "a following command needs its own line and id",
            hint="send it outside a batch, or poll its typed method",
        )
    output = await handler.command(planned, frame, early=True)
    if isinstance(output, Need):
        return Answer(result=daemon.Ran(need=output.what, path=output.path or None))
    if output.bug is not None:
        log.error("a command failed: %s", output.bug, exc_info=output.bug.__cause__)
    ran = daemon.Ran(
        exit=output.exit,
        stdout=output.stdout.decode("utf-8", "replace"),
        stderr=output.stderr.decode("utf-8", "replace"),
        then=output.then or None,
    )
    return Answer(result=ran)
