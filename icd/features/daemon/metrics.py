"""`icctl metrics`: the daemon's report as OpenMetrics text.

The format: https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from collections.abc import Callable, Iterable, Iterator

from icd.app.invocation import Output
from icd.features.daemon.report import BUCKETS_MS, Report

PREFIX = "intercore"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SUFFIXES = {"counter": "_total", "info": "_info"}

Labels = dict[str, object]
# What follows the family's name, the labels, the value.
Sample = tuple[str, Labels, float]
Find = Callable[[Report], Iterable[Sample] | float]


def show(report: Report) -> Output:
    lines = [line for family in FAMILIES for line in _family(*family, report)]
    text = "\n".join([*lines, "# EOF"]) + "\n"
    return Output(0, text.encode("utf-8", "backslashreplace"))


def _family(name: str, kind: str, text: str, find: Find, report: Report) -> Iterator[str]:
    found, unit = find(report), name.rpartition("_")[2]
    samples = [("", {}, found)] if isinstance(found, int | float) else list(found)
    if not samples and kind != "histogram":
        return
    yield f"# TYPE {PREFIX}_{name} {kind}"
    if unit in {"bytes", "seconds"}:
        yield f"# UNIT {PREFIX}_{name} {unit}"
    yield f"# HELP {PREFIX}_{name} {text}"
    for suffix, labels, value in samples:
        yield _sample(f"{PREFIX}_{name}{suffix or _SUFFIXES.get(kind, '')}", labels, value)


def _sample(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def _escaped(text: str) -> str:
    """Also of a path that is not text."""
    return text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)


# --- where samples come from ----------------------------------------------------------------------


def _build(report: Report) -> Iterator[Sample]:
    names = ("version", "protocol", "sqlite_version")
    yield "", {name: getattr(report, name) for name in names}, 1


def _missed(report: Report) -> Iterator[Sample]:
    return (("", {"command": name}, count) for name, count in sorted(report.missed.items()))


def _of_methods(field: str) -> Find:
    return lambda r: (
        ("", {"method": name}, getattr(one, field)) for name, one in sorted(r.methods.items())
    )


def _durations(report: Report) -> Iterator[Sample]:
    bounds = [*(repr(bound / 1000) for bound in BUCKETS_MS), "+Inf"]
    for name, one in sorted(report.methods.items()):
        for bound, count in zip(bounds, [*one.buckets, one.calls], strict=True):
            yield "_bucket", {"method": name, "le": bound}, count
        yield "_count", {"method": name}, one.calls
        yield "_sum", {"method": name}, one.total_ms / 1000


def _of_databases(field: str) -> Find:
    """What was not measured is left out."""
    return lambda r: (
        ("", {"database": one.path}, value)
        for one in r.databases
        if (value := getattr(one, field)) is not None
    )


def _rows(report: Report) -> Iterator[Sample]:
    for one in report.databases:
        for table, count in sorted((one.rows or {}).items()):
            yield "", {"database": one.path, "table": table}, count


def _lags(report: Report) -> Iterator[Sample]:
    for one in report.databases:
        for consumer, lag in (one.lags or {}).items():
            yield "", {"database": one.path, "consumer": consumer}, lag


def _mirrored(report: Report) -> Iterator[Sample]:
    for outcome in ("written", "removed", "kept", "failed"):
        yield "", {"outcome": outcome}, getattr(report.mirror, outcome)


def _delivered(report: Report) -> Iterator[Sample]:
    for outcome in ("delivered", "redelivered", "failed"):
        yield "", {"outcome": outcome}, getattr(report.hooks, outcome)


# Name, type, help, and where the samples come from; a name that ends with a unit has it.
FAMILIES: list[tuple[str, str, str, Find]] = [
    ("build", "info", "What is running.", _build),
    ("start_time_seconds", "gauge", "When it started.", lambda r: r.started_at),
    ("uptime_seconds", "gauge", "Seconds since the start.", lambda r: r.uptime),
    ("sessions", "gauge", "Connections.", lambda r: r.sessions),
    ("subscribers", "gauge", "Streams, such as events tail -f.", lambda r: r.subscribers),
    ("start_up_errors", "gauge", "Failed starts within a day.", lambda r: len(r.start_up_errors)),
    ("missed", "counter", "Commands that failed without the daemon.", _missed),
    ("calls", "counter", "Calls by method.", _of_methods("calls")),
    ("failures", "counter", "Calls that ended with exit 2 or 3.", _of_methods("failures")),
    ("slow_calls", "counter", "Calls longer than slow_ms.", lambda r: r.slow_calls),
    ("call_duration_seconds", "histogram", "From request to reply.", _durations),
    *(
        (f"database_{field}", kind, text, _of_databases(field))
        for field, kind, text in (
            ("calls", "counter", "Calls of a database."),
            ("batches", "counter", "Transactions of a database."),
            ("reopened", "counter", "How often its file was replaced."),
            ("waiting", "gauge", "Calls that wait for it."),
            ("largest_batch", "gauge", "Most calls in one transaction."),
            ("size_bytes", "gauge", "Its size."),
            ("wal_bytes", "gauge", "The size of its write-ahead log."),
            ("hung_seconds", "gauge", "For how long it has been stuck."),
        )
    ),
    ("database_rows", "gauge", "Rows by table.", _rows),
    ("database_consumer_lag", "gauge", "Events not acknowledged yet.", _lags),
    ("mirror_files", "counter", "What was done to mirrored files.", _mirrored),
    ("mirror_waiting", "gauge", "Rows that wait for their files.", lambda r: r.mirror.waiting),
    ("hook_deliveries", "counter", "Events that hooks have got.", _delivered),
]
