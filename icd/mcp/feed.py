"""Tells those who subscribed to the resource of events that the log has grown.

The daemon pushes; without one, the log is looked at each second.  What is sent says "look", never
what (ADR 7), so a notification too many does no harm, and none is missing: a subscription is
confirmed when the end of the log is known, and whatever happens to the daemon, the stream goes on
from there.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from socket import socket
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from icd.app.invocation import LOOK_AGAIN_SECONDS
from icd.db.paths import Where
from icd.errors import CursorAhead, IcError
from icd.features.events.watch import NOTIFICATION
from icd.mcp.project import Project

# Calls a method.
Ask = Callable[[str, dict[str, Any], Where], Awaitable[Any]]
Context = ServerRequestContext[Any, Any]

URI = "intercore://events"
# A line has at most a hundred events, and a few megabytes.
LINE_BYTES = 64 * 1024 * 1024
BEYOND = 2**62  # no log is that long


class Feed:
    """The subscribers of one client, in both ways that the protocol has."""

    def __init__(self, ask: Ask, connect: Callable[[], Awaitable[Any]], project: Project) -> None:
        self._ask = ask
        self._connect = connect
        self._project = project
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus)
        self._session: Any = None  # of a client that has subscribed the older way
        self._listening = 0
        self._wanted = anyio.Event()
        self._ready = anyio.Event()
        self._stream = anyio.CancelScope()

    # --- who subscribes ---

    async def subscribe(
        self, ctx: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        if str(params.uri) != URI:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri}")
        self._session = ctx.session
        await self._begin()
        return types.EmptyResult()

    async def unsubscribe(
        self, _ctx: Context, _params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._session = None
        return types.EmptyResult()

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        self._listening += 1
        try:
            await self._begin()
            return await self._streams(ctx, params)
        finally:
            self._listening -= 1

    async def _begin(self) -> None:
        self._wanted.set()
        await self._ready.wait()

    @property
    def is_wanted(self) -> bool:
        return self._session is not None or self._listening > 0

    def moved(self) -> None:
        """The project is another one by now."""
        self._stream.cancel()

    # --- what they are told ---

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            await self._serve()
            self._ready = anyio.Event()

    async def _serve(self) -> None:
        """Follow the log for as long as anyone wants it."""
        seen: tuple[Where, int | None] | None = None
        while self.is_wanted:
            # Begun before the project is looked up: a move in the meantime must not be missed.
            with anyio.CancelScope() as self._stream:
                where = self._project.current
                found = (where, await self._end(where))
                if seen is not None and seen != found:
                    await self._tell()
                seen = found
                self._ready.set()
                seen = (where, await self._follow(*found))
                await anyio.sleep(LOOK_AGAIN_SECONDS)

    async def _end(self, where: Where) -> int | None:
        """The last sequence number; None if there is no log to be read."""
        try:
            return await last_event(self._ask, where)
        except IcError:
            return None

    async def _follow(self, where: Where, seq: int | None) -> int | None:
        """Tell of what the daemon sends until it ends; the last sequence number is returned."""
        # The daemon may leave at any moment; and what it says may make no sense.
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream, OSError, ValueError):
            sock = None if seq is None else await self._connect()
            if sock is None:
                return seq
            async with await UNIXSocketStream.from_socket(socket(fileno=sock.detach())) as stream:
                await stream.send(_request(where, seq))
                lines = BufferedByteReceiveStream(stream)
                while self.is_wanted and (told := await _next(lines)) is not None:
                    seq = told
                    await self._tell()
        return seq

    async def _tell(self) -> None:
        await self._bus.publish(ResourceUpdated(uri=URI))
        if self._session is not None:
            await self._session.send_resource_updated(URI)


async def last_event(ask: Ask, where: Where) -> int:
    """The sequence number of the last event that was ever recorded."""
    try:
        found = await ask("events.tail", {"since": BEYOND, "limit": 1}, where)
    except CursorAhead as exc:
        return int(exc.facts.get("last", 0))  # a daemon of 0.4.0 does not say
    return int(found["through"])


class _Place(msgspec.Struct):
    seq: int = 0


class _Message(msgspec.Struct):
    """A notification; the final response has no method."""

    method: str = ""
    params: _Place = msgspec.field(default_factory=_Place)


def _request(where: Where, seq: int | None) -> bytes:
    params = {"cwd": where.cwd, "db": where.explicit, "since": seq}
    request = {"jsonrpc": "2.0", "id": 1, "method": "events.watch", "params": params}
    return msgspec.json.encode(request) + b"\n"


async def _next(lines: BufferedByteReceiveStream) -> int | None:
    """The sequence number of the next notification; None at the end of the stream."""
    try:
        line = await lines.receive_until(b"\n", LINE_BYTES)
    except (anyio.IncompleteRead, anyio.DelimiterNotFound):
        return None
    found = msgspec.json.decode(line, type=_Message)
    return found.params.seq if found.method == NOTIFICATION else None
