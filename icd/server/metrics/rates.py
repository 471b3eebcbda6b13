"""How many calls a second there were lately: a ring with a count for each second.

Invariants
    - memory is constant;
    - a second in which nobody called counts as zero, however long the silence;
    - nothing older than the ring is ever counted.

The second under way counts as a whole one, so a rate is at most one second's worth too low.
"""

RING_SECONDS = 900  # the longest span that anybody asks for: a quarter of an hour


class Rates:
    """`now` is monotonic, in seconds."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._second = int(now)
        self._counts = [0] * RING_SECONDS

    def add(self, calls: int, now: float) -> None:
        second = int(now)
        if second != self._second:
            self._move(second)
        self._counts[second % RING_SECONDS] += calls

    def per_second(self, seconds: int, now: float) -> float:
        """Over the last `seconds`, or since the beginning if that is more recent."""
        assert 0 < seconds <= RING_SECONDS
        self._move(int(now))
        calls = sum(self._counts[(self._second - ago) % RING_SECONDS] for ago in range(seconds))
        return calls / min(seconds, max(1.0, now - self._began))

    def _move(self, second: int) -> None:
        """Forget what the ring has no room for any more."""
        for passed in range(self._second + 1, min(second, self._second + RING_SECONDS) + 1):
            self._counts[passed % RING_SECONDS] = 0
        self._second = second
