"""JSON-RPC: answering all the lines that have arrived, as one burst.

The calls of a burst enter the lane together and in order, so a pipelining client shares commits
with itself; the replies come back in the same order.
"""

import time
from collections.abc import Awaitable

from msgspec import UNSET

from icd.cli.invocation import Invocation, Need
from icd.core.requests import MAX_DEADLINE_MS
from icd.core.state import Writer
from icd.db.paths import Where
from icd.errors import IcError, InvalidParams
from icd.rpc.method import Answer, Call, Method, Params
from icd.rpc.methods import daemon
from icd.server import jsonrpc, limits
from icd.server.desk import Desk, off_the_loop
from icd.server.jsonrpc import Id, Request


class _Slot:
    """One request's place in the burst.  A notification gets no reply, whatever happens."""

    __slots__ = ("call", "id", "later", "reply", "silent")

    def __init__(self, request_id: Id, *, silent: bool) -> None:
        self.id = request_id
        self.silent = silent
        self.call: Call | None = None
        self.later: Awaitable[Call | Answer] | None = None
        self.reply = b""

    def settle(self, answer: Answer) -> None:
        if self.silent:
            return
        if answer.error is None:
            self.reply = jsonrpc.success(self.id, answer.result)
        else:
            self.reply = jsonrpc.failure(self.id, answer.error)

    async def catch_up(self) -> None:
        assert self.later is not None
        try:
            found = await self.later
        except IcError as exc:
            found = Answer(error=exc)
        if isinstance(found, Call):
            self.call = found
        else:
            self.settle(found)


async def answer(desk: Desk, lines: list[bytes]) -> bytes:
    groups: list[tuple[bool, list[_Slot]]] = []
    for line in lines:
        decoded = jsonrpc.decode_line(line)
        items = decoded if isinstance(decoded, list) else [decoded]
        slots = [_prepare(desk, item, len(line)) for item in items]
        for slot in slots:
            if slot.later is not None:
                await slot.catch_up()
        groups.append((isinstance(decoded, list), slots))
    waiting = [slot for _, slots in groups for slot in slots if slot.call is not None]
    if waiting:
        answers = await desk.run([slot.call for slot in waiting if slot.call is not None])
        for slot, found in zip(waiting, answers, strict=True):
            slot.settle(found)
    return b"".join(_joined(slots, batch=batch) for batch, slots in groups)


def _joined(slots: list[_Slot], *, batch: bool) -> bytes:
    replies = [slot.reply for slot in slots if slot.reply]
    if not replies:
        return b""
    return b"[" + b",".join(replies) + b"]\n" if batch else replies[0] + b"\n"


def _prepare(desk: Desk, item: Request | IcError, size: int) -> _Slot:
    """A slot with its reply, with the call that will produce it, or with work to be done first."""
    if isinstance(item, IcError):
        slot = _Slot(None, silent=False)
        slot.settle(Answer(error=item))
        return slot
    slot = _Slot(None if item.id is UNSET else item.id, silent=item.id is UNSET)
    try:
        method, params = jsonrpc.parameters(item)
        if isinstance(params, daemon.Run):
            slot.later = _command(desk, params, size)
        elif method.run is None:
            slot.settle(desk.ask_daemon(method, params))
        elif size > limits.LARGE_BYTES:
            slot.later = _large_call(method, params, desk.pid, size)
        else:
            slot.call = _call(method, params, desk.pid)
    except IcError as exc:
        slot.settle(Answer(error=exc))
    return slot


async def _large_call(method: Method, params: Params, pid: int, size: int) -> Call:
    return await off_the_loop(lambda _: _call(method, params, pid), None, size=size)


def _call(method: Method, params: Params, pid: int) -> Call:
    if params.cwd is None and params.db is None:
        raise InvalidParams("give db or cwd, to say which database is meant")
    if method.check is not None:
        method.check(params)
    return Call(
        method=method,
        params=params,
        where=Where(params.cwd or "", params.db),
        writer=Writer(pid, params.session),
        deadline=_deadline(params),
    )


def _deadline(params: Params) -> float:
    return time.monotonic() + min(max(params.deadline_ms, 0), MAX_DEADLINE_MS) / 1000


async def _command(desk: Desk, params: daemon.Run, size: int) -> Answer:
    invocation = Invocation(
        argv=params.argv,
        cwd=params.cwd or "",
        deadline=_deadline(params),
        program=params.program,
        env=params.env,
        pid=desk.pid,
        request_id=params.request_id,
        stdin=None if params.stdin is None else params.stdin.encode(),
        files={path: content.encode() for path, content in params.files.items()},
    )
    output = await desk.command(invocation, size=size)
    if isinstance(output, Need):
        return Answer(result=daemon.Ran(need=output.what, path=output.path or None))
    ran = daemon.Ran(
        exit=output.exit,
        stdout=output.stdout.decode("utf-8", "replace"),
        stderr=output.stderr.decode("utf-8", "replace"),
    )
    return Answer(result=ran)
