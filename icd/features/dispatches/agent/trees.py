"""Which processes belong together, and ending them without hitting a stranger.

A number says nothing about a process: it may have been given away again.  So a signal goes through
a descriptor of the process, and only if that has the start time that was seen before.
"""

import os
import time

from icd.features.dispatches.agent.signals import SIGCONT, SIGKILL, SIGTERM, pidfd_send_signal

TYPE_CHECKING = False  # the module `typing` is as large as all the rest together
if TYPE_CHECKING:
    from collections.abc import Callable

    Find = Callable[[], list["Seen"]]

# How long whoever is asked to end may take; as the original.
GRACE_SECONDS = 5.0
# What was killed ends at once, unless the kernel is busy for it: nobody waits for ever.
DEATH_SECONDS = 5.0
LOOK_SECONDS = 0.02

_STATE, _PARENT, _GROUP, _SESSION, _THREADS, _START = 0, 1, 2, 3, 17, 19
_ENDED = ("Z", "X")


class Seen:
    """A process at one moment."""

    __slots__ = ("group", "has_ended", "parent", "pid", "session", "start")

    def __init__(self, pid: int, fields: list[str]) -> None:
        self.pid = pid
        # With threads left, only the first of them is a zombie.
        self.has_ended = fields[_STATE] in _ENDED and int(fields[_THREADS]) <= 1
        self.parent = int(fields[_PARENT])
        self.group = int(fields[_GROUP])
        self.session = int(fields[_SESSION])
        self.start = int(fields[_START])


def look(pid: int) -> Seen | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            # The name in parentheses may hold anything, parentheses included.
            fields = file.read(4096).decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return Seen(pid, fields) if len(fields) > _START else None


def below(root: int) -> list[Seen]:
    """Everything alive that this process has started, however far down."""
    return _live(_spread({root}, _everybody(), set()))


def around(leader: int, start: int) -> list[Seen]:
    """A leader's session and group with all below them; nobody if it is no longer the leader."""
    found = look(leader)
    if found is None or found.start != start:
        return []
    everybody = _everybody()
    near = {each.pid for each in everybody if leader in (each.pid, each.group, each.session)}
    return _live(_spread(near, everybody, near))


def end(find: "Find", *, grace: float = GRACE_SECONDS) -> bool:
    """Ask all to end, and kill whoever is left after the grace; whether all are gone.

    Whoever is started meanwhile, such as by somebody who tidies up, is not asked, but killed.
    """
    for each in find():
        send(each, SIGTERM)
        send(each, SIGCONT)  # or it would not even notice
    if _gone(find, grace):
        return True
    return _gone(find, DEATH_SECONDS, SIGKILL)


def send(seen: Seen, number: int) -> None:
    """To this very process, or to nobody."""
    try:
        fd = os.pidfd_open(seen.pid)
    except OSError:
        return
    try:
        now = look(seen.pid)
        if now is not None and now.start == seen.start:
            pidfd_send_signal(fd, number)
    except OSError:
        return
    finally:
        os.close(fd)


def _gone(find: "Find", within: float, number: int = 0) -> bool:
    until = time.monotonic() + within
    while left := find():
        if number:
            for each in left:
                send(each, number)
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _everybody() -> list[Seen]:
    found = [look(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [each for each in found if each is not None]


def _spread(roots: set[int], everybody: list[Seen], found: set[int]) -> list[Seen]:
    """Those in `found`, and whoever descends from the roots."""
    children: dict[int, list[int]] = {}
    for each in everybody:
        children.setdefault(each.parent, []).append(each.pid)
    queue = list(roots)
    while queue:
        for pid in children.get(queue.pop(), []):
            if pid not in found:
                found.add(pid)
                queue.append(pid)
    return [each for each in everybody if each.pid in found]


def _live(found: list[Seen]) -> list[Seen]:
    return [each for each in found if not each.has_ended]
