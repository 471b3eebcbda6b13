"""aiosqlite's thread and connection, used for one synchronous function per hop.

aiosqlite would hop once per statement; a batch hops once.  `_execute` and `_connection` are private
names of aiosqlite, which is why its version is pinned; see docs/adr/0002.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import aiosqlite
import anyio

T = TypeVar("T")


class Lane(aiosqlite.Connection):
    """The only thread that touches one database."""

    @classmethod
    async def open(cls, connector: Callable[[], sqlite3.Connection]) -> "Lane":
        lane = cls(connector, iter_chunk_size=64)
        with anyio.CancelScope(shield=True):
            await lane
        return lane

    async def hop(self, function: Callable[[], T]) -> T:
        """Run the function in the thread.  It runs to its end even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            outcome = await self._execute(_caught, function)  # type: ignore[no-untyped-call]
        if isinstance(outcome, _Raised):
            raise outcome.exception
        result: T = outcome
        return result


class _Raised:
    def __init__(self, exception: BaseException) -> None:
        self.exception = exception


def _caught(function: Callable[[], T]) -> T | _Raised:
    """A StopIteration cannot be set on a future: whoever waits for it would wait for ever."""
    try:
        return function()
    except StopIteration as exc:
        return _Raised(RuntimeError(f"{function} raised StopIteration: {exc}"))
    except BaseException as exc:  # noqa: BLE001 -- it is raised again, in the waiter
        return _Raised(exc)
