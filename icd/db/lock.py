"""The one lock of every program that touches a database.

`<db>.lock` is locked with flock(2) for every batch of the daemon and every transaction of a direct
call, because SQLite before 3.51.3 can damage a WAL database when two connections write or
checkpoint at the same instant, and most distributions ship an older one.

Invariants
    - the file is created once and never unlinked: unlinking would split one lock into two;
    - after locking, the path must still name what we locked, else we lock again;
    - waiting ends at the deadline, and the error names the holder.
"""

import fcntl
import os
import signal
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from icd import files, procfs
from icd.errors import BadPath, IcError, Locked, NoDatabase, from_os

POLL_SECONDS = 0.0002
POLL_SECONDS_LATER = 0.002
POLL_EAGERLY_FOR = 0.1
REPEAT_SECONDS = 0.01
NOTE_BYTES = 256

Wait = Callable[[int, float], bool]


def poll(fd: int, deadline: float) -> bool:
    """Wait without blocking the thread for good; for threads, which cannot use a timer."""
    eager_until = time.monotonic() + POLL_EAGERLY_FOR
    while not _try(fd):
        now = time.monotonic()
        if now >= deadline:
            return False
        pause = POLL_SECONDS if now < eager_until else POLL_SECONDS_LATER
        time.sleep(min(pause, deadline - now))
    return True


class _Expired(BaseException):
    """Raised by the timer inside flock(2); never leaves this module."""


def block(fd: int, deadline: float) -> bool:
    """Queue in the kernel under a timer; for the main thread of a short-lived process."""
    if _try(fd):
        return True
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        return False

    armed = [True]

    def expire(_signum: int, _frame: FrameType | None) -> None:
        if armed:
            armed.clear()  # once: its handler must not be interrupted again
            raise _Expired

    before = signal.signal(signal.SIGALRM, expire)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    try:
        # Repeated: an alarm that comes just before flock(2) would otherwise be lost.
        signal.setitimer(signal.ITIMER_REAL, remaining, REPEAT_SECONDS)
        fcntl.flock(fd, fcntl.LOCK_EX)
        armed.clear()
    except _Expired:
        fcntl.flock(fd, fcntl.LOCK_UN)  # it may have come just after
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGALRM, before)
    return True


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class FileLock:
    """An exclusive lock on a path, kept open between uses."""

    def __init__(self, path: str, wait: Wait) -> None:
        self.path = path
        self.waited_ms = 0.0
        self._wait = wait
        self._fd = -1

    def acquire(self, deadline: float) -> None:
        """Lock, or raise Locked when `deadline` (monotonic seconds) has passed."""
        began = time.monotonic()
        while True:
            if self._fd < 0:
                self._fd = self._open()
            if not self._wait(self._fd, deadline):
                raise self._locked()
            if self.is_current():
                self.waited_ms = (time.monotonic() - began) * 1000
                return
            self.close()

    def release(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read_note(self) -> bytes:
        """What a holder left in this very file for the next; while the lock is held.

        A copy of the file, as a clone or a backup has it, speaks of other files.
        """
        try:
            mark, _, note = os.pread(self._fd, NOTE_BYTES, 0).partition(b" ")
            return note if mark == self._mark() else b""
        except OSError:
            return b""

    def write_note(self, note: bytes) -> None:
        """Leave a note.  A full disk keeps the old one: it only helps to tell what is lost."""
        with suppress(OSError):
            text = b"%s %s" % (self._mark(), note)
            os.pwrite(self._fd, text[: NOTE_BYTES - 1].ljust(NOTE_BYTES - 1) + b"\n", 0)

    def _mark(self) -> bytes:
        return b"%d" % os.fstat(self._fd).st_ino

    def holder(self) -> str:
        """Who holds it, as /proc/locks tells; for people, so never an error."""
        try:
            inode = os.fstat(self._fd).st_ino
            with open("/proc/locks", encoding="ascii") as table:
                for line in table:
                    fields = line.split()
                    if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                        return f"process {fields[4]} ({_command(fields[4])})"
        except (OSError, IndexError):
            pass
        return "another process"

    def _locked(self) -> IcError:
        holder = self.holder()
        pid = holder.split()[1]
        found = procfs.stat(pid)
        if found is None or not found.is_stopped:
            return Locked(f"the database is locked by {holder}")
        hint = f"let it go on with 'kill -CONT {pid}', or end it with 'kill -KILL {pid}'"
        return Locked(f"the database is locked by {holder}, which is stopped", hint=hint)

    def _open(self) -> int:
        try:
            fd = files.open_(self.path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError as exc:
            raise NoDatabase(f"no database at {self.path.removesuffix('.lock')}") from exc
        except OSError as exc:
            raise from_os(exc, f"open the lock file {self.path}") from exc
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(fd)
            what = "has another name" if stat.S_ISREG(found.st_mode) else "is not a regular file"
            raise BadPath(f"{self.path} {what}", hint="move it away: it is made anew")
        return fd

    def is_current(self) -> bool:
        """Whether the file was not replaced between our open and our lock."""
        try:
            return files.is_named(self._fd, self.path)
        except OSError as exc:
            raise from_os(exc, f"look at {self.path}") from exc


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "gone"
