"""Who holds a lock, whether that process is still there, and how to wait for its end.

A holder is *dead* only if that is certain: it ran on this host, and either before the last boot,
or in our namespace of process ids, where its number is now free, a zombie's, or that of a process
that started at another time.  What cannot be told is `unknown`, and counts as alive.

A waiter does not look at a lock all the time.  The kernel tells of a lock that disappears (inotify)
and of an owner that ends (a pidfd).  Both may be missing, on an old kernel, in a sandbox, or when
the user's share is used up; and neither tells of everything.  So all that they say, or do not say,
only means "look now".
"""

import contextlib
import ctypes
import os
import select
import time
from collections.abc import Generator
from typing import Self, TypeVar

import msgspec

from icd import procfs
from icd.values.processes import PID_MAX, Liveness, Process, look, start_of

# An owner's file is a few hundred bytes; more is not one of ours.
FILE_BYTES = 8192

T = TypeVar("T")


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """What owner.json says; the original knows the first four.

    `request` is the id of the call that took the lock: a call that is repeated, because its answer
    was lost, knows by it that the lock is its own already.
    """

    pid: int
    host: str
    owner: str
    created: int
    start: int = 0  # of the process, in clock ticks since boot
    boot: str = ""
    pidns: str = ""
    request: str = ""


class Here(msgspec.Struct, frozen=True):
    """Where this process runs; pids mean nothing elsewhere."""

    host: str
    boot: str
    pidns: str


def here() -> Here:
    return Here(os.uname().nodename, procfs.boot(), procfs.namespace())


def of_process(pid: int, where: Here, now: int) -> Owner:
    """The owner that a process of ours is."""
    return named(f"{pid}:{where.host}", pid, where, now)


def is_adopted(parent: int, session: int) -> bool:
    """Whether the process that started a client has ended, and another took that in its place.

    Such a one is no owner: it never ends.  A pid 1 that did start the client, such as the shell of
    a container, shares the client's session.
    """
    found = procfs.stat(parent)
    if found is None:
        return True
    return (parent == 1 or found.name == "systemd") and found.session != session


def named(text: str, caller: int, where: Here, now: int) -> Owner:
    """The owner that a caller names: `PID:HOST`, or any word, which stands for the caller."""
    word, colon, host = text.partition(":")
    pid = int(word) if _is_process(text) else caller
    host = host if colon and host else where.host
    if not same_host(host, where.host):
        return Owner(pid, host, text, now)
    return Owner(pid, host, text, now, start_of(pid), where.boot, where.pidns)


def is_same(one: Owner, other: Owner) -> bool:
    """Whether two records mean the same owner; a number that was given away again does not.

    A word that a caller chose is the owner, whichever process says it.
    """
    if one.owner == other.owner and not _is_process(one.owner):
        return True
    if one.start and other.start and (one.boot, one.start) != (other.boot, other.start):
        return False
    if one.owner == other.owner:
        return True
    ones, others = (each.owner.partition(":") for each in (one, other))
    return ones[0] == others[0] and _is_pid(ones[0]) and same_host(ones[2], others[2])


def liveness(owner: Owner, where: Here) -> Liveness:
    # Hosts are renamed: the same boot and the same process ids are this one, whatever its name.
    boot = where.boot, where.pidns
    is_here = all(boot) and (owner.boot, owner.pidns) == boot
    if not is_here and not same_host(owner.host, where.host):
        return "unknown"
    if owner.boot and where.boot and owner.boot != where.boot:
        return "dead"
    if owner.pidns and owner.pidns != where.pidns:
        return "unknown"
    return look(Process(owner.pid, owner.start))


def same_host(one: str, other: str) -> bool:
    """`hostname -s` and `hostname` name the same host."""
    if "." in one and "." in other:
        return one == other
    return one.partition(".")[0] == other.partition(".")[0]


def decode(data: bytes) -> Owner | None:
    try:
        return msgspec.json.decode(data, type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_process(owner: str) -> bool:
    """Whether it is `PID:HOST`; else it is a word."""
    word, colon, _ = owner.partition(":")
    return bool(colon) and _is_pid(word)


def _is_pid(word: str) -> bool:
    return word.isascii() and word.isdecimal() and len(word) <= len(str(PID_MAX))


# --- waiting --------------------------------------------------------------------------------------


class Pause(msgspec.Struct, frozen=True):
    """What a call waits for before its next step: until then, or until it is worth a look.

    It is if the entry disappears from the directory, or the holder ends; without an entry there is
    nothing to be told.
    """

    until: float  # monotonic
    directory: str = ""
    entry: str = ""
    holder: Owner | None = None  # a process of ours that was alive just now


# What takes several steps yields what it waits for in between: a process of its own waits there
# (`run`), the daemon goes on with other calls.
Steps = Generator[Pause, None, T]


def run(steps: Steps[T]) -> T:
    """Take all steps, and wait in between in this process."""
    with contextlib.ExitStack() as stack:
        watch: Watch | None = None
        while True:
            try:
                pause = next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if not pause.entry:
                time.sleep(max(0.0, pause.until - time.monotonic()))
                continue
            if watch is None:
                watch = stack.enter_context(Watch(pause.directory, pause.entry))
            watch.wait(pause.holder, pause.until)


# What the kernel does not tell, such as a directory that was made anew, is noticed after this time.
LOOK_AGAIN_SECONDS = 0.5
# Without inotify: the first look is soon, for holders are mostly quick, and the last adds little to
# what a waiter notices.
FIRST_PAUSE, LAST_PAUSE = 0.001, 0.02
_MOVED_FROM, _DELETE = 0x40, 0x200
_ONLYDIR, _DONT_FOLLOW = 0x01000000, 0x02000000
EVENTS = _MOVED_FROM | _DELETE | _ONLYDIR | _DONT_FOLLOW
EVENT_BYTES = 65_536


class Watch:
    """Of one entry of a directory; nothing is watched before there is need to wait."""

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
        """Until it is worth another look; `holder` is a process of ours that was alive just now."""
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
                if liveness(holder, here()) != "alive":
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
        return bool(self._libc.inotify_add_watch(self._fd, self._directory, EVENTS) >= 0)

    def _sleep(self, poll: select.poll, deadline: float) -> None:
        while (left := deadline - time.monotonic()) > 0:
            for fd, _ in poll.poll(left * 1000):
                if fd != self._fd or self._mark in self._read():
                    return

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, EVENT_BYTES)
        except BlockingIOError:
            return b""


def _open(holder: Owner) -> int:
    try:
        return os.pidfd_open(holder.pid)
    except (OSError, OverflowError):
        return -1
