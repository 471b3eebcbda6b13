"""Everything that is counted per call: how many, how long, how often lately, who failed at what.

Invariants
    - memory is constant: buckets of times per method, a ring of seconds, a bounded table of
      failures, of which the oldest makes room;
    - a percentile differs from the true one by at most 1/32 of it, or half a microsecond;
    - what a caller sent is never repeated: neither a payload nor an argument, see `sentence`;
    - the log has at most `SLOW_LINES` lines about slow calls in a window of `WINDOW_SECONDS`,
      which begins with a line; the next line says how many calls were left out.

To add calls costs about a microsecond, however many they are; a report is worked out when it is
asked for.  Times are monotonic seconds; those that people see are unix milliseconds.
"""

import math
import time
from collections import Counter

from icd.app.call import Answer, Call
from icd.errors import IcError, InvalidName
from icd.features.daemon.report import BUCKET_EXPONENTS, FailuresByCaller, MethodReport, Rates
from icd.server.logs import log, one_line

# Sixteen buckets share each power of two of microseconds, so the middle of a bucket is at most
# half of 1/16 away from what fell into it.
_DIGITS = 5  # binary ones that tell one bucket from the next
_STEP = 1 << (_DIGITS - 1)
LONGEST_BITS = 32  # 2**32 µs are more than an hour; what takes longer counts as that
_LONGEST = (1 << LONGEST_BITS) - 1
_BUCKETS = (LONGEST_BITS - _DIGITS) * _STEP + 2 * _STEP

MINUTE, RING_SECONDS = 60, 900  # a quarter of an hour is the longest span of a rate
# Scripts of one user that fail; more of them than a person reads.
ROWS = 200
# Room for a path; a person reads no further.
SENTENCE_CHARACTERS = 300
MISTAKE = "usage error; run the command by hand for details"
# A storm of slow calls is one piece of news; a line is some 300 bytes, so a day of it is 9 MB.
SLOW_LINES = 20
WINDOW_SECONDS = 60.0
# Of what callers call their places and their sessions, which may be anything.
NAME_CHARACTERS = 300


class Times:
    """How long the calls of one method took."""

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
                shift = max(0, index // _STEP - 1)
                return ((index - shift * _STEP) + 0.5) * (1 << shift) / 1e6
        return 0.0

    def below(self, exponent: int) -> int:
        """How many took less than 2**exponent microseconds, exactly."""
        assert _DIGITS <= exponent <= LONGEST_BITS
        return sum(self._buckets[: (exponent - _DIGITS + 2) * _STEP])

    def report(self, failures: int) -> MethodReport:
        p50, p99 = self.percentile(0.50), self.percentile(0.99)
        buckets = [self.below(exponent) for exponent in BUCKET_EXPONENTS]
        return MethodReport(self.count, failures, _ms(p50), _ms(p99), _ms(self.seconds), buckets)


class Counters:
    def __init__(self, now: float, slow_ms: int) -> None:
        self.failures: Counter[str] = Counter()
        self.slow_calls = 0
        self.slow_seconds = slow_ms / 1000
        self._began = now
        self._times: dict[str, Times] = {}
        self._second = int(now)
        self._ring = [0] * RING_SECONDS  # calls in each second
        self._table: dict[tuple[str, str], FailuresByCaller] = {}  # the latest last
        self._window = -WINDOW_SECONDS  # when the lines began to be counted
        self._lines = self._left_out = 0

    def count(self, method: str, began: float) -> None:
        now = time.monotonic()
        self.add(method, 1, now - began, now)

    def count_all(self, calls: list[Call], answers: list[Answer], began: float) -> None:
        """Count calls that were answered together, except those that the daemon made for itself."""
        now = time.monotonic()
        took = now - began
        sizes: dict[str, int] = {}
        for call in calls:
            if not call.background:
                name = call.method.name
                sizes[name] = sizes.get(name, 0) + 1
        for name, size in sizes.items():
            self.add(name, size, took, now)
        if took >= self.slow_seconds:
            for call, answer in zip(calls, answers, strict=True):
                if not call.background:
                    error = answer.error.name if answer.error is not None else ""
                    self.slow(call, took, error, now=now)

    def add(self, method: str, calls: int, took: float, now: float) -> None:
        """Count calls that were answered together: each of them took that time."""
        times = self._times.get(method)
        if times is None:
            times = self._times[method] = Times()
        times.add(took, calls)
        second = int(now)
        if second != self._second:
            self._turn(second)
        self._ring[second % RING_SECONDS] += calls

    @property
    def calls(self) -> dict[str, int]:
        return {method: times.count for method, times in self._times.items()}

    def methods(self) -> dict[str, MethodReport]:
        return {name: times.report(self.failures[name]) for name, times in self._times.items()}

    def rates(self, now: float) -> Rates:
        minute, quarter = (self.per_second(span, now) for span in (MINUTE, RING_SECONDS))
        return Rates(round(minute, 3), round(quarter, 3))

    def per_second(self, seconds: int, now: float) -> float:
        """The rate over the last `seconds`, or since the beginning if that is more recent.

        The second under way counts as a whole one, so a rate is at most its calls too low.
        """
        assert 0 < seconds <= RING_SECONDS
        self._turn(int(now))
        calls = sum(self._ring[(self._second - ago) % RING_SECONDS] for ago in range(seconds))
        return calls / min(seconds, max(1.0, now - self._began))

    def _turn(self, second: int) -> None:
        """Empty the seconds that have passed; a silence longer than the ring empties all of it."""
        for passed in range(self._second + 1, min(second, self._second + RING_SECONDS) + 1):
            self._ring[passed % RING_SECONDS] = 0
        self._second = second

    def blame(self, method: str, caller: str, error: IcError) -> None:
        self.fail(method, caller, error, now_ms=time.time_ns() // 1_000_000)

    def fail(self, method: str, caller: str, error: IcError, *, now_ms: int) -> None:
        self.failures[method] += 1
        known = self._table.pop((method, caller), None)
        if known is None and len(self._table) >= ROWS:
            del self._table[next(iter(self._table))]
        count = known.count + 1 if known else 1
        self._table[method, caller] = FailuresByCaller(
            method, caller, count, now_ms // 1000, error.name, sentence(error)
        )

    def by_caller(self) -> list[FailuresByCaller]:
        """Failures by caller, the latest first."""
        return list(reversed(self._table.values()))

    def slow(self, call: Call, took: float, error: str, *, now: float) -> None:
        """Log a slow call, unless there were enough of them; `now` is the call's own clock."""
        self.slow_calls += 1
        if now - self._window >= WINDOW_SECONDS:
            self._window, self._lines = now, 0
        if self._lines >= SLOW_LINES:
            self._left_out += 1
            return
        self._lines += 1
        left_out = {"left_out": self._left_out} if self._left_out else {}
        log.warning("slow call", extra=_facts(call, took, error, now) | left_out)
        self._left_out = 0


def sentence(error: IcError) -> str:
    """What may be kept of an error.

    A complaint about the call itself quotes it, and in a wrong place there may be a payload.
    """
    if error.exit == 3 or isinstance(error, InvalidName):
        return MISTAKE
    text = error.message.encode("utf-8", "backslashreplace").decode().replace("\n", " ")
    return text[:SENTENCE_CHARACTERS]


def _facts(call: Call, took: float, error: str, now: float) -> dict[str, object]:
    """Who asked for what, and where the time went."""
    facts: dict[str, object] = {
        "method": call.method.name,
        # As the caller named it.
        "database": one_line(call.where.explicit or call.where.cwd, NAME_CHARACTERS),
        "ms": _ms(took, 1),
    }
    if call.ran_at:  # else it never got as far as that
        ran = now - call.ran_at
        facts |= {"waited_ms": _ms(took - ran, 1), "ran_ms": _ms(ran, 1)}
    facts["pid"] = call.writer.pid
    if call.writer.session:
        facts["session"] = one_line(call.writer.session, NAME_CHARACTERS)
    if error:
        facts["error"] = error
    return facts


def _ms(seconds: float, digits: int = 3) -> float:
    return round(seconds * 1000, digits)
