"""The process of a runner: detach from the caller, take the job, start the agent, and report.

`dispatches.launch` starts it and talks to it over two pipes: on stdin comes the job, and later the
word that the agent's start is recorded; on stdout goes the start, or why there is none.

No process is its parent, it is in no caller's session, and it holds nothing of its caller but the
environment and the limits, so neither a daemon nor a shell nor a terminal takes it away.

Everything is loaded at the start: what is installed may be another version by the time it ends.
"""

import _ctypes
import marshal
import os

from icd.features.dispatches.runner import signal
from icd.features.dispatches.runner.agent import WATCHED, Agent, Job, Refused

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def main() -> None:
    control, to = detach()
    try:
        with open(control, "rb", closefd=False) as file:
            job = Job(**marshal.load(file))  # noqa: S302 -- our own client's
        mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)}
        # A caller that ignores it would have us lose our children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        adopt_orphans()
        agent = Agent(job, mask)
        agent.start()
    except Exception as exc:  # noqa: BLE001 -- told to the client that waits for it
        why = str(exc) if isinstance(exc, Refused) else f"{exc!r} in the runner"
        report(to, {"error": why})
        os._exit(1)
    report(to, agent.processes())
    agent.run_to_end(control)
    os._exit(0)


def detach() -> tuple[int, int]:
    """Become an orphan with two descriptors of our own; everything else is closed."""
    if os.fork():
        os._exit(0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                continue  # the listing itself
    control, to = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return control, to


def adopt_orphans() -> None:
    """Have the kernel give us the orphans among our descendants."""
    libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    prctl = _ctypes.dlsym(libc, "prctl")
    _ctypes.call_function(prctl, (SUBREAPER, 1, 0, 0, 0))


def report(to: int, facts: dict[str, str] | dict[str, int]) -> None:
    try:
        os.write(to, marshal.dumps(facts))
    except OSError:
        return  # it has left; the agent is watched all the same
    finally:
        os.close(to)
