"""Work that would hold up the loop, in threads that the end of the process does not wait for.

A file system may hang.  A task that is cancelled while it waits leaves its thread behind, and as a
daemonic thread it does not keep the process from ending, as those of a pool would.

No thread but the main one hears signals: else they could not be held back for the next daemon.
"""

import _thread
import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
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
    done, work = _errand(function)
    run(work)
    return done


class Worker:
    """A thread that stays, for one thing after the other; it begins with the first.

    A new thread is a stranger to the scheduler, and has no memory of its own yet: to compute for a
    millisecond now and then, one that was here before disturbs others less.
    """

    def __init__(self) -> None:
        self._errands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._began = False

    def start(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        """Run the function as soon as the ones before are done."""
        done, work = _errand(function)
        self._errands.put(work)
        if not self._began:
            self._began = True
            run(self._work)
        return done

    def _work(self) -> None:
        while True:
            self._errands.get()()


def run(work: Callable[[], None]) -> None:
    """Begin a thread, which ends with its work."""
    with deaf():
        # `threading` would wait until the thread runs, and the loop with it.
        _thread.start_new_thread(work, ())


def _errand(function: Callable[[], T]) -> tuple["asyncio.Future[T]", Callable[[], None]]:
    """What to run in a thread, and the future that it settles in this loop."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            settle = partial(_set_result, done, function())
        except Exception as exc:  # noqa: BLE001 -- it is raised again, in the task that waits
            settle = partial(_set_exception, done, exc)
        with suppress(RuntimeError):  # the loop has ended without us
            loop.call_soon_threadsafe(settle)

    return done, run


def _set_result(done: "asyncio.Future[T]", value: T) -> None:
    if not done.cancelled():
        done.set_result(value)


def _set_exception(done: "asyncio.Future[T]", exc: Exception) -> None:
    if not done.cancelled():
        done.set_exception(exc)
