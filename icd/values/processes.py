"""Whether a process is there, as the kernel tells it.

A number alone is not enough: it is given away again.  With the moment of its start, the boot and
the namespace of its number, a process is *dead* only if that is certain; whatever cannot be told
is `unknown`, and counts as alive.
"""

import os
from contextvars import ContextVar
from typing import Annotated, Literal

from msgspec import Meta, Struct

from icd import procfs

Liveness = Literal["alive", "dead", "unknown"]

# Whether rows of several machines are looked at: then another boot may be that of another machine.
several_machines: ContextVar[bool] = ContextVar("several_machines", default=False)

# Larger numbers are no pids on Linux, and would be refused by kill(2) with an OverflowError.
PID_MAX = 2**22
# What a database can hold; whether a process has that number is another question.
Number = Annotated[int, Meta(ge=0, le=2**62)]


class Process(Struct, frozen=True):
    """`start`: clock ticks since boot, 0 if unknown.  Empty texts are unknown, too."""

    pid: Number
    start: Number = 0
    boot: str = ""
    pidns: str = ""


class Writer(Struct, frozen=True):
    """Who asks: the process that ran the client, its session, and what it works on."""

    pid: int | None = None
    session: str | None = None
    trace_id: str | None = None
    span_id: str | None = None


def identify(pid: int) -> Process:
    """The process that has this number now."""
    return Process(pid, start_of(pid), procfs.boot(), procfs.namespace())


def is_alive(pid: int) -> bool:
    return look(Process(pid)) != "dead"


def liveness(process: Process) -> Liveness:
    if process.boot and procfs.boot() and process.boot != procfs.boot():
        return "unknown" if several_machines.get() else "dead"
    if process.pidns and process.pidns != procfs.namespace():
        return "unknown"
    return look(process)


def start_of(pid: int) -> int:
    """When a process started; 0 if it is not there."""
    found = procfs.stat(pid)
    return found.start if found else 0


def look(process: Process) -> Liveness:
    """Liveness of a process of this boot and this namespace."""
    if not 0 < process.pid <= PID_MAX:
        return "dead"
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:
        pass
    found = procfs.stat(process.pid)
    if found is None:
        return "unknown"  # it ended just now, or /proc hides it: the next look tells
    if found.has_ended:
        return "dead"
    return "dead" if process.start and found.start != process.start else "alive"
