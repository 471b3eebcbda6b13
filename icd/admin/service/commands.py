"""`icctl service …`: the daemon as a service of the user's systemd.

All but the reload happens in the caller's own process: units, manager and journal are the caller's.
"""

import sys
from collections.abc import Iterator

import click
from msgspec import Struct

from icd import __version__
from icd.admin.service import install as installing
from icd.admin.service import logs as journal
from icd.admin.service import systemctl as systemd
from icd.admin.service import units
from icd.admin.service.install import Command, Steps
from icd.admin.service.ping import knock
from icd.app import render
from icd.app.invocation import Ask, Caller, Local, Output, World
from icd.errors import ForegroundDaemon, NoSystemd, ServiceFailed
from icd.features.daemon.verbs import Pong, Reload, Reloaded

# About a screen or two; --lines and --since ask for more.
LINES = 100


@click.command("install", add_help_option=False, short_help="Let systemd start the daemon.")
@click.option("--dry-run", is_flag=True, help="Print what would be written and run.")
@click.option("--now", is_flag=True, help="Restart a daemon that runs, with the new units.")
@click.option("--sandbox", is_flag=True, help="Let it write below the home directory only.")
@click.option("--force", is_flag=True, help="Overwrite units that icctl did not write.")
def install(world: World, *, dry_run: bool, now: bool, sandbox: bool, force: bool) -> Local:
    """Write the units for this installation, enable the socket, check that a call goes through.

    systemd then listens, and starts the daemon for the first call.
    A second time nothing is left to do.
    Without systemd: run 'icd serve' in the foreground; see docs/service.md.

    \b
    Examples:
      icctl service install --dry-run
      icctl service install
    """

    def run(_ask: Caller) -> Output:
        env = world.env
        try:
            states = systemd.states(env, units.SOCKET, units.SERVICE)
        except NoSystemd:
            if not dry_run:
                raise
            states = systemd.no_states(units.SOCKET, units.SERVICE)
        found = units.look(env, sys.executable)
        steps = installing.to_install(found, states, now=now, sandbox=sandbox, force=force)
        if states[0].active != "active":
            _refuse_a_daemon_in_the_foreground(world)
        if dry_run:
            return _announce(world, steps, "write")
        kept = [u for u in units.chosen(found, sandbox=sandbox) if u not in steps.files]
        for unit in steps.files:
            units.write(unit)
        _tell_systemd(world, steps.after)
        daemon = _check(world)
        done = [("written", u) for u in steps.files] + [("unchanged", u) for u in kept]
        output = _report(world, done, steps.after, daemon)
        output.stderr = _elsewhere(world)
        return output

    return Local(run, is_about_project=False)


@click.command("uninstall", add_help_option=False, short_help="Stop it and remove the units.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed and run.")
def uninstall(world: World, *, dry_run: bool) -> Local:
    """Stop and disable the service, and remove the units that icctl wrote.

    Databases and settings stay; icctl goes on without a daemon.

    \b
    Example:
      icctl service uninstall
    """

    def run(_ask: Caller) -> Output:
        env = world.env
        states = systemd.states(env, units.SOCKET, units.SERVICE)
        found = units.look(env, sys.executable)
        steps = installing.to_remove(found, states)
        if dry_run:
            return _announce(world, steps, "remove")
        _tell_systemd(world, steps.before)
        for unit in steps.files:
            units.remove(unit)
        _tell_systemd(world, steps.after)
        done = [("removed", u) for u in steps.files]
        done += [("kept", u) for u in found if u.found == "foreign"]
        return _report(world, done, steps.before + steps.after, None)

    return Local(run, is_about_project=False)


@click.command("status", add_help_option=False, short_help="Tell whether the service works.")
def status(world: World) -> Local:
    """Show the units, what systemd makes of them, and who answers; exit 1 if it does not work.

    Asking starts a daemon that systemd has not started yet.

    \b
    Examples:
      icctl service status
      icctl service status --json
    """

    def run(_ask: Caller) -> Output:
        from icd.admin.service.status import examine  # only this command pays for it

        report = examine(world.env, sys.executable, __version__)
        exit_code = 0 if report.works else 1
        if world.json:
            return render.to_json(report, exit_code)
        return render.text(*report.lines(), exit_code=exit_code)

    return Local(run, is_about_project=False)


@click.command("logs", add_help_option=False, short_help="Show what the daemon has logged.")
@click.option("--follow", is_flag=True, help="Go on with what comes.")
@click.option("--lines", type=click.IntRange(1, 1_000_000), metavar="N", help="So many at most.")
@click.option("--since", metavar="TIME", help="As journalctl has it: today, -1h, 2026-01-31.")
def logs(world: World, *, follow: bool, lines: int | None, since: str | None) -> Local:
    """Show what the service wrote to the journal: time, level, message, facts.

    The last 100 lines; with --since all from then on.
    With --json one object a line, as the daemon wrote it.

    \b
    Examples:
      icctl service logs --follow
      icctl service logs --since=-1h --json
    """
    shown = journal.as_json if world.json else journal.as_text
    words = [f"--since={since}"] if since else []
    if lines or not since:
        words.append(f"--lines={lines or LINES}")

    def run(_ask: Caller) -> Output:
        env = world.env
        if follow:
            return Output(0, more=_rendered(map(shown, systemd.follow(env, *words))))
        found = list(_rendered(map(shown, systemd.journal(env, *words))))
        told = Output(0, b"".join(found))
        if not found:
            nothing = "warning: the journal shows nothing of icd.service"
            told.stderr = f"{world.program}: service logs: {nothing}\n".encode()
        return told

    return Local(run, is_about_project=False)


@click.command("reload", add_help_option=False, short_help="Go on with the installed code.")
def reload(world: World) -> Ask:
    """Have the daemon go on with the code that is installed now; no call is lost.

    However it was started: by systemd, or by hand.
    Code that does not start is refused, and the daemon goes on as it is.

    \b
    Example:
      pip install --upgrade intercore && icctl service reload
    """

    def show(result: Reloaded) -> Output:
        return render.text(f"reloaded: {result.previous} -> {result.version}, pid {result.pid}")

    return Ask("icd.reload", Reload(), render.to_json if world.json else show)


def _rendered(lines: Iterator[str | None]) -> Iterator[bytes]:
    return (f"{text}\n".encode("utf-8", "replace") for text in lines if text is not None)


def _refuse_a_daemon_in_the_foreground(world: World) -> None:
    """systemd would take the path from under it, and then start daemons that find it running."""
    socket = systemd.socket_path(world.env)
    other = knock(world.env, socket)
    if other is not None:
        sentence = f"icd (pid {other.pid}) answers at {socket}, and systemd did not start it"
        raise ForegroundDaemon(sentence)


def _elsewhere(world: World) -> bytes:
    """A service that nobody asks is not what was wished for."""
    env = world.env
    listens = systemd.socket_path(env)
    asked = env.get("INTERCORE_SOCKET") or systemd.socket_path({})
    if asked == listens:
        return b""
    told = f"warning: icctl asks at {asked}, and systemd listens at {listens}; set INTERCORE_SOCKET"
    return f"{world.program}: service install: {told}\n".encode(errors="surrogateescape")


def _tell_systemd(world: World, commands: list[Command]) -> None:
    for words in commands:
        systemd.systemctl(world.env, *words)


def _check(world: World) -> Pong:
    socket = systemd.socket_path(world.env)
    daemon = knock(world.env, socket)
    if daemon is None:
        raise ServiceFailed(f"the units are installed, but no daemon answers at {socket}")
    return daemon


class _Done(Struct, omit_defaults=True):
    """What was done, or in a dry run would be; `text` is what would be written."""

    files: list[dict[str, str]]
    commands: list[str]
    daemon: Pong | None = None


def _announce(world: World, steps: Steps, verb: str) -> Output:
    commands = [*steps.before, *steps.after]
    if world.json:
        files = [{"path": u.path, "change": verb, "text": u.text} for u in steps.files]
        return render.to_json(_Done(files, [_spelled(words) for words in commands]))
    said = [f"would run {_spelled(words)}" for words in steps.before]
    for unit in steps.files:
        said.append(f"would {verb} {unit.path}")
        said += [f"    {text}".rstrip() for text in unit.text.splitlines() if verb == "write"]
    said += [f"would run {_spelled(words)}" for words in steps.after]
    return render.text(*(said or ["nothing is left to do"]))


def _report(
    world: World, done: list[tuple[str, units.Unit]], commands: list[Command], daemon: Pong | None
) -> Output:
    if world.json:
        files = [{"path": unit.path, "change": change} for change, unit in done]
        return render.to_json(_Done(files, [_spelled(words) for words in commands], daemon))
    said = [f"{change} {unit.path}" for change, unit in done]
    said += [f"ran {_spelled(words)}" for words in commands]
    if daemon is not None:
        socket = systemd.socket_path(world.env)
        said.append(f"icd {daemon.version} (pid {daemon.pid}) answers at {socket}")
    return render.text(*(said or ["nothing is left to do"]))


def _spelled(words: Command) -> str:
    return " ".join(["systemctl", "--user", *words])


COMMANDS = [install, uninstall, status, logs, reload]
