"""Have a start or an end recorded, whatever happens to the daemon, the database or the disk.

An end is first written to the spool file, which survives the runner; then the client is run until
it says that the end is in the database.  It asks the daemon, or does it itself.  A process that
finds the spool file of a runner that is gone does the same (`dispatches.poll`).
"""

import os
import time
from _json import encode_basestring_ascii as quoted

from icd.features.dispatches.runner import IGNORED_BY_PYTHON, TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Callable

# Beside the database: the ends that runners could not record yet.
SPOOL = "dispatches"

# One attempt: longer than a busy database needs, and an end to one that hangs.
ATTEMPT_SECONDS = 60.0
ATTEMPT_TIMEOUT = b"--timeout=30s"
# Pauses between attempts double up to the last; so long as nothing helps, a process a minute.
FIRST_PAUSE = 0.1
LAST_PAUSE = 60.0
# Then the spool file has to do: the next look at the dispatch finds it.
GIVE_UP_SECONDS = 24 * 3600.0

# How the client begins to say no, such as for a dispatch that is not there.  Its exit status alone
# proves nothing: it is also that of a Python whose packages are being replaced.
REFUSAL = b"icctl: dispatch record: "
SAID_BYTES = 65_536

YES, NO, MAYBE = "yes", "no", "maybe"

End = dict[str, str | int | None]


def document(end: End) -> bytes:
    """A line of JSON, without the module `json`."""
    fields = [
        f"{quoted(name)}:{'null' if v is None else v if isinstance(v, int) else quoted(v)}"
        for name, v in end.items()
    ]
    return f"{{{','.join(fields)}}}\n".encode()


class Attempt:
    """A client at work; `said` is a file that it complains into."""

    def __init__(self, pid: int, said: int) -> None:
        self.pid = pid
        self._said = said

    def answer(self, status: int) -> str:
        """What came of it, once it has ended: recorded, refused, or to be tried again."""
        said = os.pread(self._said, SAID_BYTES, 0)
        os.close(self._said)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return YES
        return NO if code == 1 and REFUSAL in said else MAYBE


class Recorder:
    """Runs the client for one dispatch; `env` is that of the caller."""

    def __init__(
        self,
        dispatch_id: str,
        database: bytes,
        client: list[bytes],
        env: dict[bytes, bytes],
        mask: set[int],
    ) -> None:
        self._id = dispatch_id
        self._directory = os.path.dirname(database)
        self.spool = os.path.join(self._directory, SPOOL.encode(), f"{dispatch_id}.json".encode())
        self._client = client
        self._flags = [b"--db=" + database, ATTEMPT_TIMEOUT]
        self._mask = mask
        # A caller that asked for the daemon alone asked so for its own call alone.
        self._env = {n: v for n, v in env.items() if n not in (b"INTERCORE_MODE", b"INTERCORE_DB")}
        if env.get(b"INTERCORE_MODE") == b"direct":
            self._env[b"INTERCORE_MODE"] = b"direct"

    def keep(self, end: End) -> bool:
        """Write the spool file, complete and on disk or not at all; so the end survives us."""
        temporary = self.spool + b".new"
        _succeeds(os.mkdir, os.path.dirname(self.spool), 0o700)
        is_kept = _succeeds(_write, temporary, document(end))
        if is_kept and _succeeds(os.rename, temporary, self.spool):
            return True
        _succeeds(os.unlink, temporary)
        return False

    def ended(self, end: End) -> bool:
        """Try until it is recorded; whether it is."""
        pause = FIRST_PAUSE
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:
            # It may have been removed, with all that lay around it, and so may what was missing.
            if not _succeeds(os.lstat, self.spool):
                self.keep(end)
            attempt = self.attempt(["--end=/dev/stdin"], document(end))
            if attempt is not None and attempt.answer(_status(attempt.pid)) in (YES, NO):
                _succeeds(os.unlink, self.spool)
                return True
            if time.monotonic() > give_up:
                return False
            time.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)

    def attempt(self, words: list[str], stdin: bytes = b"") -> Attempt | None:
        """Start a client that records a start or an end.

        None: it is not installed at the moment, or there is no room for a process.
        """
        try:
            return self._run(words, stdin)
        except OSError:
            return None

    def _run(self, words: list[str], stdin: bytes) -> Attempt:
        told = [os.fsencode(word) for word in ("dispatch", "record", self._id, *words)]
        said, given = _file(), _file(stdin)
        try:
            _succeeds(os.chdir, self._directory)  # a path is judged from where we are
            pid = os.posix_spawn(
                self._client[0],
                [*self._client, *told, *self._flags],
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
            _succeeds(os.chdir, "/")
            os.close(given)
        return Attempt(pid, said)


def _file(content: bytes = b"") -> int:
    fd = os.memfd_create("runner", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write(path: bytes, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.fchmod(fd, 0o600)  # whatever umask the caller has
        if os.write(fd, data) != len(data):
            raise OSError("the disk is full")
        os.fsync(fd)
    finally:
        os.close(fd)


def _succeeds(do: "Callable[..., object]", *given: object) -> bool:
    """Whether it can be done."""
    try:
        do(*given)
    except OSError:
        return False
    return True


def _status(pid: int) -> int:
    """How an attempt ended; one that takes too long is killed."""
    until = time.monotonic() + ATTEMPT_SECONDS
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        left = until - time.monotonic()
        if left <= 0:
            os.kill(pid, signal.SIGKILL)
            return os.waitpid(pid, 0)[1]
        signal.sigtimedwait({signal.SIGCHLD}, left)
