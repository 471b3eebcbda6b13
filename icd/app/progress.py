"""A bar on the terminal of a person who waits.

For commands that run in the caller's own process only: there, this process's terminal is theirs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from icd.app.call import Progress

STDERR = 2
WIDTH = 40


@contextmanager
def bar(what: str) -> Iterator[Progress | None]:
    """Draw on stderr while the block runs, and leave no trace; nothing if it is no terminal."""
    if not os.isatty(STDERR):
        yield None
        return
    shown = -1

    def draw(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // total if total else 100
        if percent > shown:
            shown = percent
            _write(f"\r{what} [{'#' * (percent * WIDTH // 100):<{WIDTH}}] {percent:3} %")

    try:
        yield draw
    finally:
        if shown >= 0:
            _write(f"\r{' ' * (len(what) + WIDTH + 9)}\r")


def _write(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone, and the work goes on
        os.write(STDERR, text.encode())
