"""`icctl metrics`: the daemon's report as OpenMetrics text.

The format: https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from collections.abc import Iterator, Mapping

import click

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.features.daemon import methods

PREFIX = "intercore"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = Mapping[str, object]
Sample = tuple[Labels, float]


@click.command("metrics", add_help_option=False, short_help="Print what a monitor collects.")
def metrics(world: World) -> Ask:
    """Print the daemon's counts as OpenMetrics text; exit 1 if there is no daemon.

    With --json as 'icctl status --json'.

    \b
    Examples:
      icctl metrics
      icctl metrics > .intercore.tmp && mv .intercore.tmp intercore.prom
    """
    return Ask("icd.status", methods.Status(), render.to_json if world.json else show)


def show(report: methods.Report) -> Output:
    families = [
        *_daemon(report),
        *_calls(report),
        *_databases(report),
        *_mirror(report.mirror),
        *_hooks(report.hooks),
    ]
    text = "\n".join([*families, "# EOF"]) + "\n"
    return Output(0, text.encode("utf-8", "backslashreplace"))


def _daemon(report: methods.Report) -> Iterator[str]:
    build = {
        "version": report.version,
        "protocol": report.protocol,
        "sqlite_version": report.sqlite_version,
    }
    yield from _family("build", "info", "What is running.", [(build, 1)])
    yield from _gauge("start_time_seconds", "When it started.", report.started_at, unit="seconds")
    yield from _gauge("uptime_seconds", "For how long.", report.uptime, unit="seconds")
    yield from _gauge("sessions", "Connections.", report.sessions)
    yield from _gauge("subscribers", "Commands that go on.", report.subscribers)
    yield from _gauge("start_up_errors", "Failed starts within a day.", len(report.start_up_errors))
    missed: list[Sample] = [({"command": name}, n) for name, n in sorted(report.missed.items())]
    yield from _family("missed", "counter", "Commands that failed without the daemon.", missed)


def _calls(report: methods.Report) -> Iterator[str]:
    found = sorted(report.methods.items())
    calls: list[Sample] = [({"method": name}, one.calls) for name, one in found]
    failures: list[Sample] = [({"method": name}, one.failures) for name, one in found]
    yield from _family("calls", "counter", "Calls by method.", calls)
    yield from _family("failures", "counter", "Calls that ended with exit 2 or 3.", failures)
    slow: list[Sample] = [({}, report.slow_calls)]
    yield from _family("slow_calls", "counter", "Calls longer than slow_ms.", slow)
    yield from _head("call_duration_seconds", "histogram", "From request to reply.", "seconds")
    for name, one in found:
        yield from _histogram(f"{PREFIX}_call_duration_seconds", {"method": name}, one)


def _histogram(name: str, labels: Labels, one: methods.MethodReport) -> Iterator[str]:
    bounds = [repr(bound / 1000) for bound in methods.BUCKETS_MS]
    for bound, count in zip([*bounds, "+Inf"], [*one.buckets, one.calls], strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield _sample(f"{name}_count", labels, one.calls)
    yield _sample(f"{name}_sum", labels, one.total_ms / 1000)


def _databases(report: methods.Report) -> Iterator[str]:
    found = report.databases
    for field, kind, text in (
        ("calls", "counter", "Calls of a database."),
        ("batches", "counter", "Transactions of a database."),
        ("reopened", "counter", "How often its file was replaced."),
        ("waiting", "gauge", "Calls that wait for it."),
        ("largest_batch", "gauge", "Most calls in one transaction."),
        ("size_bytes", "gauge", "Its size."),
        ("wal_bytes", "gauge", "The size of its write-ahead log."),
        ("hung_seconds", "gauge", "For how long it has been stuck."),
    ):
        samples: list[Sample] = [
            ({"database": one.path}, value)
            for one in found
            if (value := getattr(one, field)) is not None
        ]
        yield from _family(f"database_{field}", kind, text, samples, _unit(field))
    rows: list[Sample] = [
        ({"database": one.path, "table": table}, count)
        for one in found
        for table, count in sorted((one.rows or {}).items())
    ]
    yield from _family("database_rows", "gauge", "Rows by table.", rows)
    lags: list[Sample] = [
        ({"database": one.path, "consumer": consumer}, lag)
        for one in found
        for consumer, lag in (one.lags or {}).items()
    ]
    yield from _family("database_consumer_lag", "gauge", "Events not acknowledged yet.", lags)


def _mirror(mirror: methods.MirrorReport) -> Iterator[str]:
    done: list[Sample] = [
        ({"outcome": name}, getattr(mirror, name))
        for name in ("written", "removed", "kept", "failed")
    ]
    yield from _family("mirror_files", "counter", "What was done to mirrored files.", done)
    yield from _gauge("mirror_waiting", "Rows that wait for their files.", mirror.waiting)


def _hooks(hooks: methods.HooksReport) -> Iterator[str]:
    done: list[Sample] = [
        ({"outcome": name}, getattr(hooks, name)) for name in ("delivered", "redelivered", "failed")
    ]
    yield from _family("hook_deliveries", "counter", "Events that hooks have got.", done)


def _gauge(name: str, text: str, value: float, *, unit: str = "") -> Iterator[str]:
    yield from _family(name, "gauge", text, [({}, value)], unit)


def _family(
    name: str, kind: str, text: str, samples: list[Sample], unit: str = ""
) -> Iterator[str]:
    if not samples:
        return
    yield from _head(name, kind, text, unit)
    suffix = {"counter": "_total", "info": "_info"}.get(kind, "")
    for labels, value in samples:
        yield _sample(f"{PREFIX}_{name}{suffix}", labels, value)


def _head(name: str, kind: str, text: str, unit: str) -> Iterator[str]:
    yield f"# TYPE {PREFIX}_{name} {kind}"
    if unit:
        yield f"# UNIT {PREFIX}_{name} {unit}"
    yield f"# HELP {PREFIX}_{name} {text}"


def _sample(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def _escaped(text: str) -> str:
    """Also of a path that is not text."""
    return text.encode("utf-8", "backslashreplace").decode().translate(_ESCAPES)


def _unit(field: str) -> str:
    unit = field.rpartition("_")[2]
    return unit if unit in {"bytes", "seconds"} else ""


COMMANDS = [metrics]
