"""The daemon's report: what `icd.status` answers, and how `icctl status` shows it.

The text is calm where all is well, and has a `!` before what deserves a look.
The daemon's counters keep these structs themselves; derived fields have a default.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator

from msgspec import field

from icd.values.wire import Result, iso, iso_if

# Bounds of how long calls took: powers of two of a microsecond, from 0.256 ms to 8.4 s.
BUCKET_EXPONENTS = range(8, 24)
BUCKETS_MS = [2**exponent / 1000 for exponent in BUCKET_EXPONENTS]
# Before it, two connections that write at the same instant can damage a database.
SOUND_SQLITE = (3, 51, 3)
# Where `icctl` notes calls that failed without the daemon, and how much of it is read; see
# icctl/messages.py.
MISSED, MISSED_BYTES = "failures", 65_536 + 4096
# Of the callers that failed; --json has the others, too.
CALLERS = 10
# A failure of last week has been noticed, or never mattered.
RECENT_SECONDS = 86_400
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


class OpenDatabase(Result):
    """The optional fields are as they were at `measured_at`.

    `own_batches`: of what only the daemon asked; `mean_batch`: calls to one of the other batches.
    `lags`: consumer to events that it has not acknowledged.
    `hung_seconds`: for how long its thread has been busy with one and the same thing.
    """

    path: str
    calls: int
    batches: int
    own_batches: int
    mean_batch: float
    waiting: int
    reopened: int
    largest_batch: int | None = None
    size_bytes: int | None = None
    wal_bytes: int | None = None
    rows: dict[str, int] | None = None
    lags: dict[str, int] | None = None
    measured_at: int | None = None
    hung_seconds: float | None = None
    measured_at_iso: str | None = None

    def __post_init__(self) -> None:
        self.measured_at_iso = iso_if(self.measured_at)


class MethodReport(Result):
    """Calls of one method, and how long they took.

    `buckets`: how many took less than each of `BUCKETS_MS`, in their order.
    """

    calls: int
    failures: int
    p50_ms: float
    p99_ms: float
    total_ms: float
    buckets: list[int]


class Rates(Result):
    """Calls a second."""

    last_minute: float
    last_15_minutes: float


class FailuresByCaller(Result):
    """How often one caller failed at one method or command, and the last of these failures."""

    method: str
    caller: str
    count: int
    last_at: int
    error: str
    sentence: str
    last_at_iso: str = ""

    def __post_init__(self) -> None:
        self.last_at_iso = iso(self.last_at)


class LastError(Result):
    at: int
    at_iso: str
    method: str
    caller: str
    error: str
    sentence: str


class StartUpError(Result):
    at: int
    sentence: str
    at_iso: str = ""

    def __post_init__(self) -> None:
        self.at_iso = iso(self.at)


class MirrorReport(Result):
    """What was done to files since the start; `kept`: left alone, because others wrote later.

    `left_out`: rows beyond the number of files that a key may have; `untrusted`: open databases
    whose rows have no files because the user has not accepted them.
    """

    written: int
    removed: int
    kept: int
    waiting: int
    failed: int
    last_error: str | None
    left_out: int = 0
    untrusted: list[str] = field(default_factory=list)


class HooksReport(Result):
    """Events that hooks have got since the start; `redelivered`: possibly for a second time."""

    delivered: int
    redelivered: int
    failed: int
    last_error: str | None


class Report(Result):
    """`missed_at`: when the last of the `missed` was noted.

    `sqlite_note`: why an old SQLite is no reason to worry.
    """

    version: str
    protocol: int
    pid: int
    uptime: int
    socket: str
    sqlite_version: str
    sessions: int
    calls: dict[str, int]
    failures: dict[str, int]
    missed: dict[str, int]
    databases: list[OpenDatabase]
    mirror: MirrorReport
    hooks: HooksReport
    started_at: int
    subscribers: int
    slow_calls: int
    rates: Rates
    methods: dict[str, MethodReport]
    failures_by_caller: list[FailuresByCaller]
    start_up_errors: list[StartUpError]
    missed_at: int | None = None
    sqlite_note: str | None = None
    started_at_iso: str = ""
    missed_at_iso: str | None = None
    last_error: LastError | None = None

    def __post_init__(self) -> None:
        self.started_at_iso = iso(self.started_at)
        self.missed_at_iso = iso_if(self.missed_at)
        for row in self.failures_by_caller[:1]:
            self.last_error = LastError(
                row.last_at, row.last_at_iso, row.method, row.caller, row.error, row.sentence
            )


def missed(directory: str) -> tuple[Counter[str], int | None]:
    """Calls that failed without the daemon, and when the last one was noted.

    The file lies in the directory of the socket; a pipe in its place is not waited for.
    """
    try:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(os.path.join(directory, MISSED), flags), "rb") as file:
            there = os.fstat(file.fileno())
            if not stat.S_ISREG(there.st_mode):
                return Counter(), None
            verbs = file.read(MISSED_BYTES).decode("ascii", "replace").split()
    except OSError:
        return Counter(), None
    return Counter(verbs), int(there.st_mtime)


# --- as text --------------------------------------------------------------------------------------


def lines(report: Report) -> list[str]:
    body = [
        *_daemon(report),
        *_failures(report),
        *_methods(report),
        *(line for database in report.databases for line in _database(database)),
        *_mirror(report.mirror),
        *_hooks(report.hooks),
    ]
    marked = sum(line.startswith("!") for line in body)
    verdict = f"{marked} warning{'s' if marked > 1 else ''}" if marked else "all is well"
    head = f"icd {report.version}, pid {report.pid}, up {span(report.uptime)}, {verdict}"
    return [head, *body]


def span(seconds: float) -> str:
    """The two largest units."""
    left = int(seconds)
    found: list[str] = []
    for size, unit in _UNITS:
        if left >= size or (size == 1 and not found):
            found.append(f"{left // size}{unit}")
        left %= size
    return "".join(found[:2])


def _size(count: int) -> str:
    return f"{count} bytes" if count < 1024 else f"{count / 1024:,.0f} KiB".replace(",", " ")


def _daemon(report: Report) -> Iterator[str]:
    calls, failures = sum(report.calls.values()), sum(report.failures.values())
    rates = report.rates
    yield f"  since     {report.started_at_iso}"
    yield f"  socket    {report.socket}"
    yield f"  protocol  {report.protocol}"
    yield f"  sqlite    {report.sqlite_version}"
    if report.sqlite_note:
        yield f"            {report.sqlite_note}"
    yield f"  sessions  {report.sessions}, subscribers {report.subscribers}"
    yield f"  calls     {calls}, failed {failures}, slow {report.slow_calls}"
    minute, quarter = (f"{rate:.2f}/s" for rate in (rates.last_minute, rates.last_15_minutes))
    yield f"  rate      {minute} in the last minute, {quarter} in the last 15"


def _failures(report: Report) -> Iterator[str]:
    """The latest first; old ones are told, too, but not marked."""
    for error in reversed(report.start_up_errors):
        yield f"! failed to start {error.at_iso}: {error.sentence}"
    since = report.started_at + report.uptime - RECENT_SECONDS
    mark = "!" if (report.missed_at or 0) > since else " "
    for name, count in sorted(report.missed.items()):
        yield f"{mark} failed without the daemon: {name} {count}"
    for row in report.failures_by_caller[:CALLERS]:
        mark = "!" if row.last_at > since else " "
        yield f"{mark} failed: {row.method} {row.count}, by {row.caller}"
        yield f"    last {row.last_at_iso}: {row.error}: {row.sentence}"
    more = len(report.failures_by_caller) - CALLERS
    if more > 0:
        yield f"  and {more} more, see --json"


def _methods(report: Report) -> Iterator[str]:
    width = max([len("method"), *map(len, report.methods)])
    if report.methods:
        yield f"{'method':<{width}}  {'calls':>9}  {'failed':>7}  {'p50 ms':>9}  {'p99 ms':>9}"
    for name, found in sorted(report.methods.items()):
        counts = f"{found.calls:>9}  {found.failures:>7}"
        yield f"{name:<{width}}  {counts}  {found.p50_ms:>9.2f}  {found.p99_ms:>9.2f}"


def _database(one: OpenDatabase) -> Iterator[str]:
    largest = f", largest {one.largest_batch}" if one.largest_batch else ""
    batches = f"{one.batches} batches (mean {one.mean_batch:.2f}{largest})"
    yield f"database {one.path}"
    yield f"  {one.calls} calls in {batches}, {one.waiting} waiting"
    if one.size_bytes is not None:
        rows = sum((one.rows or {}).values())
        yield f"  {_size(one.size_bytes)}, log {_size(one.wal_bytes or 0)}, {rows} rows"
    for consumer, lag in (one.lags or {}).items():
        yield f"  consumer {consumer}: {lag} events behind"
    if one.reopened:
        yield f"  replaced and reopened {one.reopened} times"
    if one.hung_seconds is not None:
        yield f"! hangs for {span(one.hung_seconds)}; check its disk and the process that holds it"


def _mirror(mirror: MirrorReport) -> Iterator[str]:
    done = f"{mirror.written} written, {mirror.removed} removed, {mirror.kept} kept"
    yield from _worker(f"mirror: {done}, {mirror.waiting} waiting", mirror)
    if mirror.left_out:
        yield f"! mirror: only the newest rows have files, {mirror.left_out} are left out"
    for path in mirror.untrusted:
        yield f"! mirror: {path} is not trusted; run: icctl trust"


def _hooks(hooks: HooksReport) -> Iterator[str]:
    done = f"hooks: {hooks.delivered} delivered ({hooks.redelivered} retried)"
    yield from _worker(done, hooks)


def _worker(done: str, worker: MirrorReport | HooksReport) -> Iterator[str]:
    yield f"{'! ' if worker.last_error else ''}{done}, {worker.failed} failed"
    if worker.last_error:
        yield f"    last error: {worker.last_error}"
