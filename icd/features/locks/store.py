"""Take, give back and break locks, so that a lock never has two holders.

A lock is held while the directory `BASE/NAME/SCOPE` exists.  Four rules, kept by this module and
by lib-intercore.sh alike:

1. A lock appears complete: its directory is made in `BASE/.work`, with owner.json in it, and then
   renamed to its place with RENAME_NOREPLACE, which fails if anything is there, also the empty
   directory that the original makes with mkdir.
2. A lock disappears whole: it is renamed to a name in `.work` that no other process uses.
3. A process that does (2) holds flock(2) on `BASE/NAME`, has read owner.json since it got it, and
   found that the owner is itself (release), or provably dead (break).
4. We never remove `BASE/NAME`; if another program did so, which takes that no lock is in it, the
   flock counts for nothing: it is taken again, on the directory that is there now.

That a breaker can never remove a fresh lock follows: by (1) nothing replaces a lock that exists,
and by (2) and (3) it ends to exist only under the flock.  So from the moment in which the holder of
the flock has read owner.json until its own rename, the same directory is there: what it removes is
what it judged.  A process that is killed between any two steps leaves a lock whose owner is told
in it, a lock that is free, or something in `.work`, which is no lock; the kernel drops its flock.
The flock is held for a few system calls, never while a caller waits.

What the original does is beyond this: it breaks any lock after five seconds.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from icd.errors import Locked, LockHeld, NotHolder
from icd.features.locks import owners
from icd.features.locks.directory import WORK, Place, check_words, failed, flock, unlock
from icd.features.locks.owners import Here, Owner, Pause, Steps
from icd.values.processes import Liveness, start_of

OWNER = "owner.json"
# The flock is held for microseconds; only a holder that is stopped makes others wait this long.
FLOCK_SECONDS = 2.0
# A waiter hears when a lock disappears, and need not wait for the flock as well.
BREAKER_SECONDS = 0.01
# How often a lock may be gone at a second look, and taken at the third, once the time is over.
LAST_TRIES = 3
# A program that makes a lock by mkdir, as the original does, needs a moment to say who it is.
NAMELESS_SECONDS = 5
# What is made ready lives for microseconds, also in a namespace whose processes we do not see.
DEBRIS_SECONDS = 60
_NOREPLACE = 1
_AT_FDCWD = -100
_LIVENESS = {
    "alive": ", which is alive",
    "dead": ", which is dead",
    "unknown": "; whether it is alive is unknown",
}


class Lock(Struct, frozen=True):
    """A lock that is held; `owner` is None if owner.json is missing or unreadable."""

    name: str
    scope: str
    owner: Owner | None
    age_s: int
    liveness: Liveness

    def __str__(self) -> str:
        """`'n/s' is held by process 12 on host (owner 12:host) for 7 s, and alive`"""
        held = f"lock {self.name}/{self.scope} is held"
        if self.owner is None:
            return f"{held} by an unknown owner for {self.age_s} s: it has no readable {OWNER}"
        by = f"process {self.owner.pid} on {self.owner.host}"
        named = f"{held} by {by} (owner {self.owner.owner}) for {self.age_s} s"
        return named + _LIVENESS[self.liveness]


def acquire(place: Place, name: str, scope: str, owner: Owner, *, deadline: float) -> None:
    """Take a lock, or raise LockHeld at the deadline, and wait for it in this process."""
    owners.run(acquiring(place, name, scope, owner, deadline=deadline))


def acquiring(place: Place, name: str, scope: str, owner: Owner, *, deadline: float) -> Steps[None]:
    """Take a lock, or raise LockHeld at the deadline; a dead holder's lock is broken.

    The deadline is a moment of the monotonic clock; at least one attempt is made.  While it waits
    it holds nothing: to give up then is to leave.
    """
    check_words(name, scope)
    where = owners.here()
    place.make(name)
    tries = 0
    asked = time.monotonic()
    while not _publish(place, name, scope, _older(owner, time.monotonic() - asked)):
        found = look(place, name, scope, where)
        is_late = time.monotonic() >= deadline
        if found is None:
            tries += is_late
            if tries > LAST_TRIES:
                told = f"lock {name}/{scope} is under heavy contention"
                raise LockHeld(told, hint="try again")
        elif _is_of(found, owner.request):
            return  # we took it before, and the answer was lost
        elif not (_is_stale(found) and (yield from _breaking(place, name, scope))):
            if is_late:
                raise LockHeld(str(found), hint=_advice(found))
            holder = found.owner if found.liveness == "alive" else None
            yield Pause(deadline, place.name(name), scope, holder)


def _is_of(lock: Lock, request: str) -> bool:
    return bool(request) and lock.owner is not None and lock.owner.request == request


def release(
    place: Place, name: str, scope: str, owner: Owner, *, seconds: float = FLOCK_SECONDS
) -> None:
    """Give a lock back, and wait for the flock in this process."""
    owners.run(releasing(place, name, scope, owner, seconds=seconds))


def releasing(
    place: Place, name: str, scope: str, owner: Owner, *, seconds: float = FLOCK_SECONDS
) -> Steps[None]:
    """Give a lock back, or raise NotHolder; Locked if others keep the flock all that time."""
    check_words(name, scope)
    there = place.check()
    seen: list[Lock] = []

    def is_ours(lock: Lock) -> bool:
        seen.append(lock)
        return lock.owner is not None and owners.is_same(lock.owner, owner)

    if there and (yield from _removing(place, name, scope, is_ours, seconds)):
        return
    if seen:
        raise NotHolder(str(seen[-1]), hint=f"only its owner can release it, not {owner.owner}")
    raise NotHolder(f"lock {name}/{scope} is not held", hint="see 'icctl lock list'")


def taking_back(place: Place, name: str, scope: str, request: str) -> Steps[bool]:
    """Remove the lock that this one call took: its caller did not hear that it is held."""
    return _removing(place, name, scope, lambda found: _is_of(found, request), FLOCK_SECONDS)


def every(place: Place) -> list[Lock]:
    """All locks, by name and scope."""
    if not place.check():
        return []
    where = owners.here()
    names = [name for name in _names(place.base) if name != WORK]
    pairs = [(name, scope) for name in names for scope in _entries(place.name(name))]
    found = (look(place, name, scope, where) for name, scope in pairs)
    return [lock for lock in found if lock is not None]


def is_forsaken(lock: Lock, older_than_s: float) -> bool:
    """No process will release it: its owner is dead, or never said who it is."""
    if lock.owner is None:
        return lock.age_s >= max(older_than_s, NAMELESS_SECONDS)
    return _is_stale(lock) and lock.age_s >= older_than_s


def clean(place: Place, older_than_s: float) -> int:
    """Remove forsaken locks, and wait for flocks in this process."""
    return owners.run(cleaning(place, older_than_s))


def cleaning(place: Place, older_than_s: float) -> Steps[int]:
    """Remove forsaken locks, and what killed processes left; how many locks."""
    gone = 0

    def judge(found: Lock) -> bool:
        return is_forsaken(found, older_than_s)

    for lock in filter(judge, every(place)):
        gone += yield from _removing(place, lock.name, lock.scope, judge, FLOCK_SECONDS)
    _tidy(place)
    return gone


def _is_stale(lock: Lock) -> bool:
    return lock.liveness == "dead"


def look(place: Place, name: str, scope: str, where: Here) -> Lock | None:
    """A lock as it is now; None if it is free."""
    path = place.lock(name, scope)
    try:
        made = os.lstat(path).st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise failed(exc, f"look at {path}") from exc
    owner = _read(f"{path}/{OWNER}")
    if owner is None:
        if not os.path.lexists(path):
            return None
        return Lock(name, scope, None, _age(made), "unknown")
    return Lock(name, scope, owner, _age(owner.created), owners.liveness(owner, where))


def _publish(place: Place, name: str, scope: str, owner: Owner) -> bool:
    """Make a lock appear, by rule 1; False if there is a lock already."""
    if os.path.lexists(place.lock(name, scope)):
        return False  # cheaper than to make one in vain
    draft = place.fresh()
    moved = False
    try:
        os.mkdir(draft, 0o700)
        fd = os.open(f"{draft}/{OWNER}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as file:
            file.write(msgspec.json.encode(owner))
        moved = _rename_to_nothing(draft, place.lock(name, scope))
    except FileNotFoundError:
        place.make(name)  # it was tidied up between two calls
    except OSError as exc:
        raise failed(exc, f"make the lock {place.lock(name, scope)}") from exc
    finally:
        if not moved:
            _discard(draft)
    return moved


def _older(owner: Owner, seconds: float) -> Owner:
    """After so long a wait it holds the lock from now on: by its age, the original breaks it."""
    return msgspec.structs.replace(owner, created=owner.created + int(seconds))


@cache
def _renameat2() -> Any:
    """None on an old system."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def _rename_to_nothing(source: str, target: str) -> bool:
    rename = _renameat2()
    if rename is not None:
        words = os.fsencode(source), os.fsencode(target)
        if rename(_AT_FDCWD, words[0], _AT_FDCWD, words[1], _NOREPLACE) == 0:
            return True
        code = ctypes.get_errno()
        if code == errno.EEXIST:
            return False
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), target)
    try:  # where it is not to be had, only an empty directory would be replaced: no lock of ours
        os.rename(source, target)
    except OSError as exc:
        if exc.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            return False
        raise
    return True


def _breaking(place: Place, name: str, scope: str) -> Steps[bool]:
    try:
        return (yield from _removing(place, name, scope, _is_stale, BREAKER_SECONDS))
    except Locked:
        return False  # another process is about to


def _removing(
    place: Place, name: str, scope: str, judge: Callable[[Lock], bool], seconds: float
) -> Steps[bool]:
    """Remove a lock, by rules 2 and 3; whether it was there and was judged to go."""
    fd = yield from flock(place.name(name), seconds=seconds)
    if fd is None:
        return False
    try:
        grave = _bury(place, name, scope, judge)
    finally:
        unlock(fd)
    if grave:
        _discard(grave)
    return bool(grave)


def _bury(place: Place, name: str, scope: str, judge: Callable[[Lock], bool]) -> str:
    """Where a lock was moved to by the holder of the flock; empty if it stays or is gone."""
    found = look(place, name, scope, owners.here())
    if found is None or not judge(found):
        return ""
    grave = place.fresh()
    try:
        os.makedirs(place.work, 0o700, exist_ok=True)
        os.rename(place.lock(name, scope), grave)
    except FileNotFoundError:
        return ""
    except OSError as exc:
        raise failed(exc, f"remove the lock {place.lock(name, scope)}") from exc
    return grave


def _tidy(place: Place) -> None:
    """Remove what processes that were killed left in the working directory."""
    for entry in _names(place.work):
        path, grave = f"{place.work}/{entry}", place.fresh()
        # Renamed first: should its maker live after all, it finds nothing, and makes another.
        with contextlib.suppress(OSError):
            if _age(os.lstat(path).st_mtime) >= DEBRIS_SECONDS and not _has_maker(entry):
                os.rename(path, grave)
                _discard(grave)


def _has_maker(entry: str) -> bool:
    pid, _, rest = entry.partition(".")
    start = rest.partition(".")[0]
    return pid.isdecimal() and start != "0" and str(start_of(int(pid))) == start


def _discard(path: str) -> None:
    """A lock is a directory; a file in its place, which another program made, goes as well."""
    if os.path.islink(path) or not os.path.isdir(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return
    try:  # as most are
        os.unlink(f"{path}/{OWNER}")
        os.rmdir(path)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _read(path: str) -> Owner | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return owners.decode(os.read(fd, owners.FILE_BYTES))
        finally:
            os.close(fd)
    except OSError:
        return None


def _names(path: str) -> list[str]:
    """The directories below one that is ours."""
    below = (f"{path}/{entry}" for entry in _entries(path))
    return [os.path.basename(e) for e in below if os.path.isdir(e) and not os.path.islink(e)]


def _entries(path: str) -> list[str]:
    """All that is there: also a file or a link in the place of a lock keeps others out."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise failed(exc, f"read {path}") from exc


def _age(created: float) -> int:
    return max(0, int(time.time() - created))


def _advice(found: Lock) -> str:
    if found.owner is None:
        return "if it is unused, remove it with 'icctl lock clean'"
    if found.liveness == "dead":
        return "another process is about to remove it; retry"
    if found.liveness == "unknown":
        return "ask its owner, or raise --timeout"
    return "wait for it, or raise --timeout"
