"""What a daemon says about itself, judged; every field but its version may be missing."""

import os
import stat
from collections.abc import Iterator
from typing import Any

from icd import __version__
from icd.admin.doctor.context import Scene, Seen
from icd.admin.doctor.findings import Finding, error, note, ok, warning
from icd.features.daemon.verbs import PROTOCOL
from icd.values.wire import iso

DAY = 86_400
SHOWN = 5  # of each list: who wants more asks for the status
# Where a client notes what failed without the daemon, and how much of it is read.
MISSED, MISSED_BYTES = "failures", 65_536 + 4096
# Before it, two connections at once can damage a database; the lock lets only one at it.
SQLITE = (3, 51, 3)

_STATUS = "see 'icctl status'"
_RELOAD = "run 'icctl service reload'"


def daemon(scene: Scene, seen: list[Seen]) -> Iterator[Finding]:
    reports = [(one.path, one.report) for one in seen if one.report is not None]
    if not reports:
        if all(one.outcome in {"absent", "refused", "forbidden"} for one in seen):
            told = "no daemon answers; commands open the database themselves, more slowly"
            yield note("daemon", told, "run 'icctl service install', or start one with 'icd serve'")
        return
    for path, report in reports:
        yield from judge(path, report, scene.now_ms // 1000)


def judge(path: str, report: dict[str, Any], now: int) -> Iterator[Finding]:
    version, pid = report.get("version"), report.get("pid")
    about = f"icd {version}, process {pid}, answers at {path}"
    if report.get("protocol") != PROTOCOL:
        told = f"{about}, but speaks protocol {report.get('protocol')}, not {PROTOCOL}"
        yield error("daemon", told, "install one version of both, and restart the daemon")
    elif version != __version__:
        yield warning("daemon", f"{about}, but this client is of version {__version__}", _RELOAD)
    else:
        yield ok("daemon", about)
    yield from _sqlite(str(report.get("sqlite_version", "")))
    yield from _troubles(report)
    yield from _failures(report, now)


def _sqlite(version: str) -> Iterator[Finding]:
    if version and tuple(int(n) for n in version.split(".") if n.isdigit()) < SQLITE:
        told = "damages databases that two connections write to; intercore's lock lets only one"
        yield ok("sqlite", f"SQLite {version} {told}")


def _troubles(report: dict[str, Any]) -> Iterator[Finding]:
    for trouble in (report.get("start_up_errors") or [])[-SHOWN:]:
        told = f"a daemon could not start within the last day: {_text(trouble)}"
        yield warning("daemon", told, "correct that, and start it again")
    for database in report.get("databases") or []:
        yield from _database(database)
    mirror = report.get("mirror") or {}
    if mirror.get("failed"):
        told = f"files could not be mirrored: {mirror.get('last_error')}"
        yield note("mirror", told, "see docs/mirror.md")
    if mirror.get("left_out"):
        told = f"only the newest rows are mirrored to files; left out: {mirror['left_out']}"
        yield note("mirror", told, "delete rows that are no longer needed; see docs/mirror.md")
    for path in (mirror.get("untrusted") or [])[:SHOWN]:
        told = f"{path} is not trusted, so its rows are not mirrored to files"
        yield note("mirror", told, "run 'icctl trust' there, if you know where it comes from")
    hooks = report.get("hooks") or {}
    if hooks.get("failed"):
        told = f"hooks failed since the daemon started: {hooks.get('failed')}; the last one: "
        hint = "see 'icctl events tail --all --source=hook', and docs/hooks.md"
        yield note("hooks", f"{told}{hooks.get('last_error')}", hint)


def _failures(report: dict[str, Any], now: int) -> Iterator[Finding]:
    """By caller and of the last day, where the daemon can tell; else by method, since its start."""
    counts = report.get("failures") or {}
    since = "since the daemon started"
    callers = report.get("failures_by_caller")
    if callers is not None:
        counts = {
            f"{one.get('method')} by {one.get('caller')}": one.get("count", 1)
            for one in callers
            if one.get("last_at", now) > now - DAY
        }
        since = "through the daemon, in the last day"
    if counts:
        last = report.get("last_error")
        last_told = f"; the last one: {_text(last)}" if last else ""
        told = f"calls failed {since}: {_counted(counts)}{last_told}"
        yield note("failures", told, _STATUS)


def _database(database: dict[str, Any]) -> Iterator[Finding]:
    path = database.get("path")
    hung = database.get("hung_seconds") or database.get("hung_since")
    if hung:
        yield error(
            "hung",
            f"the daemon is stuck in {path}: its disk does not answer",
            "look at its file system; other projects are not affected",
        )
    if database.get("reopened"):
        told = f"{path} was replaced or deleted under the daemon, which uses what is there now"
        yield note("replaced", told, "nothing, if that was meant")


def missed(scene: Scene, seen: list[Seen]) -> Iterator[Finding]:
    """Calls that no daemon saw; the file has no times but its own, that of the last one."""
    for path in dict.fromkeys(os.path.join(os.path.dirname(one.path), MISSED) for one in seen):
        try:
            there = os.lstat(path)
            if not stat.S_ISREG(there.st_mode):
                continue
            last = int(there.st_mtime)
            with open(path, "rb") as file:
                verbs = file.read(MISSED_BYTES).decode("ascii", "replace").split()
        except OSError:
            continue
        if verbs and last > scene.now_ms // 1000 - DAY:
            counts = {verb: verbs.count(verb) for verb in sorted(set(verbs))}
            told = f"calls failed without the daemon, the last at {iso(last)}: {_counted(counts)}"
            yield note(
                "failures",
                told,
                f"run those commands by hand to see what is wrong; then remove {path}",
            )


def _counted(counts: dict[str, int]) -> str:
    """The most frequent ones first."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown = [f"{name} {count}" for name, count in ranked[:SHOWN]]
    return ", ".join([*shown, "…"] if len(ranked) > SHOWN else shown)


def _text(told: object) -> str:
    """A sentence, or a record with one."""
    if isinstance(told, dict):
        at = told.get("at")
        sentence = next((told[n] for n in ("sentence", "message", "error") if n in told), told)
        return f"{sentence} ({iso(at)})" if isinstance(at, int) else str(sentence)
    return str(told)
