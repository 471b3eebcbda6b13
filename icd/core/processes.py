"""Whether a process is there, as the kernel tells it.

A number alone is not enough: it is given away again.  With the moment of its start, the boot and
the namespace of its number, a process is *dead* only if that is certain; whatever cannot be told
is `unknown`, and counts as alive.
"""

import os
from functools import lru_cache
from typing import Literal

from msgspec import Struct

Liveness = Literal["alive", "dead", "unknown"]

# Larger numbers are no pids on Linux, and would be refused by kill(2) with an OverflowError.
PID_MAX = 2**22

_STATE, _START = 0, 19  # among the fields of /proc/PID/stat that follow the name
_ENDED = {"Z", "X"}  # a zombie waits only to be counted


class Process(Struct, frozen=True):
    """`start`: clock ticks since boot, 0 if unknown.  Empty texts are unknown, too."""

    pid: int
    start: int = 0
    boot: str = ""
    pidns: str = ""


def identify(pid: int) -> Process:
    """The process that has this number now."""
    return Process(pid, start_of(pid), boot(), namespace())


def is_alive(pid: int) -> bool:
    return _look(Process(pid)) != "dead"


def liveness(process: Process) -> Liveness:
    if process.boot and boot() and process.boot != boot():
        return "dead"
    if process.pidns and process.pidns != namespace():
        return "unknown"
    return _look(process)


def start_of(pid: int) -> int:
    """When a process started; 0 if it is not there."""
    fields = _stat(pid)
    return int(fields[_START]) if fields else 0


@lru_cache(maxsize=1)
def boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(100).strip()
    except OSError:
        return ""


def namespace() -> str:
    """The namespace that our pids belong to; not remembered: a child may be in another one."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _look(process: Process) -> Liveness:
    if not 0 < process.pid <= PID_MAX:
        return "dead"
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:
        pass
    fields = _stat(process.pid)
    if not fields:
        return "unknown"  # it ended just now, or /proc hides it: whoever asks again will know
    if fields[_STATE] in _ENDED:
        return "dead"
    return "dead" if process.start and int(fields[_START]) != process.start else "alive"


def _stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name in parentheses may hold anything, parentheses included.
            fields = file.read(4096).rpartition(")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > _START else []
