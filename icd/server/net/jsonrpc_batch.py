"""JSON-RPC: all the lines that have arrived, answered as one burst.

The calls of a burst reach the database together and in order, so a pipelining client shares commits
with itself; the replies come back in the same order.

A peer that does not read costs a bounded amount: when the replies become large, they are sent, and
what is left of the burst is carried out once the peer has read them.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec import UNSET, Struct

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


class _Slot(Struct):
    """One request's place in the burst.  A notification gets no reply, whatever happens.

    `text` is its line, unless it is one of an array.
    """

    id: Id
    silent: bool
    text: bytes
    call: Call | None = None
    later: Callable[[], Awaitable[Call | Answer]] | None = None
    reply: bytes = b""
    is_settled: bool = False
    is_begun: bool = False  # it may have had an effect

    def settle(self, answer: Answer) -> None:
        if answer.later:
            return
        self.is_begun = self.call is not None or self.later is not None
        self.is_settled = True
        self.call = None
        if self.silent:
            return
        if answer.error is None:
            self.reply = jsonrpc.success(self.id, answer.result)
        else:
            self.reply = jsonrpc.failure(self.id, answer.error)

    def take(self, parts: list[bytes]) -> bool:
        """Add what can be sent now; whether that is the last of the line."""
        if not self.is_settled:
            return False
        if self.reply:
            parts.append(self.reply)
            parts.append(b"\n")
            self.reply = b""
        return True


class _Array:
    """The requests of one line, whose replies are sent as they come."""

    def __init__(self, text: bytes, slots: list[_Slot]) -> None:
        self.text = text
        self._slots = slots
        self._unsent = deque(slots)
        self._is_open = False  # something of it was sent

    @property
    def is_begun(self) -> bool:
        return self._is_open or any(slot.is_begun for slot in self._slots)

    def take(self, parts: list[bytes]) -> bool:
        while self._unsent and self._unsent[0].is_settled:
            slot = self._unsent.popleft()
            if slot.reply:
                parts += b"," if self._is_open else b"[", slot.reply
                slot.reply = b""
                self._is_open = True
        if self._unsent:
            return False
        if self._is_open:
            parts.append(b"]\n")
        return True


class Burst:
    """Lines, the calls they ask for, and their replies."""

    def __init__(self, handler: Handler, lines: list[bytes]) -> None:
        self._handler = handler
        self._unsent: deque[_Slot | _Array] = deque()
        self._slots: list[_Slot] = []
        self._asked: list[_Slot] = []  # whose calls were given out
        for line in lines:
            found = jsonrpc.decode_line(line)
            if isinstance(found, list):
                self._add_array(line, found)
            else:
                slot = _prepare(handler, found, len(line), line)
                self._slots.append(slot)
                self._unsent.append(slot)

    def _add_array(self, line: bytes, items: list[Request | IcError]) -> None:
        slots = [_prepare(self._handler, item, len(line)) for item in items]
        self._slots += slots
        self._unsent.append(_Array(line, slots))

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
        self._asked = []
        for slot in self._slots:
            if slot.call is not None:
                slot.call.may_wait = bool(found)
                found.append(slot.call)
                self._asked.append(slot)
            elif slot.later is not None and not slot.is_settled:
                break
        return found

    def settle(self, answers: list[Answer]) -> bytes:
        """What can be sent by now, given answers to the calls that were given out."""
        for slot, answer in zip(self._asked, answers, strict=True):
            slot.settle(answer)
        self._asked = []
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
                write(self.settle(await self._handler.ask(calls)))
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
        begun = max((i for i, line in enumerate(self._unsent, 1) if line.is_begun), default=0)
        left = [self._unsent.pop().text for _ in range(len(self._unsent) - begun)]
        for slot in self._slots:
            if not slot.is_settled:
                slot.settle(Answer(error=Overloaded("the daemon is being reloaded")))
        return self._ready(), left[::-1]

    def _ready(self) -> bytes:
        """What can be sent now; no reply overtakes another."""
        parts: list[bytes] = []
        while self._unsent and self._unsent[0].take(parts):
            self._unsent.popleft()
        return b"".join(parts)


def lone_call(handler: Handler, line: bytes) -> tuple[Id, Call] | None:
    """The call of a line that asks for nothing else, and its id; None: it takes a burst.

    So a client that waits for each reply costs no burst, with its slots.
    """
    if len(line) > limits.LARGE_BYTES:
        return None
    found = jsonrpc.decode_line(line)
    if not isinstance(found, Request) or found.id is UNSET:
        return None
    try:
        method, params = jsonrpc.parameters(found)
        if method.run is None or method.stream is not None:
            return None
        return found.id, _call(handler, method, params)
    except IcError:
        return None  # the burst tells why


def _prepare(handler: Handler, item: Request | IcError, size: int, line: bytes = b"") -> _Slot:
    """A slot with its reply, with the call that will produce it, or with work to be done first."""
    if isinstance(item, IcError):
        slot = _Slot(None, silent=False, text=line)
        slot.settle(Answer(error=item))
        return slot
    silent = item.id is UNSET
    slot = _Slot(None if silent else item.id, silent, line)  # type: ignore[arg-type]
    try:
        method, params = jsonrpc.parameters(item)
        if method.run is not None and method.stream is None and size <= limits.LARGE_BYTES:
            slot.call = _call(handler, method, params)
        else:
            _prepare_other(handler, slot, method, params, size)
    except IcError as exc:
        handler.refuse("method" if registry.find(item.method) is None else item.method, exc)
        slot.settle(Answer(error=exc))
    return slot


def _prepare_other(
    handler: Handler, slot: _Slot, method: Method[Any, Any], params: Params, size: int
) -> None:
    """What is not one call of a database: commands, streams, what is large or about the daemon."""
    is_alone = bool(slot.text) and not slot.silent
    if isinstance(params, daemon.Run):
        frame = partial(jsonrpc.output, slot.id) if is_alone else None
        slot.later = partial(_command, handler, params, size, frame)
    elif isinstance(params, daemon.Reload):
        slot.later = partial(handler.reload, method)
    elif method.stream is not None and method.stream.notifies:
        if not is_alone:
            raise InvalidRequest("a stream needs its own line and id", hint=ALONE)
        slot.later = partial(_watch, handler, method, params, slot.id)
    elif method.run is None:
        slot.settle(handler.ask_daemon(method, params))
    elif size > limits.LARGE_BYTES:
        slot.later = partial(_large_call, handler, method, params, size)
    else:
        slot.call = _call(handler, method, params)


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
    cwd = params.cwd
    if cwd is None:
        cwd = ""
        if params.db is None:
            raise InvalidParams("pass db or cwd to select the database")
    elif not cwd.startswith("/"):
        raise _relative(cwd)
    if method.check is not None:
        method.check(params)
    return Call(
        method,
        params,
        handler.where(cwd, params.db),
        handler.writer(params.session),
        _deadline(handler, params),
    )


def _relative(cwd: str) -> IcError:
    """A relative directory would be judged in the daemon's."""
    return InvalidParams(f"cwd must be an absolute path, not {cwd!r}")


def _deadline(handler: Handler, params: Params) -> float:
    wanted = params.deadline_ms
    if not 0 <= wanted <= MAX_DEADLINE_MS:
        wanted = 0 if wanted < 0 else MAX_DEADLINE_MS
    return handler.began + wanted / 1000


async def _command(
    handler: Handler, params: daemon.Run, size: int, frame: Callable[[Output], bytes] | None
) -> Answer:
    if params.cwd is None:
        raise InvalidParams("cli.run needs cwd, the working directory of the command")
    if not params.cwd.startswith("/"):
        raise _relative(params.cwd)
    world = World(
        argv=params.argv,
        cwd=params.cwd,
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
