"""What was called, how long it took, who failed at it: everything that is counted per call.

Adding calls costs about a microsecond, however many they are; what is shown is worked out when
somebody asks.
"""

from collections import Counter

from icd.errors import IcError
from icd.features.daemon import methods as daemon
from icd.server.metrics.failure_table import Blame
from icd.server.metrics.histogram import Histogram
from icd.server.metrics.rates import Rates
from icd.values.wire import iso

MINUTE, QUARTER = 60, 900


class Tally:
    """Times are monotonic seconds; those that people see are unix milliseconds."""

    def __init__(self, now: float) -> None:
        self.failures: Counter[str] = Counter()
        self._times: dict[str, Histogram] = {}
        self._rates = Rates(now)
        self._blame = Blame()

    @property
    def calls(self) -> dict[str, int]:
        return {method: times.count for method, times in self._times.items()}

    def add(self, method: str, calls: int, took: float, now: float) -> None:
        """Calls that were answered together took the same time, each of them."""
        times = self._times.get(method)
        if times is None:
            times = self._times[method] = Histogram()
        times.add(took, calls)
        self._rates.add(calls, now)

    def fail(self, method: str, caller: str, error: IcError, *, now_ms: int) -> None:
        self.failures[method] += 1
        self._blame.note(method, caller, error, now_ms=now_ms)

    def rates(self, now: float) -> daemon.Rates:
        minute, quarter = (self._rates.per_second(span, now) for span in (MINUTE, QUARTER))
        return daemon.Rates(last_minute=round(minute, 3), last_15_minutes=round(quarter, 3))

    def methods(self) -> dict[str, daemon.MethodReport]:
        return {
            method: daemon.MethodReport(
                calls=times.count,
                failures=self.failures[method],
                p50_ms=_ms(times.percentile(0.50)),
                p99_ms=_ms(times.percentile(0.99)),
                total_ms=_ms(times.seconds),
                buckets=[times.below(exponent) for exponent in daemon.BUCKET_EXPONENTS],
            )
            for method, times in self._times.items()
        }

    def by_caller(self) -> list[daemon.FailuresByCaller]:
        """The latest first."""
        return [
            daemon.FailuresByCaller(
                method=row.method,
                caller=row.caller,
                count=row.count,
                last_at=row.at_ms // 1000,
                last_at_iso=iso(row.at_ms // 1000),
                error=row.error,
                sentence=row.sentence,
            )
            for row in self._blame.rows()
        ]


def last_error(rows: list[daemon.FailuresByCaller]) -> daemon.LastError | None:
    if not rows:
        return None
    row = rows[0]
    return daemon.LastError(
        at=row.last_at,
        at_iso=row.last_at_iso,
        method=row.method,
        caller=row.caller,
        error=row.error,
        sentence=row.sentence,
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
