"""The user's systemd: its units, what it makes of them, and whether the daemon it starts answers.

All of it is asked through programs, in the caller's own process and environment.

Promises
    - a file without our first line belongs to another author: we neither change nor remove it;
    - a file is replaced as a whole, so that systemd never reads half of one;
    - the same installation always makes the same text, so that "current" can be told;
    - `to_install` and `to_remove` decide from what is there and do nothing: a second time nothing
      is left to do, and a dry run tells what would be done.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from shutil import which
from typing import Literal

import msgspec
from msgspec import Struct, field

from icd import __version__, files
from icd.errors import ForeignUnit, Misconfigured, NoSystemd, ServiceFailed, from_os
from icd.features.daemon.verbs import Pong

# A restart waits for the old daemon to stop and for the new one to start, each with a limit of its
# own in the unit; whatever takes longer hangs.
PATIENCE_SECONDS = 120
# A cold start on a busy machine; a daemon that is there answers within milliseconds.
ANSWER_SECONDS = 20
# The client notices its deadline itself; this is for a machine that hangs.
MARGIN_SECONDS = 20
NO_JOURNAL = "without a journal, the daemon logs to its stderr"
_CLIENT = "import sys; from icctl.client import main; sys.exit(main(sys.argv[1:], 'icctl'))"


# --- systemctl ------------------------------------------------------------------------------------


class State(Struct, frozen=True):
    """What systemd says about a unit; as declared here where it says nothing."""

    load: str = field(default="", name="LoadState")
    active: str = field(default="", name="ActiveState")
    sub: str = field(default="", name="SubState")
    enabled: str = field(default="", name="UnitFileState")
    result: str = field(default="", name="Result")
    # With which its process ended last.
    status: int = field(default=0, name="ExecMainStatus")
    pid: int = field(default=0, name="MainPID")
    needs_reload: str = field(default="", name="NeedDaemonReload")

    @property
    def stale(self) -> bool:
        """The file has changed since systemd read it."""
        return self.needs_reload == "yes"


def runtime_directory(env: Mapping[str, str]) -> str:
    """What units call %t."""
    return env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"


def socket_path(env: Mapping[str, str]) -> str:
    """Where icd.socket listens."""
    return os.path.join(runtime_directory(env), "intercore", "icd.sock")


def states(env: Mapping[str, str], *names: str) -> list[State]:
    """Also proves that there is a systemd to talk to."""
    properties = ",".join(each.encode_name for each in msgspec.structs.fields(State))
    done = run(env, "systemctl", "--user", "show", *names, f"--property={properties}")
    if done.returncode:
        raise NoSystemd(f"the systemd of this user cannot be reached: {last_line(done.stderr)}")
    found = [_state(block) for block in done.stdout.split("\n\n") if block.strip()]
    if len(found) != len(names):
        raise ServiceFailed(f"unexpected output of systemctl: {last_line(done.stdout)}")
    return found


def _state(block: str) -> State:
    said = dict(line.partition("=")[::2] for line in block.strip().splitlines())
    known = {name: value for name, value in said.items() if value}
    return msgspec.convert(known, State, strict=False)


def systemctl(env: Mapping[str, str], *words: str) -> None:
    done = run(env, "systemctl", "--user", *words)
    if done.returncode:
        raise ServiceFailed(f"systemctl --user {' '.join(words)} failed: {last_line(done.stderr)}")


def run(env: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    late = f"{' '.join(command)} timed out after {PATIENCE_SECONDS} seconds"
    return _ended(found_program(env, command), quiet(env), PATIENCE_SECONDS, late)


def _ended(
    command: list[str], env: Mapping[str, str], seconds: float, late: str, cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 -- the words are ours
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="surrogateescape", timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ServiceFailed(late) from None


def quiet(env: Mapping[str, str]) -> dict[str, str]:
    """Neither pager nor colours; after su or in cron the place of the bus is not set."""
    found = {**env, "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0", "LC_ALL": "C"}
    return {**found, "XDG_RUNTIME_DIR": runtime_directory(env)}


def found_program(env: Mapping[str, str], command: tuple[str, ...]) -> list[str]:
    program = which(command[0], path=env.get("PATH", os.defpath))
    if program is None:
        journal = {"hint": NO_JOURNAL} if command[0] == "journalctl" else {}
        raise NoSystemd(f"there is no {command[0]} here", **journal)
    return [program, *command[1:]]


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removesuffix(".") if lines else "no reason given"


# --- the daemon -----------------------------------------------------------------------------------


def ping(env: Mapping[str, str], socket: str) -> Pong | None:
    """Who answers at a socket, asked as a hook would ask; None: no daemon.  A hang is an error."""
    # What the caller has set about intercore is about another socket, or another mode.
    plain = {name: value for name, value in env.items() if not name.startswith("INTERCORE_")}
    command = [sys.executable, "-E", "-P", "-c", _CLIENT]
    done = _ended(
        [*command, "ping", "--json", f"--timeout={ANSWER_SECONDS}s"],
        {**plain, "INTERCORE_SOCKET": socket},
        ANSWER_SECONDS + MARGIN_SECONDS,
        f"the client hangs at {socket}",
        cwd="/",
    )
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=Pong)
    if done.returncode == 1:
        return None
    told = done.stderr.strip().removeprefix("icctl: ") or "the client failed"
    raise ServiceFailed(f"a call through {socket} failed: {told}")


# --- units ----------------------------------------------------------------------------------------

SOCKET, SERVICE, SANDBOX = "icd.socket", "icd.service", "icd.service.d/sandbox.conf"
MARK = "# Written by 'icctl service install"
# Beside the packages in a checkout, inside this one when installed; as the library for bash.
_PLACES = [os.path.join(os.path.dirname(__file__), up, "systemd") for up in ("../..", "../../..")]
_INSTALL = "run 'icctl service install'"
_LOGS = "see 'icctl service logs'"

Found = Literal["missing", "current", "outdated", "foreign"]
Words = tuple[str, ...]  # of `systemctl --user`


class Unit(Struct, frozen=True):
    """A file of ours: where it belongs, what it must say, and what is there."""

    name: str
    path: str
    text: str
    found: Found


class Steps(Struct, frozen=True):
    """In this order: `before`, the files, `after`."""

    files: list[Unit]
    before: list[Words]
    after: list[Words]


def directory(env: Mapping[str, str]) -> str:
    """Where the user's own units lie."""
    config = env.get("XDG_CONFIG_HOME", "")
    home = env.get("HOME", "")
    if not config.startswith("/") and not home.startswith("/"):
        raise Misconfigured("HOME is not set", hint="set it to your home directory")
    return os.path.join(config if config.startswith("/") else f"{home}/.config", "systemd/user")


def look(env: Mapping[str, str], python: str) -> list[Unit]:
    """All units, the optional one last."""
    place = directory(env)
    texts = {name: text(name, python) for name in (SOCKET, SERVICE, SANDBOX)}
    return [
        Unit(name, path, wanted, _found(path, wanted))
        for name, wanted in texts.items()
        for path in [os.path.join(place, name)]
    ]


def chosen(units: Iterable[Unit], *, sandbox: bool) -> list[Unit]:
    """Those that are to be there: the sandbox if it is asked for, or was before."""
    return [u for u in units if u.name != SANDBOX or sandbox or u.found in {"current", "outdated"}]


def to_install(
    units: list[Unit], states: list[State], *, now: bool, sandbox: bool, force: bool
) -> Steps:
    wanted = chosen(units, sandbox=sandbox)
    for unit in wanted:
        if unit.found == "foreign" and not force:
            raise ForeignUnit(f"{unit.path} was not written by icctl")
    changed = [unit for unit in wanted if unit.found != "current"]
    is_stale = changed or any(state.stale for state in states)
    after: list[Words] = [("daemon-reload",)] if is_stale else []
    after += _forgiven(states)
    listens = states[0].active == "active"
    if not listens or states[0].enabled != "enabled":
        after.append(("enable", "--now", SOCKET))
    if now and listens:
        after.append(("restart", SOCKET))  # and with it the service that requires it
    return Steps(changed, [], after)


def to_remove(units: list[Unit], states: list[State]) -> Steps:
    ours = [unit for unit in units if unit.found in {"current", "outdated"}]
    names = [unit.name for unit in ours if unit.name != SANDBOX]
    before: list[Words] = [("disable", "--now", *names), *_forgiven(states)] if names else []
    return Steps(ours, before, [("daemon-reload",)] if ours else [])


def _forgiven(states: list[State]) -> list[Words]:
    """A unit that has failed too often starts no more until this is said."""
    names = (SOCKET, SERVICE)
    failed = [n for n, state in zip(names, states, strict=True) if state.active == "failed"]
    return [("reset-failed", *failed)] if failed else []


def text(name: str, python: str) -> str:
    place = next(filter(os.path.isdir, _PLACES), _PLACES[0])
    with open(os.path.join(place, name), encoding="utf-8") as file:
        return file.read().replace("@PYTHON@", quoted(python))


def quoted(path: str) -> str:
    """A path as the first word of ExecStart=, which may hold spaces, but not everything."""
    if any(char in "\"'\\" or not char.isprintable() for char in path):
        raise Misconfigured(
            f"systemd cannot start a program with special characters in its path: {path}",
            hint="install intercore in another directory",
        )
    return '"' + path.replace("%", "%%") + '"'


def write(unit: Unit) -> None:
    try:
        files.replace(unit.path, unit.text.encode(), 0o644)
    except OSError as exc:
        raise from_os(exc, f"write {unit.path}") from exc


def remove(unit: Unit) -> None:
    try:
        os.unlink(unit.path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise from_os(exc, f"remove {unit.path}") from exc
    if unit.name == SANDBOX:
        with contextlib.suppress(OSError):  # it holds drop-ins of the user's own
            os.rmdir(os.path.dirname(unit.path))


def _found(path: str, wanted: str) -> Found:
    if not os.path.lexists(path):
        return "missing"
    if not (os.path.isfile(path) or os.path.isdir(path)):
        return "foreign"  # a link to nowhere, a mask, a pipe: its author has plans for it
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            there = file.read()
    except OSError as exc:
        raise from_os(exc, f"read {path}") from exc
    if there == wanted:
        return "current"
    return "outdated" if there.startswith(MARK) else "foreign"


# --- status ---------------------------------------------------------------------------------------


class Row(Struct):
    name: str
    path: str
    found: str
    enabled: str
    active: str
    sub: str
    result: str


class Report(Struct):
    """`works`: systemd listens, and the daemon that it started answers."""

    works: bool
    socket: str
    units: list[Row]
    daemon: Pong | None
    problems: list[str]


def examine(env: Mapping[str, str], python: str) -> Report:
    """Whether the service works: its units, what systemd makes of them, and who answers."""
    there = states(env, SOCKET, SERVICE)
    found = chosen(look(env, python), sandbox=False)
    socket = socket_path(env)
    problems = [*_of_units(found), *_of_states(there)]
    daemon = None
    try:
        daemon = ping(env, socket)
    except ServiceFailed as exc:
        problems.append(exc.message)
    there = states(env, SOCKET, SERVICE)  # the question may have started the daemon
    problems += _of_daemon(daemon, there)
    works = daemon is not None and there[0].active == "active" and daemon.pid == there[1].pid
    rows = [
        Row(u.name, u.path, u.found, state.enabled, state.active, state.sub, state.result)
        for u, state in zip(found, [*there, State()], strict=False)
    ]
    return Report(works, socket, rows, daemon, problems)


def _of_units(found: list[Unit]) -> Iterator[str]:
    for unit in found:
        if unit.found == "missing":
            yield f"{unit.name} is not installed; {_INSTALL}"
        elif unit.found == "outdated":
            yield f"{unit.path} belongs to another installation or version; {_INSTALL}"
        elif unit.found == "foreign" and unit.name != SANDBOX:
            yield f"{unit.path} was not written by icctl; {_INSTALL} --force to replace it"


def _of_states(states: list[State]) -> Iterator[str]:
    for name, state in zip((SOCKET, SERVICE), states, strict=True):
        if state.stale:
            yield f"systemd has not reloaded {name}; {_INSTALL}"
        if state.active == "failed":
            status = f", exit {state.status}" if state.status else ""
            yield f"{name} has failed ({state.result}{status}); {_LOGS}, then {_INSTALL}"
    if states[0].load == "loaded" and states[0].active == "inactive":
        yield f"{SOCKET} is stopped; {_INSTALL}"
    elif states[0].load == "loaded" and states[0].enabled != "enabled":
        yield f"{SOCKET} is not enabled for the next login; {_INSTALL}"


def _of_daemon(daemon: Pong | None, states: list[State]) -> Iterator[str]:
    if daemon is None:
        if states[0].active == "active":
            yield f"no daemon answers; {_LOGS}"
    elif daemon.pid != states[1].pid:
        yield f"systemd did not start the icd that answers (pid {daemon.pid}); stop it"
    elif daemon.version != __version__:
        told = f"icd {daemon.version} runs, {__version__} is installed"
        yield f"{told}; run 'icctl service reload'"
