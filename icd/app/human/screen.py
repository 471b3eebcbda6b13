"""Lists and cards on a terminal, by what the rows of verbs declare.

A list keeps every column as wide as its values while there is room.  Then text is cut, then columns
that may be missing go, and at last everything is cut: a line never wraps.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from icd.app.human import kinds
from icd.app.human.kinds import BOLD, CYAN, DIM, GREEN, KINDS, NUMBERS, RED, YELLOW, Clock
from icd.app.human.text import clean, cut, cut_middle, width, wrapped
from icd.app.invocation import Output, Terminal
from icd.app.parser import Field, fields
from icd.app.verb import Argument, Card, Column, Table

if TYPE_CHECKING:
    from icd.app.verb import Typed

GAP = "  "
_NAME = re.compile(r'^ *"(?:[^"\\]|\\.)*"(?=: )')
# What text is cut down to before columns go, and then everything.
LEAST_TEXT, LEAST = 12, 4
# Options that say where to look, or how much to show: they leave nothing out.
NO_FILTERS = ("--all-projects", "--limit", "--project")
NOTHING_THERE = "There is no such thing."
MANY_LINES = 6  # of a value in a card


class Screen:
    """A terminal, and the moment of the call."""

    def __init__(self, terminal: Terminal) -> None:
        self.width = terminal.width
        self.colour = terminal.colour
        self.clock = Clock(terminal.now or time.time(), terminal.offset, terminal.absolute)

    # --- pieces, for what no table shows ---

    def paint(self, text: str, colour: str) -> str:
        """Colour text whose width was counted before."""
        return f"\x1b[{colour}m{text}\x1b[0m" if self.colour and colour and text else text

    def heading(self, text: str) -> str:
        return self.paint(cut(clean(text), self.width), BOLD)

    def hint(self, text: str) -> list[str]:
        return [self.paint(line, DIM) for line in wrapped(clean(text), self.width)]

    def state(self, word: str) -> str:
        (shown,), colours = kinds.state([word], self.clock)
        return self.paint(shown, colours[0] if colours else "")

    def moment(self, seconds: float) -> str:
        return kinds.moment(seconds, self.clock)

    def show(self, form: Table | Card, found: Any) -> list[str]:
        return self.table(form, found) if isinstance(form, Table) else list(self.card(form, found))

    def item(self, sign: str, text: str, colour: str = "") -> list[str]:
        """A sentence behind a sign, in as many lines as it takes."""
        first, *rest = wrapped(clean(text), max(self.width - 2, LEAST))
        return [f"{self.paint(sign, colour)} {first}", *(f"  {line}" for line in rest)]

    def good(self, text: str) -> list[str]:
        return self.item("✓", text, GREEN)

    def bad(self, text: str) -> list[str]:
        return self.item("✗", text, RED)

    def doubt(self, text: str) -> list[str]:
        return self.item("!", text, YELLOW)

    def note(self, text: str) -> list[str]:
        return self.item("·", text, DIM)

    def advice(self, text: str) -> list[str]:
        """What to do about it."""
        first, *rest = wrapped(clean(text), max(self.width - 4, LEAST))
        return [f"  {self.paint('→', DIM)} {first}", *(f"    {line}" for line in rest)]

    def document(self, payload: Any) -> list[str]:
        """JSON over several lines, its names in a colour; what is no JSON as it is."""
        try:
            data = msgspec.json.format(bytes(payload), indent=2)
        except (msgspec.DecodeError, RecursionError):  # nothing but its nesting is too deep
            data = bytes(payload)
        lines = map(clean, data.decode("utf-8", "replace").split("\n"))
        return [_NAME.sub(lambda found: self.paint(found[0], CYAN), line) for line in lines]

    # --- lists ---

    def table(self, form: Table, found: Any, widths: dict[str, int] | None = None) -> list[str]:
        """`widths` remembers, by heading, how wide columns were: those of a list that is drawn
        again and again do not jump."""
        rows = _rows(form, found)
        if not rows:
            return self.hint(form.empty) if form.empty else []
        columns = [self._column(column, rows) for column in form.columns]
        if widths is not None:
            for column in columns:
                column.keep(widths)
        kept = [c for c in columns if not c.is_void] if len(columns) > 1 else columns
        fitted = _fit(kept or columns[:1], self.width)
        parts = [column.lines(self) for column in fitted]
        return [GAP.join(line).rstrip() for line in zip(*parts, strict=True)]

    def _column(self, column: Column, rows: Sequence[Any]) -> "_Cells":
        cells, colours = KINDS[column.kind]([_value(row, column.of) for row in rows], self.clock)
        # What is longer is cut anyway, and measuring a document takes as long as it is.
        most = 4 * self.width
        if column.kind == "path":
            cells = [cell[-most:] for cell in cells]
        else:
            cells = [cell[:most] for cell in cells]
        head = column.head
        if column.kind in kinds.TIMES and self.clock.absolute:
            head = f"{head} ({kinds.zone(self.clock.offset)})"
        return _Cells(column, head, cells, colours)

    # --- cards ---

    def card(self, form: Card, found: Any) -> Iterator[str]:
        known = [(c, _value(found, c.of)) for c in form.columns]
        shown = [(c, v) for c, v in known if v is not None and v != "" and v is not msgspec.UNSET]
        margin = max((len(column.head) for column, _ in shown), default=0) + 2
        is_narrow = self.width - margin < LEAST_TEXT
        if is_narrow:
            margin = len(GAP)  # the value stands below its name
        for column, value in shown:
            (text,), colours = KINDS[column.kind]([value], self.clock)
            if column.kind in kinds.TIMES and value is not None:
                text = self._both(value)
            head = self.paint(cut(column.head, self.width), DIM)
            lines = self._lines(text, max(self.width - margin, LEAST))
            colour = colours[0] if colours else ""
            if is_narrow:
                yield head
            else:
                yield head + " " * (margin - len(column.head)) + self.paint(lines.pop(0), colour)
            for line in lines:
                yield " " * margin + self.paint(line, colour)
        for title, of, table in form.parts:
            part = _value(found, of)
            if part or table.empty:
                yield ""
                yield self.heading(title)
                yield from self.table(table, part)

    def _lines(self, text: str, room: int) -> list[str]:
        """A value of a card, cut where it takes too many lines."""
        lines = wrapped(text, room)
        if len(lines) <= MANY_LINES:
            return lines
        return [*lines[: MANY_LINES - 1], cut(" ".join(lines[MANY_LINES - 1 :]), room)]

    def _both(self, seconds: float) -> str:
        """There is room for the date in a card."""
        clock = self.clock
        day = f"{kinds.date(seconds, clock.offset)} {kinds.zone(clock.offset)}"
        return day if clock.absolute else f"{kinds.moment(seconds, clock)} ({day})"


class _Cells:
    """A column with its values, and as wide as they are until there is no room."""

    def __init__(
        self, column: Column, head: str, cells: list[str], colours: Sequence[str] | None
    ) -> None:
        self.column = column
        self.head = head
        self.cells = cells
        self.colours = colours
        # Cells of a column repeat, and what is not ASCII takes a while to measure.
        self.sizes = (
            None if "".join(cells).isascii() else {cell: width(cell) for cell in set(cells)}
        )
        widest = max(map(len, cells) if self.sizes is None else self.sizes.values())
        self.width = self.natural = max(len(head), widest)
        self.is_flexible = column.kind in kinds.FLEXIBLE
        self.is_void = column.spare and all(cell == kinds.NOTHING for cell in cells)

    def keep(self, widths: dict[str, int]) -> None:
        """Be at least as wide as before."""
        if not self.is_void:
            widths[self.head] = max(self.natural, widths.get(self.head, 0))
        if self.head in widths:
            self.width = self.natural = widths[self.head]
            self.is_void = False

    def lines(self, screen: Screen) -> list[str]:
        room, cells, sizes = self.width, self.cells, self.sizes
        head = cut(self.head, room)
        if room < self.natural:
            shorten = cut_middle if self.column.kind == "path" else cut
            short = {cell: shorten(cell, room) for cell in set(cells)}
            cells = [short[cell] for cell in cells]
            sizes = sizes and {cell: width(cell) for cell in short.values()}
        if self.column.kind in NUMBERS:
            cells, head = [cell.rjust(room) for cell in cells], head.rjust(room)
        elif sizes is None:  # one cell a character, and the ellipsis takes one, too
            cells, head = [cell.ljust(room) for cell in cells], head.ljust(room)
        else:
            cells = [cell + " " * (room - sizes[cell]) for cell in cells]
            head = head.ljust(room)
        if screen.colour:
            head = f"\x1b[{BOLD}m{head}\x1b[0m"
            if self.colours is not None:
                cells = list(map(screen.paint, cells, self.colours))
        return [head, *cells]


def output(
    terminal: Terminal,
    human: "Table | Card | Callable[[Any, Any, Screen], Iterable[str]] | None",
    result: Any,
    typed: Any = None,
    exit_code: int = 0,
    *,
    row: "Typed | None" = None,
) -> Output:
    """What a person sees of a result; `row`: of the command that was typed."""
    screen = Screen(terminal)
    if result is None:
        lines: Iterable[str] = screen.hint(getattr(human, "empty", "") or NOTHING_THERE)
        exit_code = 1
    elif isinstance(human, Table | Card):
        lines = screen.show(human, result)
        if isinstance(human, Table) and human.filtered and row is not None:
            why = "" if _rows(human, result) else _none_left(row, typed)
            lines = screen.hint(why) if why else lines
    else:
        assert human is not None
        lines = human(result, typed, screen)
    told = "".join([f"{line.rstrip()}\n" for line in lines])
    return Output(exit_code, told.encode("utf-8", "backslashreplace"), styled=screen.colour)


def _rows(form: Table, found: Any) -> Sequence[Any]:
    rows: Sequence[Any] = _value(found, form.of) if form.of else found
    return rows


def _none_left(row: "Typed", typed: Any) -> str:
    """Says which words of a command line may have left nothing; empty: there are none."""
    form = row.form
    unset = dict(zip(form.__struct_fields__[::-1], form.__struct_defaults__[::-1], strict=False))
    known = fields(form, row.order)
    given = [f for f in known if not f.required and getattr(typed, f.name) != unset[f.name]]
    narrow = [name for name in map(_name, given) if name not in NO_FILTERS]
    if not narrow:
        return ""
    command = " ".join([f"icctl {row.command}", *(_name(f) for f in known if f.required)])
    return f"Nothing matches {' and '.join(narrow)}. See all: {command}"


def _name(field: Field) -> str:
    typed = field.typed
    return typed.metavar if isinstance(typed, Argument) else typed.name


def _value(row: Any, of: str | Callable[[Any], Any]) -> Any:
    if callable(of):
        return of(row)
    return row.get(of) if isinstance(row, dict) else getattr(row, of)


def _fit(columns: list[_Cells], room: int) -> list[_Cells]:
    """Make the columns narrow enough; those that may be missing go from the right."""
    while _over(columns, room) > 0:
        _shrink([c for c in columns if c.is_flexible], _over(columns, room), LEAST_TEXT)
        spare = [c for c in columns if c.column.spare]
        if _over(columns, room) <= 0 or not spare:
            break
        columns = [c for c in columns if c is not spare[-1]]
        for column in columns:
            column.width = column.natural
    _shrink(columns, _over(columns, room), LEAST)
    while _over(columns, room) > 0 and len(columns) > 1:
        columns = columns[:-1]
    columns[0].width = min(columns[0].width, room)
    return columns


def _over(columns: list[_Cells], room: int) -> int:
    return sum(c.width for c in columns) + len(GAP) * (len(columns) - 1) - room


def _shrink(columns: list[_Cells], over: int, least: int) -> None:
    """Take from the widest first."""
    while over > 0 and (wide := [c for c in columns if c.width > least]):
        most = max(c.width for c in wide)
        widest = [c for c in wide if c.width == most]
        below = max([c.width for c in wide if c.width < most] + [least])
        taken = max(1, min(over // len(widest), most - below))
        for column in widest[:over]:
            column.width -= taken
            over -= taken
