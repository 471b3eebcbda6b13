"""The words of a command become a form, which callers cache together with the words.

A line that is right is read here, by the table of its fields.  What is in doubt, such as an unknown
option, a value that begins with a dash or a word too many, is left to click, which also says what
is wrong (icd/app/reference/help.py): a process that is there for one call need not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct

from icd.app.types import Choice, Kind, Whole
from icd.app.verb import Argument, Option, hints, parts
from icd.errors import Usage

if TYPE_CHECKING:
    import click

    from icd.app.invocation import World
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
        self, name: str, hint: Any, marks: list[Any], typed: Argument | Option, *, required: bool
    ) -> None:
        self.name = name
        self.typed = typed
        self.required = required
        self.kind = None if getattr(typed, "read", None) else _kind(hint, marks)
        self.is_switch = hint is bool and self.kind is None

    def read(self, word: str) -> Any:
        return word if self.kind is None else self.kind.read(word)


def fields(form: type[Struct], order: Sequence[str] = ()) -> list[Field]:
    """Those that are typed, in the order in which they are declared; `order` names the last."""
    return sorted(_fields(form), key=lambda f: order.index(f.name) if f.name in order else -1)


def _fields(form: type[Struct]) -> Iterator[Field]:
    names = form.__struct_fields__
    defaults = (NODEFAULT,) * (len(names) - len(form.__struct_defaults__))
    required = dict(zip(names, (*defaults, *form.__struct_defaults__), strict=True))
    for name, hint in hints(form).items():
        bare, marks = parts(hint)
        for typed in marks:
            if isinstance(typed, Argument | Option):
                yield Field(name, bare, marks, typed, required=required[name] is NODEFAULT)


def _kind(hint: Any, marks: list[Any]) -> Kind | None:
    for mark in marks:
        if isinstance(mark, Kind):
            return mark
    if hint is int:
        (bounds,) = (mark for mark in marks if isinstance(mark, Meta) and mark.le is not None)
        return Whole(cast("int", bounds.ge), cast("int", bounds.le))
    if get_origin(hint) is Literal:
        return Choice(get_args(hint))
    return None


class Doubt(Exception):
    """The line is not as plain as this parser wants it."""


class Leaf:
    """One command."""

    def __init__(self, row: Typed) -> None:
        self.row = row
        self.name = row.command.rpartition(" ")[2]
        self.fields = fields(row.form, row.order)
        self._options: dict[str, Field] = {}
        self._arguments: list[Field] = []
        for field in self.fields:
            if isinstance(field.typed, Option):
                self._options |= dict.fromkeys((field.typed.name, *field.typed.aliases), field)
            else:
                self._arguments.append(field)
        self._reads = [
            (f.name, read) for f in self.fields if (read := getattr(f.typed, "read", None))
        ]
        self._fills = {
            f.name: resolve for f in self.fields if (resolve := getattr(f.typed, "resolve", None))
        }
        if any(getattr(f.typed, "is_from_cwd", False) for f in self.fields):
            self._fills["cwd"] = lambda world, _: world.cwd

    @cached_property
    def click(self) -> click.Command:
        """For help, completion, manual pages, and lines that are in doubt."""
        from icd.app.reference.help import click_command

        return click_command(self.row, self.fields)

    def parse(self, context: str, words: list[str]) -> Struct | Callable[[World], Struct]:
        """The form, or what makes it of the caller's world."""
        try:
            given = self.read(words)
        except (Doubt, ValueError):
            given = self._explain(context, words)
        form: type[Struct] = self.row.form
        fills = self._fills
        if not fills:
            return form(**given)
        return lambda world: form(
            **given | {name: fill(world, given.get(name)) for name, fill in fills.items()}
        )

    def read(self, words: list[str]) -> dict[str, Any]:
        """The fields that are given; Doubt or a ValueError if the line is not plain, and right."""
        given: dict[str, Any] = {f.name: False for f in self.fields if f.is_switch}
        seen: set[str] = set()
        loose: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                loose += rest
            elif word[:1] != "-" or word == "-":
                loose.append(word)
            else:
                self._read_option(word, rest, given, seen)
        missing = (f for f in self._options.values() if _is_needed(f) and f.name not in given)
        if next(missing, None) is not None:
            raise Doubt
        self._read_arguments(loose, given)
        return self._converted(given)

    def _read_option(
        self, word: str, rest: Iterator[str], given: dict[str, Any], seen: set[str]
    ) -> None:
        name, equals, value = word.partition("=")
        field = self._options.get(name)
        if field is None or field.typed.nargs != 1 or field.name in seen:
            raise Doubt
        if equals and (field.is_switch or name[:2] != "--"):
            raise Doubt
        seen.add(field.name)
        if field.is_switch:
            given[field.name] = True
            return
        bare = getattr(field.typed, "bare", None)
        if not equals and bare is not None:
            value = bare
        elif not equals:
            value = next(rest, "-")
            if value[:1] == "-":
                raise Doubt
        given[field.name] = field.read(value)

    def _read_arguments(self, loose: list[str], given: dict[str, Any]) -> None:
        for field in self._arguments:
            if field.typed.nargs == -1:
                if field.required and not loose:
                    raise Doubt
                given[field.name] = tuple(field.read(word) for word in loose)
                loose = []
            elif loose:
                given[field.name] = field.read(loose[0])
                loose = loose[1:]
            elif field.required:
                raise Doubt
        if loose:
            raise Doubt

    def _converted(self, given: dict[str, Any]) -> dict[str, Any]:
        for name, read in self._reads:
            if name in given:
                words = given[name]
                given[name] = read(words) if isinstance(words, str) else [read(w) for w in words]
        return given

    def _explain(self, context: str, words: list[str]) -> dict[str, Any]:
        """What click makes of the words, or what it says is wrong with them."""
        from icd.app.reference.help import explain

        hint = f"see 'icctl {context} --help'"
        try:
            return self._converted(explain(self, context, words))
        except ValueError as exc:
            raise Usage(f"Invalid value: {exc}".rstrip("."), hint=hint) from exc


def _is_needed(field: Field) -> bool:
    """Whether an option must be typed."""
    return field.required and not field.is_switch and getattr(field.typed, "resolve", None) is None
