"""`icctl status` on a terminal: first whether anything is wrong and what to do, then the rest."""

from collections.abc import Iterator
from operator import itemgetter

from icd.app.human.kinds import in_words
from icd.app.human.screen import Screen
from icd.app.verb import Card, Column, Table
from icd.features.daemon.report import RECENT_SECONDS, FailuresByCaller, Report

SHOWN = 10  # failures and methods; --json has all


def _sqlite(r: Report) -> str:
    return f"{r.sqlite_version} ({r.sqlite_note})" if r.sqlite_note else r.sqlite_version


def _calls(r: Report) -> str:
    failed = sum(r.failures.values())
    return f"{sum(r.calls.values()):,}, {failed:,} failed, {r.slow_calls:,} slow"


def _rates(r: Report) -> str:
    minute, quarter = r.rates.last_minute, r.rates.last_15_minutes
    return f"{minute:.1f}/s in the last minute, {quarter:.1f}/s in the last 15"


def _mirrored(r: Report) -> str | None:
    m = r.mirror
    told = f"{m.written:,} written, {m.waiting:,} waiting, {m.failed:,} failed"
    return told if m.written or m.waiting or m.failed else None


def _delivered(r: Report) -> str | None:
    h = r.hooks
    return f"{h.delivered:,} delivered, {h.failed:,} failed" if h.delivered or h.failed else None


FACTS = Card(
    Column("Daemon", lambda r: f"icd {r.version}, pid {r.pid}"),
    Column("Up", "uptime", "span"),
    Column("Socket", "socket", "path"),
    Column("SQLite", _sqlite),
    Column("Clients", lambda r: f"{r.sessions:,} connected, {r.subscribers:,} subscribed"),
    Column("Calls", _calls),
    Column("Rate", _rates),
    Column("Mirror", _mirrored),
    Column("Triggers", _delivered),
)
DATABASES = Table(
    Column("DATABASE", "path", "path"),
    Column("CALLS", "calls", "number"),
    Column("WAITING", "waiting", "number", spare=True),
    Column("SIZE", "size_bytes", "bytes"),
    Column("LOG", "wal_bytes", "bytes", spare=True),
    Column("ROWS", lambda d: None if d.rows is None else sum(d.rows.values()), "number"),
    Column("BEHIND", lambda d: max((d.lags or {}).values(), default=None), "number", spare=True),
)
METHODS = Table(
    Column("METHOD", itemgetter(0), "id"),
    Column("CALLS", lambda m: m[1].calls, "number"),
    Column("FAILED", lambda m: m[1].failures or None, "number"),
    Column("P50", lambda m: m[1].p50_ms / 1000, "span"),
    Column("P99", lambda m: m[1].p99_ms / 1000, "span"),
)


def show(report: Report, screen: Screen) -> Iterator[str]:
    wrong = list(_wrong(report, screen))
    if wrong:
        told = "1 thing needs a look:" if len(wrong) == 1 else f"{len(wrong)} things need a look:"
        yield screen.heading(told)
        for sentence, hint in wrong:
            yield from screen.doubt(sentence)
            yield from screen.advice(hint)
    else:
        yield from screen.good("All is well.")
    yield ""
    yield from screen.card(FACTS, report)
    if report.databases:
        yield ""
        yield from screen.table(DATABASES, report.databases)
    busiest = sorted(report.methods.items(), key=lambda m: (-m[1].calls, m[0]))
    if busiest:
        yield ""
        yield from screen.table(METHODS, busiest[:SHOWN])
        if len(busiest) > SHOWN:
            yield from screen.hint(f"and {len(busiest) - SHOWN} more, see --json")


def _wrong(report: Report, screen: Screen) -> Iterator[tuple[str, str]]:
    """What deserves a look, as the text for scripts marks it, each with what to do."""
    logs = "icctl service logs"
    for error in reversed(report.start_up_errors):
        yield f"it failed to start {screen.moment(error.at)}: {error.sentence}", logs
    since = report.started_at + report.uptime - RECENT_SECONDS
    if (report.missed_at or 0) > since:
        names = ", ".join(f"{name} ({count})" for name, count in sorted(report.missed.items()))
        yield f"calls failed without the daemon: {names}", "icctl doctor"
    recent = [row for row in report.failures_by_caller if row.last_at > since]
    for row in recent[:SHOWN]:
        yield _failed(row, screen), f"look at {row.caller}"
    if len(recent) > SHOWN:
        yield f"{len(recent) - SHOWN} more callers failed", "icctl status --json"
    for one in report.databases:
        if one.hung_seconds is not None:
            told = f"{one.path} hangs for {in_words(one.hung_seconds)}"
            yield told, "check its disk, and the process that holds it"
    yield from _workers(report)


def _failed(row: FailuresByCaller, screen: Screen) -> str:
    times = "once" if row.count == 1 else f"{row.count:,} times, last"
    return f"{row.method} failed {times} {screen.moment(row.last_at)}: {row.error}: {row.sentence}"


def _workers(report: Report) -> Iterator[tuple[str, str]]:
    if report.mirror.last_error:
        yield f"the mirror failed: {report.mirror.last_error}", "icctl doctor"
    if report.mirror.left_out:
        yield (
            f"{report.mirror.left_out:,} rows are not mirrored: a key has too many",
            "icctl doctor",
        )
    for path in report.mirror.untrusted:
        yield f"{path} is not trusted, so its rows are not mirrored", "icctl trust"
    if report.hooks.last_error:
        yield f"a trigger failed: {report.hooks.last_error}", "icctl triggers list"
