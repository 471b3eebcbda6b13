"""A note in the lock file: which files the processes that have a database open are using.

It outlives its writer, so that the next process can tell a log that SQLite copied and removed from
one that was removed, emptied or replaced with commits in it.

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

import os
from typing import NamedTuple

from icd.db.files.companions import Seen, open_files, see
from icd.db.files.wal import NO_SALT, Index, Salt, is_other

# From here on SQLite keeps its shared locks on the main file.
_SHARED_FIRST = 0x40000002
_STATES = (b"open", b"closing", b"closed", b"lost")

Files = tuple[Seen | None, Seen | None, Seen | None]  # the database, its log and the index


class Note(NamedTuple):
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
        return f"ic1 {' '.join(map(str, self))}".encode()

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


def decode(data: bytes) -> Note | None:
    words = data.split()
    if len(words) != 13 or words[0] != b"ic1" or words[1] not in _STATES:
        return None
    try:
        numbers = [int(word) for word in words[2:]]
    except ValueError:
        return None
    return Note(words[1].decode(), *numbers)


def seen(path: str) -> Files:
    """The files that are there now."""
    return see(path), see(f"{path}-wal"), see(f"{path}-shm")


def note(
    state: str,
    files: Files,
    index: Index | None = None,
    *,
    main_sum: int | None = None,
    placed: int = 0,
) -> Note:
    """The text of a note about these files, with what the index says, if it is known."""
    changed_ns = files[0].changed_ns if files[0] else 0
    known_sum = -1 if main_sum is None else main_sum
    known = index or Index(NO_SALT, 0, 0, 0, 0)
    log = (*known.salt, known.uncopied, known.copied, known.attempted)
    return Note(state, *_inodes(files), changed_ns, *log, known_sum, placed)


def _inodes(files: Files) -> tuple[int, int, int]:
    main, wal, shm = (file.identity[1] if file else 0 for file in files)
    return main, wal, shm


def has_open(pid: int, *names: str) -> bool | None:
    """Whether a process has the files of these names open; None where the kernel does not tell.

    One that was removed or moved since has another name there.
    """
    found = open_files(pid)
    return set(names) <= set(found.values()) if found else None


def holder(path: str) -> int | None:
    """Another process that has the database open, by SQLite's lock; 0: one that we cannot see.

    As the kernel tells: opening the file to ask would drop SQLite's locks when it is closed again.
    """
    main = see(path)
    if main is None:
        return None
    try:
        with open("/proc/locks", "rb") as table:
            lines = [line.split() for line in table]
    except OSError:
        return None
    device, inode = main.identity
    name = b"%02x:%02x:%d" % (os.major(device), os.minor(device), inode)
    for words in lines:
        is_sqlites = b"POSIX" in words and words[-3] == name and int(words[-2]) >= _SHARED_FIRST
        if is_sqlites and int(words[-4]) != os.getpid():
            return max(0, int(words[-4]))
    return None
