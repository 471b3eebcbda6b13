"""Having an end recorded, whatever happens to the daemon, the database or the disk.

The end is first written to the spool file, which survives us; then the client is run until it says
that the end is in the database.  It asks the daemon, or does it itself; whoever finds the spool
file of a runner that is gone does the same.
"""

import os
import time
from _json import encode_basestring_ascii as quoted

from icd.agents.signals import IGNORED_BY_PYTHON, SIGCHLD, SIGKILL, sigtimedwait

# One attempt: longer than a busy database needs, and an end to one that hangs.
ATTEMPT_SECONDS = 60.0
ATTEMPT_TIMEOUT = "--timeout=30s"
# Pauses between attempts double up to the last; so long as nothing helps, a process a minute.
FIRST_PAUSE = 0.1
LAST_PAUSE = 60.0
# Then the spool file has to do: whoever looks at the dispatch finds it.
GIVE_UP_SECONDS = 24 * 3600.0

# Exit statuses of the client: recorded, and no such dispatch any more.
_FINAL = (0, 1)

End = dict[str, str | int | None]


def document(end: End) -> bytes:
    """A line of JSON; the module `json` would cost each runner a megabyte."""
    fields = [
        f"{quoted(name)}:{'null' if v is None else v if isinstance(v, int) else quoted(v)}"
        for name, v in end.items()
    ]
    return f"{{{','.join(fields)}}}\n".encode()


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

    def started(self, words: list[str]) -> int:
        """Start a client that records who runs; its pid, or 0: then only the end will be recorded.

        It exits with 1 if the dispatch is over, because somebody cancelled it.
        """
        try:
            return self._run(words, None)
        except OSError:
            return 0

    def ended(self, end: End) -> bool:
        """Try until it is recorded; whether it is."""
        data = document(end)
        pause = FIRST_PAUSE
        give_up = time.monotonic() + GIVE_UP_SECONDS
        is_kept = False
        while True:
            is_kept = is_kept or _keep(self.spool, data)
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
            pid = self._run([f"--end={path}"], None if is_kept else data)
        except OSError:
            return False  # not installed at the moment, or no room for a process
        return _status(pid) in _FINAL

    def _run(self, words: list[str], stdin: bytes | None) -> int:
        argv = [
            *self._client,
            *(os.fsencode(word) for word in ("dispatch", "record", self._id, *words)),
            b"--db=" + self._database,
            ATTEMPT_TIMEOUT.encode(),
        ]
        null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
        files = [null, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
        fd = -1
        if stdin is not None:
            fd = os.memfd_create("end", os.MFD_CLOEXEC)
            os.write(fd, stdin)
            os.lseek(fd, 0, os.SEEK_SET)
            files.append((os.POSIX_SPAWN_DUP2, fd, 0))
        try:
            _enter(os.path.dirname(self._database))  # a path is judged from where we are
            return os.posix_spawn(
                argv[0],
                argv,
                self._env,
                file_actions=files,
                setsigmask=self._mask,
                setsigdef=IGNORED_BY_PYTHON,
            )
        finally:
            _enter(b"/")
            if fd >= 0:
                os.close(fd)


def _keep(path: bytes, data: bytes) -> bool:
    """Write the spool file, complete and on disk or not at all."""
    temporary = path + b".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        _make_directory(os.path.dirname(path))
        fd = os.open(temporary, flags, 0o600)
        try:
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
    """The exit status of an attempt, which is killed if it takes too long."""
    until = time.monotonic() + ATTEMPT_SECONDS
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        left = until - time.monotonic()
        if left <= 0:
            os.kill(pid, SIGKILL)
            os.waitpid(pid, 0)
            return -SIGKILL
        sigtimedwait({SIGCHLD}, left)
