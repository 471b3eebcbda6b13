"""What can be seen of a dispatch from outside: its processes, and the files that it leaves.

Only what is certain counts: a process of another namespace, or a file that cannot be read at the
moment, is unknown.  Files are those of fixed places, regular, our own, and not too large; whatever
else lies there is not there.
"""

import os
import re
import stat

import msgspec

from icd.features.dispatches.observation import Progress, Seen, Subject
from icd.features.dispatches.store import End
from icd.values.processes import Liveness, Process, liveness

# Beside the database: the ends that runners could not record yet.
SPOOL = "dispatches"
# An end has a few numbers and sentences, which are cut when they are stored.
SPOOL_BYTES = 1024 * 1024
# Where the script that runs agents counts what they do, whatever TMPDIR says.
PROGRESS = "/tmp/clavain-dispatch-{}.json"
PROGRESS_BYTES = 64 * 1024

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # those of the original may be anything
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def look(subject: Subject, database: str, *, progress: bool = False) -> Seen:
    """Look at the processes first: what a dead runner has to say, it has said by then."""
    runner, agent = _liveness(subject.runner), _liveness(subject.agent)
    end = None
    if runner not in ("alive", "unknown"):
        try:
            end = _spooled(subject.id, database)
        except OSError:
            runner = "unknown"  # it may be there, so nothing follows yet
    counted = _progress(subject.agent) if progress and agent == "alive" else None
    return Seen(version=subject.version, runner=runner, agent=agent, end=end, progress=counted)


def forget(dispatch_id: str, database: str) -> None:
    """Remove the spool file of an end that was taken over; left there, it does no harm."""
    try:
        directory = _directory(database)
    except OSError:
        return
    try:
        os.unlink(f"{dispatch_id}.json", dir_fd=directory)
    except OSError:
        return
    finally:
        os.close(directory)


def _liveness(process: Process | None) -> Liveness | None:
    return None if process is None else liveness(process)


def _spooled(dispatch_id: str, database: str) -> End | None:
    """What the runner left; None if there is nothing that it could have left."""
    if not _ID.fullmatch(dispatch_id):
        return None
    try:
        directory = _directory(database)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = _read(f"{dispatch_id}.json", SPOOL_BYTES, directory)
    finally:
        os.close(directory)
    try:
        end = msgspec.json.decode(data or b"", type=End)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return end if end.id == dispatch_id else None


def _directory(database: str) -> int:
    path = os.path.join(os.path.dirname(database), SPOOL)
    return os.open(path, _FLAGS | os.O_DIRECTORY)


def _progress(agent: Process | None) -> Progress | None:
    if agent is None:
        return None
    try:
        data = _read(PROGRESS.format(agent.pid), PROGRESS_BYTES)
        return None if data is None else msgspec.json.decode(data, type=Progress)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # it is being written just now, or it is of somebody else


def _read(path: str, limit: int, directory: int | None = None) -> bytes | None:
    """What a regular file of ours holds; None if it is not there, or something else."""
    try:
        fd = os.open(path, _FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError:
        if stat.S_ISREG(os.stat(path, dir_fd=directory, follow_symlinks=False).st_mode):
            raise
        return None  # a link, a socket
    try:
        there = os.fstat(fd)
        if not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid():
            return None
        data = _all(fd, limit)
    finally:
        os.close(fd)
    return data if len(data) <= limit else None


def _all(fd: int, limit: int) -> bytes:
    """Up to just past the limit, so that "too large" can be told from "just fits"."""
    data = b""
    while len(data) <= limit and (more := os.read(fd, limit + 1 - len(data))):
        data += more
    return data
