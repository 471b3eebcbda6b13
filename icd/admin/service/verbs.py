"""service: the daemon as a service of the user's systemd, or in the background without one.

All but the reload happens in the caller's own process: units, manager and journal are the caller's.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Struct, field

from icd.admin.service import background, systemd
from icd.admin.service.systemd import SERVICE, SOCKET, State, Steps, Unit, Words
from icd.app import render
from icd.app.invocation import Ask, Local, Output, World
from icd.app.types import Whole
from icd.app.verb import Column, Command, Option, Table
from icd.errors import ForegroundDaemon, NoSystemd, ServiceFailed
from icd.features.daemon.verbs import Pong, Reload, Reloaded
from icd.printable import escaped

# About a screen or two; --lines and --since ask for more.
LINES = 100
# Not --user: where the journal is not kept per user, the lines are in that of the system.
_JOURNALCTL = (
    "journalctl", "--user-unit=icd.service", "--output=json", "--quiet", "--no-pager",
)  # fmt: skip
# The levels of syslog, from 0; ours has five names for them.
_LEVELS = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")
F = TypeVar("F", bound=Struct)


# --- what is typed --------------------------------------------------------------------------------


class Install(Struct):
    """Install the systemd units for this installation, enable the socket, and verify a call.

    systemd then listens on the socket, and starts the daemon on the first call.
    Installing again changes nothing.
    Without systemd, run 'icctl service start'.
    """

    dry_run: Annotated[
        bool, Option("--dry-run", "Print what would be written and run, and change nothing.")
    ] = False
    now: Annotated[bool, Option("--now", "Restart a running daemon with the new units.")] = False
    sandbox: Annotated[
        bool, Option("--sandbox", "Let the daemon write only below the home directory.")
    ] = False
    force: Annotated[bool, Option("--force", "Overwrite units that icctl did not write.")] = False


class Uninstall(Struct):
    """Stop and disable the service, and remove the units that icctl wrote.

    Databases and settings are kept; icctl works without a daemon.
    """

    dry_run: Annotated[
        bool, Option("--dry-run", "Print what would be removed and run, and change nothing.")
    ] = False


class Status(Struct):
    """Show the units, their state in systemd, and which daemon answers; exit 1 on problems.

    The check starts the daemon if systemd has not started it yet.
    """


class Logs(Struct):
    """Show the daemon's log from the journal: time, level, message and fields.

    Prints the last 100 lines; with --since, all lines from that time on.
    With --json, prints one object per line, as the daemon wrote it.
    """

    follow: Annotated[bool, Option("--follow", "Follow the log.")] = False
    lines: Annotated[
        int | None,
        Option("--lines", "Print at most N lines (default 100).", "N"),
        Whole(1, 1_000_000),
    ] = None
    since: Annotated[
        str | None,
        Option("--since", "Start at this time, as in journalctl: today, -1h, 2026-01-31.", "TIME"),
    ] = None


class Start(Struct):
    """Start a daemon in the background, without systemd, and wait until it answers.

    It logs to intercore/icd.log below $XDG_STATE_HOME, and exits when idle.
    A daemon that is running, or a socket of systemd, is left as it is.
    """


class Stop(Struct):
    """Stop the daemon, and wait until it is gone.

    A daemon that systemd started is stopped with systemctl.
    """


class Ensure(Struct):
    """Start a daemon in the background if none is running; for the start hook of an agent.

    Prints nothing, discards its input, waits for less than a second, and exits 0.
    A failure is one line on stderr.
    """


# --- install and uninstall ------------------------------------------------------------------------


class Done(Struct, omit_defaults=True):
    """What was done, or in a dry run would be; `text` is what would be written."""

    files: list[dict[str, str]]
    commands: list[str]
    daemon: Pong | None = None


def install(world: World, f: Install) -> Output:
    env = world.env
    try:
        states = systemd.states(env, SOCKET, SERVICE)
    except NoSystemd:
        if not f.dry_run:
            raise
        states = [State(), State()]
    found = systemd.look(env, sys.executable)
    steps = systemd.to_install(found, states, now=f.now, sandbox=f.sandbox, force=f.force)
    if states[0].active != "active":
        _refuse_a_daemon_in_the_foreground(env)
    if f.dry_run:
        return _announced(world, steps, "write")
    kept = [u for u in systemd.chosen(found, sandbox=f.sandbox) if u not in steps.files]
    for unit in steps.files:
        systemd.write(unit)
    _tell_systemd(env, steps.after)
    done = [("written", u) for u in steps.files] + [("unchanged", u) for u in kept]
    output = _reported(world, done, steps.after, _answering(env))
    output.stderr = _elsewhere(world)
    return output


def uninstall(world: World, f: Uninstall) -> Output:
    states = systemd.states(world.env, SOCKET, SERVICE)
    found = systemd.look(world.env, sys.executable)
    steps = systemd.to_remove(found, states)
    if f.dry_run:
        return _announced(world, steps, "remove")
    _tell_systemd(world.env, steps.before)
    for unit in steps.files:
        systemd.remove(unit)
    _tell_systemd(world.env, steps.after)
    done = [("removed", u) for u in steps.files]
    done += [("kept", u) for u in found if u.found == "foreign"]
    return _reported(world, done, steps.before + steps.after)


def _refuse_a_daemon_in_the_foreground(env: Mapping[str, str]) -> None:
    """systemd would take the path from under it, and then start daemons that find it running."""
    socket = systemd.socket_path(env)
    other = systemd.ping(env, socket)
    if other is not None:
        sentence = f"icd (pid {other.pid}) answers at {socket}, and systemd did not start it"
        raise ForegroundDaemon(sentence)


def _tell_systemd(env: Mapping[str, str], commands: list[Words]) -> None:
    for words in commands:
        systemd.systemctl(env, *words)


def _answering(env: Mapping[str, str]) -> Pong:
    socket = systemd.socket_path(env)
    daemon = systemd.ping(env, socket)
    if daemon is None:
        raise ServiceFailed(f"the units are installed, but no daemon answers at {socket}")
    return daemon


def _elsewhere(world: World) -> bytes:
    """A warning, if icctl does not ask where systemd listens."""
    listens = systemd.socket_path(world.env)
    asked = world.env.get("INTERCORE_SOCKET") or systemd.socket_path({})
    if asked == listens:
        return b""
    told = f"warning: icctl connects to {asked}, systemd listens at {listens}; set INTERCORE_SOCKET"
    return f"{world.program}: service install: {told}\n".encode(errors="surrogateescape")


def _announced(world: World, steps: Steps, verb: str) -> Output:
    before, after = _spelled(steps.before), _spelled(steps.after)
    files = [{"path": u.path, "change": verb, "text": u.text} for u in steps.files]
    said = [f"would run {command}" for command in before]
    for unit in steps.files:
        said.append(f"would {verb} {unit.path}")
        said += [f"    {text}".rstrip() for text in unit.text.splitlines() if verb == "write"]
    said += [f"would run {command}" for command in after]
    return _shown(world, Done(files, before + after), said)


def _reported(
    world: World, done: list[tuple[str, Unit]], commands: list[Words], daemon: Pong | None = None
) -> Output:
    ran = _spelled(commands)
    files = [{"path": unit.path, "change": change} for change, unit in done]
    said = [f"{change} {unit.path}" for change, unit in done]
    said += [f"ran {command}" for command in ran]
    said += [_answers(daemon, systemd.socket_path(world.env))] if daemon else []
    return _shown(world, Done(files, ran, daemon), said)


def _shown(world: World, done: Done, said: list[str]) -> Output:
    return render.to_json(done) if world.json else render.text(*said or ["nothing to do"])


def _spelled(commands: list[Words]) -> list[str]:
    return [" ".join(["systemctl", "--user", *words]) for words in commands]


def _answers(daemon: Pong, socket: str) -> str:
    return f"icd {daemon.version} (pid {daemon.pid}) answers at {socket}"


# --- status ---------------------------------------------------------------------------------------


def status(world: World, _f: Status) -> Output:
    report = systemd.examine(world.env, sys.executable)
    exit_code = 0 if report.works else 1
    return render.shown(world, report, lambda: _lines(report), _for_people, exit_code)


def _lines(report: systemd.Report) -> Iterator[str]:
    for row in report.units:
        state = f"{row.active} ({row.sub})" if row.active else ""
        yield f"{row.name}\t{row.found}\t{row.enabled}\t{state}".rstrip()
    if report.daemon is not None:
        yield _answers(report.daemon, report.socket)
    yield from (f"problem: {problem}" for problem in report.problems)


UNITS = Table(
    Column("UNIT", "name", "id"),
    Column("STATE", lambda unit: unit.active, "state"),
    Column("IS", lambda unit: unit.sub),
    Column("ENABLED", "enabled"),
    Column("FILE", "found"),
)


def _for_people(report: systemd.Report, _f: object, screen: Any) -> Iterator[str]:
    """First whether it works, and what is wrong."""
    yield from screen.good("It works.") if report.works else screen.bad("It does not work.")
    for problem in report.problems:
        yield from screen.doubt(problem)
    if report.daemon is not None:
        yield from screen.note(_answers(report.daemon, report.socket))
    yield ""
    yield from screen.table(UNITS, report.units)


# --- logs -----------------------------------------------------------------------------------------


def logs(world: World, f: Logs) -> Output:
    shown = as_json if world.json else as_text
    words = [f"--since={f.since}"] if f.since else []
    if f.lines or not f.since:
        words.append(f"--lines={f.lines or LINES}")
    if f.follow:
        return Output(0, more=_encoded(map(shown, _follow(world.env, *words))))
    found = list(_encoded(map(shown, _journal(world.env, *words))))
    told = Output(0, b"".join(found))
    if not found:
        nothing = "warning: the journal has no entries of icd.service"
        told.stderr = f"{world.program}: service logs: {nothing}\n".encode()
    return told


def _encoded(lines: Iterator[str | None]) -> Iterator[bytes]:
    return (f"{text}\n".encode("utf-8", "replace") for text in lines if text is not None)


class _Entry(Struct):
    """What we read of a line; a message that is not text comes as bytes, a huge one as null."""

    message: str | list[int] | None = field(default=None, name="MESSAGE")
    moment: str = field(default="0", name="__REALTIME_TIMESTAMP")
    priority: str = field(default="6", name="PRIORITY")
    source: str = field(default="", name="SYSLOG_IDENTIFIER")


def _journal(env: Mapping[str, str], *words: str) -> list[str]:
    """Lines of JSON, oldest first."""
    done = systemd.run(env, *_JOURNALCTL, *words)
    if done.returncode:
        raise ServiceFailed(
            f"journalctl failed: {systemd.last_line(done.stderr)}", hint=systemd.NO_JOURNAL
        )
    return done.stdout.splitlines()


def _follow(env: Mapping[str, str], *words: str) -> Iterator[str]:
    """Lines of JSON as they come, until the caller wants no more."""
    with subprocess.Popen(  # noqa: S603 -- the words are ours
        systemd.found_program(env, (*_JOURNALCTL, *words, "--follow")), env=systemd.quiet(env),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="surrogateescape",
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield from process.stdout
        finally:
            process.terminate()


def as_text(line: str) -> str | None:
    """`time level message name=value…`, and a traceback below it; None: not an entry.

    It is for a terminal, so what could command one is spelled out.
    """
    found = _decoded(line)
    if found is None:
        return None
    seconds, facts = found
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    said = {name: value for name, value in facts.items() if name not in {"time", "level", "msg"}}
    traceback = str(said.pop("traceback", ""))
    words = [clock, facts["level"], facts["msg"], *(f"{n}={_word(v)}" for n, v in said.items())]
    lines = [" ".join(map(str, words)), *(f"    {text}" for text in traceback.splitlines())]
    return "\n".join(map(escaped, lines))


def as_json(line: str) -> str | None:
    """The daemon's own line as it is; those of others in the same shape."""
    found = _decoded(line)
    return None if found is None else msgspec.json.encode(found[1]).decode()


def _decoded(line: str) -> tuple[float, dict[str, Any]] | None:
    """When it was written, and its facts: ours are JSON inside JSON, and systemd adds its own."""
    try:
        entry = msgspec.json.decode(line.encode("utf-8", "replace"), type=_Entry)
    except (msgspec.DecodeError, RecursionError):
        return None
    message, seconds = entry.message, int(entry.moment) / 1_000_000
    text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else message or ""
    try:
        facts = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        facts = None
    if not (isinstance(facts, dict) and facts.keys() >= {"level", "msg"}):
        facts = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "level": _LEVELS[min(int(entry.priority), 7)],
            "msg": text,
            "source": entry.source,
        }
    return seconds, facts


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- rows -----------------------------------------------------------------------------------------


def show_reloaded(r: Reloaded, _f: Reload) -> list[str]:
    return [f"reloaded: {r.previous} -> {r.version}, pid {r.pid}"]


def _here(run: Callable[[World, F], Output]) -> Callable[[World, F], Local]:
    """Run it in the caller's own process; it is about the machine rather than a project."""
    return lambda world, f: Local(lambda _ask: run(world, f), is_about_project=False)


VERBS = [
    Command(
        "service install",
        Install,
        _here(install),
        summary="Install the systemd units.",
        examples=["icctl service install --dry-run", "icctl service install"],
    ),
    Command(
        "service uninstall",
        Uninstall,
        _here(uninstall),
        summary="Stop the service and remove its units.",
        examples=["icctl service uninstall"],
    ),
    Command(
        "service status",
        Status,
        _here(status),
        human=_for_people,
        summary="Show whether the service works.",
        examples=["icctl service status", "icctl service status --json"],
    ),
    Command(
        "service logs",
        Logs,
        _here(logs),
        summary="Show the daemon's log.",
        examples=["icctl service logs --follow", "icctl service logs --since=-1h --json"],
    ),
    Command(
        "service start",
        Start,
        _here(lambda world, _f: background.start(world)),
        summary="Start a daemon without systemd.",
        examples=["icctl service start"],
    ),
    Command(
        "service stop",
        Stop,
        _here(lambda world, _f: background.stop(world)),
        summary="Stop the daemon.",
        examples=["icctl service stop"],
    ),
    Command(
        "service ensure",
        Ensure,
        _here(lambda world, _f: background.ensure(world)),
        summary="Start a daemon if none is running; for hooks.",
        examples=["icctl service ensure"],
    ),
    Command(
        "service reload",
        Reload,
        lambda _world, f: Ask("icd.reload", f),
        show=show_reloaded,
        summary="Reload the daemon with the installed version.",
        examples=["pip install --upgrade intercore && icctl service reload"],
    ),
]
