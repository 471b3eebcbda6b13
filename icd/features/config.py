"""config: the settings, as the caller's own process would use them; and what newer scripts keep.

`config show` and `config check` are about the settings of intercore, which are files.
`config set`, `get` and `list` are the original's: rows of state of the key `kernel.KEY` and the
scope `global`.  Such a row is never a setting of ours.  Two of them are limits: they only forbid.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, structs

from icd import config
from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Caller, Local, Output, World, line
from icd.app.verb import Argument, Card, Column, Command, Option, Table, Verb, Writes
from icd.config import CHANNELS, Channel, Settings, complete
from icd.config.files import Problem, dotted, place
from icd.config.shape import Path, paths
from icd.db import paths as databases
from icd.errors import Misconfigured, NoDatabase, Usage
from icd.features.state import store as state
from icd.features.state.store import KERNEL, KERNEL_SCOPE
from icd.printable import encoded
from icd.values import payloads
from icd.values.validation import check_key, shown
from icd.values.wire import Result

DEFAULT = "default"
NOTHING = Raw(b"null")


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


# --- what newer scripts keep ----------------------------------------------------------------------

# What intercore heeds: nonnegative integers, of which zero stands for no limit.
LIMITS = {
    "global_max_dispatches": "dispatches alive at once, of all runs",
    "max_spawn_depth": "how deep below the first a dispatch may start another one",
}


DIGITS = 12  # of a limit


def _fits(name: str) -> None:
    check_key(KERNEL + name)


Key = Annotated[str, Argument("KEY", "Name of the value, such as global_max_dispatches."), _fits]


class Set(Params):
    """Store a value under a name, and print both.

    intercore heeds global_max_dispatches and max_spawn_depth, which limit 'dispatch spawn'; zero
    means no limit.
    Any other value is stored and has no effect.
    """

    rpc = (
        "Store a value under a name.\n"
        "intercore heeds `global_max_dispatches` and `max_spawn_depth`, which limit dispatches; "
        "zero means no limit."
    )
    key: Key
    value: Annotated[
        Raw,
        Meta(description="Value, as JSON."),
        Argument("VALUE", "Value, as JSON.", read=lambda word: Raw(word.encode())),
    ]


class Get(Params):
    """Print a value that 'config set' has kept; exit 1 if there is none."""

    rpc = "Return a value that `config.set` has kept, or null."
    key: Key


class List(Params):
    """Print the values that 'config set' has kept, one per line."""

    rpc = "List the values that `config.set` has kept."


class Kept(Result):
    """`value` is null where nothing is kept."""

    key: str
    value: Raw


def set_(ctx: Context, p: Set) -> Kept:
    text = bytes(p.value).decode()
    row = state.set(
        ctx.conn, KERNEL + p.key, KERNEL_SCOPE, text, writer=ctx.writer, now_ms=ctx.now_ms
    )
    if ctx.recent is not None:
        ctx.recent.remember(row, ctx.writer, at=ctx.monotonic)
    return Kept(p.key, p.value)


def get(ctx: Context, p: Get) -> Kept:
    row = state.get(ctx.conn, KERNEL + p.key, KERNEL_SCOPE, now_ms=ctx.now_ms)
    return Kept(p.key, NOTHING if row is None else row.document().payload)


def list_(ctx: Context, _p: List) -> list[Kept]:
    names = state.by_prefix(ctx.conn, KERNEL, now_ms=ctx.now_ms)
    keys = [name.key.removeprefix(KERNEL) for name in names if name.scope_id == KERNEL_SCOPE]
    return [get(ctx, Get(key)) for key in keys]


def _check_set(p: Set) -> None:
    written = bytes(p.value).strip()
    if p.key in LIMITS and not (written.isdigit() and len(written) <= DIGITS):
        value = shown(written.decode("utf-8", "replace"))
        raise Usage(f"{p.key} is a nonnegative integer, not {value}", hint="0 means no limit")
    p.value = Raw(payloads.check(written).encode())


def _line(kept: Kept) -> str:
    return f"{kept.key} = {render.one_line(bytes(kept.value).decode())}"


def json_list(found: list[Kept], _p: List) -> Output:
    return render.to_json({kept.key: kept.value for kept in found})


def _is_absent(kept: Kept) -> bool:
    return bytes(kept.value) == bytes(NOTHING)


def show_get(kept: Kept, _p: Get) -> list[str]:
    return [f"{kept.key}: not set" if _is_absent(kept) else _line(kept)]


def show_kept(found: list[Kept], _p: List) -> list[str]:
    lines = [f"{kept.key:<25} = {render.one_line(bytes(kept.value).decode())}" for kept in found]
    return lines or ["no config values set"]


_COLUMNS = (
    Column("SETTING", "name", "id"),
    Column("VALUE", "value", "json"),
)
SETTINGS = Table(*_COLUMNS)
ORIGINS = Table(*_COLUMNS, Column("FROM", "origin", "path"))
ONE = Card(
    Column("Key", "key", "id"),
    Column("Value", lambda kept: None if _is_absent(kept) else kept.value, "json"),
    Column("Note", lambda kept: "not set" if _is_absent(kept) else None),
)
KEPT = Table(
    Column("KEY", "key", "id"),
    Column("VALUE", "value", "json"),
    Column("LIMITS", lambda kept: LIMITS.get(kept.key), spare=True),
    empty="Nothing is kept. Keep a value: icctl config set KEY VALUE",
)

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
    Verb(
        "config set",
        Set,
        Kept,
        set_,
        check=_check_set,
        writes=Writes(lambda p: ((KERNEL + p.key, KERNEL_SCOPE),)),
        show=lambda kept, _: [_line(kept)],
        summary="Store a value of newer scripts.",
        examples=["icctl config set global_max_dispatches 4"],
    ),
    Verb(
        "config get",
        Get,
        Kept,
        get,
        show=show_get,
        human=ONE,
        exit=lambda kept: int(_is_absent(kept)),
        summary="Print a value of newer scripts.",
        examples=["icctl config get global_max_dispatches"],
    ),
    Verb(
        "config list",
        List,
        list[Kept],
        list_,
        show=show_kept,
        json=json_list,
        human=KEPT,
        summary="Print the values of newer scripts.",
        examples=["icctl config list --json"],
    ),
]
