"""The hooks of a project as they lie in its directory, judged before they are trusted or run.

A project may be cloned from a stranger, and others may write to where it lies.  So a hook counts
only if it is a regular file of ours that no other user can write to, in a directory like that.

A file is judged by what was opened, never by its name: between a look at a name and the next use
of it, another file can take its place.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from icd.db.paths import DIRECTORY as CLAVAIN
from icd.features.hooks.store import NAMES

DIRECTORY = "hooks"
# A hook may be a program of its own, statically linked; more is not a hook.
HOOK_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Found(Struct, frozen=True):
    """A hook that is there; `problem` says why it cannot be trusted, `sha256` is empty then."""

    name: str
    path: str
    sha256: str = ""
    problem: str = ""


class Unfit(Exception):
    """Why a file or a directory does not count."""


def project(database: str) -> str | None:
    """The project of a database; None if it lies where no project has its own."""
    directory = os.path.dirname(database)
    return os.path.dirname(directory) if os.path.basename(directory) == CLAVAIN else None


def directory(project: str) -> str:
    return os.path.join(project, CLAVAIN, DIRECTORY)


Signature = tuple[int, ...]


class Looks:
    """What lies in the hooks' directory of one project.

    Files are read again only when `stat` says that they are others; to be fooled by that is
    harmless, because what runs is the copy that was made when the hook was trusted.
    """

    def __init__(self, project: str) -> None:
        self.directory = directory(project)
        self._known: dict[str, tuple[Signature, Found]] = {}

    def look(self) -> list[Found]:
        """The hooks that are there, in the order in which they run."""
        try:
            with opened_directory(self.directory) as fd:
                return [found for name in NAMES if (found := self._judge(name, fd))]
        except FileNotFoundError:
            return []
        except Unfit as exc:
            return [self._unfit(name, str(exc)) for name in NAMES if self._is_there(name)]

    def _judge(self, name: str, directory_fd: int) -> Found | None:
        try:
            there = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        signature, found = self._known.get(name, ((), None))
        if found is not None and signature == _signature(there):
            return found
        try:
            with opened(name, directory_fd) as fd:
                signature = _signature(os.fstat(fd))
                found = Found(name, os.path.join(self.directory, name), digest(fd))
        except FileNotFoundError:
            return None
        except Unfit as exc:
            return self._unfit(name, str(exc))
        self._known[name] = signature, found
        return found

    def _unfit(self, name: str, problem: str) -> Found:
        return Found(name, os.path.join(self.directory, name), problem=problem)

    def _is_there(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self.directory, name))


@contextmanager
def opened_directory(path: str) -> Iterator[int]:
    """A descriptor of the directory itself, if it is fit to hold hooks."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise Unfit(f"its directory cannot be used: {_why(path, exc)}") from exc
    try:
        _refuse_others(os.fstat(fd), "its directory ")
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened(name: str, directory_fd: int) -> Iterator[int]:
    """A descriptor of the hook itself, if it is fit to be one."""
    # A pipe in its place must not keep us waiting for its other end.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=directory_fd)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise Unfit(_why(name, exc, directory_fd)) from exc
    try:
        there = os.fstat(fd)
        if not stat.S_ISREG(there.st_mode):
            raise Unfit("it is not a regular file")
        _refuse_others(there, "it ")
        if not there.st_mode & stat.S_IXUSR:
            raise Unfit("it is not executable; chmod u+x")
        if there.st_size > HOOK_BYTES:
            raise Unfit(f"it has more than {HOOK_BYTES} bytes")
        yield fd
    finally:
        os.close(fd)


def chunks(fd: int) -> Iterator[bytes]:
    """What the file holds; it may grow while it is read."""
    left = HOOK_BYTES
    while chunk := os.read(fd, CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            raise Unfit(f"it has more than {HOOK_BYTES} bytes")
        yield chunk


def digest(fd: int) -> str:
    found = hashlib.sha256()
    for chunk in chunks(fd):
        found.update(chunk)
    return found.hexdigest()


def _refuse_others(there: os.stat_result, what: str) -> None:
    if there.st_uid != os.geteuid():
        raise Unfit(f"{what}belongs to another user")
    if there.st_mode & OTHERS_WRITE:
        raise Unfit(f"{what}can be written by others; chmod go-w")


def _why(path: str, exc: OSError, directory_fd: int | None = None) -> str:
    """A link is refused by an errno that says something else."""
    try:
        there = os.stat(path, dir_fd=directory_fd, follow_symlinks=False)
    except OSError:
        return str(exc.strerror)
    return "it is a symbolic link" if stat.S_ISLNK(there.st_mode) else str(exc.strerror)


def _signature(there: os.stat_result) -> Signature:
    return (
        there.st_dev,
        there.st_ino,
        there.st_mode,
        there.st_uid,
        there.st_size,
        there.st_mtime_ns,
        there.st_ctime_ns,
    )
