"""What hooks remember outside of any project, in a directory of the user's own.

`$XDG_STATE_HOME/intercore/hook` holds a file per name and scope, and is read and written under one
flock, which the kernel drops when its holder is killed.

Invariants
    - a ticket's file holds the ticket of the last that started: when is told by the kernel, and an
      exec does not change it, so that a slow start overtakes no other; who still finds its own one
      there, once its time is over, is the last of a burst, and the only one: all others leave;
    - the ticket stays, for those that come late and started before; one who is killed meanwhile
      leaves one as well, which the next one replaces: it stops no later one;
    - a claim never fires earlier than its interval, and a clock that steps back delays the next
      one by at most one interval: the rules of a sentinel, for a user instead of a project.
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from icd import files, procfs
from icd.errors import Locked, PermissionRefused
from icd.features.hook.event import hashed, is_plain
from icd.values.processes import start_of

FLOCK_SECONDS = 5.0  # the flock is held for microseconds, unless its holder is stopped
PAUSE_SECONDS = 0.005
LOOK_SECONDS = 0.2  # how long one who is not the last any more stays at most
STAMP_BYTES = 100
ONCE = "once"


def state_home(env: Mapping[str, str]) -> str:
    """Where a user's programs keep what outlives them; a relative path is to be ignored."""
    given, home = env.get("XDG_STATE_HOME", ""), env.get("HOME", "")
    if not (given.startswith("/") or home.startswith("/")):
        raise PermissionRefused("there is no place for files of the user", hint="set HOME")
    base = given if given.startswith("/") else f"{home}/.local/state"
    return f"{base}/intercore"


class Tickets:
    def __init__(self, env: Mapping[str, str]) -> None:
        self._place = f"{state_home(env)}/hook"

    def is_last(self, name: str, scope: str, seconds: float) -> bool:
        """Wait until that long after our start; whether no other started meanwhile."""
        path = f"{self._place}/debounce-{hashed(name, scope)}"
        started = start_of(os.getpid())
        ticket = f"{procfs.boot()} {started:020} {os.getpid():010}"
        with self._locked():
            found = _content(path)
            if found > ticket and found.startswith(procfs.boot()):
                return False
            files.replace(path, ticket.encode())
        until = started / os.sysconf("SC_CLK_TCK") + seconds
        while (left := until - time.clock_gettime(time.CLOCK_BOOTTIME)) > 0:
            if _content(path) != ticket:
                return False
            time.sleep(min(left, LOOK_SECONDS))
        with self._locked():
            return _content(path) == ticket

    def claim(self, name: str, interval_s: int, *, now_ms: int) -> bool:
        """Whether the user's claim is due, and now made; interval 0: once, for ever."""
        path = f"{self._place}/claim-{name if is_plain(name) else hashed(name)}"
        with self._locked():
            stamp = _content(path)
            fired_ms = int(stamp) if stamp.isdecimal() else None
            due = not stamp or (
                fired_ms is not None and interval_s > 0 and now_ms - fired_ms >= interval_s * 1000
            )
            if due or (fired_ms is not None and fired_ms > now_ms):
                files.replace(path, (str(now_ms) if interval_s else ONCE).encode())
        return due

    @contextmanager
    def _locked(self) -> Iterator[None]:
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        found = os.lstat(self._place)
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if not is_ours or found.st_mode & 0o022:
            raise PermissionRefused(f"{self._place} is not a directory of yours alone")
        with files.opened(f"{self._place}/lock", os.O_RDWR | os.O_CREAT) as fd:
            _flock(fd, time.monotonic() + FLOCK_SECONDS)
            yield


def _flock(fd: int, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                told = "another hook keeps the directory of hooks locked"
                raise Locked(told, hint="is it stopped?") from None
            time.sleep(PAUSE_SECONDS)


def _content(path: str) -> str:
    try:
        return files.read(path, STAMP_BYTES).decode("ascii", "replace")
    except FileNotFoundError:
        return ""
