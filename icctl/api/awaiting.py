"""`AsyncClient`: for anyio, with one connection that many tasks share.

Promises
    - calls are told apart by their ids, so one that is slow, cancelled or late keeps no other back;
    - one task writes and one reads: a call that is cancelled leaves no half of a line behind, and
      its reply, if one comes, is dropped; what was not sent yet is not sent;
    - a call is sent again, under the same request id, whenever its outcome is unknown, until its
      time is up; it runs in a thread of this process only if no daemon is there.
"""

import time
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Self

import anyio
import msgspec
from anyio.abc import TaskGroup, UNIXSocketStream

from icctl.api import daemon, here
from icctl.api.async_followers import AsyncConsumer, AsyncStream
from icctl.api.daemon import left
from icctl.api.errors import Error, from_error
from icctl.api.made import awaiting as made
from icctl.api.options import PAUSE_SECONDS, PIECE_BYTES, Collected, Options, tell_absence
from icctl.api.requests import (
    Duration,
    Reply,
    decode_response,
    undone,
)
from icctl.client import Absent, Expired
from icd.errors import IcError

GONE = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError)


class _Group:
    """Calls that are waited for together."""

    def __init__(self, calls: list[Reply[Any]]) -> None:
        self.calls = calls
        self.waits_for = len(calls)
        self.is_over = anyio.Event()  # all are done, or the connection has ended

    def count(self) -> None:
        self.waits_for -= 1
        if not self.waits_for:
            self.is_over.set()


class Link:
    """A connection: what is to be written, and who waits for what."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self.is_lost = False
        self._stream = stream
        self._requests = 0
        self._unsent: dict[int, tuple[Reply[Any], bytes]] = {}
        self._waiting: dict[int, tuple[Reply[Any], _Group]] = {}
        self._has_more = anyio.Event()

    def post(self, group: _Group, remaining: float) -> None:
        for call in group.calls:
            self._requests += 1
            call.id = self._requests
            self._unsent[call.id] = call, call.line(b"%d" % call.id, remaining)
            self._waiting[call.id] = call, group
        self._has_more.set()

    def withdraw(self, group: _Group) -> None:
        """Their caller waits for them no more."""
        for call in group.calls:
            self._unsent.pop(call.id, None)
            self._waiting.pop(call.id, None)

    async def run(self) -> None:
        """Until the connection ends, or we are cancelled."""
        try:
            async with anyio.create_task_group() as both:
                both.start_soon(self._write)
                await self._read()
                both.cancel_scope.cancel()
        finally:
            self.is_lost = True
            for _, group in self._waiting.values():
                group.is_over.set()
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()

    async def _write(self) -> None:
        """Ends when the connection has; that is for the reader to tell, who has replies to read."""
        try:
            while True:
                await self._has_more.wait()
                self._has_more = anyio.Event()
                lines, self._unsent = self._unsent, {}
                for call, _ in lines.values():
                    call.is_unknown = True
                await self._stream.send(b"".join(line for _, line in lines.values()))
        except GONE:
            return

    async def _read(self) -> None:
        parts: list[bytes] = []
        try:
            while True:
                data = await self._stream.receive(PIECE_BYTES)
                *lines, rest = data.split(b"\n")
                for line in lines:
                    self._take(b"".join([*parts, line]))
                    parts.clear()
                parts.append(rest)
        except GONE:
            return
        except msgspec.DecodeError:  # asking again would not help
            for call, group in self._waiting.values():
                call.misread()
                group.count()
            self._waiting.clear()

    def _take(self, line: bytes) -> None:
        response = decode_response(line)
        if not isinstance(response.id, int):
            return
        call, group = self._waiting.pop(response.id, (None, None))
        if call is None or group is None:
            return  # it was cancelled
        try:
            call.take(response)
        except msgspec.DecodeError:
            call.misread()
        group.count()


class AsyncClient(Options, made.Nouns):
    """The verbs of a project's database, by noun: `await client.state.set(...)`.

    Enter it with `async with`; the parameters are those of `Client`.
    """

    def _begin(self) -> None:
        self._tasks: TaskGroup | None = None
        self._link: Link | None = None
        made.Nouns.__init__(self, self)

    async def __aenter__(self) -> Self:
        self._connecting = anyio.Lock()
        self._turn = anyio.CapacityLimiter(1)  # in this process one call runs at a time
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """What the block raised is raised as it is, not in a group with what our tasks raise."""
        tasks, self._tasks, self._link = self._tasks, None, None
        assert tasks is not None
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)

    def pipeline(self, *, timeout: Duration | None = None) -> "AsyncPipeline":
        """Collect calls, and send them together at the end of the block."""
        return AsyncPipeline(self, timeout)

    # --- for the nouns ---

    async def ask(
        self,
        name: str,
        params: Mapping[str, Any],
        timeout: Duration | None = None,
        request_id: str | None = None,
    ) -> Any:
        call: Reply[Any] = self.prepare(name, params, request_id)
        await self.carry_out([call], timeout)
        return call.result()

    def watch(self, name: str, params: Mapping[str, Any]) -> AsyncStream[Any]:
        return AsyncStream(self, name, params)

    def consume(self, params: Mapping[str, Any]) -> AsyncConsumer:
        return AsyncConsumer(self, params)

    # --- carrying out ---

    async def carry_out(self, calls: list[Reply[Any]], timeout: Duration | None) -> None:
        """Have all calls done, each with a result or an error of its own."""
        if not calls:
            return
        if self._tasks is None:
            raise RuntimeError("enter the client first: async with AsyncClient() as client")
        limit = self.limit(calls, timeout)
        deadline = time.monotonic() + limit
        for is_local, group in groupby(calls, lambda call: call.runs_here):
            await self._insist([*group], deadline, here_only=is_local)
        for call in calls:
            if not call.is_done:
                call.expire(limit)

    async def _insist(self, calls: list[Reply[Any]], deadline: float, *, here_only: bool) -> None:
        """Ask until there is an answer or no time; see `icctl.client.insist`."""
        if here_only:
            return await self.run_here(calls, deadline)
        absent = False
        while calls:
            try:
                await self._exchange(calls, deadline)
            except Absent:
                if self.mode != "daemon":
                    return await self.run_here(calls, deadline)
                absent = True
            except Expired:
                return tell_absence(calls) if absent else None
            except Error as exc:
                for call in calls:
                    call.fail(exc)
            calls = undone(calls)
            if calls and deadline <= time.monotonic():
                return tell_absence(calls) if absent else None
            if calls:
                await anyio.sleep(PAUSE_SECONDS)
        return None

    async def _exchange(self, calls: list[Reply[Any]], deadline: float) -> None:
        """One attempt; what is not done after it is to be asked again."""
        link = await self._linked(deadline)
        group = _Group(calls)
        link.post(group, left(deadline))
        try:
            with anyio.move_on_after(left(deadline)):
                await group.is_over.wait()
        finally:
            if group.waits_for:
                link.withdraw(group)

    async def run_here(self, calls: list[Reply[Any]], deadline: float) -> None:
        await anyio.to_thread.run_sync(here.run, calls, self.target, deadline, limiter=self._turn)

    async def _linked(self, deadline: float) -> Link:
        if self._link is not None and not self._link.is_lost:
            return self._link
        async with self._connecting:
            if self._link is None or self._link.is_lost:
                link = Link(await self.connect(deadline))
                assert self._tasks is not None
                self._tasks.start_soon(link.run)
                self._link = link
        return self._link

    async def connect(self, deadline: float) -> UNIXSocketStream:
        if self.mode == "direct":
            raise Absent
        while True:
            try:
                return await UNIXSocketStream.from_socket(daemon.connect(self._socket, deadline))
            except BlockingIOError:  # the backlog is full: the daemon is alive, and busy
                left(deadline)
                await anyio.sleep(PAUSE_SECONDS)
            except IcError as exc:
                raise from_error(exc) from None


class AsyncPipeline(Collected):
    """Calls that are sent together when the block ends; each has a result or an error of its own.

    They are carried out in order, and those that share a transaction still fail alone.
    """

    def __init__(self, client: AsyncClient, timeout: Duration | None) -> None:
        self._client = client
        super().__init__(client, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_exc: object) -> None:
        if kind is None:
            await self._client.carry_out(self._taken(), self._timeout)
