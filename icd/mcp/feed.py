"""Tells those who subscribed to the resource of events that the log has grown.

What is sent says "look", never
what (ADR 7), so a notification too many does no harm, and none is missing: a subscription is
confirmed when the end of the log is known, and whatever happens to the daemon, the stream goes on
from there.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from icctl.api import AsyncClient, Error
from icctl.api.async_followers import AsyncStream
from icd.app.invocation import LOOK_AGAIN_SECONDS
from icd.db.paths import Where
from icd.errors import CursorAhead
from icd.features.events.store import Event
from icd.mcp.project import Project

# Calls a method.
Ask = Callable[[str, dict[str, Any], Where], Awaitable[Any]]
Context = ServerRequestContext[Any, Any]

URI = "intercore://events"
BEYOND = 2**62  # no log is that long


class Feed:
    """The subscribers of one client, in both ways that the protocol has."""

    def __init__(
        self, ask: Ask, client: Callable[[Where], Awaitable[AsyncClient]], project: Project
    ) -> None:
        self._ask = ask
        self._client = client
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
        except Error:
            return None

    async def _follow(self, where: Where, seq: int | None) -> int | None:
        """Tell of what is recorded; the last sequence number is returned."""
        if seq is None:
            return None
        with suppress(Error):  # the log may be another one by now, or gone
            async with (await self._client(where)).events.watch(since=seq) as news:
                while self.is_wanted:
                    seq = await _newest(news)
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
    except Error as exc:
        if exc.name != CursorAhead.name:
            raise
        return int(exc.data.get("last", 0))  # a daemon of 0.4.0 does not say
    return int(found["through"])


async def _newest(news: AsyncStream[Event]) -> int:
    """Wait for an event; the sequence number of the last that came with it."""
    event = await anext(news)
    with anyio.move_on_after(0):  # a cancelled look loses nothing
        while True:
            event = await anext(news)
    return event.seq
