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
import stat
import sys
import time
from contextlib import suppress

from msgspec import Struct

import icd
from icd import procfs, trust
from icd.app.invocation import World
from icd.db.paths import upward
from icd.errors import SpawnFailed, UnreadableInput, Untrusted
from icd.features.dispatches.calls import Create
from icd.features.dispatches.runner.agent import RECORDED, Job
from icd.values.processes import Process

HASH_CHARACTERS = 16
READ_BYTES = 1024 * 1024
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


class Own(Struct, frozen=True):
    """What the caller named itself: a script that runs the agent, or a program in its place."""

    script: str | None = None
    argv: list[str] = []


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


class Running(Struct, frozen=True):
    """Which processes run."""

    agent: Process
    runner: Process


def read_report(said: str) -> Running:
    """What a runner has reported; SpawnFailed says why there is no agent."""
    word, _, rest = said.partition(" ")
    if word != "ok":
        raise SpawnFailed(rest or "its runner died")
    here = procfs.boot(), procfs.namespace()
    try:
        pid, pid_start, runner, runner_start = (int(digits) for digits in rest.split(" "))
    except ValueError:
        raise SpawnFailed("its runner makes no sense") from None
    return Running(Process(pid, pid_start, *here), Process(runner, runner_start, *here))


class Launched:
    """A runner that waits to hear that its agent's start is recorded."""

    def __init__(self, control: int, running: Running) -> None:
        self.running = running
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


def program(world: World, wanted: Create, output: str, own: Own, database: str) -> Program:
    project, prompt = wanted.project_dir, wanted.prompt_file or ""
    if own.argv:
        return Program(own.argv, project, output, prompt, is_own=True)
    script = _named(world, own.script)
    if script is None:
        script = in_project(project)
        _refuse_script(script, world.env.get("HOME"), database)
    chosen = _flags(("-m", wanted.model), ("--sandbox", wanted.sandbox))
    if script is None:  # it reads the prompt from its standard input, and asks for no approvals
        return Program(["codex", "exec", *chosen, "-"], project, output, prompt)
    argv = ["bash", script, "-C", project, "-o", output, "--prompt-file", prompt]
    argv += _flags(("-n", wanted.name)) + chosen
    return Program(argv, world.cwd, f"{output}.log")  # it writes the output itself


def in_project(project: str) -> str | None:
    """The nearest script that lies in a project or above it."""
    above = (os.path.join(directory, SCRIPT) for directory in upward(project))
    return next((path for path in above if os.path.isfile(path)), None)


def _named(world: World, given: str | None) -> str | None:
    named = (given, world.env.get("CLAVAIN_DISPATCH_SH"))
    paths = (os.path.join(world.cwd, path) for path in named if path)
    return next((path for path in paths if os.path.isfile(path)), None)


def _refuse_script(script: str | None, home: str | None, database: str) -> None:
    if script is None or trust.allows_script(home, database, script):
        return
    hint = "read it, then trust it with 'icctl trust', or pass it with --dispatch-sh"
    raise Untrusted(f"{script} is not trusted, or has changed", hint=hint)


def _flags(*given: tuple[str, str | None]) -> list[str]:
    return [word for flag, value in given if value for word in (flag, value)]


# --- the prompt -----------------------------------------------------------------------------------


def hash_prompt(path: str) -> str:
    """The first digits of its SHA-256."""
    import hashlib  # only a spawn with a prompt pays for it

    found = hashlib.sha256()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnreadableInput(f"hash prompt: {path} is not a regular file")
            while data := file.read(READ_BYTES):
                found.update(data)
    except OSError as exc:
        raise UnreadableInput(f"hash prompt: cannot read {path}: {exc.strerror}") from exc
    return found.hexdigest()[:HASH_CHARACTERS]


def is_same(prompt: str, output: str) -> bool:
    try:
        return os.path.samefile(prompt, output)
    except OSError:
        return False  # the output is yet to be made


# --- the runner -----------------------------------------------------------------------------------


class Order(Struct, frozen=True):
    """A runner to start: its program, and the job that it is given."""

    argv: list[str]
    job: bytes


def order(
    dispatch_id: str,
    wanted: Create,
    program: Program,
    output: str,
    database: str,
    *,
    peer: int | None = None,
) -> Order:
    """`peer`: the client that is to start it, if that is another process."""
    job = Job(
        id=dispatch_id,
        argv=[os.fsencode(word) for word in program.argv],
        cwd=os.fsencode(program.cwd),
        stdin=os.fsencode(program.stdin),
        log=os.fsencode(program.log),
        output=os.fsencode(output),
        database=os.fsencode(database),
        client=[os.fsencode(word) for word in client(peer)],
        is_own=program.is_own,
        is_default=wanted.output_file is None,
        timeout_ms=wanted.timeout_ms or 0,
    )
    # The id is for people who look at their processes, and for the client.
    argv = [sys.executable, "-I", "-S", "-c", _CODE, _root(), dispatch_id]
    return Order(argv, marshal.dumps(vars(job)))


def launch(order: Order) -> Launched:
    """Start a runner with its agent, in the world of this process; SpawnFailed says why not."""
    to_runner, control = os.pipe()
    report, from_runner = os.pipe()
    env = _environment()
    try:
        try:
            starter = _start(order.argv, env, to_runner, from_runner)
        finally:
            os.close(to_runner)
            os.close(from_runner)
        given = b"".join(name + b"=" + value + b"\0" for name, value in env.items())
        with suppress(BrokenPipeError), open(control, "wb", closefd=False) as file:
            file.write(b"%d %d\n" % (len(order.job), len(given)) + order.job + given)
        said = _hear(report)
        with suppress(ChildProcessError):  # a caller that ignores SIGCHLD has none to count
            os.waitpid(starter, 0)
        return Launched(control, read_report(said))
    except BaseException as exc:
        os.close(control)
        if isinstance(exc, OSError):
            raise SpawnFailed(f"cannot start a process: {exc.strerror}") from exc
        raise
    finally:
        os.close(report)


def client(peer: int | None = None) -> list[str]:
    """How to run the client that is installed with us, or beside the program of the peer."""
    programs = [os.path.abspath(sys.argv[0])]
    if peer is not None:
        with suppress(OSError):
            programs.insert(0, os.readlink(f"/proc/{peer}/exe"))
    for path in (os.path.join(os.path.dirname(each), "icctl") for each in programs):
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return [path]
    return [sys.executable, "-E", "-P", "-c", _CLIENT, _root()]


def _environment() -> dict[bytes, bytes]:
    """The caller's: what Python chose for itself, where there is no locale, is not."""
    found = dict(os.environb)
    with suppress(OSError), open("/proc/self/environ", "rb") as file:
        if not any(word.startswith(b"LC_CTYPE=") for word in file.read().split(b"\0")):
            found.pop(b"LC_CTYPE", None)
    return found


def _start(argv: list[str], env: dict[bytes, bytes], stdin: int, stdout: int) -> int:
    return os.posix_spawn(
        argv[0],
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_RDWR, 0),
        ],
        setsid=True,
    )


def _hear(report: int) -> str:
    """What the runner says before it closes its end."""
    poll = select.poll()
    poll.register(report, select.POLLIN)
    until = time.monotonic() + START_SECONDS
    said = b""
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        data = os.read(report, 65_536)
        if not data:
            return os.fsdecode(said)
        said += data
    raise SpawnFailed(f"its runner did not report within {START_SECONDS:g} s")


def _root() -> str:
    """Where our packages lie."""
    return os.path.dirname(os.path.dirname(os.path.abspath(icd.__file__)))
