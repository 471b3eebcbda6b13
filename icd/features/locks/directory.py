"""Where locks lie, which directories are fit for it, and the flock of a directory.

`BASE/NAME/SCOPE/owner.json`, as the original has it, and `BASE/.work`, where locks are made ready
and taken apart.  Every directory on the way belongs to us, is no symbolic link, and no other user
can write to it: a user who could would be able to take any lock away.
"""

import fcntl
import os
import re
import stat
import time
from functools import lru_cache

from msgspec import Struct

from icd import procfs
from icd.errors import (
    IcError,
    InputOutput,
    InvalidName,
    Locked,
    PermissionRefused,
    SymlinkRefused,
    Usage,
    from_os,
)
from icd.features.locks.owners import Pause, Steps
from icd.values import reach
from icd.values.processes import start_of
from icd.values.validation import shown

SHARED = "/tmp/intercore/locks"
VARIABLE = "INTERCORE_LOCK_DIR"
WORK = ".work"
WORD_BYTES = 255  # what a file system takes
# Between two attempts at a flock; the first is soon, for it is mostly held for microseconds.
FIRST_PAUSE, LAST_PAUSE = 0.0005, 0.02
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Place(Struct, frozen=True):
    """The base directory, and those that have to be ours on the way there."""

    base: str

    @property
    def work(self) -> str:
        return f"{self.base}/{WORK}"

    def name(self, name: str) -> str:
        return f"{self.base}/{name}"

    def lock(self, name: str, scope: str) -> str:
        return f"{self.base}/{name}/{scope}"

    def make(self, *names: str) -> None:
        """Make the directories that a new lock needs."""
        for path in (*self._way(), self.work, *map(self.name, names)):
            if not check(path):
                _make(path)

    def check(self) -> bool:
        """Whether there are any locks at all; refuse a place that is not ours."""
        return all(check(path) for path in self._way())

    def fresh(self) -> str:
        """A path in the working directory that no other process uses; it tells our own."""
        return f"{self.work}/{_maker(os.getpid())}.{os.urandom(8).hex()}"

    def _way(self) -> list[str]:
        return [os.path.dirname(SHARED), SHARED] if self.base == SHARED else [self.base]


def place(env: dict[str, str]) -> Place:
    given = env.get(VARIABLE) or SHARED
    if not given.startswith("/"):
        raise Usage(f"{VARIABLE} is not an absolute path: {given}", hint="use an absolute path")
    return Place(os.path.normpath(given))


@lru_cache(maxsize=1)
def _maker(pid: int) -> str:
    return f"{pid}.{start_of(pid)}"


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as exc:
        raise failed(exc, f"create {path}") from exc
    check(path)


def check(path: str) -> bool:
    """Refuse a directory that is not ours alone; False if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise failed(exc, f"look at {path}") from exc
    if stat.S_ISLNK(found.st_mode):
        raise SymlinkRefused(f"{path} is a symbolic link", hint="remove it and retry")
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionRefused(f"{path} is not a directory", hint="move it away")
    if found.st_uid != os.geteuid():
        hint = f"set {VARIABLE} to your own directory, for all processes that share the lock"
        raise PermissionRefused(f"{path} belongs to user {found.st_uid}", hint=hint)
    if found.st_mode & 0o022:
        raise PermissionRefused(f"other users can write to {path}", hint=f"run: chmod 700 {path}")
    return True


# --- names ----------------------------------------------------------------------------------------


def check_words(name: str, scope: str) -> None:
    """Both become names of directories, and travel in tab-separated lines."""
    for what, word in (("name", name), ("scope", scope)):
        if not word or word == "." or ".." in word or "/" in word or "\\" in word:
            problem = "use a word without slashes and without '..'"
        elif word == WORK and what == "name":
            problem = "this name is reserved"
        else:
            problem = _unprintable(word)
        if problem:
            told = f"lock {what}: invalid lock name or scope {shown(word)}"
            raise InvalidName(told, hint=problem)


def check_owner(owner: str) -> None:
    """It stands in a line of a list, and in a file of which only so much is read."""
    if problem := _unprintable(owner):
        raise InvalidName(f"invalid owner {shown(owner)}", hint=problem)


def _unprintable(word: str) -> str:
    if _CONTROL.search(word):
        return "remove tabs and newlines from it"
    return f"use at most {WORD_BYTES} bytes" if len(word.encode()) > WORD_BYTES else ""


def on_a_line(word: str) -> str:
    """What other programs wrote may hold tabs and newlines."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], word)


# --- flock ----------------------------------------------------------------------------------------


def flock(path: str, *, seconds: float) -> Steps[int | None]:
    """Take the flock of a directory: a descriptor for `unlock`; None if there is no directory.

    The kernel drops it when its holder is killed.  A holder that is stopped keeps it, so a caller
    says how long it waits; Locked when that time is over.
    """
    deadline = time.monotonic() + seconds
    while check(path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise failed(exc, f"open {path}") from exc
        kept = False
        try:
            if not (yield from _acquire(fd, deadline)):
                hint = f"resume it if it is stopped; find it with: fuser {path}"
                raise Locked(f"another process keeps {path} locked", hint=hint)
            kept = _is_still(fd, path)
        finally:
            if not kept:
                unlock(fd)
        if kept:
            return fd
    return None


def _acquire(fd: int, deadline: float) -> Steps[bool]:
    pause = FIRST_PAUSE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            if now >= deadline:
                return False
            yield Pause(min(now + pause, deadline))
            pause = min(pause * 2, LAST_PAUSE)
        else:
            return True


def unlock(fd: int) -> None:
    """By name: a child that is about to become another program may have the descriptor, too."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _is_still(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def failed(exc: OSError, what: str) -> IcError:
    error = from_os(exc, what)
    if isinstance(error, InputOutput):
        error.hint = (
            f"check that its parent directory exists; {VARIABLE} sets the directory of locks"
        )
    if isinstance(error, PermissionRefused):
        error.hint = (
            f"check its owner and mode, or set {VARIABLE} for all processes that share the lock"
        )
    return error


# --- callers of a daemon --------------------------------------------------------------------------

# A daemon acts only for a peer that could do the same itself (`icd/values/reach.py`), and only if
# who the peer says has started it is its parent, and the child that it names is its own.  Where no
# lock was ever made, the caller's own process makes the first one.


def is_within(place: Place, peer: int | None, parent: int | None, child: int | None = None) -> bool:
    """Whether what a peer asks for is what it could do itself."""
    if not peer or not parent:
        return False
    found = procfs.stat(peer)
    if found is None or found.parent != parent:
        return False
    return _is_parent(peer, child) and reach.is_as_free(peer) and os.path.isdir(place.work)


def _is_parent(peer: int, child: int | None) -> bool:
    found = procfs.stat(child) if child else None
    return child is None or (found is not None and found.parent == peer)
