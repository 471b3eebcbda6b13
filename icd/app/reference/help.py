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

if TYPE_CHECKING:
    from icd.app.verb import Typed

WIDTH = 80

ABOUT = "Fast shared state, throttles, locks and events for AI coding agents' hooks."

GLOBALS = [
    ("--db PATH", "Database file (default $INTERCORE_DB, or the nearest .clavain/intercore.db)."),
    ("--timeout D", "Deadline of the call, such as 500ms or 10s (default 5s)."),
    ("--json", "Print the result as JSON."),
    ("--json-errors", "Print an error as one line of JSON, on stderr as ever."),
    ("--plain", "Print on a terminal what a pipe gets."),
    ("--absolute", "Show times on a terminal as dates, not as ages."),
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


def short(program: str) -> bytes:
    """For a person who has typed nothing else: a screenful."""
    formatter = _formatter()
    formatter.write_usage(program, "COMMAND [ARGUMENT]...")
    formatter.write_paragraph()
    formatter.write_text(ABOUT)
    with formatter.section("Nouns, each with verbs"):
        nouns = ((name, about) for name, (_, about) in registry.GROUPS.items() if " " not in name)
        formatter.write_dl([(name, f"{about[0].upper()}{about[1:]}.") for name, about in nouns])
    with formatter.section("Other commands"):
        formatter.write_text(", ".join(registry.SINGLES))
    formatter.write_paragraph()
    formatter.write_text(
        f"Run '{program} NOUN --help' for its verbs, '{program} COMMAND --help' for examples, "
        f"'{program} --help' for everything."
    )
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


class OneOf(click.Choice[str]):
    """Some words, which the help shows."""

    def __init__(self, kind: Choice) -> None:
        super().__init__(kind.choices)
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(Converter(self.kind).convert(value, param, ctx))


def click_command(row: "Typed", fields: Sequence[Field]) -> click.Command:
    return click.Command(
        row.command.rpartition(" ")[2],
        params=[_parameter(field) for field in fields],
        help=_help(row),
        short_help=row.summary,
        add_help_option=False,
    )


def explain(leaf: Leaf, context: str, words: list[str]) -> dict[str, Any]:
    """The fields that are given, or Usage that says what is wrong."""
    try:
        ctx = leaf.click.make_context(context, list(words), terminal_width=80, color=False)
    except click.UsageError as exc:
        from icd.app.reference import mistakes

        raise mistakes.told(exc, context, leaf, words) from exc
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
    # Given at all, even as None, it would make a switch of every option.
    bare: Any = {} if typed.bare is None else {"flag_value": typed.bare}
    return click.Option(
        [typed.name, *typed.aliases, field.name],
        type=_type(field.kind),
        required=field.required and typed.resolve is None,
        # False would have click take an option without its value for a switch.
        is_flag=True if field.is_switch else None,
        **bare,
        nargs=typed.nargs,
        metavar=typed.metavar,
        help=typed.help,
    )


def _type(kind: Kind | None) -> click.ParamType[Any] | None:
    if isinstance(kind, Choice):
        return OneOf(kind)
    return None if kind is None else Converter(kind)


def _metavar(typed: Argument, *, required: bool) -> str:
    if typed.usage is not None:
        return typed.usage
    return typed.metavar if required else f"[{typed.metavar}]"


def _help(row: "Typed") -> str:
    title = "Example" if len(row.examples) == 1 else "Examples"
    shown = "\n".join(f"  {line}" for line in row.examples)
    return f"{cleandoc(row.form.__doc__ or '')}\n\n\b\n{title}:\n{shown}"
