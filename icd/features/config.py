"""config: the settings, as the caller's own process would use them."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Struct, structs

from icd import config
from icd.app import render
from icd.app.invocation import Caller, Local, Output, World, line
from icd.app.verb import Column, Command, Option, Table
from icd.config import CHANNELS, Channel, Settings, complete
from icd.config.files import Problem, dotted, place
from icd.config.shape import Path, paths
from icd.db import paths as databases
from icd.errors import Misconfigured, NoDatabase
from icd.printable import encoded

DEFAULT = "default"


class Show(Struct):
    """Show the effective value of every setting for the project of this directory.

    --origin adds the source of each value (default, FILE:LINE or $VARIABLE) and ignored settings.
    """

    origin: Annotated[bool, Option("--origin", "Show the source of each value.")] = False


class Check(Struct):
    """Print ok if the settings files and the environment are valid or absent.

    Otherwise exit 2 and print every error with file and line.
    Settings that a project may not set are ignored, with a warning.
    """


# --- the settings that hold, each with where it comes from ----------------------------------------


class Setting(Struct, frozen=True):
    """`origin` is `default`, `FILE:LINE` or `$VARIABLE`."""

    name: str
    value: object
    origin: str


def trace(user: str | None, project: str | None, given: config.Given) -> list[Setting]:
    """Everything that can be set, in a fixed order, as `load` would have it."""
    settings = _in_full(config.load(user, project, given))
    origins = {
        path: place(file.path, file.lines.get(path))
        for file in config.read(user, project)
        for path in paths(file.values)
    }
    origins |= {(name,): f"${config.VARIABLES[name]}" for name in given}
    return [
        Setting(dotted(path), value, origins.get(path, DEFAULT))
        for path, value in _leaves(structs.asdict(settings), ())
    ]


def _in_full(settings: Settings) -> Settings:
    """With the channels that are there by default, and with what their tables left out."""
    given = settings.mirror.channels
    channels = {key: complete(key, given.get(key, Channel())) for key in {**CHANNELS, **given}}
    return structs.replace(settings, mirror=structs.replace(settings.mirror, channels=channels))


def _leaves(values: dict[str, object], at: Path) -> Iterator[tuple[Path, object]]:
    for name, value in values.items():
        inner = structs.asdict(value) if isinstance(value, Struct) else value
        if isinstance(inner, dict):
            yield from _leaves(inner, (*at, name))
        else:
            yield (*at, name), inner


# --- what is done ---------------------------------------------------------------------------------


def show(world: World, f: Show) -> Local:
    def run(_ask: Caller) -> Output:
        settings = trace(*_files(world), config.from_environment(world.env))
        columns = ("name", "value", "origin") if f.origin else ("name", "value")
        if world.json:
            output = render.to_json([{c: getattr(s, c) for c in columns} for s in settings])
        else:
            output = render.shown(
                world,
                settings,
                lambda: (render.columns(*_row(s)[: len(columns)]) for s in settings),
                ORIGINS if f.origin else SETTINGS,
            )
        if f.origin:
            output.stderr = _told(world, "config show", _ignored(world))
        return output

    return Local(run)


def check(world: World, _f: Check) -> Local:
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
        output.stderr = b"".join(line(world, "config check", error) for error in errors)
        output.stderr += _told(world, "config check", ignored)
        return output

    return Local(run)


def _row(setting: Setting) -> list[str]:
    """The value is written as TOML has it, which is as JSON has it for all that can be set."""
    return [setting.name, msgspec.json.encode(setting.value).decode(), setting.origin]


def _ignored(world: World) -> list[Problem]:
    """What the project's file says and may not say."""
    return [each for file in config.read(*_files(world)) for each in file.ignored]


def _told(world: World, command: str, ignored: list[Problem]) -> bytes:
    return encoded("".join(f"{world.program}: {command}: warning: {each}\n" for each in ignored))


def _files(world: World) -> tuple[str | None, str]:
    """The user's; and the project's, beside the database or where `init` would make it."""
    try:
        database = databases.resolve(world.where)
    except NoDatabase:
        database = databases.target(world.where)
    home = world.env.get("HOME")
    return config.user_file(home), config.project_file(databases.canonical(database))


_COLUMNS = (
    Column("SETTING", "name", "id"),
    Column("VALUE", "value", "json"),
)
SETTINGS = Table(*_COLUMNS)
ORIGINS = Table(*_COLUMNS, Column("FROM", "origin", "path"))

VERBS = [
    Command(
        "config show",
        Show,
        show,
        human=SETTINGS,
        summary="Show the effective settings.",
        examples=["icctl config show", "icctl config show --origin --json"],
    ),
    Command(
        "config check",
        Check,
        check,
        summary="Print ok if the settings are valid.",
        examples=["icctl config check"],
    ),
]
