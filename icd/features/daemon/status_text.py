"""The daemon's report as text: calm where all is well, and a `!` before what deserves a look."""

from collections.abc import Iterator

from icd.features.daemon import methods

# Whoever wants more than the latest takes --json.
CALLERS = 10
# A failure of last week has been noticed, or never mattered.
RECENT_SECONDS = 86_400

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def lines(report: methods.Report) -> list[str]:
    body = [
        *_daemon(report),
        *_failures(report),
        *_methods(report),
        *(line for database in report.databases for line in _database(database)),
        *_mirror(report.mirror),
        *_hooks(report.hooks),
    ]
    marked = sum(line.startswith("!") for line in body)
    verdict = f"{marked} marked with ! below" if marked else "all is well"
    return [
        f"icd {report.version}, pid {report.pid}, up {span(report.uptime)}: {verdict}",
        *body,
    ]


def span(seconds: float) -> str:
    """The two largest units."""
    left = int(seconds)
    found: list[str] = []
    for size, unit in _UNITS:
        if left >= size or (size == 1 and not found):
            found.append(f"{left // size} {unit}")
        left %= size
    return " ".join(found[:2])


def size(count: int) -> str:
    return f"{count} bytes" if count < 1024 else f"{count / 1024:,.0f} KiB".replace(",", " ")


def _daemon(report: methods.Report) -> Iterator[str]:
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


def _failures(report: methods.Report) -> Iterator[str]:
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


def _methods(report: methods.Report) -> Iterator[str]:
    width = max([len("method"), *map(len, report.methods)])
    if report.methods:
        yield f"{'method':<{width}}  {'calls':>9}  {'failed':>7}  {'p50 ms':>9}  {'p99 ms':>9}"
    for name, found in sorted(report.methods.items()):
        yield (
            f"{name:<{width}}  {found.calls:>9}  {found.failures:>7}"
            f"  {found.p50_ms:>9.2f}  {found.p99_ms:>9.2f}"
        )


def _database(database: methods.OpenDatabase) -> Iterator[str]:
    largest = f", largest {database.largest_batch}" if database.largest_batch else ""
    yield f"database {database.path}"
    yield (
        f"  {database.calls} calls in {database.batches} batches"
        f" (mean {database.mean_batch:.2f}{largest}), {database.waiting} waiting"
    )
    if database.size_bytes is not None:
        rows = sum((database.rows or {}).values())
        yield f"  {size(database.size_bytes)}, log {size(database.wal_bytes or 0)}, {rows} rows"
    for consumer, lag in (database.lags or {}).items():
        yield f"  consumer {consumer}: {lag} events behind"
    if database.reopened:
        yield f"  replaced and reopened {database.reopened} times"
    if database.hung_seconds is not None:
        yield f"! hangs since {span(database.hung_seconds)}; look at its disk, and at who holds it"


def _mirror(mirror: methods.MirrorReport) -> Iterator[str]:
    mark = "! " if mirror.last_error else ""
    yield (
        f"{mark}mirror: {mirror.written} written, {mirror.removed} removed, {mirror.kept} kept,"
        f" {mirror.waiting} waiting, {mirror.failed} failed"
    )
    if mirror.last_error:
        yield f"    last error: {mirror.last_error}"
    if mirror.left_out:
        yield f"! mirror: only the newest rows have files, {mirror.left_out} are left out"
    for path in mirror.untrusted:
        yield f"! mirror: {path} is not trusted; to accept it: icctl trust"


def _hooks(hooks: methods.HooksReport) -> Iterator[str]:
    mark = "! " if hooks.last_error else ""
    yield (
        f"{mark}hooks: {hooks.delivered} delivered, {hooks.redelivered} of them again,"
        f" {hooks.failed} failed"
    )
    if hooks.last_error:
        yield f"    last error: {hooks.last_error}"
