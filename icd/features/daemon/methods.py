"""icd.*, rpc.* and cli.*: answered by the daemon itself, without waiting for any database."""

from typing import Any

from msgspec import field

from icd import __version__
from icd.app.call import Params
from icd.app.verb import Method
from icd.errors import IcError, NoCommonProtocol
from icd.values.wire import Result

PROTOCOL = 1
PROTOCOLS_SHOWN = 8  # of those a client offers; a sentence is not a dump
# Bounds of how long calls took: powers of two of a microsecond, from 0.256 ms to 8.4 s.
BUCKET_EXPONENTS = range(8, 24)
BUCKETS_MS = [2**exponent / 1000 for exponent in BUCKET_EXPONENTS]
CAPABILITIES = [
    "batch", "keyhole", "request_id", "state", "sentinel", "events", "statusline", "stream",
    "watch",
]  # fmt: skip


class Ping(Params):
    pass


class Status(Params):
    pass


class Hello(Params):
    """`protocols`: the numbers that the client speaks, best first; `capabilities`: its needs."""

    protocols: list[int] = field(default_factory=lambda: [PROTOCOL])
    capabilities: list[str] = field(default_factory=list)


class Reload(Params):
    """Go on with the code that is installed now."""


class Discover(Params):
    pass


class Run(Params):
    """A command line, as `icctl` would be given it."""

    argv: list[str]
    program: str = "icctl"
    env: dict[str, str] = field(default_factory=dict)
    stdin: str | None = None
    files: dict[str, str] = field(default_factory=dict)


class Pong(Result):
    pid: int
    version: str


class Welcome(Result):
    """`unknown_capabilities`: what the client asked for and will not get."""

    protocol: int
    capabilities: list[str]
    unknown_capabilities: list[str]
    version: str
    pid: int
    sqlite_version: str


class OpenDatabase(Result):
    """The optional fields are as they were at `measured_at`.

    `own_batches`: of what only the daemon asked; `mean_batch`: calls to one of the other batches.
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
    lags: dict[str, int] | None = None  # consumer to events that it has not acknowledged
    measured_at: int | None = None
    measured_at_iso: str | None = None
    hung_seconds: float | None = None


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
    last_at_iso: str
    error: str
    sentence: str


class LastError(Result):
    at: int
    at_iso: str
    method: str
    caller: str
    error: str
    sentence: str


class StartUpError(Result):
    at: int
    at_iso: str
    sentence: str


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
    started_at_iso: str
    subscribers: int
    slow_calls: int
    rates: Rates
    methods: dict[str, MethodReport]
    failures_by_caller: list[FailuresByCaller]
    start_up_errors: list[StartUpError]
    last_error: LastError | None = None
    # When the last of the `missed` was noted.
    missed_at: int | None = None
    missed_at_iso: str | None = None
    # Why an old SQLite is no reason to worry.
    sqlite_note: str | None = None


class Reloaded(Result):
    version: str
    previous: str
    pid: int


class Ran(Result):
    """What the command printed; or, having done nothing, which input it needs first."""

    exit: int | None = None
    stdout: str = ""
    stderr: str = ""
    need: str | None = None
    path: str | None = None
    then: list[str] | None = None


def no_common_protocol(offered: list[int]) -> IcError:
    theirs = ", ".join(str(number) for number in offered[:PROTOCOLS_SHOWN]) or "none"
    return NoCommonProtocol(
        f"icd {__version__} speaks protocol {PROTOCOL}, the client speaks {theirs}"
    )


METHODS = [
    Method("icd.ping", Ping, Pong, None),
    Method("icd.status", Status, Report, None),
    Method("icd.hello", Hello, Welcome, None),
    Method("icd.reload", Reload, Reloaded, None),
    Method("rpc.discover", Discover, dict[str, Any], None),
    Method("cli.run", Run, Ran, None),
]
