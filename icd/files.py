"""Files in places where others may plant anything.

Nothing here follows a link, waits for the other end of a pipe, or is inherited by a program that
is started later.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

Path = str | bytes
Identity = tuple[int, int]  # device and inode

# Beyond this a log is put aside, in the place of the one that was put aside before.
LOG_BYTES = 1024 * 1024
CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_(path: Path, flags: int = os.O_RDONLY, *, dir_fd: int | None = None) -> int:
    """A descriptor; a file that is made is private from its first moment."""
    return os.open(path, flags | CAREFULLY, 0o600, dir_fd=dir_fd)


def create(path: Path, *, dir_fd: int | None = None) -> int:
    """A descriptor of a new file, to write to; `FileExistsError` if there is anything."""
    return open_(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=dir_fd)


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor for the block."""
    fd = open_(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def read(path: str, most: int, *, may_be_link: bool = False) -> bytes:
    """The first bytes of a regular file; OSError if it is none."""
    flags = CAREFULLY & ~os.O_NOFOLLOW if may_be_link else CAREFULLY
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        return file.read(most)


def replace(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write a file as a whole or not at all; its directory is made, too."""
    directory, name = os.path.split(path)
    os.makedirs(directory, mode=0o777 if mode & 0o077 else 0o700, exist_ok=True)
    draft = os.path.join(directory, f".{name}-{os.getpid()}")
    remove(draft)  # of a process that had our number, and died over it
    fd = create(draft)
    try:
        with open(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(draft, path)
    except BaseException:
        remove(draft)
        raise


def append_log(path: str, entry: bytes) -> bool:
    """Write to a log of the user's, which is put aside when it is long; False if that fails."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(open_(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
            log.write(entry)
            if log.tell() > LOG_BYTES:
                os.replace(path, f"{path}.1")
    except OSError:
        return False
    return True


def remove(*paths: str) -> None:
    """Those that are there."""
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def sync(path: str) -> None:
    """Bring a file to the disk that this process does not have open, or the names in a directory.

    POSIX drops all locks of a process on a file when it closes any descriptor of it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def is_named(fd: int, path: Path) -> bool:
    """Whether a path still leads to what is open, not to another file of that name."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return identity(there) == identity(os.fstat(fd))


def canonical(path: str) -> str:
    """One spelling for one file: the directory without links, and the name as it is."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
