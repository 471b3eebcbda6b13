"""Lists and texts that draw only what is seen: a line is made when it is on the screen.

Lines come from `icd.app.human`, whose colours are the only sequences in them; nothing here reads
markup.
"""

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from icd.app.human.screen import Screen
from icd.app.invocation import Terminal
from icd.app.verb import Table
from icd.top.rows import Row

_STYLED = re.compile(r"\x1b\[([0-9]{1,2})m")
REVERSE = "7"
_STYLES = {
    "1": Style(bold=True),
    "2": Style(dim=True),
    REVERSE: Style(reverse=True, bold=True),
    "31": Style(color="red"),
    "32": Style(color="green"),
    "33": Style(color="yellow"),
    "36": Style(color="cyan"),
}
CHOSEN = Style(reverse=True)
PLAIN = Style()
WHEEL = 3  # lines


def strip_of(line: str, width: int, style: Style = PLAIN) -> Strip:
    """A line as wide as the widget; under a style of its own it loses its colours."""
    kind, segments = PLAIN, []
    for number, part in enumerate(_STYLED.split(line)):
        if number % 2:
            kind = _STYLES.get(part, PLAIN)
        elif part:
            segments.append(Segment(part, style if style is not PLAIN else kind))
    return Strip(segments).adjust_cell_length(width, style)


def screen_of(width: int) -> Screen:
    return Screen(Terminal(max(width, 1), time.localtime().tm_gmtoff, colour=True))


class Drawn(Widget):
    """Lines that a function makes for a width."""

    def __init__(self, draw: Callable[[Screen], Iterable[str]], **options: Any) -> None:
        super().__init__(**options)
        self._draw = draw
        self._lines: list[str] | None = None

    def redraw(self) -> None:
        self._lines = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self._lines is None:
            self._lines = [*self._draw(screen_of(self.size.width))]
        line = self._lines[y] if y < len(self._lines) else ""
        return strip_of(line, self.size.width)

    def on_resize(self) -> None:
        self.redraw()


class Moving(Widget, can_focus=True):
    """What is longer than the screen; `top` is the first line that is seen."""

    BINDINGS = [  # noqa: RUF012 -- textual's way to declare them
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f", "page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]

    def action_move(self, by: int) -> None:
        raise NotImplementedError

    def action_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 2, 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-WHEEL)


class Text(Moving):
    """A text to be read."""

    def __init__(self, draw: Callable[[Screen], Iterable[str]]) -> None:
        super().__init__()
        self._draw = draw
        self._lines: list[str] | None = None
        self.top = 0

    def put(self, draw: Callable[[Screen], Iterable[str]]) -> None:
        self._draw = draw
        self.redraw()

    def redraw(self) -> None:
        self._lines = None
        self.refresh()

    @property
    def lines(self) -> list[str]:
        if self._lines is None:
            self._lines = [*self._draw(screen_of(self.size.width))]
        return self._lines

    def action_move(self, by: int) -> None:
        last = max(len(self.lines) - self.size.height, 0)
        self.top = min(max(self.top + by, 0), last)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        place = self.top + y
        line = self.lines[place] if place < len(self.lines) else ""
        return strip_of(line, self.size.width)

    def on_resize(self) -> None:
        self.redraw()


class Listing(Moving):
    """A list with a row that is chosen.

    The first row stays chosen while new ones come in front of it; any other one is kept by its key.
    """

    class Opened(Message):
        """A person wants to see more of a row."""

    BINDINGS = [Binding("enter", "open", show=False)]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.form = Table()
        self.place = self.top = 0
        self._key: tuple[Any, ...] = ()
        self._widths: dict[str, int] = {}
        self._lines: list[str] | None = None

    @property
    def chosen(self) -> Row | None:
        return self.rows[self.place] if self.place < len(self.rows) else None

    def put(self, rows: list[Row], form: Table) -> None:
        if form is not self.form:
            self.form, self._widths = form, {}
            self.place = self.top = 0
        if self.place:
            found = (place for place, row in enumerate(rows) if row.key == self._key)
            self.place = min(next(found, self.place), max(len(rows) - 1, 0))
        self.rows = rows
        self._keep()

    def begin(self) -> None:
        """From the first row on, with columns of other widths."""
        self.place = self.top = 0
        self._widths = {}

    def action_move(self, by: int) -> None:
        self.place = min(max(self.place + by, 0), max(len(self.rows) - 1, 0))
        self._keep()

    def action_open(self) -> None:
        self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        place = self.top + event.y - 1
        if event.y and place < len(self.rows):
            is_again = place == self.place
            self.place = place
            self._keep()
            if is_again:
                self.action_open()

    def _keep(self) -> None:
        """The chosen row is on the screen, and is known again."""
        chosen = self.chosen
        self._key = chosen.key if chosen is not None and self.place else ()
        room = max(self.size.height - 1, 1)
        self.top = min(max(self.top, self.place - room + 1), self.place)
        self.top = max(min(self.top, len(self.rows) - room), 0)
        self.redraw()

    def redraw(self) -> None:
        self._lines = None
        self.refresh()

    def on_resize(self) -> None:
        self._widths = {}
        self._keep()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self._lines is None:
            seen = self.rows[self.top : self.top + max(self.size.height - 1, 0)]
            self._lines = screen_of(width).table(self.form, seen, self._widths)
        line = self._lines[y] if y < len(self._lines) else ""
        is_chosen = bool(self.rows) and y - 1 == self.place - self.top
        return strip_of(line, width, CHOSEN if is_chosen else PLAIN)
