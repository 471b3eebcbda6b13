"""`icctl hooks …`: which programs of this project run after a commit.

In the caller's own process: whoever may not write to the home directory, such as an agent in a
sandbox, can trust nothing, and has nobody who does it instead.
"""

import click

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World
from icd.db import paths
from icd.errors import NoHook, PermissionRefused
from icd.features.hooks import files, methods
from icd.features.hooks.store import NAMES
from icd.features.hooks.trust import Trust
from icd.values.wire import Result


class Line(Result):
    """A hook that is there; `sha256` is empty, and `problem` says why, if it is refused."""

    name: str
    state: str
    path: str
    sha256: str
    problem: str


@click.command("list", add_help_option=False, short_help="List the hooks, and which are trusted.")
def list_(world: World) -> Local:
    """List the hooks of this project: name, state, and why one is refused.

    \b
    States:
      trusted    runs after each event that concerns it
      untrusted  does not run; see hooks trust
      changed    was trusted, has another content now, and does not run
      refused    cannot be trusted as it is

    \b
    Examples:
      icctl hooks list
      icctl hooks list --json
    """

    def run(_ask: Caller) -> Output:
        trust = _trust(world)
        found = [
            Line(each.name, trust.state(each), each.path, each.sha256, each.problem)
            for each in trust.looks.look()
        ]
        if world.json:
            return render.to_json(found)
        return render.text(*(render.columns(e.name, e.state, e.problem).rstrip() for e in found))

    return Local(run)


@click.command("trust", add_help_option=False, short_help="Have hooks run from now on.")
@click.argument("name", required=False, metavar="[NAME]", type=click.Choice(NAMES))
def trust(world: World, *, name: str | None) -> Local:
    """Trust the hook NAME, or all hooks of this project, with the content that they have now.

    Read them first: they run with all that you may do.
    They get the events that are recorded from now on; a hook that changes does not run until it is
    trusted again.
    Prints each hook with the SHA-256 of its content.

    \b
    Examples:
      icctl hooks trust
      icctl hooks trust on-phase-advance
    """
    wanted = [name] if name else [*NAMES]

    def run(ask: Caller) -> Output:
        trust = _trust(world)
        there = {each.name: trust.state(each) for each in trust.looks.look()}
        chosen = [each for each in wanted if name or each in there]
        if not chosen:
            raise NoHook(f"there is no hook in {trust.looks.directory}", hint="see docs/hooks.md")
        fresh = [each for each in chosen if there.get(each) not in ("trusted", "refused", None)]
        if fresh:  # before they are trusted, so that no event gets lost in between
            ask("hook.begin", methods.Begin(hooks=fresh))
        return _told(world, [trust.grant(each) for each in chosen])

    return Local(run)


@click.command("untrust", add_help_option=False, short_help="Have hooks run no longer.")
@click.argument("name", required=False, metavar="[NAME]", type=click.Choice(NAMES))
def untrust(world: World, *, name: str | None) -> Local:
    """Trust the hook NAME, or any hook of this project, no longer; also one that is gone by now.

    Prints the name of each that was trusted; exit 1 if none was.

    \b
    Examples:
      icctl hooks untrust
      icctl hooks untrust on-event
    """
    wanted = [name] if name else [*NAMES]

    def run(ask: Caller) -> Output:
        trust = _trust(world)
        gone = [each for each in wanted if trust.revoke(each)]
        if gone:  # the log need not be kept for them
            ask("hook.end", methods.End(hooks=gone))
        if world.json:
            return render.to_json(gone, 0 if gone else 1)
        return render.text(*gone, exit_code=0 if gone else 1)

    return Local(run)


def _told(world: World, found: list[files.Found]) -> Output:
    if world.json:
        return render.to_json([{"name": each.name, "sha256": each.sha256} for each in found])
    return render.text(*(render.columns(each.name, each.sha256) for each in found))


def _trust(world: World) -> Trust:
    database = paths.canonical(paths.resolve(world.where))
    project = files.project(database)
    if project is None:
        raise NoHook(f"{database} has no hooks", hint="only a database in a .clavain directory has")
    home = world.env.get("HOME")
    if not home or not home.startswith("/"):
        raise PermissionRefused("trust is recorded in the home directory", hint="set HOME")
    return Trust(home, project)


COMMANDS = [list_, trust, untrust]
