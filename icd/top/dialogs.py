"""What lies over the lists: a detail, a question, the help."""

from collections.abc import Callable, Iterable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.screen import Screen as Sheet

from icd.app.human import kinds
from icd.app.human.screen import Screen
from icd.app.human.text import clean, cut, wrapped
from icd.top.listing import Drawn, Text
from icd.top.tabs import TABS

Draw = Callable[[Screen], Iterable[str]]


class Reading(Sheet[None]):
    """A text over the whole screen; `ask` is told when it should be made anew."""

    BINDINGS = [Binding("escape,q,enter,left", "dismiss", show=False)]  # noqa: RUF012

    def __init__(self, title: str, draw: Draw, ask: Callable[["Reading"], None]) -> None:
        super().__init__()
        self.text = Text(draw)
        self._title = title
        self._ask = ask

    def compose(self) -> ComposeResult:
        yield Drawn(lambda screen: [screen.heading(self._title)], classes="line")
        yield self.text
        yield Drawn(lambda screen: [footer(screen, "↑↓ scroll", "esc back")], classes="line")

    def on_mount(self) -> None:
        self._ask(self)
        self.set_interval(1.0, self.text.redraw)

    def look_again(self) -> None:
        self._ask(self)


class Question(ModalScreen[bool]):
    """Nothing is done without a `y`."""

    BINDINGS = [  # noqa: RUF012
        Binding("y", "dismiss(True)", show=False),
        Binding("n,escape,q,enter", "dismiss(False)", show=False),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = clean(question)

    def compose(self) -> ComposeResult:
        with Vertical(id="question"):
            yield Drawn(self._draw, id="asked")

    def _draw(self, screen: Screen) -> list[str]:
        lines = wrapped(self.question, screen.width)
        return [*lines, "", footer(screen, "y yes", "n no")]

    def on_mount(self) -> None:
        room = max(min(self.app.size.width - 8, 64), 16)
        box, asked = self.query_one("#question"), self.query_one("#asked")
        box.styles.width = room + 4
        asked.styles.height = len(wrapped(self.question, room)) + 2


def footer(screen: Screen, *hints: str) -> str:
    """Keys with what they do, as many as there is room for."""
    line, taken = "", 0
    for hint in hints:
        key, _, word = hint.partition(" ")
        size = len(hint) + (2 if line else 0)
        if taken + size > screen.width:
            break
        line += ("  " if line else "") + f"{screen.paint(key, kinds.CYAN)} {word}"
        taken += size
    return line


# --- the help -------------------------------------------------------------------------------------

_KEYS = [
    ("1 … 9, ← →", "another tab"),
    ("↑ ↓, j k", "another row; PgUp, PgDn, Home and End go further"),
    ("enter", "all that is known of a row"),
    ("/", "filter: all words must be there, those behind a ! must not; esc ends it"),
    ("p", "another project, then all of them again"),
    ("space", "hold what is shown still, and go on"),
    ("?", "this page"),
    ("q", "quit"),
]


def help_page(screen: Screen) -> list[str]:
    acts = [
        (action.key, f"{action.word}, in {tab.name}; asks first")
        for tab in TABS
        for action in tab.actions
    ]
    lines = []
    for key, told in [*_KEYS, *acts]:
        first, *rest = wrapped(told, max(screen.width - 14, 12))
        lines += [
            f"{screen.paint(key.ljust(12), kinds.CYAN)}  {first}",
            *(f"{'':14}{r}" for r in rest),
        ]
    told = (
        "The daemon pushes what is new; its figures are asked for every other second.  "
        "Without a daemon the files themselves are read, once a second."
    )
    return [*lines, "", *screen.hint(told)]


def message(screen: Screen, text: str, *, is_bad: bool) -> str:
    return screen.paint(cut(clean(text), screen.width), kinds.RED if is_bad else kinds.GREEN)
