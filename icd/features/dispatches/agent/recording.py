"""Having an end recorded, whatever happens to the daemon, the database or the disk.

The end is first written to the spool file, which survives us; then the client is run until it says
that the end is in the database.  It asks the daemon, or does it itself; whoever finds the spool
file of a runner that is gone does the same.
"""

import os
import time
from _json import encode_basestring_ascii as quoted

from icd.features.dispatches.agent.signals import (
    IGNORED_BY_PYTHON,
    SIGCHLD,
    SIGKILL,
    sigtimedwait,
)

# One attempt: longer than a busy database needs, and an end to one that hangs.
ATTEMPT_SECONDS = 60.0
ATTEMPT_TIMEOUT = "--timeout=30s"
# Pauses between attempts double up to the last; so long as nothing helps, a process a minute.
FIRST_PAUSE = 0.1
LAST_PAUSE = 60.0
# Then the spool file has to do: whoever looks at the dispatch finds it.
GIVE_UP_SECONDS = 24 * 3600.0

# How the client begins to say no, such as for a dispatch that is not there.  Its exit status alone
# proves nothing: it is also that of a Python whose packages are being replaced.
REFUSAL = b"icctl: dispatch record: "
SAID_BYTES = 65_536

YES, NO, MAYBE = "yes", "no", "maybe"

End = dict[str, str | int | None]


def document(end: End) -> bytes:
    """A line of JSON; the module `json` would cost each runner a megabyte."""
    fields = [
        f"{quoted(name)}:{'null' if v is None else v if isinstance(v, int) else quoted(v)}"
        for name, v in end.items()
    ]
    return f"{{{','.join(fields)}}}\n".encode()


class Attempt:
    """A client at work."""

    def __init__(self, pid: int, said: int) -> None:
        self.pid = pid
        self._said = said  # a file that it complains into

    def answer(self, status: int) -> str:
        """What came of it, once it has ended: recorded, refused, or to be tried again."""
        try:
            said = os.pread(self._said, SAID_BYTES, 0)
        finally:
            os.close(self._said)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return YES
        return NO if code == 1 and REFUSAL in said else MAYBE


class Recorder:
    """What is known of one dispatch's database; `env` is that of the caller."""

    def __init__(self, job: dict[str, object], env: dict[bytes, bytes], mask: set[int]) -> None:
        self._id: str = job["id"]  # type: ignore[assignment]
        self._client: list[bytes] = job["client"]  # type: ignore[assignment]
        self._database: bytes = job["database"]  # type: ignore[assignment]
        self._mask = mask
        # Whoever asked for the daemon alone asked for this call alone.
        self._env = {n: v for n, v in env.items() if n not in (b"INTERCORE_MODE", b"INTERCORE_DB")}
        if env.get(b"INTERCORE_MODE") == b"direct":
            self._env[b"INTERCORE_MODE"] = b"direct"

    @property
    def spool(self) -> bytes:
        directory = os.path.join(os.path.dirname(self._database), b"dispatches")
        return os.path.join(directory, f"{self._id}.json".encode())

    def started(self, words: list[str]) -> Attempt | None:
        """Start a client that records who runs; None if that cannot be done at the moment.

        It is refused if the dispatch is over, because somebody cancelled it.
        """
        try:
            return self._run(words, None)
        except OSError:
            return None

    def keep(self, end: End) -> None:
        """First of all: from now on the end survives us."""
        _keep(self.spool, document(end))

    def ended(self, end: End) -> bool:
        """Try until it is recorded; whether it is."""
        data = document(end)
        pause = FIRST_PAUSE
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:
            # It may have been removed, with all that lay around it, and so may what was missing.
            is_kept = _is_there(self.spool) or _keep(self.spool, data)
            if self._attempt(data, is_kept=is_kept):
                _remove(self.spool)
                return True
            if time.monotonic() > give_up:
                return False
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    def _attempt(self, data: bytes, *, is_kept: bool) -> bool:
        path = os.fsdecode(self.spool) if is_kept else "/dev/stdin"
        try:
            attempt = self._run([f"--end={path}"], None if is_kept else data)
        except OSError:
            return False  # not installed at the moment, or no room for a process
        return attempt.answer(_status(attempt.pid)) in (YES, NO)

    def _run(self, words: list[str], stdin: bytes | None) -> Attempt:
        argv = [
            *self._client,
            *(os.fsencode(word) for word in ("dispatch", "record", self._id, *words)),
            b"--db=" + self._database,
            ATTEMPT_TIMEOUT.encode(),
        ]
        said = os.memfd_create("said", os.MFD_CLOEXEC)
        given = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if stdin is None else _file(stdin)
        try:
            _enter(os.path.dirname(self._database))  # a path is judged from where we are
            pid = os.posix_spawn(
                argv[0],
                argv,
                self._env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, given, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, said, 2),
                ],
                setsigmask=self._mask,
                setsigdef=IGNORED_BY_PYTHON,
            )
        except BaseException:
            os.close(said)
            raise
        finally:
            _enter(b"/")
            os.close(given)
        return Attempt(pid, said)


def _file(content: bytes) -> int:
    fd = os.memfd_create("end", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _keep(path: bytes, data: bytes) -> bool:
    """Write the spool file, complete and on disk or not at all."""
    temporary = path + b".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        _make_directory(os.path.dirname(path))
        fd = os.open(temporary, flags, 0o600)
        try:
            os.fchmod(fd, 0o600)  # whatever umask the caller has
            written = os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        if written != len(data):
            _remove(temporary)
            return False
        os.rename(temporary, path)
    except OSError:
        _remove(temporary)
        return False
    return True


def _make_directory(path: bytes) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return


def _is_there(path: bytes) -> bool:
    try:
        os.lstat(path)
    except OSError:
        return False
    return True


def _remove(path: bytes) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _enter(directory: bytes) -> None:
    try:
        os.chdir(directory)
    except OSError:
        return  # the client will say so


def _status(pid: int) -> int:
    """How an attempt ended, which is killed if it takes too long."""
    until = time.monotonic() + ATTEMPT_SECONDS
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        left = until - time.monotonic()
        if left <= 0:
            os.kill(pid, SIGKILL)
            return os.waitpid(pid, 0)[1]
        sigtimedwait({SIGCHLD}, left)
