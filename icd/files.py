"""Files in places where others may plant anything.

Nothing here follows a link, waits for the other end of a pipe, or is inherited by a program that
is started later.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

Path = str | bytes
Identity = tuple[int, int]  # device and inode

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
