"""Streams for anyio; what they promise stands in icctl/api/followers.py.

A cancelled `anext` loses nothing: what has arrived is kept, and the next one goes on from there.
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio
import msgspec
from anyio.abc import UNIXSocketStream

from icctl.api.daemon import Lost
from icctl.api.places import BREAK_SECONDS, PLACES, TAG, Bookmark
from icctl.api.requests import Response, decode_response
from icctl.client import Absent, Expired

if TYPE_CHECKING:
    from icctl.api.awaiting import AsyncClient
    from icd.features.events.store import Event

T = TypeVar("T")

PIECE_BYTES = 64 * 1024


class _Lines:
    """Lines on a stream."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self.stream = stream
        self.is_new = True  # nothing was heard on it
        self._unread = b""

    async def read(self) -> Response:
        while b"\n" not in self._unread:
            try:
                self._unread += await self.stream.receive(PIECE_BYTES)
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                raise Lost from None
        line, _, self._unread = self._unread.partition(b"\n")
        self.is_new = False
        return decode_response(line)


class AsyncStream(Generic[T]):
    """What is new, for as long as it is asked for, by one task at a time."""

    def __init__(self, client: "AsyncClient", name: str, params: Mapping[str, Any]) -> None:
        self._client = client
        self._place = PLACES[name](name, params, client.target)
        self._lines: _Lines | None = None
        self._patience = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._place.found:
            if self._place.is_closed:
                await self.aclose()
                raise StopAsyncIteration
            await self._look()
        found: T = self._place.found.popleft()
        return found

    async def aclose(self) -> None:
        self._place.is_closed = True
        await self._drop()

    async def _look(self) -> None:
        limit = self._client.limit([self._place.question()], None)
        deadline = time.monotonic() + limit
        try:
            if self._lines is None:
                self._lines = await self._ask(limit, deadline)
            with anyio.fail_after(limit if self._lines.is_new else None):
                response = await self._lines.read()
            goes_on = self._place.hear(response)
        except (Lost, Expired, TimeoutError):
            goes_on = False
        except msgspec.DecodeError:
            self._place.misread()
        except Absent:
            return await self._do_without(limit)
        if not goes_on:
            await self._drop()
            await anyio.sleep(BREAK_SECONDS)
        return None

    async def _ask(self, limit: float, deadline: float) -> _Lines:
        stream = await self._client.connect(deadline)
        try:
            await stream.send(self._place.question().line(TAG, limit))
        except BaseException as exc:
            await anyio.aclose_forcefully(stream)
            if isinstance(exc, anyio.ClosedResourceError | anyio.BrokenResourceError):
                raise Lost from None
            raise
        return _Lines(stream)

    async def _do_without(self, limit: float) -> None:
        """Look once; then a daemon is looked for again."""
        if self._client.mode == "daemon":
            await anyio.sleep(self._place.miss(limit))
        else:
            await anyio.sleep(self._patience)
            self._patience = await anyio.to_thread.run_sync(partial(self._place.look, limit))

    async def _drop(self) -> None:
        found, self._lines = self._lines, None
        if found is not None:
            with anyio.CancelScope(shield=True):
                await found.stream.aclose()


class AsyncConsumer:
    """Events that a consumer has not acknowledged; see `icctl.api.followers.Consumer`."""

    def __init__(self, client: "AsyncClient", params: Mapping[str, Any]) -> None:
        self._client = client
        self._bookmark = Bookmark(params)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "Event":
        while True:
            if self._bookmark.is_closed:
                raise StopAsyncIteration
            event = self._bookmark.turn()
            if event is not None:
                return event
            await self._fill()

    async def aclose(self) -> None:
        """Acknowledge what is done, also when the task is being cancelled."""
        self._bookmark.is_closed = True
        receipt = self._bookmark.receipt()
        if receipt is not None:
            with anyio.CancelScope(shield=True):  # its own deadline ends it
                await self._client.ask("cursor.ack", receipt)
            self._bookmark.acknowledged = self._bookmark.done

    async def _fill(self) -> None:
        batch = await self._client.ask("events.consume", self._bookmark.question())
        self._bookmark.fill(batch)
        if not batch.events:
            news = self._client.watch("events.watch", self._bookmark.news_after(batch))
            async with news:
                await anext(news)
