"""aiosqlite's thread and connection, used for one synchronous function per hop.

aiosqlite would hop once per statement; a batch hops once.  `_tx` is a private name of aiosqlite,
which is why its version is pinned; see docs/adr/0002.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import aiosqlite
import anyio

from icd.server.workers import threads

T = TypeVar("T")

# Most batches end within this time.  Waiting for them on a lock, with the loop at rest, measured a
# quarter faster than waiting in the loop: the two threads share Python's lock and would wrestle for
# it.  A batch that takes longer is waited for in the loop, so a hung database stalls it only once.
PATIENCE_SECONDS = 0.002


class Lane(aiosqlite.Connection):
    """The only thread that touches one database."""

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> "Lane":
        lane = cls(connector, iter_chunk_size=64)
        with anyio.CancelScope(shield=True):
            await lane
        return lane

    def __await__(self) -> Generator[Any, None, aiosqlite.Connection]:
        with threads.deaf():
            return super().__await__()

    async def hop(self, function: Callable[[], T]) -> T:
        """Run the function in the thread.  It runs to its end even if the caller is cancelled."""
        errand = _Errand(function)
        self._tx.put_nowait((None, errand.run))
        return await errand.result()


class _Errand(Generic[T]):
    """A function on its way through the thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._told = self._loop.create_future()
        self._ended = threading.Lock()
        self._ended.acquire()
        self._is_done = False
        self._in_loop = False
        self._value: T | None = None
        self._exception: BaseException | None = None

    def run(self) -> None:
        """In the thread.  Nothing may leave it: a StopIteration could never be set on a future."""
        try:
            self._value = self._function()
        except BaseException as exc:  # noqa: BLE001 -- it is raised again, in the waiter
            self._exception = exc
        # Each side sets its own flag before it reads the other's: one of them sees both.
        self._is_done = True
        self._ended.release()
        if self._in_loop:
            self._loop.call_soon_threadsafe(self._tell)

    async def result(self) -> T:
        """In the loop."""
        if not self._ended.acquire(timeout=PATIENCE_SECONDS):
            self._in_loop = True
            if not self._is_done:
                with anyio.CancelScope(shield=True):
                    await self._told
        if self._exception is not None:
            raise self._exception
        return self._value  # type: ignore[return-value]

    def _tell(self) -> None:
        if not self._told.done():
            self._told.set_result(None)
