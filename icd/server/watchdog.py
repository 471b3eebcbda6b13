"""Proof of life for the service manager.

A query goes through a thread of its own, the same way as every call: the loop ran, a thread ran and
SQLite answered.  It touches no project, so a database that hangs does not restart the daemon: it is
isolated in its own thread, and named in the status.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from icd.server import systemd
from icd.server.stores.db_thread import DbThread


async def feed(status: Callable[[], str]) -> None:
    """Report twice in every period in which we must be heard of, as systemd advises."""
    seconds = systemd.watchdog_seconds()
    if seconds is None:
        return
    async with _pulse() as beat:
        while True:
            await beat()
            systemd.notify("WATCHDOG=1", f"STATUS={status()}")
            await anyio.sleep(seconds / 2)


async def check() -> None:
    """One beat, for code that is to show that it works."""
    async with _pulse() as beat:
        await beat()


@asynccontextmanager
async def _pulse() -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A query through a database thread, again and again."""
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(":memory:", isolation_level=None))
        return opened[0]

    async def beat() -> None:
        await lane.hop(lambda: opened[0].execute("SELECT 1").fetchone())

    lane = await DbThread.open(connect)
    try:
        yield beat
    finally:
        with anyio.CancelScope(shield=True):
            await lane.close()
