"""Where a daemon listens or would listen, and what lies there instead."""

import os
import stat
from collections.abc import Iterator

from icd.admin.doctor import processes
from icd.admin.doctor.context import Scene, Seen
from icd.admin.doctor.findings import FIX, Finding, Repair, error, note, ok, warning
from icd.admin.doctor.permissions import PRIVATE_DIRECTORY, user

_LISTENS = 0x10000  # __SO_ACCEPTCON, as /proc/net/unix shows it
_START = "start a daemon with 'icd serve'"


def sockets(scene: Scene, seen: list[Seen]) -> Iterator[Finding]:
    given = scene.env.get("INTERCORE_SOCKET")
    reason = "as INTERCORE_SOCKET says" if given else "by the number of the user"
    found = [f for one in seen for f in _at(scene, one)]
    answering = [one.path for one in seen if one.outcome == "answers"]
    if len(answering) > 1:
        told = f"two daemons answer, at {' and at '.join(answering)}: calls are split between them"
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
    except OSError:  # nobody made it yet, or nobody may look: asking there said so
        return
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        yield error(
            "socket", f"{directory} is a symlink: no daemon starts there", f"remove {directory}"
        )
    elif found.st_uid != scene.uid:
        told = f"{directory} belongs to {user(found.st_uid)}: no daemon of yours starts there"
        yield error("socket", told, "have its owner remove it, or set INTERCORE_SOCKET")
    elif mode & 0o077:
        told = f"{directory} is open to other users (mode {mode:04o}): no daemon starts there"
        yield error("socket", told, FIX, Repair("chmod", directory, PRIVATE_DIRECTORY))


def _outcome(seen: Seen) -> Iterator[Finding]:
    if seen.outcome in _SENTENCES:
        sentence, hint = _SENTENCES[seen.outcome]
        yield error("socket", sentence.format(seen.path, seen.error), hint)
    elif seen.outcome == "forbidden":
        told = f"Unix sockets may not be used here ({seen.error}), as in a sandbox"
        yield note("socket", told, "nothing: commands open the database themselves")
    elif seen.outcome == "silent":
        yield _silent(seen)
    elif seen.outcome == "refused":
        yield _refused(seen.path)
    elif seen.outcome == "ignored":
        yield _ignored(seen)
    elif seen.outcome == "absent" and _listened_at(seen.path):
        told = f"a daemon listens at {seen.path}, but its socket was removed: nobody finds it"
        yield error("socket", told, "if it does not come back within seconds, restart the daemon")


_SENTENCES = {
    "too long": ("the path {} is too long for a socket", "use one of at most 107 bytes"),
    "stranger": ("{} belongs to a daemon of another user", "set INTERCORE_SOCKET to another path"),
    "nonsense": ("what listens at {} is no icd", "stop that program, or set INTERCORE_SOCKET"),
    "failed": ("cannot connect to {}: {}", "move it away"),
}


def _ignored(seen: Seen) -> Finding:
    if _is_no_socket(seen.path):
        return _no_socket(seen.path)
    return error("socket", seen.error, "remove it, or set INTERCORE_SOCKET to another path")


def _is_no_socket(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISSOCK(mode) and not stat.S_ISLNK(mode)


def _no_socket(path: str) -> Finding:
    return error("socket", f"{path} is not a socket: no daemon starts there", "move it away")


def _silent(seen: Seen) -> Finding:
    process = processes.holder(lock_path(seen.path)) or (seen.pid and processes.find(seen.pid))
    if not process:
        told = f"the daemon at {seen.path} does not answer"
        return error("socket", told, "end it, and start it again with 'icd serve'")
    stopped = ", because it is stopped" if process.stopped else ""
    told = f"{process} listens at {seen.path} and does not answer{stopped}"
    return error("socket", told, processes.wake(process))


def _refused(path: str) -> Finding:
    if _is_no_socket(path):
        return _no_socket(path)
    owner = processes.holder(lock_path(path))
    if owner is not None:
        told = f"{owner} is about to listen at {path}, or about to end"
        return warning("socket", told, processes.wake(owner))
    told = f"{path} is stale: nobody listens there since a daemon was killed"
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
