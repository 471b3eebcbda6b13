"""The hooks of a project as they lie in its directory, and which of them the user trusts.

A project may be cloned from a stranger, and others may write to where it lies.  So a hook counts
only if it is a regular file of ours that no other user can write to, in a directory like that.  A
file is judged by what was opened, never by its name: between a look at a name and the next use of
it, another file can take its place.

Trust is recorded in the home directory, never in the project: a project comes with everything in
it, so its database could say whatever its author likes.

    ~/.local/share/intercore/hooks/<digest of the project's path>/
        project            the path, for people
        lock               held by the process that runs hooks of this project
        <sha256>/<name>    the content that was trusted, as it runs

To trust a hook is to keep a copy of it.  The copy is what runs, as long as the file in the project
holds the same: whatever happens to that file between our look and the start of a process, nothing
runs but what was trusted.  To hand a descriptor of the file to the kernel would not do: its content
can change in place.  Nor would a memory file: an interpreter wants a path that it can resolve.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

from icd.db import lock
from icd.db.paths import DIRECTORY as CLAVAIN
from icd.errors import HookRefused, NoHook, from_os
from icd.features.triggers.store import NAMES

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
        raise Unfit(f"its directory is unusable: {_why(path, exc)}") from exc
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
            raise Unfit("it is not executable; run chmod u+x")
        if there.st_size > HOOK_BYTES:
            raise Unfit(f"it is larger than {HOOK_BYTES} bytes")
        yield fd
    finally:
        os.close(fd)


def chunks(fd: int) -> Iterator[bytes]:
    """What the file holds; it may grow while it is read."""
    left = HOOK_BYTES
    while chunk := os.read(fd, CHUNK_BYTES):
        left -= len(chunk)
        if left < 0:
            raise Unfit(f"it is larger than {HOOK_BYTES} bytes")
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
        raise Unfit(f"{what}is writable by other users; run chmod go-w")


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


SHARE = ".local/share/intercore/hooks"


class Trust:
    """The trust that a user has in the hooks of one project."""

    def __init__(self, home: str, project: str) -> None:
        self.project = project
        self.looks = Looks(project)
        name = hashlib.sha256(os.fsencode(project)).hexdigest()
        self._place = os.path.join(home, SHARE, name)
        self._lock = lock.FileLock(os.path.join(self._place, "lock"), lock.poll)

    def runnable(self) -> dict[str, str]:
        """What runs for each hook that is trusted and as it was then, by name."""
        if not os.path.isdir(self._place):
            return {}  # the usual case: nothing here was ever trusted
        copies = {found.name: self._copy(found) for found in self.looks.look()}
        return {name: copy for name, copy in copies.items() if copy}

    def look(self) -> tuple[dict[str, str], bool]:
        """What is runnable; and whether another one was trusted, and is changed, refused or gone.

        In this order: what changes meanwhile is still waited for.
        """
        programs = self.runnable()
        others = [name for name in NAMES if name not in programs]
        return programs, any(self._known(name) for name in others)

    def state(self, found: Found) -> str:
        if found.problem:
            return "refused"
        if self._copy(found):
            return "trusted"
        return "changed" if self._known(found.name) else "untrusted"

    def grant(self, name: str) -> Found:
        """Trust a hook with the content that it has now, and no longer with any before."""
        try:
            with (
                opened_directory(self.looks.directory) as directory_fd,
                opened(name, directory_fd) as fd,
            ):
                sha256 = self._keep(name, fd)
        except FileNotFoundError as exc:
            raise NoHook(f"there is no trigger {name} in {self.looks.directory}") from exc
        except Unfit as exc:
            path = os.path.join(self.looks.directory, name)
            raise HookRefused(f"{path} cannot be trusted: {exc}") from exc
        except OSError as exc:
            raise from_os(exc, f"record the trust in {self._place}") from exc
        self._forget(name, but=sha256)
        return Found(name, os.path.join(self.looks.directory, name), sha256)

    def revoke(self, name: str) -> bool:
        """Whether it was trusted."""
        return self._forget(name)

    def acquire(self, deadline: float) -> None:
        """Be the only one who runs hooks of this project, or raise Locked at the deadline."""
        self._lock.acquire(deadline)

    def release(self) -> None:
        self._lock.close()

    def _copy(self, found: Found) -> str:
        """The path of what was trusted, if the hook still has that content; else nothing."""
        if found.problem:
            return ""
        path = os.path.join(self._place, found.sha256, found.name)
        try:
            there = os.stat(path, follow_symlinks=False)
        except OSError:
            return ""
        ours = stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid()
        return path if ours and not there.st_mode & OTHERS_WRITE else ""

    def _known(self, name: str) -> list[str]:
        """The contents of that hook that are trusted."""
        try:
            contents = os.listdir(self._place)
        except OSError:
            return []
        return [each for each in contents if os.path.lexists(os.path.join(self._place, each, name))]

    def _keep(self, name: str, fd: int) -> str:
        """Copy what is read, and name the copy after what was copied."""
        os.makedirs(os.path.dirname(self._place), mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self._place, mode=0o700)
        draft = os.path.join(self._place, f"draft-{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        os.mkdir(draft, mode=0o700)
        try:
            sha256 = _write(os.path.join(draft, name), fd)
            kept = os.path.join(self._place, sha256)
            with suppress(FileExistsError):
                os.mkdir(kept, mode=0o700)
            os.replace(os.path.join(draft, name), os.path.join(kept, name))
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        with open(os.path.join(self._place, "project"), "wb") as file:
            file.write(os.fsencode(self.project) + b"\n")
        return sha256

    def _forget(self, name: str, but: str = "") -> bool:
        known = [each for each in self._known(name) if each != but]
        for each in known:
            os.unlink(os.path.join(self._place, each, name))
            with suppress(OSError):  # another hook may have the same content
                os.rmdir(os.path.join(self._place, each))
        return bool(known)


def _write(path: str, fd: int) -> str:
    found = hashlib.sha256()
    with open(path, "xb") as file:
        for chunk in chunks(fd):
            found.update(chunk)
            file.write(chunk)
        os.fchmod(file.fileno(), 0o500)
        file.flush()
        os.fsync(file.fileno())
    return found.hexdigest()
