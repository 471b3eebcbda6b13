"""Which processes belong together, and how to end them without hitting another one.

A number says nothing about a process: the kernel may have given it away again.  So a signal goes
through a descriptor of the process, and only if that has the start time that was seen before.
"""

import os
import time

from icd import procfs
from icd.features.dispatches.runner import TYPE_CHECKING, signal
from icd.procfs import Stat

if TYPE_CHECKING:
    from collections.abc import Callable

    Find = Callable[[], list[Stat]]

# How long a process that is asked to end may take; as the original.
GRACE_SECONDS = 5.0
# A killed process ends at once, unless the kernel is busy for it: do not wait for ever.
DEATH_SECONDS = 5.0
LOOK_SECONDS = 0.02


def descendants(root: int) -> list[Stat]:
    """Everything alive that this process has started, however far down."""
    return _spread({root}, set(), procfs.processes())


def session(leader: int, start: int) -> list[Stat]:
    """A leader's session and group with all below them; none if it is no longer the leader."""
    found = procfs.stat(leader)
    if found is None or found.start != start:
        return []
    every = procfs.processes()
    near = {each.pid for each in every if leader in (each.pid, each.group, each.session)}
    return _spread(near, near, every)


def terminate(find: "Find", *, grace: float = GRACE_SECONDS) -> bool:
    """Ask all to end, and kill those that are left after the grace; whether all are gone.

    A process that is started meanwhile, such as by one that tidies up, is not asked, but killed.
    """
    for each in find():
        send(each, signal.SIGTERM)
        send(each, signal.SIGCONT)  # a stopped process would not even notice
    if _gone(find, grace):
        return True
    return _gone(find, DEATH_SECONDS, signal.SIGKILL)


def send(seen: Stat, number: int) -> None:
    """Send a signal to this very process, or to none."""
    try:
        fd = os.pidfd_open(seen.pid)
    except OSError:
        return
    try:
        now = procfs.stat(seen.pid)
        if now is not None and now.start == seen.start:
            signal.pidfd_send_signal(fd, number)
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


def _spread(roots: set[int], found: set[int], every: list[Stat]) -> list[Stat]:
    """Of those that live, the ones in `found` and the descendants of the roots."""
    children: dict[int, list[int]] = {}
    for each in every:
        children.setdefault(each.parent, []).append(each.pid)
    queue = list(roots)
    while queue:
        for pid in children.get(queue.pop(), []):
            if pid not in found:
                found.add(pid)
                queue.append(pid)
    return [each for each in every if each.pid in found and not each.has_ended]
