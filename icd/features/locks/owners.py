"""Who holds a lock, and whether that process is still there.

A holder is *dead* only if that is certain: it ran on this host, and either before the last boot,
or in our namespace of process ids, where its number is now free, a zombie's, or that of a process
that started at another time.  What cannot be told is `unknown`, and counts as alive.
"""

import os

import msgspec

from icd import procfs
from icd.values.processes import PID_MAX, Liveness, Process, look, start_of

# An owner's file is a few hundred bytes; more is not one of ours.
FILE_BYTES = 8192


class Owner(msgspec.Struct, frozen=True):
    """What owner.json says; the original knows the first four."""

    pid: int
    host: str
    owner: str
    created: int
    start: int = 0  # of the process, in clock ticks since boot
    boot: str = ""
    pidns: str = ""


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


def is_adopted(parent: int) -> bool:
    """Whether the process that started us has ended, and another took us in its place.

    Such a one is no owner: it never ends.  A pid 1 that did start us, such as the shell of a
    container, shares its session with us.
    """
    found = procfs.stat(parent)
    if found is None:
        return True
    if parent != 1 and found.name != "systemd":
        return False
    try:
        return os.getsid(parent) != os.getsid(0)
    except OSError:
        return True


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
