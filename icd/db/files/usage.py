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

from icd.db.files.companions import Index, Salt, Seen, is_other, open_files, see

# From here on SQLite keeps its shared locks on the main file.
_SHARED_FIRST = 0x40000002
_STATES = (b"open", b"closing", b"closed", b"lost")


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

    def is_about(self, main: Seen | None, wal: Seen | None, shm: Seen | None) -> bool:
        """Whether it was written while these were in use."""
        inodes = (_inode(main), _inode(wal), _inode(shm))
        return self.state == "open" and inodes == (self.main, self.wal, self.shm)

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


def note(path: str, state: str, index: Index | None = None) -> Note:
    """Of the files that are there now; what the index says, if it is known."""
    return note_of(state, (see(path), see(f"{path}-wal"), see(f"{path}-shm")), index)


def note_of(
    state: str,
    files: tuple[Seen | None, Seen | None, Seen | None],
    index: Index | None = None,
) -> Note:
    main, wal, shm = files
    inodes = (_inode(main), _inode(wal), _inode(shm))
    changed_ns = main.changed_ns if main else 0
    if index is None:
        return Note(state, *inodes, changed_ns)
    log = (*index.salt, index.uncopied, index.copied, index.attempted)
    return Note(state, *inodes, changed_ns, *log)


def _inode(seen: Seen | None) -> int:
    return seen.identity[1] if seen else 0


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
