"""How long calls took: counts in buckets whose width grows with the value, like a slide rule.

Invariants
    - memory is constant, whatever is added;
    - a percentile differs from the true one by at most 1/32 of it, or half a microsecond;
    - `below` is exact.

Sixteen buckets share each power of two of microseconds, so a bucket's middle is at most half of
1/16 away from whatever fell into it.
"""

import math

_DIGITS = 5  # binary ones that tell one bucket from the next
_STEP = 1 << (_DIGITS - 1)
LONGEST_BITS = 32  # 2**32 µs are more than an hour; what takes longer counts as that
_LONGEST = (1 << LONGEST_BITS) - 1
_BUCKETS = (LONGEST_BITS - _DIGITS) * _STEP + 2 * _STEP


class Histogram:
    __slots__ = ("_buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0  # all together
        self._buckets = [0] * _BUCKETS

    def add(self, seconds: float, calls: int = 1) -> None:
        value = int(seconds * 1e6)
        shift = value.bit_length() - _DIGITS
        if shift > 0:
            if value > _LONGEST:
                value, shift = _LONGEST, LONGEST_BITS - _DIGITS
            value = shift * _STEP + (value >> shift)
        self._buckets[value] += calls
        self.count += calls
        self.seconds += seconds * calls

    def percentile(self, share: float) -> float:
        """The seconds that this share of all calls did not exceed; 0 without any."""
        rank = max(1, math.ceil(share * self.count))
        for index, found in enumerate(self._buckets):
            rank -= found
            if rank <= 0:
                return _middle(index) / 1e6
        return 0.0

    def below(self, exponent: int) -> int:
        """How many took less than 2**exponent microseconds."""
        assert _DIGITS <= exponent <= LONGEST_BITS
        return sum(self._buckets[: (exponent - _DIGITS + 2) * _STEP])


def _middle(index: int) -> float:
    shift = max(0, index // _STEP - 1)
    return ((index - shift * _STEP) + 0.5) * (1 << shift)
