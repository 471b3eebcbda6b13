"""The files that SQLite keeps beside an open database, and whether they are still there.

SQLite in WAL mode appends commits to `-wal` and finds them through `-shm`, which all processes map.
Both are opened once: if one is removed, emptied or replaced, SQLite goes on with what it has open,
says ok, and the next process sees nothing of it.  A log that was cut is worse: SQLite does not look
at its checksums again, and a checkpoint would copy what is no longer there into the database.

So before every batch the three files are compared with those that are open.  The index says how
long the log must be, with which checksum its last frame ends, and how much of it has reached the
database; an index with an empty header is rebuilt by SQLite from the log, checksum by checksum.

Everything here runs under the database's lock.  Descriptors belong to SQLite: they are found by
their identity, looked at again before they are written to, and never closed, because closing one
would drop SQLite's own locks.
"""

import os
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from icd.db.files.wal import (
    CHUNK_BYTES,
    HEADERS_BYTES,
    NO_SALT,
    PART_BYTES,
    READ_BYTES,
    Index,
    Salt,
    has_gone_back,
    parse,
    read_salt,
    sum_of,
)
from icd.files import Identity, identity


class Seen(NamedTuple):
    """One file by `stat`."""

    identity: Identity
    size: int
    changed_ns: int  # the kernel's own time: programs can set the other one back


def see(path: str) -> Seen | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _seen(found)


def _seen(found: os.stat_result) -> Seen:
    return Seen(identity(found), found.st_size, found.st_ctime_ns)


class Companions:
    """The `-wal` and the `-shm` of the connection that this process has open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.main = see(path)
        self.log = see(f"{path}-wal")
        self.index = see(f"{path}-shm")
        self._log_fd = _descriptor(f"{path}-wal", self.log)
        self._index_fd = _descriptor(f"{path}-shm", self.index)
        self._main_fd = _descriptor(path, self.main)
        self._raw = b""
        self._parsed: Index | None = None
        self.known = self.read()  # when the lock was last released

    @property
    def files(self) -> tuple[Seen | None, Seen | None, Seen | None]:
        return self.main, self.log, self.index

    def read(self) -> Index | None:
        """What the index says now."""
        if self._index_fd < 0:
            return None
        try:
            raw = os.pread(self._index_fd, READ_BYTES, 0)
        except OSError:
            return None
        if raw != self._raw:
            self._raw, self._parsed = raw, parse(raw)
        return self._parsed

    def open_main(self) -> Seen | None:
        """The database file that SQLite has open, as it is now."""
        try:
            return _seen(os.fstat(self._main_fd))
        except OSError:
            return see(self.path)

    def are_whole(self) -> bool:
        """Whether nothing of what is open is missing, whatever its names lead to."""
        known = self.known
        if known is None:
            return True  # nothing is known that could be missing
        try:
            log, index = os.fstat(self._log_fd), os.fstat(self._index_fd)
        except OSError:
            return False
        return (
            log.st_nlink > 0
            and index.st_nlink > 0
            and log.st_size >= known.log_bytes
            and index.st_size >= known.index_bytes
            and not self._has_gone_back(known)
            and not self.has_wrong_log()
        )

    def are_named(self) -> bool:
        """Whether the names lead to what is open, whatever became of the contents."""
        return self._are_ours(see(f"{self.path}-wal"), see(f"{self.path}-shm"))

    def _are_ours(self, log: Seen | None, index: Seen | None) -> bool:
        return _is_same(log, self.log) and _is_same(index, self.index)

    def has_wrong_log(self) -> bool:
        """Whether the open log was cut, or overwritten: the index is about another one.

        Looked at twice: a program that does not know our lock may begin a log anew in between.
        """
        fd = self._log()
        return fd >= 0 and all(
            index is not None and not index.fits(fd) for index in (self.read(), self.read())
        )

    def log_salt(self) -> Salt:
        """The salt of the open log."""
        fd = self._log()
        return NO_SALT if fd < 0 else read_salt(fd)

    def lengthen_index(self) -> None:
        """Give an index that was cut its size back: to read what is mapped would be a SIGBUS."""
        fd = self._index()
        need = self.known.index_bytes if self.known else PART_BYTES
        if fd >= 0 and os.fstat(fd).st_size < need:
            os.ftruncate(fd, need)
            self.rebuild_index()

    def rebuild_index(self) -> None:
        """Have SQLite read the log anew: what its checksums vouch for counts, and nothing else."""
        fd = self._index()
        if fd >= 0:
            os.pwrite(fd, b"\0" * HEADERS_BYTES, 0)

    def empty_log(self) -> None:
        """Leave SQLite nothing to copy into a file that is not the one it wrote for."""
        self.rebuild_index()
        fd = self._log()
        if fd >= 0:
            os.ftruncate(fd, 0)

    def main_sum(self) -> int | None:
        """The sum of the database file that SQLite has open."""
        fd = _descriptor(self.path, self.main, self._main_fd)
        return None if fd < 0 else sum_of(fd)

    def copy_log(self, out: BinaryIO) -> None:
        """The open log, whatever its name leads to."""
        fd, at = self._log(), 0
        while fd >= 0 and (chunk := os.pread(fd, CHUNK_BYTES, at)):
            out.write(chunk)
            at += len(chunk)

    def has_log(self) -> bool:
        fd = self._log()
        return fd >= 0 and os.fstat(fd).st_size > 0

    def _log(self) -> int:
        self._log_fd = _descriptor(f"{self.path}-wal", self.log, self._log_fd)
        return self._log_fd

    def _index(self) -> int:
        self._index_fd = _descriptor(f"{self.path}-shm", self.index, self._index_fd)
        return self._index_fd

    def _has_gone_back(self, known: Index) -> bool:
        """An old copy was written over the index: SQLite would overwrite later frames."""
        index = self.read()
        return index is not None and has_gone_back(known, index)


def _is_same(found: Seen | None, known: Seen | None) -> bool:
    if found is None or known is None:
        return found is known
    return found.identity == known.identity


def _descriptor(name: str, seen: Seen | None, first: int = -1) -> int:
    """SQLite's own descriptor of a file in this process; -1 where the system does not tell.

    `first` is tried first: it is the one, unless another connection of this process had it.
    Only descriptors of that name are looked at: one of another file system may hang.
    """
    if seen is None:
        return -1
    if _leads_to(first, seen):
        return first
    directory, base = os.path.split(name)
    real = os.path.join(os.path.realpath(directory), base)
    names = open_files("self")
    return next((fd for fd, to in names.items() if to == real and _leads_to(fd, seen)), -1)


def open_files(pid: int | str) -> dict[int, str]:
    """The descriptors of a process and the names of their files, without a look at the files."""
    directory = f"/proc/{pid}/fd"
    found = {}
    with suppress(OSError):
        for number in os.listdir(directory):
            with suppress(OSError):  # closed meanwhile, as that of the listing is
                found[int(number)] = os.readlink(f"{directory}/{number}")
    return found


def _leads_to(fd: int, seen: Seen) -> bool:
    try:
        found = os.fstat(fd)
    except OSError:
        return False  # closed, as the descriptor of a listing is
    return identity(found) == seen.identity
