"""The click command of a row: words become a form, which callers cache together with the words.

A command is made when it is first asked for: a process that is there for one call makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

import click
from msgspec import NODEFAULT, Meta, Struct

from icd.app.invocation import World
from icd.app.types import Whole
from icd.app.verb import Argument, Option, hints, parts

if TYPE_CHECKING:
    from icd.app.verb import Typed


class Commands(dict[str, "Leaf"]):
    """The commands of a noun by their last word, each made when it is first asked for."""

    def __init__(self, rows: Sequence[Typed]) -> None:
        self._rows = {row.command.rpartition(" ")[2]: row for row in rows}
        assert len(self._rows) == len(rows), f"defined twice: {[row.command for row in rows]}"
        super().__init__(dict.fromkeys(self._rows))  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Leaf:
        return super().__getitem__(name) or self._make(name)

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]

    def _make(self, name: str) -> Leaf:
        self[name] = made = Leaf(self._rows[name])
        return made


class Field:
    """A field that is typed."""

    def __init__(
        self, name: str, kind: Any, marks: list[Any], typed: Argument | Option, *, required: bool
    ) -> None:
        self.name = name
        self.kind = kind
        self.marks = marks
        self.typed = typed
        self.required = required


def fields(form: type[Struct], order: Sequence[str] = ()) -> list[Field]:
    """Those that are typed, in the order in which they are declared; `order` names the last."""
    return sorted(_fields(form), key=lambda f: order.index(f.name) if f.name in order else -1)


def _fields(form: type[Struct]) -> Iterator[Field]:
    names = form.__struct_fields__
    defaults = (NODEFAULT,) * (len(names) - len(form.__struct_defaults__))
    required = dict(zip(names, (*defaults, *form.__struct_defaults__), strict=True))
    for name, hint in hints(form).items():
        kind, marks = parts(hint)
        for typed in marks:
            if isinstance(typed, Argument | Option):
                yield Field(name, kind, marks, typed, required=required[name] is NODEFAULT)


class Leaf(click.Command):
    """Parses the words of one command."""

    def __init__(self, row: Typed) -> None:
        found = fields(row.form, row.order)
        super().__init__(
            row.command.rpartition(" ")[2],
            params=[_parameter(field) for field in found],
            help=_help(row),
            short_help=row.summary,
            add_help_option=False,
        )
        self.row = row
        self._reads = [(f.name, read) for f in found if (read := getattr(f.typed, "read", None))]
        self._fills = {
            f.name: resolve for f in found if (resolve := getattr(f.typed, "resolve", None))
        }

    def parse(self, context: str, words: list[str]) -> Struct | Callable[[World], Struct]:
        """The form, or what makes it of the caller's world."""
        ctx = self.make_context(context, words, terminal_width=80, color=False)
        given = {name: word for name, word in ctx.params.items() if word is not None}
        for name, read in self._reads:
            if name in given:
                given[name] = _read(read, given[name])
        form: type[Struct] = self.row.form
        fills = self._fills
        if not fills:
            return form(**given)
        return lambda world: form(
            **given | {name: fill(world, given.get(name)) for name, fill in fills.items()}
        )


def _parameter(field: Field) -> click.Parameter:
    typed = field.typed
    if isinstance(typed, Argument):
        return click.Argument(
            [field.name],
            type=None if typed.read else _kind(field),
            required=field.required,
            nargs=typed.nargs,
            metavar=_metavar(typed, required=field.required),
        )
    return click.Option(
        [typed.name, *typed.aliases, field.name],
        type=_kind(field),
        required=field.required and typed.resolve is None,
        # False would have click take an option without its value for a switch.
        is_flag=True if field.kind is bool and _kind(field) is None else None,
        nargs=typed.nargs,
        metavar=typed.metavar,
        help=typed.help,
    )


def _metavar(typed: Argument, *, required: bool) -> str:
    if typed.usage is not None:
        return typed.usage
    return typed.metavar if required else f"[{typed.metavar}]"


def _kind(field: Field) -> click.ParamType[Any] | None:
    for mark in field.marks:
        if isinstance(mark, click.ParamType):
            return mark
    if field.kind is int:
        (bounds,) = (mark for mark in field.marks if isinstance(mark, Meta) and mark.le is not None)
        return Whole(cast("int", bounds.ge), cast("int", bounds.le))
    if get_origin(field.kind) is Literal:
        return click.Choice(get_args(field.kind))
    return None


def _read(read: Callable[[str], Any], words: str | tuple[str, ...]) -> Any:
    try:
        return read(words) if isinstance(words, str) else [read(word) for word in words]
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def _help(row: Typed) -> str:
    title = "Example" if len(row.examples) == 1 else "Examples"
    shown = "\n".join(f"  {line}" for line in row.examples)
    return f"{cleandoc(row.form.__doc__ or '')}\n\n\b\n{title}:\n{shown}"
