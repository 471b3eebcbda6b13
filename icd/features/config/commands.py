"""`icctl config …`: the settings, as the caller's own process would use them."""

from typing import TYPE_CHECKING

import click
import msgspec

from icd import config
from icd.app import render
from icd.app.invocation import Caller, Local, Output, World, line
from icd.db import paths
from icd.errors import Misconfigured, NoDatabase

if TYPE_CHECKING:
    from icd.config.files import Problem
    from icd.config.origins import Setting


@click.command("show", add_help_option=False, short_help="Show the settings that hold here.")
@click.option("--origin", is_flag=True, help="Show where each comes from, too.")
def show(world: World, *, origin: bool) -> Local:
    """Show every setting and its value, for the project of this directory.

    With --origin also where it comes from: default, FILE:LINE, or $VARIABLE; and what is ignored.

    \b
    Examples:
      icctl config show
      icctl config show --origin --json
    """

    def run(_ask: Caller) -> Output:
        from icd.config.origins import trace  # only this command pays for it

        settings = trace(*_files(world), config.from_environment(world.env))
        columns = ("name", "value", "origin") if origin else ("name", "value")
        if world.json:
            output = render.to_json([{c: getattr(s, c) for c in columns} for s in settings])
        else:
            output = render.text(*(render.columns(*_row(s)[: len(columns)]) for s in settings))
        if origin:
            output.stderr = _told(world, "config show", _ignored(world))
        return output

    return Local(run)


@click.command("check", add_help_option=False, short_help="Print ok if the settings are right.")
def check(world: World) -> Local:
    """Print ok if both files of settings and the environment are right, or are not there.

    Else exit 2 and tell everything that is wrong, with file and line.
    What a project may not set, and is ignored therefore, is told as a warning.

    \b
    Example:
      icctl config check
    """

    def run(_ask: Caller) -> Output:
        problems = [problem for file in config.read(*_files(world)) for problem in file.problems]
        problems += config.check_environment(world.env)
        ignored = _ignored(world)
        found = {"problems": problems, **({"ignored": ignored} if ignored else {})}
        if world.json:
            output = render.to_json(found, 2 if problems else 0)
        else:
            output = Output(2) if problems else render.text("ok")
        errors = [Misconfigured(str(problem), hint="") for problem in problems]
        program = world.program
        output.stderr = b"".join(line(program, "config check", error) for error in errors)
        output.stderr += _told(world, "config check", ignored)
        return output

    return Local(run)


def _row(setting: "Setting") -> list[str]:
    """The value is written as TOML has it, which is as JSON has it for all that can be set."""
    return [setting.name, msgspec.json.encode(setting.value).decode(), setting.origin]


def _ignored(world: World) -> "list[Problem]":
    """What the project's file says and may not say."""
    return [each for file in config.read(*_files(world)) for each in file.ignored]


def _told(world: World, command: str, ignored: "list[Problem]") -> bytes:
    program = world.program
    told = "".join(f"{program}: {command}: warning: {each}\n" for each in ignored)
    return told.encode("utf-8", "backslashreplace")


def _files(world: World) -> tuple[str | None, str]:
    """The user's; and the project's, beside the database or where `init` would make it."""
    try:
        database = paths.resolve(world.where)
    except NoDatabase:
        database = paths.target(world.where)
    home = world.env.get("HOME")
    return config.user_file(home), config.project_file(paths.canonical(database))


COMMANDS = [show, check]
