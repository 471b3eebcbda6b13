"""The process of a runner: detach from the caller, take the job, start the agent, and report.

A client starts it (`dispatches.launch`, icctl/spawn.c) and talks to it over two pipes.  On stdin
come a line with two lengths, the job and the caller's environment, and later the word that the
agent's start is recorded.  On stdout goes a line: `ok` and the numbers of the agent and of the
runner, each with the moment of its start; or `no` and why there is none.

No process is its parent, it is in no caller's session, and it holds nothing of its caller but the
environment and the limits, so neither a daemon nor a shell nor a terminal takes it away.

Everything is loaded at the start: what is installed may be another version by the time it ends.
"""

import marshal
import os

from icd.features.dispatches.runner import signal
from icd.features.dispatches.runner.agent import WATCHED, Agent, Job, Refused

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def main() -> None:
    control, to = detach()
    try:
        job = take_job(control)
        mask = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)}
        # A caller that ignores it would have us lose our children.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        agent = Agent(job, mask)
        agent.start()
    except Exception as exc:  # noqa: BLE001 -- told to the client that waits for it
        why = str(exc) if isinstance(exc, Refused) else f"{exc!r} in the runner"
        report(to, "no", why)
        os._exit(1)
    report(to, "ok", *agent.processes().values())
    agent.run_to_end(control)
    os._exit(0)


def detach() -> tuple[int, int]:
    """Become an orphan with two descriptors of our own; everything else is closed."""
    if os.getsid(0) == os.getpid():  # else the native client has done so
        if os.fork():
            os._exit(0)
        adopt_orphans()
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
    import _ctypes  # a native client needs no Python for it

    libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    prctl = _ctypes.dlsym(libc, "prctl")
    _ctypes.call_function(prctl, (SUBREAPER, 1, 0, 0, 0))


def take_job(control: int) -> Job:
    head = b""
    while head[-1:] != b"\n":  # what follows the job is not ours to read yet
        head += _take(control, 1)
    size, environment = (int(word) for word in head.split())
    told = marshal.loads(_take(control, size))  # noqa: S302 -- our own client's
    words = (word.partition(b"=") for word in _take(control, environment).split(b"\0"))
    return Job(**told, env={name: value for name, equals, value in words if equals})


def _take(control: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(control, size - len(data))
        if not more:
            raise Refused("its client died")
        data += more
    return data


def report(to: int, *words: object) -> None:
    said = " ".join(str(word) for word in words).replace("\0", " ").replace("\n", " ")
    try:
        os.write(to, os.fsencode(said))
    except OSError:
        return  # it has left; the agent is watched all the same
    finally:
        os.close(to)
