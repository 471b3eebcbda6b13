"""A note in the lock file: which files the processes that have a database open are using.

It outlives its writer, so that the next process can tell a log that SQLite removed, because it was
empty, from one that was removed after a crash, with commits in it, or under a process that still
writes to it.

    ic1 open <main> <wal> <shm> <modified>      inodes, and the main file's time in nanoseconds
    ic1 closing …                               SQLite may be removing log and index right now
    ic1 closed …                                it has

Version 0.4.0 and the sqlite3 program write no note.  A log that one of them copied and removed
left a newer main file behind, so that is no alarm.
"""

import fcntl
import os
import struct
from typing import NamedTuple

from icd.db.companions import Seen, see
from icd.db.lock import NOTE_BYTES

# Where SQLite keeps its shared locks on the main file.
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_FLOCK = struct.Struct("hhqqi")


class Note(NamedTuple):
    state: str
    main: int
    wal: int
    shm: int
    modified_ns: int

    def encode(self) -> bytes:
        return f"ic1 {' '.join(map(str, self))}".encode().ljust(NOTE_BYTES - 1) + b"\n"


def decode(data: bytes) -> Note | None:
    words = data[:NOTE_BYTES].split()
    if len(words) != 6 or words[0] != b"ic1" or words[1] not in (b"open", b"closing", b"closed"):
        return None
    try:
        main, wal, shm, modified_ns = map(int, words[2:])
        return Note(words[1].decode(), main, wal, shm, modified_ns)
    except ValueError:
        return None


def note(path: str, state: str = "open") -> Note:
    """Of the files that are there now."""
    main, wal, shm = see(path), see(f"{path}-wal"), see(f"{path}-shm")
    modified = main.modified_ns if main else 0
    return Note(state, _inode(main), _inode(wal), _inode(shm), modified)


def _inode(seen: Seen | None) -> int:
    return seen.identity[1] if seen else 0


def holder(path: str) -> int | None:
    """The process that has the database open, by SQLite's lock; 0: one that we cannot see.

    Only while this process has it closed: closing a descriptor would drop SQLite's own locks.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        ask = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0)
        kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, ask))
    except (OSError, struct.error):
        return None
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else pid
