"""Starting a runner: a process that the caller's end, terminal, session and groups do not concern.

The caller's own directory, environment, limits and control group are the agent's, since all of it
is inherited; of the caller's descriptors nothing is.
"""

import marshal
import os
import select
import sys
import time
from contextlib import suppress

from msgspec import Struct

import icd
from icd import procfs
from icd.errors import SpawnFailed
from icd.features.dispatches.agent.commands import Command
from icd.features.dispatches.agent.runner import RECORDED
from icd.features.dispatches.agent.settling import LENGTH_BYTES
from icd.values.processes import Process

# An interpreter starts, and a program; a loaded machine is no failure.
START_SECONDS = 60.0
# The order keeps the standard library before everything else.
_CODE = (
    "import sys;sys.path.append(sys.argv[1]);"
    "from icd.features.dispatches.agent.runner import main;main()"
)


class Job(Struct, frozen=True, kw_only=True):
    """`is_default`: nobody chose the name of the output."""

    id: str
    command: Command
    output: str
    is_default: bool
    timeout_ms: int | None
    database: str


class Launched:
    """A runner that waits to hear that its agent's start is recorded."""

    def __init__(self, control: int, agent: Process, runner: Process) -> None:
        self.agent = agent
        self.runner = runner
        self._control = control

    def is_recorded(self) -> None:
        with suppress(OSError):  # its agent may be over, and it, too
            os.write(self._control, RECORDED)

    def leave(self) -> None:
        os.close(self._control)


def launch(job: Job) -> Launched:
    """Start a runner with its agent; SpawnFailed says why there is none."""
    to_runner, control = os.pipe()
    report, from_runner = os.pipe()
    try:
        try:
            starter = _start(job.id, to_runner, from_runner)
        finally:
            os.close(to_runner)
            os.close(from_runner)
        with suppress(BrokenPipeError):
            _send(control, _described(job))
        facts = _hear(report)
        with suppress(ChildProcessError):  # a caller that ignores SIGCHLD has none to count
            os.waitpid(starter, 0)
        return Launched(control, *_found(facts))
    except OSError as exc:
        os.close(control)
        raise SpawnFailed(f"cannot start a process: {exc.strerror}") from exc
    except BaseException:
        os.close(control)
        raise
    finally:
        os.close(report)


def client() -> list[str]:
    """How to run the client that is installed with us."""
    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "icctl")
    if os.access(path, os.X_OK) and os.path.isfile(path):
        return [path]
    code = "import sys;sys.path.append(sys.argv.pop(1));from icctl.client import main;"
    return [
        sys.executable,
        "-E",
        "-P",
        "-c",
        f"{code}sys.exit(main(sys.argv[1:],'icctl'))",
        _root(),
    ]


def environment() -> dict[bytes, bytes]:
    """The caller's: what Python chose for itself, where there is no locale, is not."""
    found = dict(os.environb)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = {word.partition(b"=")[0] for word in file.read().split(b"\0")}
    except OSError:
        return found
    if b"LC_CTYPE" not in given:
        found.pop(b"LC_CTYPE", None)
    return found


def _start(dispatch_id: str, stdin: int, stdout: int) -> int:
    # The id is for people who look at their processes.
    argv = [sys.executable, "-I", "-S", "-c", _CODE, _root(), dispatch_id]
    return os.posix_spawn(
        sys.executable,
        argv,
        environment(),
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_RDWR, 0),
        ],
        setsid=True,
    )


def _described(job: Job) -> bytes:
    paths = {
        "cwd": job.command.cwd,
        "stdin": job.command.stdin,
        "log": job.command.log,
        "output": job.output,
        "database": job.database,
    }
    data = marshal.dumps(
        {name: os.fsencode(path) for name, path in paths.items()}
        | {
            "id": job.id,
            "argv": [os.fsencode(word) for word in job.command.argv],
            "client": [os.fsencode(word) for word in client()],
            "is_own": job.command.is_own,
            "is_default": job.is_default,
            "timeout_ms": job.timeout_ms or 0,
        }
    )
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def _send(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _hear(report: int) -> dict[str, str | int]:
    """What the runner says before it closes its end."""
    poll = select.poll()
    poll.register(report, select.POLLIN)
    until = time.monotonic() + START_SECONDS
    said = b""
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        data = os.read(report, 65_536)
        if not data:
            if not said:
                raise SpawnFailed("its runner died")
            return _understood(said)
        said += data
    raise SpawnFailed(f"its runner says nothing for {START_SECONDS:g} s")


def _understood(said: bytes) -> dict[str, str | int]:
    facts: dict[str, str | int] = marshal.loads(said)  # noqa: S302 -- our own runner's
    if "error" in facts:
        raise SpawnFailed(str(facts["error"]))
    return facts


def _found(facts: dict[str, str | int]) -> tuple[Process, Process]:
    boot, pidns = procfs.boot(), procfs.namespace()
    agent = Process(int(facts["pid"]), int(facts["start"]), boot, pidns)
    return agent, Process(int(facts["runner"]), int(facts["runner_start"]), boot, pidns)


def _root() -> str:
    """Where our packages lie."""
    return os.path.dirname(os.path.dirname(os.path.abspath(icd.__file__)))
