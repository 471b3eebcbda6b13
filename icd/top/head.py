"""The figures of the daemon: what it counted between two of its reports."""

from msgspec import Struct

from icd import __version__
from icd.app.human import kinds
from icd.app.human.screen import GAP, Screen
from icd.app.human.text import clean, cut, width
from icd.features.daemon.report import BUCKETS_MS, RECENT_SECONDS, Report
from icd.top.projects import Project

# What `p99_ms` says if there were no calls.
NO_CALLS = -1.0


class Figures(Struct, frozen=True):
    """`calls` a second; `p99_ms`: 99 of 100 calls took less; both since the report before."""

    calls: float
    p99_ms: float


def figures(now: Report, before: Report | None, seconds: float) -> Figures:
    """By two reports of one daemon, or by one of all that it has done."""
    if before is not None and (before.pid, before.started_at) != (now.pid, now.started_at):
        before = None
    if before is None:
        return Figures(now.rates.last_minute, _p99(_buckets(now)))
    done = sum(now.calls.values()) - sum(before.calls.values())
    buckets = [a - b for a, b in zip(_buckets(now), _buckets(before), strict=True)]
    return Figures(done / max(seconds, 0.1), _p99(buckets if buckets[-1] else _buckets(now)))


def _buckets(report: Report) -> list[int]:
    """How many calls took less than each of BUCKETS_MS, and how many there were."""
    found = [0] * (len(BUCKETS_MS) + 1)
    for method in report.methods.values():
        for place, count in enumerate([*method.buckets, method.calls][-len(found) :]):
            found[place] += count
    return found


def _p99(buckets: list[int]) -> float:
    calls = buckets[-1]
    if calls <= 0:
        return NO_CALLS
    known: list[float] = BUCKETS_MS
    bounds = zip(known, buckets, strict=False)
    return next((bound for bound, count in bounds if count >= calls * 0.99), known[-1])


def lines(
    screen: Screen,
    report: Report | None,
    found: Figures | None,
    projects: dict[Project, str],
    state: str,
) -> list[str]:
    """Two lines; `state` says how the daemon is if there is no report that is fresh."""
    state, shown = clean(state), list(projects.values())
    told = shown[0] if len(shown) == 1 else f"{len(shown)} projects"
    head = screen.paint("intercore", kinds.BOLD)
    if report is None or found is None:
        first = [f"{head} {__version__}", screen.paint(f"○ {state}", kinds.YELLOW), clean(told)]
        return [_fitting(screen, first), screen.paint("no figures without a daemon", kinds.DIM)]
    first = [
        f"{head} {clean(report.version)}",
        screen.paint(*((f"○ {state}", kinds.YELLOW) if state else ("● live", kinds.GREEN))),
        f"up {kinds.in_words(report.uptime)}",
        f"pid {report.pid}",
        clean(told),
    ]  # fmt: skip
    counted = _fitting(screen, _counted(screen, report, found))
    if state:  # these are of before
        counted = screen.paint(plain(counted), kinds.DIM)
    return [_fitting(screen, first), counted]


def _counted(screen: Screen, report: Report, found: Figures) -> list[str]:
    failed = sum(report.failures.values())
    since = report.started_at + report.uptime - RECENT_SECONDS
    is_recent = any(row.last_at > since for row in report.failures_by_caller)
    p99 = "-" if found.p99_ms == NO_CALLS else kinds.in_words(found.p99_ms / 1000)
    hung = [row for row in report.databases if row.hung_seconds is not None]
    return [
        f"{_number(found.calls)} calls/s",
        f"p99 {p99}",
        screen.paint(f"{failed:,} failed", kinds.RED if failed and is_recent else ""),
        f"{len(report.databases)} open",
        *([screen.paint(f"{len(hung)} hang", kinds.RED)] if hung else []),
        f"{report.sessions:,} clients",
        f"{report.slow_calls:,} slow",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _fitting(screen: Screen, parts: list[str]) -> str:
    """As many as there is room for; the last that does not fit whole is cut."""
    line, taken = "", 0
    for part in parts:
        gap = GAP if line else ""
        size = width(plain(part))
        if taken + len(gap) + size > screen.width:
            return line + gap + cut(plain(part), max(screen.width - taken - len(gap), 0))
        line, taken = line + gap + part, taken + len(gap) + size
    return line


def plain(text: str) -> str:
    """Without our colours."""
    while "\x1b[" in text:
        before, _, after = text.partition("\x1b[")
        text = before + after.partition("m")[2]
    return text
