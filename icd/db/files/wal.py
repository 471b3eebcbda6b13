"""SQLite's write-ahead log and its index, as far as we read them.

The log, `-wal`, holds commits in frames, each with the salt of the log and the sum of all frames up
to it.  The index, `-shm`, says how many frames count, with which sum the last one ends, and how
much of the log has reached the database.
"""

import os
import struct
from collections.abc import Callable
from typing import NamedTuple, TypeVar
from zlib import crc32

from icd.files import open_, opened

T = TypeVar("T")

Salt = tuple[int, int]  # of a log: its frames have it, too
NO_SALT = (0, 0)  # of a log that nothing was written to

# SQLite's wal-index: two copies of a header of 48 bytes, then what checkpoints have done.
_HEADER = struct.Struct("=IIIBBHII2I8s8x")
_SALT = struct.Struct(">II")  # as the log has it
_CHECKPOINT = struct.Struct("=I28xI")
HEADERS_BYTES = 96
READ_BYTES = 136
# The index grows by parts, which are mapped: to read beyond the end of the file is a SIGBUS.
PART_BYTES = 32768
_FRAMES_OF_FIRST_PART = 4062
_FRAMES_OF_PART = 4096
_LOG_HEADER_BYTES = 32
_LOG_SALT = slice(16, 24)
_FRAME_HEADER_BYTES = 24
_FRAME = struct.Struct(">8x8s2I")  # of each frame: the log's salt, and the sum of all up to here
_LARGEST_PAGE = 65536
# Of a database file so much is summed up, to tell a file that was overwritten from one that was
# only touched: two milliseconds, after a checkpoint.
SUM_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
# Each time that SQLite begins a log anew in the same file, it counts the first half of its salt;
# that of another file, or of the first frame after the log was emptied, is random.  It is not begun
# anew more often between two looks.
_MOST_RESTARTS = 65536


class Index(NamedTuple):
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
        return PART_BYTES * (1 + more)

    @property
    def is_copying(self) -> bool:
        """Whether a checkpoint is under way, or was cut off: the database file may change."""
        return self.attempted != self.copied

    @property
    def checkpoints(self) -> tuple[object, ...]:
        """Changes whenever SQLite writes to the database file."""
        return self.salt, self.copied, self.attempted


def read_salt(log_fd: int) -> Salt:
    """The salt of an open log."""
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
    if len(data) < READ_BYTES or data[:48] != data[48:96]:
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
            found = parse(os.pread(fd, READ_BYTES, 0))
            is_cut = found is not None and os.fstat(fd).st_size < found.index_bytes
            if is_cut or (found is not None and not _fits(found, f"{path}-wal")):
                os.pwrite(fd, b"\0" * HEADERS_BYTES, 0)
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
    while at < SUM_BYTES and (chunk := os.pread(fd, CHUNK_BYTES, at)):
        found = crc32(chunk, found)
        at += len(chunk)
    return found
