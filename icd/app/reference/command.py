"""The click command of a row: for help, completion, manual pages, and for lines that are wrong."""

from collections.abc import Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from icd.app.types import Choice, Kind
from icd.app.verb import Argument
from icd.errors import Usage

if TYPE_CHECKING:
    from icd.app.parser import Field
    from icd.app.verb import Typed


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


def command(row: "Typed", fields: "Sequence[Field]") -> click.Command:
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


def _parameter(field: "Field") -> click.Parameter:
    typed = field.typed
    if isinstance(typed, Argument):
        return click.Argument(
            [field.name],
            type=_type(field.kind),
            required=field.required,
            nargs=typed.nargs,
            metavar=_metavar(typed, required=field.required),
        )
    return click.Option(
        [typed.name, *typed.aliases, field.name],
        type=_type(field.kind),
        required=field.required and typed.resolve is None,
        # False would have click take an option without its value for a switch.
        is_flag=True if field.is_switch else None,
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
