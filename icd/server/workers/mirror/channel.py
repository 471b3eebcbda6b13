"""One directory of envelope files, which other programs read and may write to as well.

Promises
    - a reader finds the old content or the new one, never a part: temporary file and rename;
    - files are made with mode 0600, directories with 0700;
    - no symbolic link below the root is followed, neither of a directory nor of a file; a link in
      the place of a file is replaced by the file;
    - nothing but a regular file is ever read, and never more of it than `READ_BYTES`.

Synchronous: the mirror uses it in a thread of its own.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator

from msgspec import Struct

# The largest payload with its envelope; what is larger is not ours.
READ_BYTES = 1024 * 1024 + 64 * 1024
TEMPORARY = ".intercore-"
TEMPORARY_END = ".tmp"  # a row's own file ends in .json
# A temporary file that is older was left behind by a crash.
TEMPORARY_SECONDS = 60.0

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_numbers = itertools.count()


class Found(Struct):
    """A file as it is; its age is counted from `modified`, unix seconds."""

    content: bytes
    modified: int


class Directory:
    """An open channel; every name is looked up in the very directory that was opened."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, name: str) -> Found | None:
        """None for what is absent, and for what is not a file to be read."""
        try:
            fd = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd
            )
        except OSError:
            return None
        with open(fd, "rb") as file:
            facts = os.fstat(fd)
            if not stat.S_ISREG(facts.st_mode):
                return None
            return Found(file.read(READ_BYTES), int(facts.st_mtime))

    def write(self, name: str, content: bytes, *, modified: int) -> None:
        temporary = f"{TEMPORARY}{os.getpid()}-{next(_numbers)}{TEMPORARY_END}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600, dir_fd=self._fd)
        try:
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                # Readers take the age from here: a row that is mirrored late is not young again.
                os.utime(fd, (modified, modified))
            os.rename(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._fd)
            raise

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    def remove_leftovers(self, *, now: float) -> None:
        """Temporary files of daemons that did not live to rename them."""
        for name in self.names():
            if name.startswith(TEMPORARY) and name.endswith(TEMPORARY_END):
                with contextlib.suppress(OSError):
                    facts = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                    if now - facts.st_mtime > TEMPORARY_SECONDS:
                        self.remove(name)


@contextlib.contextmanager
def opened(root: str, namespace: str, channel: str, *, create: bool) -> Iterator[Directory]:
    """Open a channel below the root; without `create`, a missing one is FileNotFoundError."""
    if create:
        os.makedirs(root, mode=0o700, exist_ok=True)
    above = os.open(root, _DIRECTORY)  # the root itself may be a link: the user said where it is
    try:
        for name in (namespace, channel):
            below = _enter(above, name, create=create)
            os.close(above)
            above = below
        yield Directory(above)
    finally:
        os.close(above)


def _enter(above: int, name: str, *, create: bool) -> int:
    if create:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode=0o700, dir_fd=above)
    fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    if os.fstat(fd).st_uid != os.geteuid():
        os.close(fd)
        raise PermissionError(f"the directory {name} belongs to another user")
    return fd
