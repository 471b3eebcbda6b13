"""Help, 80 columns wide whatever terminal the daemon was started in, and what is wrong with a line.

Both are click's, with the click command of a row.
"""

from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from icd.app import registry
from icd.app.parser import Field, Leaf
from icd.app.types import Choice, Kind
from icd.app.verb import Argument
from icd.errors import Usage

if TYPE_CHECKING:
    from icd.app.verb import Typed

WIDTH = 80

ABOUT = "Fast shared state, throttles, locks and events for AI coding agents' hooks."

GLOBALS = [
    ("--db PATH", "Database file (default $INTERCORE_DB, or the nearest .clavain/intercore.db)."),
    ("--timeout D", "Deadline of the call, such as 500ms or 10s (default 5s)."),
    ("--json", "Print the result as JSON."),
    ("--verbose", "Show SQL statements, timings and lock waits on stderr."),
    ("--no-daemon", "Open the database directly, even if the daemon is running."),
    ("--if-database", "Exit 69, silently, if there is no database; for scripts."),
    ("--help", "Show help for the program or a command."),
]
_EXITS = "Exit codes: 0 success, 1 negative result (throttled, not found), 2 error, 3 usage error."


def usage(program: str) -> bytes:
    formatter = _formatter()
    formatter.write_usage(program, "COMMAND [ARGUMENT]...")
    formatter.write_paragraph()
    formatter.write_text(ABOUT)
    for noun, (_, about) in registry.GROUPS.items():
        with formatter.section(f"{noun} ({about})"):
            formatter.write_dl(_summaries(noun, registry.verbs(noun)))
    with formatter.section("Other commands"):
        singles = {name: registry.single(name) for name in registry.SINGLES}
        formatter.write_dl(_summaries("", singles))
    _write_globals(formatter)
    formatter.write_paragraph()
    formatter.write_text(f"Run '{program} COMMAND --help' for examples.")
    return formatter.getvalue().encode()


def noun(program: str, name: str) -> bytes:
    formatter = _formatter()
    formatter.write_usage(f"{program} {name}", "VERB [ARGUMENT]...")
    with formatter.section(registry.GROUPS[name][1].capitalize()):
        formatter.write_dl([*_summaries(name, registry.verbs(name)), *_nouns_below(name)])
    _write_globals(formatter)
    return formatter.getvalue().encode()


def command(program: str, context: str, leaf: Leaf) -> bytes:
    formatter = _formatter()
    name = f"{program} {context}"
    ctx = click.Context(leaf.click, info_name=name, terminal_width=WIDTH, color=False)
    leaf.click.format_help(ctx, formatter)
    _write_globals(formatter)
    return formatter.getvalue().encode()


def _summaries(noun: str, leaves: Mapping[str, Leaf]) -> list[tuple[str, str]]:
    found = ((name, leaf.click.get_short_help_str(60)) for name, leaf in leaves.items())
    return [(f"{noun} {name}".strip(), about) for name, about in found]


def _nouns_below(noun: str) -> list[tuple[str, str]]:
    names = [f"{noun} {word}" for word in registry.below(noun)]
    return [(f"{name} VERB", f"{registry.GROUPS[name][1].capitalize()}.") for name in names]


def _write_globals(formatter: click.HelpFormatter) -> None:
    with formatter.section("Everywhere"):
        formatter.write_dl(GLOBALS)
    formatter.write_paragraph()
    formatter.write_text(_EXITS)


def _formatter() -> click.HelpFormatter:
    return click.HelpFormatter(width=WIDTH - 2)


# --- the click command of a row -------------------------------------------------------------------


class Converter(click.ParamType[Any]):
    """A kind of ours, as click wants it."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.read(value)
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


def click_command(row: "Typed", fields: Sequence[Field]) -> click.Command:
    return click.Command(
        row.command.rpartition(" ")[2],
        params=[_parameter(field) for field in fields],
        help=_help(row),
        short_help=row.summary,
        add_help_option=False,
    )


def explain(command: click.Command, context: str, words: list[str]) -> dict[str, Any]:
    """The fields that are given, or Usage that says what is wrong."""
    try:
        ctx = command.make_context(context, list(words), terminal_width=80, color=False)
    except click.UsageError as exc:
        hint = f"see 'icctl {context} --help'"
        raise Usage(exc.format_message().rstrip("."), hint=hint) from exc
    return {name: word for name, word in ctx.params.items() if word is not None}


def _parameter(field: Field) -> click.Parameter:
    typed = field.typed
    if isinstance(typed, Argument):
        return click.Argument(
            [field.name],
            type=_type(field.kind),
            required=field.required,
            nargs=typed.nargs,
            metavar=_metavar(typed, required=field.required),
        )
    # None would be a value: only an option that may stand alone is told what it means then.
    alone: dict[str, Any] = {} if typed.bare is None else {"flag_value": typed.bare}
    return click.Option(
        [typed.name, *typed.aliases, field.name],
        type=_type(field.kind),
        required=field.required and typed.resolve is None,
        # False would have click take an option without its value for a switch.
        is_flag=True if field.is_switch else None,
        **alone,
        nargs=typed.nargs,
        metavar=typed.metavar,
        help=typed.help,
    )


def _type(kind: Kind | None) -> click.ParamType[Any] | None:
    if isinstance(kind, Choice):
        return click.Choice(kind.choices)  # which shows the words in the help
    return None if kind is None else Converter(kind)


def _metavar(typed: Argument, *, required: bool) -> str:
    if typed.usage is not None:
        return typed.usage
    return typed.metavar if required else f"[{typed.metavar}]"


def _help(row: "Typed") -> str:
    title = "Example" if len(row.examples) == 1 else "Examples"
    shown = "\n".join(f"  {line}" for line in row.examples)
    return f"{cleandoc(row.form.__doc__ or '')}\n\n\b\n{title}:\n{shown}"
