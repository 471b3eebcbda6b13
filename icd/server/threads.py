"""Work that touches files, in threads that nobody waits for.

A file system may hang.  Whoever is cancelled while waiting leaves the thread behind, and as a
daemonic thread it does not keep the process from ending, as those of a pool would.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


def start(function: Callable[[], T]) -> "asyncio.Future[T]":
    """Run the function in a thread of its own, now; the future belongs to the running loop."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            settle = partial(_set_result, done, function())
        except Exception as exc:  # noqa: BLE001 -- it is raised again, in whoever waits
            settle = partial(_set_exception, done, exc)
        with suppress(RuntimeError):  # the loop has ended without us
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, daemon=True).start()
    return done


def _set_result(done: "asyncio.Future[T]", value: T) -> None:
    if not done.cancelled():
        done.set_result(value)


def _set_exception(done: "asyncio.Future[T]", exc: Exception) -> None:
    if not done.cancelled():
        done.set_exception(exc)
