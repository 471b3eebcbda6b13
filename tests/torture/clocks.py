"""The clock of those who are tried, and the one of those who look."""

import time

# What is noted at a whole millisecond of a clock that is slewed now and then is off by less.
CLOCK_SECONDS = 0.02
_TRIES = 10


def wall_ahead() -> float:
    """How far the clock on the wall is ahead of the monotonic one.

    Of several looks the shortest: a process that is stopped between the two clocks sees neither.
    """
    looks = [(time.monotonic(), time.time(), time.monotonic()) for _ in range(_TRIES)]
    before, wall, _ = min(looks, key=lambda look: look[2] - look[0])
    return wall - before
