"""Work that would hold up the loop, in threads that nobody waits for.

A file system may hang.  Whoever is cancelled while waiting leaves the thread behind, and as a
daemonic thread it does not keep the process from ending, as those of a pool would.

No thread but the main one hears signals: else they could not be held back for the next daemon.
"""

import _thread
import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")

SIGNALS = {signal.SIGHUP, signal.SIGTERM, signal.SIGINT}


@contextmanager
def deaf() -> Iterator[None]:
    """A thread that is started in here hears no signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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

    with deaf():
        # `threading` would wait until the thread runs, and with it whoever waits for the loop.
        _thread.start_new_thread(run, ())
    return done


def _set_result(done: "asyncio.Future[T]", value: T) -> None:
    if not done.cancelled():
        done.set_result(value)


def _set_exception(done: "asyncio.Future[T]", exc: Exception) -> None:
    if not done.cancelled():
        done.set_exception(exc)
