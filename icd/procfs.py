"""What the kernel tells about processes, in /proc; what it does not show is never an error.

Every runner of an agent loads this module, so it imports nothing that is not built in.
"""

from __future__ import annotations

import os

# A line of stat is far shorter.
_BYTES = 4096
# Among the fields of stat that follow the name.
_STATE, _PARENT, _GROUP, _SESSION, _FLAGS, _THREADS, _START = 0, 1, 2, 3, 6, 17, 19
_EXITING = 0x4  # PF_EXITING


class Stat:
    """A process at one moment; `start`: clock ticks since boot."""

    __slots__ = ("flags", "group", "name", "parent", "pid", "session", "start", "state", "threads")

    def __init__(self, name: str, fields: list[str], pid: int) -> None:
        self.name = name
        self.pid = pid
        self.state = fields[_STATE]
        self.parent = int(fields[_PARENT])
        self.group = int(fields[_GROUP])
        self.session = int(fields[_SESSION])
        self.flags = int(fields[_FLAGS])
        self.threads = int(fields[_THREADS])
        self.start = int(fields[_START])

    @property
    def is_stopped(self) -> bool:
        """By a signal or by a debugger: waiting for it is in vain."""
        return self.state in {"T", "t"}

    @property
    def is_exiting(self) -> bool:
        return bool(self.flags & _EXITING)

    @property
    def has_ended(self) -> bool:
        """A zombie waits only to be counted; with threads left, only the first of them is one."""
        return self.state in {"Z", "X"} and self.threads <= 1


def stat(pid: int | str) -> Stat | None:
    # The name in parentheses may hold anything, parentheses included.
    head, _, tail = _read(f"/proc/{pid}/stat").rpartition(")")
    fields = tail.split()
    if len(fields) <= _START:
        return None
    number, _, name = head.partition(" (")
    return Stat(name, fields, int(number))


def is_exiting(pid: int) -> bool:
    """Whether it will never do anything again: the kernel is closing its files, one by one."""
    tasks = [stat(f"{pid}/task/{task}") for task in _names(f"/proc/{pid}/task")]
    if tasks:
        return all(task is None or task.is_exiting for task in tasks)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is another user's, and /proc may hide it
    return False


def status(pid: int | str) -> dict[str, str]:
    """The lines of /proc/PID/status; nothing if there is no such process."""
    lines = (line.partition(":") for line in _read(f"/proc/{pid}/status").splitlines())
    return {name: value.strip() for name, _, value in lines}


def label(pid: int | str) -> str:
    """What confines a process by its name (AppArmor, SELinux); empty where nothing does."""
    return _read(f"/proc/{pid}/attr/current").strip("\0\n")


def processes() -> list[Stat]:
    found = [stat(name) for name in _names("/proc") if name.isdigit()]
    return [each for each in found if each is not None]


_boot: list[str] = []


def boot() -> str:
    if not _boot:
        _boot.append(_read("/proc/sys/kernel/random/boot_id").strip())
    return _boot[0]


def booted_at() -> int | None:
    """Unix seconds; not remembered: it moves when the clock is set."""
    try:
        with open("/proc/stat", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("btime"))
    except (OSError, StopIteration):
        return None


def namespace() -> str:
    """The namespace that our pids belong to; not remembered: a child may be in another one."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def lock_holder(inode: int) -> int | None:
    """The process that holds a file's lock of flock(2); None where the kernel does not tell."""
    try:
        with open("/proc/locks", encoding="ascii") as table:
            for fields in map(str.split, table):
                if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                    return int(fields[4])
    except (OSError, IndexError, ValueError):
        pass
    return None


def openers(device: int, inode: int) -> list[int]:
    """Other processes that have this file open, of those that we may look at."""
    others = [int(name) for name in _names("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in others if _has_open(pid, device, inode)]


def descriptors() -> float:
    """How many this process has open; looking takes one, and if there is none it is all of them."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return float("inf")


def _has_open(pid: int, device: int, inode: int) -> bool:
    directory = f"/proc/{pid}/fd"
    return any(_is_file(f"{directory}/{fd}", device, inode) for fd in _names(directory))


def _is_file(link: str, device: int, inode: int) -> bool:
    try:
        if not os.readlink(link).startswith("/"):
            return False  # a pipe or a socket
        found = os.stat(link)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (device, inode)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
