"""The flock under which a lock is judged and removed: rules 3 and 4 of locking.py.

It is held for a few system calls, never while anybody waits; the kernel drops it when its holder is
killed.  One that is stopped in between keeps it, so nobody waits for it longer than he is told to.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from icd.errors import Locked
from icd.features.locks import places

# Between two attempts; the first is soon, for the flock is mostly held for microseconds.
FIRST_PAUSE, LAST_PAUSE = 0.0005, 0.02


@contextlib.contextmanager
def guarded(path: str, *, seconds: float) -> Iterator[bool]:
    """Hold the flock of a directory; False if there is none, Locked when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        if not places.check(path):
            yield False
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise places.failed(exc, f"open {path}") from exc
        try:
            if not _lock(fd, deadline):
                hint = f"if it is stopped, let it go on; find it with: fuser {path}"
                raise Locked(f"another process keeps {path} for itself", hint=hint)
            if _is_still(fd, path):
                yield True
                return
        finally:
            os.close(fd)


def _lock(fd: int, deadline: float) -> bool:
    pause = FIRST_PAUSE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, LAST_PAUSE)
        else:
            return True


def _is_still(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
