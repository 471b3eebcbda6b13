"""A command line with the caller's world around it, and what can become of it.

The daemon runs other people's command lines, so nothing here may look at this process's
environment, directory, terminal, locale or name: everything comes from the caller.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

import msgspec

from icd.app.call import Answer, Call, Params
from icd.db import paths
from icd.db.paths import Where
from icd.errors import IcError, UnreadableInput, Usage
from icd.printable import printable, spelled

if TYPE_CHECKING:
    from icd.app.flags import Flags

T = TypeVar("T")

# A command that goes on asks again whenever the database has changed, and this often in any case:
# others may have written to it, a row may have expired, a process may have ended.
LOOK_AGAIN_SECONDS = 1.0
# What could not be asked, because the database was held, is asked again after this time.
SOON_SECONDS = 0.05
# A payload's limit, and room for white space around it.
INPUT_BYTES = 1024 * 1024 + 64 * 1024
MOST_COLUMNS = 1000  # of a terminal
_NOBODY = "no process writes to it"
_NOBODY_HINT = "start the writer, or raise --timeout"
# The start of a command in a hint, such as in "run 'icctl init'".
_COMMAND = r"(?:(?<=^)|(?<=['\s]))icctl (?=[a-z-])"
# Which session a command belongs to: the first of these that is set.  The user's own word, what
# the hooks of the original read, then what agents are known to give the programs that they start.
SESSION_VARIABLES = (
    "INTERCORE_SESSION",
    "CLAUDE_SESSION_ID",
    "CLAUDE_CODE_SESSION_ID",
    "CODEX_THREAD_ID",
    "GEMINI_SESSION_ID",
)
# What a row keeps of a word from the environment.
WORD_CHARACTERS = 200
# What a client says of a file in an errno, where the system's own words would mislead.
_REASONS = {errno.EPIPE: _NOBODY, errno.ENXIO: "it is a socket, or a missing device"}


class Need(msgspec.Struct):
    """Nothing was done; send this input and ask again, or run it in your own process."""

    what: Literal["stdin", "file", "local"]
    path: str = ""
    limit: int = INPUT_BYTES


class Needed(Exception):
    def __init__(self, need: Need) -> None:
        super().__init__(need)
        self.need = need


class Terminal(msgspec.Struct):
    """Where a person reads stdout, as a client sees it: see icctl/terminal.py."""

    width: int = 80
    offset: int = 0  # of its clock, in seconds east of Greenwich
    colour: bool = False
    absolute: bool = False  # times as dates
    now: float = 0.0  # the moment that times are relative to; 0: that of the rendering


class World(msgspec.Struct):
    """A caller: its command line, what a client forwards of the world around it, and the flags.

    `files` maps a path to its content, or to why it cannot be read.
    """

    argv: list[str]
    cwd: str
    deadline: float
    began: float = 0.0  # when the caller's own process was started; only that process knows
    program: str = "icctl"
    door: str = "json-rpc"  # which client the caller used
    client_version: str = ""  # unknown
    continues: bool = True  # whether the client knows `Output.then`
    is_terminal: bool = False  # whether a person reads what goes to stderr
    # Whether a person reads what goes to stdout, and wants it for people.
    terminal: Terminal | None = None
    is_plain: bool = False  # there is one, and its owner wants what a pipe gets
    host: Literal["daemon", "direct"] = "daemon"
    env: dict[str, str] = {}
    pid: int | None = None  # of the caller, which started the client
    peer: int | None = None  # of the client, as the kernel tells it
    child: int | None = None  # of the client, which becomes a command that is to be run
    launches: bool = False  # whether the client knows `Output.launch`
    launched: str = ""  # what the client says of a process that it has launched
    request_id: str | None = None
    stdin: bytes | None = None
    files: dict[str, bytes | str] = {}
    # The user that root's own client became, because the project is that user's.
    acts_as: int | None = None
    # How to look at the daemon from outside (`Sight` of admin/doctor/context.py); only a caller's
    # own process can.
    sight: Callable[[], Any] | None = None
    # The flags that every command understands, once they were taken out of `argv`.
    json: bool = False
    verbose: bool = False
    db: str | None = None
    timeout_ms: int | None = None
    if_database: bool = False
    no_daemon: bool = False
    where: Where = Where("")  # the caller's words about which database it means
    session: str = ""  # by SESSION_VARIABLES

    def face(self, terminal: Terminal, flags: Flags) -> None:
        """Decide for whom to print; a script may have a terminal, too."""
        if flags.json or flags.plain:
            self.terminal, self.is_plain = None, True
            return
        columns = self.env.get("COLUMNS", "")
        if columns.isascii() and columns.isdecimal() and 0 < int(columns[:5]) <= MOST_COLUMNS:
            terminal.width = int(columns[:5])
        terminal.colour = terminal.colour and not self.env.get("NO_COLOR")
        terminal.absolute = flags.absolute

    @property
    def json_errors(self) -> bool:
        """Asked for once something went wrong, even if that is the flags."""
        argv = self.argv
        return "--json-errors" in (argv[: argv.index("--")] if "--" in argv else argv)

    @property
    def database(self) -> str:
        """The database that is meant, under the one path that it is known by."""
        return paths.canonical(paths.resolve(self.where))

    def read_stdin(self, limit: int = INPUT_BYTES) -> bytes:
        if self.stdin is None:
            raise Needed(Need("stdin", limit=limit))
        return self.stdin

    def read_file(self, path: str) -> bytes:
        content = self.files.get(path)
        if content is None:
            raise Needed(Need("file", path))
        if isinstance(content, str):
            hint = _NOBODY_HINT if content == _NOBODY else None
            raise UnreadableInput(f"cannot read {path}: {content}", hint=hint)
        return content

    def directory(self, given: str | None) -> str:
        """The directory that is meant, as text that can be stored."""
        path = os.path.normpath(os.path.join(self.cwd, given or ""))
        return path.encode("utf-8", "backslashreplace").decode()

    def path(self, file: str) -> str:
        """A file as the caller names it, seen from anywhere."""
        if not file:
            raise Usage("FILE is empty")
        return os.path.join(self.cwd, file)


# A caller who has not even said who it is.
UNKNOWN = World([], "/", 0.0)


class Refusal(msgspec.Struct):
    """A command that was not even called, and why, for the host's counts."""

    command: str
    kind: type[IcError]
    message: str


class Grant(msgspec.Struct):
    """The client may run the command now; `then` is the request that it ends with."""

    command: list[str]
    then: list[str]


class Launch(msgspec.Struct):
    """The client starts this program, gives it the job, and asks again with what it reports."""

    argv: list[str]
    job: bytes


class Output(msgspec.Struct):
    """Ready to print."""

    exit: int
    stdout: bytes = b""
    stderr: bytes = b""
    bug: IcError | None = None  # for the host's log
    refused: Refusal | None = None
    # What else there is to print, as it comes; for commands in the caller's own process only.
    more: Iterator[bytes] | None = None
    # Once all of it has been written, the caller runs this, and its exit status is what counts.
    then: list[str] = []
    # The exit status is that of a program that was run for the caller: no failure of ours.
    borrowed: bool = False
    # The daemon may not do it, and the caller's own process can.
    declined: bool = False
    # Nothing is printed: the client, which has a child, goes on.
    grant: Grant | None = None
    # Nothing is printed but stderr: the client starts a process, and goes on.
    launch: Launch | None = None
    # Colours on stdout are ours: the data is printable already.
    styled: bool = False


class Skew(msgspec.Struct):
    """What to say about client and daemon of different versions; see icd/app/versions.py."""

    line: bytes
    always: bool  # even if all went well


def session_of(env: Mapping[str, str]) -> str:
    """The session of a caller, or nothing; the environment may hold any bytes, and this is text."""
    found = next(filter(None, map(env.get, SESSION_VARIABLES)), "")
    return spelled(found) if found else ""


def as_the_row_says(_result: Any) -> Output:
    """Stands for the rendering that the row of a command declares."""
    raise AssertionError("it is replaced when the command is asked for")


class Ask(msgspec.Struct):
    """What a command wants to call, and how to show the result."""

    method: str
    params: Params
    render: Callable[[Any], Output] = as_the_row_says
    # For the few commands that have something to say even then; None: the usual line.
    render_error: Callable[[IcError], Output | None] | None = None
    # For commands that go on: what to ask when the database has changed; None ends it.
    follow: Callable[[Answer], Ask | None] | None = None
    # Ask again after this long, even without a write; None: there is no need to.
    patience: float | None = LOOK_AGAIN_SECONDS
    # The moment, monotonic, at which it is asked for the last time.
    ends_at: float | None = None
    # The exit status if it is ended before its time, such as by a daemon that stops.
    cut_short: int = 0
    # Where it is by now, and how to go on from there: for the daemon after this one.
    place: bytes = b""
    resume: Callable[[bytes], Ask] | None = None
    # Where to look for the database, if not in the caller's directory.
    cwd: str | None = None
    # A missing database is an answer, not a failure.
    optional: bool = False
    # What follows is set by the planner, which makes it ready for a host.
    call: Call = cast(Call, None)
    context: str = ""
    program: str = "icctl"
    json_errors: bool = False
    skew: Skew | None = None


class Caller(Protocol):
    """How a command in the caller's own process calls a method; what goes wrong is raised."""

    def __call__(self, method: str, params: Params, /) -> Any: ...


class Question(msgspec.Struct):
    """A call that the steps of a command wait for: its result is sent, its error thrown."""

    method: str
    params: Params


class Served(msgspec.Struct):
    """How a daemon does in steps what a command would do in the caller's own process.

    The steps yield what they wait for: a `Question`, or what a host that serves them knows.
    """

    directory: str  # all files are below it: a file system that hangs must not hold up others
    fits: Callable[[], bool]  # whether the caller could do it, too, and to the same files
    steps: Callable[[], Generator[Any, Any, Output]]
    # Undoes it, if the caller did not hear that it was done.
    undo: Callable[[], Generator[Any, None, Any]] | None = None


class Local(msgspec.Struct):
    """What a command does that only the caller's own process can do: look at its files."""

    run: Callable[[Caller], Output]
    # What `--timeout` says is about something else than the calls.
    has_own_timeout: bool = False
    # False: it concerns the machine, or a program that the caller named.
    is_about_project: bool = True
    served: Served | None = None


def converse(ask: Caller, steps: Generator[Question, Any, T]) -> T:
    """Take all steps in the caller's own process."""
    try:
        question = next(steps)
        while True:
            try:
                found = ask(question.method, question.params)
            except IcError as exc:
                question = steps.throw(exc)
            else:
                question = steps.send(found)
    except StopIteration as done:
        result: T = done.value
        return result


# What `--if-database` makes of a missing database; EX_UNAVAILABLE of sysexits.h.
UNAVAILABLE = 69


class Errand(msgspec.Struct):
    """A Local made ready for the caller's process; another host declines it, or serves it."""

    run: Callable[[Caller], Output]
    prepare: Callable[[str, Params], Call]
    context: str
    program: str
    json_errors: bool = False
    if_database: bool = False
    where: Where | None = None  # None: it is not about a project
    served: Served | None = None


def why_not(number: int) -> str:
    """Why a client could not read a file, by the errno that it has sent."""
    return _REASONS.get(number) or os.strerror(number)


def advice(program: str, hint: str) -> str:
    """A hint that names the program as it was called.

    Only where a command of ours is meant: a path, or a word of the caller's, stays as it is.
    """
    if program == "icctl":
        return hint
    import re  # most calls are right, and a hook pays for every import

    return re.sub(_COMMAND, lambda _: f"{program} ", hint)


def exit_status(context: str, error: IcError) -> int:
    """To an agent, 2 of its hook means "blocked", which no mistake of anyone's may say."""
    return min(error.exit, 1) if context.partition(" ")[0] == "hook" else error.exit


class Told(Protocol):
    """Who is told of an error, and how: a World, an Ask, an Errand."""

    @property
    def program(self) -> str: ...

    @property
    def json_errors(self) -> bool: ...


def line(to: Told, context: str, error: IcError) -> bytes:
    """`icctl: <context>: <message>; <hint>`, or the same as JSON."""
    program, hint = to.program, advice(to.program, error.hint)
    if to.json_errors:
        return _as_json(context, error, hint)
    parts = [program, context, error.message] if context else [program, error.message]
    text = ": ".join(parts) + (f"; {hint}" if hint else "")
    return printable(text.replace("\n", " ").encode("utf-8", "backslashreplace")) + b"\n"


def _as_json(context: str, error: IcError, hint: str) -> bytes:
    """As the API sends it: scripts of both know an error by its name."""
    import json  # msgspec refuses what is no text, such as a path of odd bytes

    facts = {**error.data, "exit": exit_status(context, error), "hint": hint, "command": context}
    told = {"error": {"code": error.code, "message": error.message, **facts}}
    text = json.dumps(told, separators=(",", ":"))
    return printable(text.encode()) + b"\n"
