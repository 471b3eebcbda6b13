"""Where locks lie, and which directories are fit for it.

`BASE/NAME/SCOPE/owner.json`, as the original has it, and `BASE/.work`, where locks are made ready
and taken apart.  Every directory on the way belongs to us, is no symbolic link, and nobody else
can write to it: whoever could would be able to take any lock away.
"""

import os
import re
import stat

from msgspec import Struct

from icd.errors import (
    IcError,
    InputOutput,
    InvalidName,
    PermissionRefused,
    SymlinkRefused,
    Usage,
    from_os,
)
from icd.values.validation import shown

SHARED = "/tmp/intercore/locks"
VARIABLE = "INTERCORE_LOCK_DIR"
WORK = ".work"
OWNER = "owner.json"
WORD_BYTES = 255  # what a file system takes
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
        """Have the directories that a new lock needs."""
        above = [os.path.dirname(SHARED)] if self.base == SHARED else []
        for path in (*above, self.base, self.work, *map(self.name, names)):
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                pass
            except OSError as exc:
                raise failed(exc, f"create {path}") from exc
            check(path)

    def check(self) -> bool:
        """Whether there are any locks at all; refuse a place that is not ours."""
        above = [os.path.dirname(SHARED)] if self.base == SHARED else []
        return all(check(path) for path in (*above, self.base))

    def fresh(self, pid: int, start: int) -> str:
        """A name in the working directory that nobody else uses, and whose maker is known."""
        return f"{self.work}/{pid}.{start}.{os.urandom(8).hex()}"


def place(env: dict[str, str]) -> Place:
    given = env.get(VARIABLE) or SHARED
    if not given.startswith("/"):
        raise Usage(f"{VARIABLE} is not an absolute path: {given}", hint="begin it with a slash")
    return Place(os.path.normpath(given))


def check(path: str) -> bool:
    """Refuse a directory that is not ours alone; False if there is none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise failed(exc, f"look at {path}") from exc
    if stat.S_ISLNK(found.st_mode):
        raise SymlinkRefused(f"{path} is a symbolic link", hint="remove it, then try again")
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionRefused(f"{path} is not a directory", hint="move it away")
    if found.st_uid != os.geteuid():
        hint = f"set {VARIABLE} to a directory of yours, for all who share the lock"
        raise PermissionRefused(f"{path} belongs to user {found.st_uid}", hint=hint)
    if found.st_mode & 0o022:
        raise PermissionRefused(f"other users can write to {path}", hint=f"run: chmod 700 {path}")
    return True


def check_words(name: str, scope: str) -> None:
    """Both become names of directories, and travel in tab-separated lines."""
    for what, word in (("name", name), ("scope", scope)):
        if not word or word == "." or ".." in word or "/" in word or "\\" in word:
            problem = "use a word without slashes and without '..'"
        elif _CONTROL.search(word):
            problem = "remove tabs and newlines from it"
        elif len(word.encode()) > WORD_BYTES:
            problem = f"use at most {WORD_BYTES} bytes"
        elif word == WORK and what == "name":
            problem = "intercore uses this one itself"
        else:
            continue
        raise InvalidName(f"lock {what}: invalid lock name or scope {shown(word)}", hint=problem)


def check_owner(owner: str) -> None:
    """It stands in a line of a list, and in a file of which only so much is read."""
    if _CONTROL.search(owner):
        problem = "remove tabs and newlines from it"
    elif len(owner.encode()) > WORD_BYTES:
        problem = f"use at most {WORD_BYTES} bytes"
    else:
        return
    raise InvalidName(f"invalid owner {shown(owner)}", hint=problem)


def on_a_line(word: str) -> str:
    """What other programs wrote may hold tabs and newlines."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], word)


def failed(exc: OSError, what: str) -> IcError:
    error = from_os(exc, what)
    if isinstance(error, InputOutput):
        error.hint = f"is the directory above it there? {VARIABLE} says where locks lie"
    if isinstance(error, PermissionRefused):
        error.hint = f"check its owner and mode, or set {VARIABLE} for all who share the lock"
    return error
