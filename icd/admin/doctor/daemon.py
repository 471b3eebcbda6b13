"""The daemon: what lies where it listens, and what it says about itself.

Its report may come from another version: every field but its version may be missing.
"""

import os
import stat
from collections.abc import Iterator
from typing import Any

from icd import __version__
from icd.admin.doctor.context import (
    FIX,
    PRIVATE_DIRECTORY,
    Finding,
    Repair,
    Scene,
    Seen,
    error,
    find_process,
    lock_holder,
    note,
    ok,
    user,
    wake,
    warning,
)
from icd.features.daemon import report as reports
from icd.features.daemon.verbs import PROTOCOL
from icd.values.wire import iso

DAY = 86_400
SHOWN = 5  # of each list; the status has the others
_LISTENS = 0x10000  # __SO_ACCEPTCON, as /proc/net/unix shows it
_STATUS = "see 'icctl status'"
_RELOAD = "run 'icctl service reload'"
_START = "start a daemon with 'icd serve'"
_ANOTHER = "set INTERCORE_SOCKET"
_ALONE = "no action needed: commands open the database themselves"
# What is said of a path by its outcome, and what to do.
_OUTCOMES = {
    "too long": (error, "the path {0} is too long for a socket", "use one of at most 107 bytes"),
    "stranger": (error, "{0} belongs to a daemon of another user", f"{_ANOTHER} to another path"),
    "nonsense": (
        error,
        "the program that listens at {0} is not icd",
        f"stop that program, or {_ANOTHER}",
    ),
    "failed": (error, "cannot connect to {0}: {1}", "move it away"),
    "ignored": (error, "{1}", f"remove it, or {_ANOTHER} to another path"),
    "forbidden": (note, "Unix sockets may not be used here ({1}), as in a sandbox", _ALONE),
}


# --- where it listens -----------------------------------------------------------------------------


def sockets(scene: Scene, seen: list[Seen]) -> Iterator[Finding]:
    given = scene.env.get("INTERCORE_SOCKET")
    reason = "as INTERCORE_SOCKET says" if given else "by the number of the user"
    found = [f for one in seen for f in _at(scene, one)]
    answering = [one.path for one in seen if one.outcome == "answers"]
    if len(answering) > 1:
        told = f"two daemons answer, at {' and at '.join(answering)}, and share the calls"
        found.append(error("socket", told, "stop one of the two"))
    yield from found
    if not found:
        yield ok("socket", f"looked for at {', then '.join(one.path for one in seen)}, {reason}")


def _at(scene: Scene, seen: Seen) -> list[Finding]:
    about = [*_directory(scene, seen.path)]
    if about and seen.outcome == "ignored":
        return about  # the directory is the reason
    return [*about, *_outcome(seen)]


def _directory(scene: Scene, path: str) -> Iterator[Finding]:
    directory = os.path.dirname(path)
    try:
        found = os.lstat(directory)
    except OSError:  # it is not there yet, or we may not look: asking there said so
        return
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        told = f"{directory} is a symlink: no daemon starts there"
        yield error("socket", told, f"remove {directory}")
    elif found.st_uid != scene.uid:
        told = f"{directory} belongs to {user(found.st_uid)}: your daemon cannot start there"
        yield error("socket", told, f"ask its owner to remove it, or {_ANOTHER}")
    elif mode & 0o077:
        told = f"{directory} is open to other users (mode {mode:04o}): no daemon starts there"
        yield error("socket", told, FIX, Repair("chmod", directory, PRIVATE_DIRECTORY))


def _outcome(seen: Seen) -> Iterator[Finding]:
    path, outcome = seen.path, seen.outcome
    if outcome in {"ignored", "refused"} and _is_no_socket(path):
        yield error("socket", f"{path} is not a socket: no daemon starts there", "move it away")
    elif outcome in _OUTCOMES:
        severity, sentence, hint = _OUTCOMES[outcome]
        yield severity("socket", sentence.format(path, seen.error), hint)
    elif outcome == "silent":
        yield _silent(seen)
    elif outcome == "refused":
        yield _refused(path)
    elif outcome == "absent" and _listened_at(path):
        told = f"a daemon listens at {path}, but its socket was removed: clients cannot find it"
        yield error(
            "socket", told, "restart the daemon if the socket does not return within seconds"
        )


def _is_no_socket(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISSOCK(mode) and not stat.S_ISLNK(mode)


def _silent(seen: Seen) -> Finding:
    process = lock_holder(lock_path(seen.path)) or (seen.pid and find_process(seen.pid))
    if not process:
        told = f"the daemon at {seen.path} does not answer"
        return error("socket", told, "stop it, and restart it with 'icd serve'")
    stopped = ", because it is stopped" if process.stopped else ""
    told = f"{process} listens at {seen.path} and does not answer{stopped}"
    return error("socket", told, wake(process))


def _refused(path: str) -> Finding:
    owner = lock_holder(lock_path(path))
    if owner is not None:
        told = f"{owner} is about to listen at {path}, or to exit"
        return warning("socket", told, wake(owner))
    told = f"{path} is stale: its daemon was killed"
    return warning("socket", told, f"{FIX}, or {_START}", Repair("remove socket", path))


def lock_path(socket: str) -> str:
    """The daemon's owner lock, held as long as it lives."""
    return f"{socket.removesuffix('.sock')}.lock"


def _listened_at(path: str) -> bool:
    """The kernel remembers the name that a socket was bound to, also when it is gone."""
    try:
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as table:
            rows = [line.rstrip("\n").split(maxsplit=7) for line in table]
    except OSError:
        return False
    return any(len(row) == 8 and row[7] == path and int(row[3], 16) & _LISTENS for row in rows[1:])


# --- what it says ---------------------------------------------------------------------------------


def daemon(scene: Scene, seen: list[Seen]) -> Iterator[Finding]:
    reports = [(one.path, one.report) for one in seen if one.report is not None]
    if not reports:
        if all(one.outcome in {"absent", "refused", "forbidden"} for one in seen):
            told = "no daemon is running; commands open the database themselves, more slowly"
            yield note("daemon", told, "run 'icctl service install', or start one with 'icd serve'")
        return
    for path, report in reports:
        yield from judge(path, report, scene.now_ms // 1000)


def judge(path: str, report: dict[str, Any], now: int) -> Iterator[Finding]:
    version, pid = report.get("version"), report.get("pid")
    about = f"icd {version}, process {pid}, answers at {path}"
    if report.get("protocol") != PROTOCOL:
        told = f"{about}, but speaks protocol {report.get('protocol')}, not {PROTOCOL}"
        yield error("daemon", told, "install the same version of both, and restart the daemon")
    elif version != __version__:
        yield warning("daemon", f"{about}, but this client has version {__version__}", _RELOAD)
    else:
        yield ok("daemon", about)
    yield from _sqlite(str(report.get("sqlite_version", "")))
    yield from _troubles(report)
    yield from _failures(report, now)


def _sqlite(version: str) -> Iterator[Finding]:
    if version and tuple(int(n) for n in version.split(".") if n.isdigit()) < reports.SOUND_SQLITE:
        told = "damages databases that two connections write to; intercore's lock lets only one"
        yield ok("sqlite", f"SQLite {version} {told}")


def _troubles(report: dict[str, Any]) -> Iterator[Finding]:
    for trouble in (report.get("start_up_errors") or [])[-SHOWN:]:
        told = f"a daemon could not start within the last day: {_text(trouble)}"
        yield warning("daemon", told, "correct the cause, and start it again")
    for database in report.get("databases") or []:
        yield from _database(database)
    mirror = report.get("mirror") or {}
    if mirror.get("failed"):
        told = f"files could not be mirrored: {mirror.get('last_error')}"
        yield note("mirror", told, "correct the cause; the daemon retries every few seconds")
    if mirror.get("left_out"):
        told = f"only the newest rows are mirrored to files; left out: {mirror['left_out']}"
        yield note("mirror", told, "delete rows that are no longer needed")
    for path in (mirror.get("untrusted") or [])[:SHOWN]:
        told = f"{path} is not trusted, so its rows are not mirrored to files"
        yield note("mirror", told, "run 'icctl trust' there, if you trust its origin")
    hooks = report.get("hooks") or {}
    if hooks.get("failed"):
        told = f"hooks failed since the daemon started: {hooks.get('failed')}; the last one: "
        hint = "see 'icctl events tail --all --source=hook'"
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
        told = f"the daemon hangs in {path}: its disk does not answer"
        yield error("hung", told, "check its file system; other projects are not affected")
    if database.get("reopened"):
        told = f"{path} was replaced or deleted under the daemon, which uses the current file"
        yield note("replaced", told, "no action needed if this was intended")


def missed(scene: Scene, seen: list[Seen]) -> Iterator[Finding]:
    """Calls that no daemon saw; the file has no times but its own, that of the last one."""
    for directory in dict.fromkeys(os.path.dirname(one.path) for one in seen):
        counts, last = reports.missed(directory)
        if counts and last is not None and last > scene.now_ms // 1000 - DAY:
            told = f"calls failed without the daemon, the last at {iso(last)}: {_counted(counts)}"
            file = os.path.join(directory, reports.MISSED)
            hint = f"run those commands by hand for details, then remove {file}"
            yield note("failures", told, hint)


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
