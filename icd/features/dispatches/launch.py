"""Which program an agent is, and the start of the runner that runs it.

The program is the project's dispatch.sh if there is one, else codex: `--dispatch-sh`, else
`$CLAVAIN_DISPATCH_SH`, else the nearest `hub/clavain/scripts/dispatch.sh` above the project; a
place that has no such file is passed over.  The first two are the caller's own words.  A script
that merely lies in the project may be a stranger's: it runs only if the user accepted it, with the
content that it has.

A runner is a process that the caller's end, terminal, session and groups do not concern.  The
caller's own directory, environment, limits and control group are the agent's, since all of it is
inherited; of the caller's descriptors nothing is.
"""

import marshal
import os
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

import icd
from icd import procfs, trust
from icd.app.invocation import World
from icd.db.paths import upward
from icd.errors import SpawnFailed, Untrusted
from icd.features.dispatches.runner.agent import RECORDED, Job
from icd.values.processes import Process

SCRIPT = "hub/clavain/scripts/dispatch.sh"
# An interpreter starts, and a program; a loaded machine is no failure.
START_SECONDS = 60.0
# The order keeps the standard library before everything else.
_CODE = (
    "import sys;sys.path.append(sys.argv[1]);"
    "from icd.features.dispatches.runner.main import main;main()"
)
_CLIENT = (
    "import sys;sys.path.append(sys.argv.pop(1));from icctl.client import main;"
    "sys.exit(main(sys.argv[1:],'icctl'))"
)


class Wanted(Struct, frozen=True, kw_only=True):
    """What to start.  Paths are absolute, and as the operating system has them.

    `is_default`: no caller chose the name of the output.  `argv`: the caller's own program.
    """

    project: str
    output: str = ""
    is_default: bool = False
    prompt: str = ""
    name: str | None = None
    model: str | None = None
    sandbox: str | None = None
    script: str | None = None
    argv: list[str] = []
    timeout_ms: int | None = None


class Program(Struct, frozen=True):
    """`log`: where its stdout and stderr go.

    `is_own`: the caller named it.  Any other is not looked for in relative directories of $PATH:
    they would lie in the project.
    """

    argv: list[str]
    cwd: str
    log: str
    stdin: str = ""
    is_own: bool = False


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


def refuse_untrusted(world: World, what: str) -> None:
    """Raise if the rows of the database decide what is done, and it may be a stranger's."""
    database = world.database
    why = trust.objection(world.env.get("HOME"), database)
    if why:
        raise Untrusted(f"{what}: {text(database)} is not trusted: {text(why)}")


def text(path: str) -> str:
    """As it can be stored: an odd byte is spelled out."""
    return path.encode("utf-8", "backslashreplace").decode()


# --- which program --------------------------------------------------------------------------------


def program(wanted: Wanted, *, cwd: str, env: Mapping[str, str], database: str) -> Program:
    if wanted.argv:
        return Program(wanted.argv, wanted.project, wanted.output, wanted.prompt, is_own=True)
    script = _named(wanted.script, cwd, env)
    if script is None:
        script = in_project(wanted.project)
        _refuse_script(script, env.get("HOME"), database)
    chosen = _flags(("-m", wanted.model), ("--sandbox", wanted.sandbox))
    if script is None:  # it reads the prompt from its standard input, and asks for no approvals
        argv = ["codex", "exec", *chosen, "-"]
        return Program(argv, wanted.project, wanted.output, wanted.prompt)
    argv = ["bash", script, "-C", wanted.project, "-o", wanted.output]
    argv += ["--prompt-file", wanted.prompt, *_flags(("-n", wanted.name)), *chosen]
    return Program(argv, cwd, f"{wanted.output}.log")  # it writes the output itself


def in_project(project: str) -> str | None:
    """The nearest script that lies in a project or above it."""
    above = (os.path.join(directory, SCRIPT) for directory in upward(project))
    return next((path for path in above if os.path.isfile(path)), None)


def _named(given: str | None, cwd: str, env: Mapping[str, str]) -> str | None:
    named = [os.path.join(cwd, path) for path in (given, env.get("CLAVAIN_DISPATCH_SH")) if path]
    return next((path for path in named if os.path.isfile(path)), None)


def _refuse_script(script: str | None, home: str | None, database: str) -> None:
    if script is None or trust.allows_script(home, database, script):
        return
    hint = "read it, then accept it with 'icctl trust', or name it with --dispatch-sh"
    raise Untrusted(f"{script} was not accepted, or has changed since", hint=hint)


def _flags(*given: tuple[str, str | None]) -> list[str]:
    return [word for flag, value in given if value for word in (flag, value)]


# --- the runner -----------------------------------------------------------------------------------


def launch(dispatch_id: str, wanted: Wanted, program: Program, database: str) -> Launched:
    """Start a runner with its agent; SpawnFailed says why there is none."""
    job = _job(dispatch_id, wanted, program, database)
    to_runner, control = os.pipe()
    report, from_runner = os.pipe()
    try:
        try:
            starter = _start(job, to_runner, from_runner)
        finally:
            os.close(to_runner)
            os.close(from_runner)
        with suppress(BrokenPipeError), open(control, "wb", closefd=False) as file:
            marshal.dump(vars(job), file)
        facts = _hear(report)
        with suppress(ChildProcessError):  # a caller that ignores SIGCHLD has none to count
            os.waitpid(starter, 0)
        boot, pidns = procfs.boot(), procfs.namespace()
        agent = Process(facts["pid"], facts["pid-start"], boot, pidns)
        runner = Process(facts["runner-pid"], facts["runner-start"], boot, pidns)
        return Launched(control, agent, runner)
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
    return [sys.executable, "-E", "-P", "-c", _CLIENT, _root()]


def _job(dispatch_id: str, wanted: Wanted, program: Program, database: str) -> Job:
    return Job(
        id=dispatch_id,
        argv=[os.fsencode(word) for word in program.argv],
        env=_environment(),
        cwd=os.fsencode(program.cwd),
        stdin=os.fsencode(program.stdin),
        log=os.fsencode(program.log),
        output=os.fsencode(wanted.output),
        database=os.fsencode(database),
        client=[os.fsencode(word) for word in client()],
        is_own=program.is_own,
        is_default=wanted.is_default,
        timeout_ms=wanted.timeout_ms or 0,
    )


def _environment() -> dict[bytes, bytes]:
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


def _start(job: Job, stdin: int, stdout: int) -> int:
    return os.posix_spawn(
        sys.executable,
        # The id is for people who look at their processes.
        [sys.executable, "-I", "-S", "-c", _CODE, _root(), job.id],
        job.env,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_RDWR, 0),
        ],
        setsid=True,
    )


def _hear(report: int) -> dict[str, int]:
    """What the runner says before it closes its end."""
    poll = select.poll()
    poll.register(report, select.POLLIN)
    until = time.monotonic() + START_SECONDS
    said = b""
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        data = os.read(report, 65_536)
        if not data:
            facts = marshal.loads(said) if said else {"error": "its runner died"}  # noqa: S302
            if "error" in facts:
                raise SpawnFailed(facts["error"])
            return dict(facts)
        said += data
    raise SpawnFailed(f"its runner says nothing for {START_SECONDS:g} s")


def _root() -> str:
    """Where our packages lie."""
    return os.path.dirname(os.path.dirname(os.path.abspath(icd.__file__)))
