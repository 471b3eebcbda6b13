"""What the checks are given: the caller's world.  What they answer: findings."""

import os
import pwd
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

from icd import procfs
from icd.db.paths import Where
from icd.errors import (
    Corrupt,
    DiskFull,
    IcError,
    NoDatabase,
    NotOurs,
    PermissionRefused,
    SchemaTooNew,
    SymlinkRefused,
    UntrustedDatabase,
)

# --- the caller's world ---------------------------------------------------------------------------

Outcome = Literal[
    "answers",  # a daemon of ours, with its report
    "silent",  # a program listens and does not answer in time
    "nonsense",  # a program listens and is no daemon
    "refused",  # no program listens at what lies there
    "absent",  # nothing lies there
    "forbidden",  # we may not even try
    "stranger",  # another user listens
    "ignored",  # another user could have put it there, so no call uses it; `error` says why
    "too long",  # no path of a socket
    "failed",  # anything else; `error` says what
]


class Seen(Struct, frozen=True):
    """What came of asking at one path."""

    path: str
    outcome: Outcome
    error: str = ""
    pid: int | None = None
    report: dict[str, Any] | None = None


class Sight(Struct, frozen=True):
    """How to look at sockets: the client knows, and no layer below it.

    `look` asks at every path where a daemon may listen, until a moment of the monotonic clock.
    `clear` removes a socket without a listener, and says why not, else the empty string.
    """

    look: Callable[[float], list[Seen]]
    clear: Callable[[str], str]


class Scene(Struct, frozen=True):
    where: Where
    env: dict[str, str]
    uid: int
    now_ms: int
    deadline: float
    door: str
    library: str  # where this installation has lib-intercore.sh
    units: Callable[[], dict[str, str]]  # those that start the daemon, and what lies there
    sight: Sight | None = None

    @property
    def home(self) -> str | None:
        return self.env.get("HOME") or None


# --- findings -------------------------------------------------------------------------------------

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600

# In rising order; `fixed` is what a repair did.
Severity = Literal["ok", "fixed", "note", "warning", "error"]
Action = Literal["chmod", "remove", "remove socket", "write gitignore"]
FIX = "run 'icctl doctor --fix'"


class Repair(Struct, frozen=True):
    """Something safe that would help.  `mode` is for chmod only."""

    action: Action
    path: str
    mode: int = 0


class Finding(Struct, frozen=True):
    """`check` is a name of the table in checks.py; `hint` says what to do, an `ok` needs none."""

    check: str
    severity: Severity
    message: str
    hint: str = ""
    repair: Repair | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def note(check: str, message: str, hint: str = "", repair: Repair | None = None) -> Finding:
    return Finding(check, "note", message, hint, repair)


def warning(check: str, message: str, hint: str, repair: Repair | None = None) -> Finding:
    return Finding(check, "warning", message, hint, repair)


def error(check: str, message: str, hint: str, repair: Repair | None = None) -> Finding:
    return Finding(check, "error", message, hint, repair)


# Under which name a person looks for what an error says.
_CHECKS: dict[type[IcError], str] = {
    Corrupt: "integrity",
    DiskFull: "space",
    NoDatabase: "database",
    NotOurs: "schema",
    PermissionRefused: "permissions",
    SchemaTooNew: "schema",
    SymlinkRefused: "symlinks",
    UntrustedDatabase: "schema",  # or a journal beside it
}


def from_error(check: str, exc: IcError) -> Finding:
    return error(_CHECKS.get(type(exc), check), exc.message, exc.hint)


# --- names of users and processes -----------------------------------------------------------------


class Process(Struct, frozen=True):
    pid: int
    name: str
    stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


def find_process(pid: int) -> Process | None:
    found = procfs.stat(pid)
    return Process(pid, found.name, found.is_stopped) if found else None


def lock_holder(path: str) -> Process | None:
    """Who holds the lock of flock(2) on a file."""
    try:
        pid = procfs.lock_holder(os.stat(path, follow_symlinks=False).st_ino)
    except OSError:
        return None
    return None if pid is None else find_process(pid)


def wake(process: Process) -> str:
    """What to do about a process that holds things up."""
    if process.stopped:
        pid = process.pid  # while it is stopped, no other signal reaches it
        return f"resume it with 'kill -CONT {pid}', or end it with 'kill -KILL {pid}'"
    return f"wait for it, or end it with 'kill {process.pid}'"


def user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
