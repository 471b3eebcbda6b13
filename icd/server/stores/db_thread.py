"""The thread of one database: aiosqlite's connection and thread, one synchronous function per hop.

aiosqlite would hop once per statement; a batch hops once.  `_tx` is a private name of aiosqlite,
which is why its version is pinned; see ADR 2.

A thread that hangs, on a mount or on a foreign lock, cannot be ended; but the loop sees it, tells
the callers that wait for it, and logs once when it hangs and once when it is back.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

import aiosqlite
import anyio

from icd.server import limits
from icd.server.logs import log
from icd.server.workers import threads

T = TypeVar("T")

# Most batches end within this time.  Waiting for them on a lock, with the loop at rest, measured a
# quarter faster than waiting in the loop: the two threads share Python's lock and would wrestle for
# it.  A batch that takes longer is waited for in the loop, so a hung database stalls it only once.
PATIENCE_SECONDS = 0.002
_UNWATCHED = nullcontext()


class DbThread(aiosqlite.Connection):
    """The only thread that touches one database."""

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> "DbThread":
        thread = cls(connector, iter_chunk_size=64)
        with anyio.CancelScope(shield=True):
            await thread
        return thread

    def __await__(self) -> Generator[Any, None, aiosqlite.Connection]:
        with threads.deaf():
            return super().__await__()

    async def hop(
        self, function: Callable[[], T], watch: AbstractContextManager[None] = _UNWATCHED
    ) -> T:
        """Run the function in the thread.  It runs to its end even if the caller is cancelled.

        If the loop goes on meanwhile, it does so inside of `watch`.
        """
        hop = Hop(function)
        self._tx.put_nowait((None, hop.run))
        if not hop.ends_within(PATIENCE_SECONDS):
            with watch, anyio.CancelScope(shield=True):
                await hop.tell_in_loop()
        return hop.outcome()


class Hop(Generic[T]):
    """A function on its way through the thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._told: asyncio.Future[None] | None = None  # once the loop waits for it
        self._ended = threading.Lock()
        self._ended.acquire()
        self._is_done = False
        self._value: T | None = None
        self._exception: BaseException | None = None

    def run(self) -> None:
        """Run in the thread.  Nothing is raised: a StopIteration cannot be set on a future."""
        try:
            self._value = self._function()
        except BaseException as exc:  # noqa: BLE001 -- it is raised again, in the waiter
            self._exception = exc
        # Each side says what it did before it looks at what the other did: one of them sees both.
        self._is_done = True
        self._ended.release()
        if self._told is not None:
            self._told.get_loop().call_soon_threadsafe(self._tell)

    def ends_within(self, seconds: float) -> bool:
        """Wait with the loop at rest."""
        return self._ended.acquire(timeout=seconds)

    def tell_in_loop(self) -> "asyncio.Future[None]":
        self._told = asyncio.get_running_loop().create_future()
        if self._is_done:
            self._tell()
        return self._told

    def outcome(self) -> T:
        if self._exception is not None:
            raise self._exception
        return self._value  # type: ignore[return-value]

    def _tell(self) -> None:
        if self._told is not None and not self._told.done():
            self._told.set_result(None)


class HangDetector:
    """How long a thread has been at one thing, as the loop sees it.

    The thread works within `with`; meanwhile `check` is called every `GRACE_SECONDS`.
    """

    def __init__(self, path: str, check: Callable[[], None]) -> None:
        self.is_working = False
        self.hung_since: float | None = None  # monotonic
        self._path = path
        self._check = check
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.monotonic()
        self.is_working = True
        self._timer = asyncio.get_running_loop().call_later(limits.GRACE_SECONDS, self._tick)

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self.is_working = False
        if self.hung_since is not None:
            self.hung_since = None
            took = round(time.monotonic() - self._since, 1)
            log.warning("database responds again", extra={"path": self._path, "seconds": took})

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(limits.GRACE_SECONDS, self._tick)
        self._check()
        if self.hung_since is None and time.monotonic() - self._since > limits.HUNG_SECONDS:
            self.hung_since = self._since
            log.warning("database hangs", extra={"path": self._path})
