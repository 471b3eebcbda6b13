"""SQLite's write-ahead log and its index, as far as we read them, and whether they are still there.

The log, `-wal`, holds commits in frames, each with the salt of the log and the sum of all frames up
to it.  The index, `-shm`, says how many frames count, with which sum the last one ends, and how
much of the log has reached the database; an index with an empty header is rebuilt by SQLite from
the log, checksum by checksum.

Both are opened once: if one is removed, emptied or replaced, SQLite goes on with what it has open,
says ok, and the next process sees nothing of it.  A log that was cut is worse: SQLite does not look
at its checksums again, and a checkpoint would copy what is no longer there into the database.  So
before every batch the three files are compared with those that are open.

Everything here runs under the database's lock.  Descriptors belong to SQLite: they are found by
their identity, looked at again before they are written to, and never closed, because closing one
would drop SQLite's own locks.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import BinaryIO, TypeVar
from zlib import crc32

from msgspec import Struct

from icd.files import Identity, open_, opened

T = TypeVar("T")

Salt = tuple[int, int]  # of a log: its frames have it, too
NO_SALT = (0, 0)  # of a log that nothing was written to

# SQLite's wal-index: two copies of a header of 48 bytes, then what checkpoints have done.
_HEADER = struct.Struct("=IIIBBHII2I8s8x")
_SALT = struct.Struct(">II")  # as the log has it
_CHECKPOINT = struct.Struct("=I28xI")
_HEADERS_BYTES = 96
_READ_BYTES = 136
# The index grows by parts, which are mapped: to read beyond the end of the file is a SIGBUS.
_PART_BYTES = 32768
_FRAMES_OF_FIRST_PART = 4062
_FRAMES_OF_PART = 4096
_LOG_HEADER_BYTES = 32
_LOG_SALT = slice(16, 24)
_FRAME_HEADER_BYTES = 24
_FRAME = struct.Struct(">8x8s2I")  # of each frame: the log's salt, and the sum of all up to here
_LARGEST_PAGE = 65536
# Of a database file so much is summed up, to tell a file that was overwritten from one that was
# only touched: two milliseconds, after a checkpoint.
_SUM_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
# Descriptors that are looked at first, to find those of a database that was just opened.
_LATEST = 16
# Each time that SQLite begins a log anew in the same file, it counts the first half of its salt;
# that of another file, or of the first frame after the log was emptied, is random.  It is not begun
# anew more often between two looks.
_MOST_RESTARTS = 65536


class Index(Struct, frozen=True, gc=False):
    """What the wal-index says of the log; `copied` frames have reached the database."""

    salt: Salt
    frames: int
    page_bytes: int
    copied: int
    attempted: int
    last_sum: tuple[int, int] = (0, 0)  # of the last frame, and of all before it

    @property
    def uncopied(self) -> int:
        """How many frames a log must have so that no commit is lost: all of them, or none."""
        return self.frames if self.frames > self.copied else 0

    @property
    def log_bytes(self) -> int:
        """How long the log must be to hold its frames."""
        if not self.frames:
            return 0
        return _LOG_HEADER_BYTES + self.frames * (_FRAME_HEADER_BYTES + self.page_bytes)

    def fits(self, log_fd: int) -> bool:
        """Whether the log is the one that this index is about, and has its last frame."""
        if not self.frames:
            found = read_salt(log_fd)  # of the frames that were there before it was begun anew
            return found == NO_SALT or is_later(found, self.salt)
        last = os.pread(log_fd, _FRAME.size, self.log_bytes - self.page_bytes - _FRAME.size)
        if len(last) < _FRAME.size or os.fstat(log_fd).st_size < self.log_bytes:
            return False
        salt, *last_sum = _FRAME.unpack(last)
        return salt == _SALT.pack(*self.salt) and tuple(last_sum) == self.last_sum

    @property
    def index_bytes(self) -> int:
        """How long the index itself must be."""
        more = max(0, self.frames - _FRAMES_OF_FIRST_PART + _FRAMES_OF_PART - 1) // _FRAMES_OF_PART
        return _PART_BYTES * (1 + more)

    @property
    def is_copying(self) -> bool:
        """Whether a checkpoint is under way, or was cut off: the database file may change."""
        return self.attempted != self.copied

    @property
    def checkpoints(self) -> tuple[object, ...]:
        """Changes whenever SQLite writes to the database file."""
        return self.salt, self.copied, self.attempted


def read_salt(log_fd: int) -> Salt:
    """Of an open log."""
    header = os.pread(log_fd, _LOG_HEADER_BYTES, 0)
    if len(header) < _LOG_HEADER_BYTES:
        return NO_SALT
    first, second = _SALT.unpack(header[_LOG_SALT])
    return first, second


def is_later(before: Salt, now: Salt) -> bool:
    """Whether it is the salt of the same log, or of one that SQLite began anew in its place."""
    return now == before or 0 < (now[0] - before[0]) % 2**32 <= _MOST_RESTARTS


def is_other(known: Salt, found: Salt) -> bool:
    """Whether a log is another one than was known, such as an old copy."""
    return NO_SALT not in (known, found) and not is_later(known, found)


def parse(data: bytes) -> Index | None:
    """None: not a valid index; SQLite rebuilds such a one from the log."""
    if len(data) < _READ_BYTES or data[:48] != data[48:96]:
        return None
    _, _, _, is_init, _, page, frames, _pages, *last_sum, salt = _HEADER.unpack(data[:48])
    if not is_init:
        return None
    copied, attempted = _CHECKPOINT.unpack(data[96:132])
    page_bytes = _LARGEST_PAGE if page == 1 else page & 0xFE00
    first, second = _SALT.unpack(salt)
    sums = (last_sum[0], last_sum[1])
    return Index((first, second), frames, page_bytes, copied, attempted, sums)


def has_gone_back(before: Index, now: Index) -> bool:
    """Whether an index knows less than it did, or is about another log."""
    if now.salt == before.salt:
        return now.frames < before.frames
    return bool(before.frames) and is_other(before.salt, now.salt)


def read_index(path: str) -> Index | None:
    """The index that a process left or keeps; only while this process has the database closed.

    One that was cut, or whose log was, still has its header, and no longer what the header speaks
    of: without the header, SQLite makes it anew.
    """
    try:
        with opened(f"{path}-shm", os.O_RDWR) as fd:
            found = parse(os.pread(fd, _READ_BYTES, 0))
            is_cut = found is not None and os.fstat(fd).st_size < found.index_bytes
            if is_cut or (found is not None and not _fits(found, f"{path}-wal")):
                os.pwrite(fd, b"\0" * _HEADERS_BYTES, 0)
            return found
    except OSError:
        return None


def _fits(index: Index, log: str) -> bool:
    """Whether an index is about the log of that name; without one, SQLite makes both anew."""
    return _with_log(log, index.fits, otherwise=True)


def salt_of(log: str) -> Salt:
    return _with_log(log, read_salt, otherwise=NO_SALT)


def _with_log(log: str, use: Callable[[int], T], *, otherwise: T) -> T:
    """Log files are never locked, so that opening and closing one is harmless."""
    try:
        fd = open_(log)
    except OSError:
        return otherwise
    try:
        return use(fd)
    finally:
        os.close(fd)


def sum_of(fd: int) -> int:
    """A sum of the beginning of a file."""
    found = at = 0
    while at < _SUM_BYTES and (chunk := os.pread(fd, _CHUNK_BYTES, at)):
        found = crc32(chunk, found)
        at += len(chunk)
    return found


# --- the files of an open database ----------------------------------------------------------------


class Seen(Struct, frozen=True, gc=False):
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
    return Seen((found.st_dev, found.st_ino), found.st_size, found.st_ctime_ns)


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
            raw = os.pread(self._index_fd, _READ_BYTES, 0)
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
        """Of the open log."""
        fd = self._log()
        return NO_SALT if fd < 0 else read_salt(fd)

    def lengthen_index(self) -> None:
        """Give an index that was cut its size back: to read what is mapped would be a SIGBUS."""
        fd = self._index()
        need = self.known.index_bytes if self.known else _PART_BYTES
        if fd >= 0 and os.fstat(fd).st_size < need:
            os.ftruncate(fd, need)
            self.rebuild_index()

    def rebuild_index(self) -> None:
        """Have SQLite read the log anew: what its checksums vouch for counts, and nothing else."""
        fd = self._index()
        if fd >= 0:
            os.pwrite(fd, b"\0" * _HEADERS_BYTES, 0)

    def empty_log(self) -> None:
        """Leave SQLite nothing to copy into a file that is not the one it wrote for."""
        self.rebuild_index()
        fd = self._log()
        if fd >= 0:
            os.ftruncate(fd, 0)

    def main_sum(self) -> int | None:
        """Of the database file that SQLite has open."""
        fd = _descriptor(self.path, self.main, self._main_fd)
        return None if fd < 0 else sum_of(fd)

    def copy_log(self, out: BinaryIO) -> None:
        """The open log, whatever its name leads to."""
        fd, at = self._log(), 0
        while fd >= 0 and (chunk := os.pread(fd, _CHUNK_BYTES, at)):
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
    for look in (_latest_files, open_files):
        for fd, to in look().items():
            if to == real and _leads_to(fd, seen):
                return fd
    return -1


def open_files(pid: int | str = "self") -> dict[int, str]:
    """The descriptors of a process and the names of their files, without a look at the files."""
    found: dict[int, str] = {}
    with suppress(OSError):
        found = _names(pid, map(int, os.listdir(f"/proc/{pid}/fd")))
    return found


def _latest_files() -> dict[int, str]:
    """Those just below the next free number: what was opened last, whatever else is open.

    A daemon with a thousand databases has thousands of descriptors.
    """
    try:
        free = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    os.close(free)
    return _names("self", range(free - 1, max(-1, free - 1 - _LATEST), -1))


def _names(pid: int | str, descriptors: Iterable[int]) -> dict[int, str]:
    found = {}
    for fd in descriptors:
        with suppress(OSError):  # closed meanwhile, as that of a listing is
            found[fd] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


def _leads_to(fd: int, seen: Seen) -> bool:
    try:
        found = os.fstat(fd)
    except OSError:
        return False  # closed, as the descriptor of a listing is
    return (found.st_dev, found.st_ino) == seen.identity
