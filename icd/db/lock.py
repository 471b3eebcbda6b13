"""The one lock of every program that touches a database, and the note in its file.

`<db>.lock` is locked with flock(2) for every batch of the daemon and every transaction of a direct
call, because SQLite before 3.51.3 can damage a WAL database when two connections write or
checkpoint at the same instant, and most distributions ship an older one.

Invariants
    - the file is created once and never unlinked: unlinking would split one lock into two;
    - after locking, the path must still name what we locked, else we lock again;
    - waiting ends at the deadline, and the error names the holder.

The note tells which files the processes that have a database open are using.  It outlives its
writer, so that the next process can tell a log that SQLite copied and removed from one that was
removed, emptied or replaced with commits in it.

    ic1 open <main> <wal> <shm> <changed> <salt> <salt> <frames> <copied> <attempted> <sum>
        <placed>
    ic1 closing …    SQLite may remove -wal and -shm
    ic1 closed …     it has
    ic1 lost …       writes were lost, and no caller has been told yet

The first three are inodes, <changed> is the main file's time in nanoseconds, and the rest is how
far the log, and SQLite's copying of it, had come at the last commit; <sum> is of the main file, or
-1; <placed> is the main file that a program of ours put there, as a restore does.  Version 0.4.0
and the sqlite3 program write no note; a log that one of them copied left a newer main file behind,
and is no loss.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from msgspec import Struct
from msgspec.structs import astuple

from icd import files, procfs
from icd.db.wal import NO_SALT, Index, Salt, Seen, is_other, open_files, see
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

    import signal  # only a caller that waits pays for it

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

    @property
    def inode(self) -> int:
        """Of the file that is open; 0 if none is."""
        return os.fstat(self._fd).st_ino if self._fd >= 0 else 0

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
        return b"%d" % self.inode

    def _locked(self) -> IcError:
        """Who holds it, as far as the kernel tells."""
        pid = procfs.lock_holder(os.fstat(self._fd).st_ino)
        if pid is None:
            return Locked("the database is locked by another process")
        found = procfs.stat(pid)
        holder = f"process {pid} ({found.name if found else 'gone'})"
        if found is None or not found.is_stopped:
            return Locked(f"the database is locked by {holder}")
        hint = f"resume it with 'kill -CONT {pid}', or end it with 'kill -KILL {pid}'"
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
            raise BadPath(f"{self.path} {what}", hint="move it away; it is recreated")
        return fd

    def is_current(self) -> bool:
        """Whether the file was not replaced between our open and our lock."""
        try:
            return files.is_named(self._fd, self.path)
        except OSError as exc:
            raise from_os(exc, f"look at {self.path}") from exc


# --- the note -------------------------------------------------------------------------------------

# From here on SQLite keeps its shared locks on the main file.
_SHARED_FIRST = 0x40000002
_STATES = (b"open", b"closing", b"closed", b"lost")

Files = tuple[Seen | None, Seen | None, Seen | None]  # the database, its log and the index


class Note(Struct, frozen=True, gc=False):
    state: str
    main: int
    wal: int
    shm: int
    changed_ns: int
    salt1: int = 0
    salt2: int = 0
    frames: int = 0
    copied: int = 0
    attempted: int = 0
    main_sum: int = -1
    placed: int = 0

    @property
    def salt(self) -> Salt:
        return self.salt1, self.salt2

    def encode(self) -> bytes:
        return f"ic1 {' '.join(map(str, astuple(self)))}".encode()

    def is_kept(self, index: Index | None) -> bool:
        """Whether a log still has all that was noted of it."""
        if index is None or index.salt != self.salt:
            return not self.frames
        return index.frames >= self.frames

    @property
    def inodes(self) -> tuple[int, int, int]:
        return self.main, self.wal, self.shm

    def is_about(self, files: Files) -> bool:
        """Whether it was written while these were in use."""
        return self.state == "open" and self.inodes == _inodes(files)

    def is_other(self, log_salt: Salt) -> bool:
        """Whether a log is not the one that was noted, nor one that followed it."""
        return bool(self.frames or self.copied) and is_other(self.salt, log_salt)

    def is_unwritten(self, index: Index | None) -> bool:
        """Whether SQLite has copied nothing to the main file since."""
        if index is None or index.is_copying:
            return False
        return index.checkpoints == (self.salt, self.copied, self.attempted)

    @classmethod
    def decode(cls, data: bytes) -> Note | None:
        words = data.split()
        if len(words) != 13 or words[0] != b"ic1" or words[1] not in _STATES:
            return None
        try:
            numbers = [int(word) for word in words[2:]]
        except ValueError:
            return None
        return cls(words[1].decode(), *numbers)

    @classmethod
    def of(
        cls,
        state: str,
        files: Files,
        index: Index | None = None,
        *,
        main_sum: int | None = None,
        placed: int = 0,
    ) -> Note:
        """Of these files; what the index says, if it is known."""
        changed_ns = files[0].changed_ns if files[0] else 0
        known_sum = -1 if main_sum is None else main_sum
        known = index or Index(NO_SALT, 0, 0, 0, 0)
        log = (*known.salt, known.uncopied, known.copied, known.attempted)
        return cls(state, *_inodes(files), changed_ns, *log, known_sum, placed)


def files_of(path: str) -> Files:
    """The files that are there now."""
    return see(path), see(f"{path}-wal"), see(f"{path}-shm")


def _inodes(files: Files) -> tuple[int, int, int]:
    main, wal, shm = (file.identity[1] if file else 0 for file in files)
    return main, wal, shm


def has_open(pid: int, *names: str) -> bool | None:
    """Whether a process has the files of these names open; None where the kernel does not tell.

    One that was removed or moved since has another name there.
    """
    found = open_files(pid)
    return set(names) <= set(found.values()) if found else None


def sqlite_holder(path: str) -> int | None:
    """Another process that has the database open, by SQLite's lock; 0: one that we cannot see.

    As the kernel tells: opening the file to ask would drop SQLite's locks when it is closed again.
    One that was killed gives up our lock first and SQLite's a moment later: it is none any more.
    """
    main = see(path)
    if main is None:
        return None
    try:
        with open("/proc/locks", "rb") as table:
            lines = table.read().splitlines()
    except OSError:
        return None
    device, inode = main.identity
    name = b"%02x:%02x:%d" % (os.major(device), os.minor(device), inode)
    # A daemon has thousands of locks: only lines that may be about this file are taken apart.
    for words in [line.split() for line in lines if name in line]:
        is_sqlites = b"POSIX" in words and words[-3] == name and int(words[-2]) >= _SHARED_FIRST
        pid = max(0, int(words[-4]))
        if is_sqlites and pid != os.getpid() and not (pid and procfs.is_exiting(pid)):
            return pid
    return None
