"""Wait until a lock may be free, without looking at it all the time.

The kernel tells of a lock that disappears (inotify) and of an owner that ends (a pidfd).  Both may
be missing, on an old kernel, in a sandbox, or when the user's share is used up; and neither tells
of everything.  So all that they say, or do not say, only means "look now".
"""

import contextlib
import ctypes
import os
import select
import time
from typing import Self

from icd.features.locks import owners
from icd.features.locks.owners import Owner

# What the kernel does not tell, such as a directory that was made anew, is noticed after this time.
LOOK_AGAIN_SECONDS = 0.5
# Without inotify: the first look is soon, for holders are mostly quick, and the last adds little to
# what a waiter notices.
FIRST_PAUSE, LAST_PAUSE = 0.001, 0.02
_MOVED_FROM, _DELETE = 0x40, 0x200
_ONLYDIR, _DONT_FOLLOW = 0x01000000, 0x02000000
_EVENTS = _MOVED_FROM | _DELETE | _ONLYDIR | _DONT_FOLLOW
_EVENT_BYTES = 65_536


class Watch:
    """Watches one entry of a directory; nothing is watched before there is need to wait."""

    def __init__(self, directory: str, entry: str) -> None:
        self._directory = os.fsencode(directory)
        # As a name stands in an event; one that only ends in the same way costs a look in vain.
        self._mark = os.fsencode(entry) + b"\0"
        self._fd = -1
        self._libc: ctypes.CDLL | None = None
        self._pause = FIRST_PAUSE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def wait(self, holder: Owner | None, deadline: float) -> None:
        """Wait until another look is worth it; `holder` is a process of ours, alive just now."""
        if self._libc is None:
            self._begin()
            return  # what happened before went unseen
        if not self._is_watching():
            time.sleep(max(0.0, min(self._pause, deadline - time.monotonic())))
            self._pause = min(self._pause * 2, LAST_PAUSE)
            return
        deadline = min(deadline, time.monotonic() + LOOK_AGAIN_SECONDS)
        with contextlib.ExitStack() as stack:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            if holder is not None and (process := _open(holder)) >= 0:
                stack.callback(os.close, process)
                if owners.liveness(holder, owners.here()) != "alive":
                    return  # it ended before, and its number may be another's by now
                poll.register(process, select.POLLIN)
            self._sleep(poll, deadline)

    def _begin(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if hasattr(self._libc, "inotify_init1"):
            self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_watching()

    def _is_watching(self) -> bool:
        """Each time anew, which changes nothing unless the directory has become another one."""
        assert self._libc is not None
        if self._fd < 0:
            return False
        return bool(self._libc.inotify_add_watch(self._fd, self._directory, _EVENTS) >= 0)

    def _sleep(self, poll: select.poll, deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0:
            for fd, _ in poll.poll(left * 1000):
                if fd != self._fd or self._mark in self._read():
                    return

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _EVENT_BYTES)
        except BlockingIOError:
            return b""


def _open(holder: Owner) -> int:
    try:
        return os.pidfd_open(holder.pid)
    except (OSError, OverflowError):
        return -1
