"""The page: head, tabs, a list, and a line of keys, as textual draws them.

It is drawn anew ten times a second at most, and only if something is new or a second has passed.
"""

import asyncio
import signal
from functools import partial
from typing import Any

import anyio
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.widgets import Input

from icctl.api import Error
from icd.app.human import kinds
from icd.app.human.screen import Screen
from icd.app.human.text import clean, cut
from icd.app.invocation import World
from icd.app.verb import Table
from icd.errors import IcError
from icd.top import details, head
from icd.top.dialogs import Question, Reading, footer, help_page, message
from icd.top.feed import Feed
from icd.top.listing import REVERSE, Drawn, Listing
from icd.top.projects import Choice, Project
from icd.top.rows import Action, Row, Tab, converse, matching, sought
from icd.top.tabs import TABS, form_of

FRAME_SECONDS = 0.1
# How long a message stays, in frames.
MESSAGE_FRAMES = 80
# A detail is asked for again after this many frames if something is new.
DETAIL_FRAMES = 10


class Page(App[int]):
    ENABLE_COMMAND_PALETTE = False
    # The terminal's own colours: they suit a dark one and a light one.
    CSS = """
    Screen { layout: vertical; background: $background; }
    Drawn, Listing, Text { padding: 0 1; }
    .line { height: 1; }
    #tabs { padding: 0; }
    #head { height: 2; }
    Listing, Text { height: 1fr; }
    #bar { height: 1; display: none; }
    #slash { width: 3; }
    #filter { width: 1fr; height: 1; border: none; padding: 0; background: $background; }
    Question { align: center middle; background: transparent; }
    #question { height: auto; border: round ansi_yellow; background: $background; }
    """
    BINDINGS = [  # noqa: RUF012 -- textual's way to declare them
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("question_mark", "help", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "clear", show=False),
        Binding("p", "project", show=False),
        Binding("space", "hold", show=False),
        Binding("left", "turn(-1)", show=False),
        Binding("right", "turn(1)", show=False),
        # Else these would move between widgets.
        Binding("shift+tab", "turn(-1)", show=False, priority=True),
        Binding("tab", "turn(1)", show=False, priority=True),
        *(Binding(str(n + 1), f"tab({n})", show=False) for n in range(len(TABS))),
        *(
            Binding(key, f"act('{key}')", show=False)
            for key in sorted({action.key for tab in TABS for action in tab.actions})
        ),
    ]

    def __init__(
        self, world: World, choice: Choice, place: int = 0, *, is_read_only: bool = False
    ) -> None:
        super().__init__(ansi_color=True)
        self.feed = Feed(world, choice)
        self.place = place
        self.listing = Listing()
        self._only: Project | None = None
        self.told: tuple[str, bool] = ("", False)
        self._world = world
        self._choice = choice
        self._is_read_only = is_read_only
        self._is_held = False
        self._filter = ""
        self._seen = -1
        self._frame = self._message_frame = self._detail_frame = 0
        self._forms: dict[tuple[Any, ...], Table] = {}

    @property
    def tab(self) -> Tab:
        return TABS[self.place]

    @property
    def only(self) -> Project | None:
        """The one whose rows are shown, until it is deleted."""
        return self._only if self._only in self.feed.projects else None

    # --- what is drawn ---

    def compose(self) -> ComposeResult:
        yield Drawn(self._head, id="head")
        yield Drawn(self._tabs, id="tabs", classes="line")
        yield self.listing
        yield Drawn(self._foot, id="foot", classes="line")
        with Horizontal(id="bar"):
            yield Drawn(lambda screen: [screen.paint("/", kinds.CYAN)], id="slash")
            yield Input(id="filter", placeholder="words, or !words", compact=True)

    def on_mount(self) -> None:
        self.theme = "ansi-dark"
        self.listing.focus()
        self.feed.show(self.tab)
        self.run_worker(self.feed.run(), exit_on_error=True)
        self.set_interval(FRAME_SECONDS, self._tick)
        for number in (signal.SIGTERM, signal.SIGHUP):  # the terminal is left as it was
            asyncio.get_running_loop().add_signal_handler(number, self.exit, 128 + number)

    def _tick(self) -> None:
        self._frame += 1
        is_new = self.feed.generation != self._seen
        if not is_new and self._frame % round(1 / FRAME_SECONDS):
            return
        self._seen = self.feed.generation
        self.redraw()
        sheet = self.screen
        if is_new and isinstance(sheet, Reading) and self._frame >= self._detail_frame:
            self._detail_frame = self._frame + DETAIL_FRAMES
            sheet.look_again()

    def redraw(self) -> None:
        if self._frame > self._message_frame:
            self.told = ("", False)
        if not self._is_held:
            self.listing.put(self._rows(), self._form())
        for drawn in self.screen_stack[0].query(Drawn):
            drawn.redraw()

    def _form(self) -> Table:
        """The same object as long as it is the same table."""
        named = {} if self.only is not None else self.feed.names
        key = (self.place, self.size.width, *named.values())
        if key not in self._forms:
            self._forms = {key: form_of(self.tab, named, self.size.width)}
        return self._forms[key]

    def _rows(self) -> list[Row]:
        rows = self.feed.rows(self.tab)
        if self.only is not None:
            rows = [row for row in rows if row.project in (self.only, None)]
        if self._filter:
            form, matches = self._form(), matching(self._filter)
            rows = [row for row in rows if matches(sought(row, form))]
        return rows

    def _head(self, screen: Screen) -> list[str]:
        feed = self.feed
        named = feed.names if self.only is None else {self.only: feed.names[self.only]}
        lines = head.lines(screen, feed.report, feed.figures, named, feed.state)
        for project, trouble in feed.troubles.items():
            told = f"{feed.names.get(project, project.name)}: {trouble}"
            lines[1] = screen.paint(cut(clean(told), screen.width), kinds.YELLOW)
        return lines

    def _tabs(self, screen: Screen) -> list[str]:
        names = [f" {n + 1} {tab.name} " for n, tab in enumerate(TABS)]
        if sum(map(len, names)) > screen.width:
            names = [
                name if n == self.place else f" {n + 1} {TABS[n].short} "
                for n, name in enumerate(names)
            ]
        first = self.place  # of those that are seen: the one that is shown is among them
        while first and sum(map(len, names[first - 1 : self.place + 1])) <= screen.width:
            first -= 1
        names[self.place] = screen.paint(names[self.place], REVERSE)
        return ["".join(names[first:])]

    def _foot(self, screen: Screen) -> list[str]:
        text, is_bad = self.told
        if text:
            return [message(screen, text, is_bad=is_bad)]
        acts = [] if self._is_read_only else [f"{a.key} {a.word}" for a in self.tab.actions]
        place = f"{self.listing.place + 1}/{len(self.listing.rows)}" if self.listing.rows else ""
        more = [f"filter: {clean(self._filter)}"] if self._filter else ["/ filter"]
        held = ["space go on"] if self._is_held else []
        hints = [*held, "enter detail", *acts, *more, "? help", "q quit"]
        if len(self.feed.projects) > 1:
            hints.insert(-2, "p project")
        line = footer(screen, *hints)
        gap = screen.width - len(head.plain(line)) - len(place)
        return [line + " " * gap + screen.paint(place, kinds.DIM) if gap > 1 else line]

    def tell(self, text: str, *, is_bad: bool = False) -> None:
        self.told = (text, is_bad)
        self._message_frame = self._frame + MESSAGE_FRAMES
        self.redraw()

    # --- keys ---

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """What is about the list waits until it is seen again."""
        return action == "quit" or len(self.screen_stack) == 1

    def action_tab(self, place: int) -> None:
        self.place = place
        self._is_held = False
        self.listing.begin()
        self.feed.show(self.tab)
        self.redraw()

    def action_turn(self, by: int) -> None:
        self.action_tab((self.place + by) % len(TABS))

    def action_project(self) -> None:
        """The next project, and after the last one all of them."""
        choices = [None, *self.feed.projects]
        if len(choices) > 2:
            self._only = choices[(choices.index(self.only) + 1) % len(choices)]
            self.listing.begin()
            self.redraw()

    def action_hold(self) -> None:
        self._is_held = not self._is_held
        self.redraw()

    def action_help(self) -> None:
        self.push_screen(Reading("Keys", help_page, lambda _sheet: None))

    def action_filter(self) -> None:
        given = self.query_one("#filter", Input)
        self.query_one("#foot").display = False
        self.query_one("#bar").display = True
        given.value = self._filter
        given.focus()

    def action_clear(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._narrow("")
        self._end_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._narrow(event.value)

    def on_input_submitted(self) -> None:
        self._end_filter()

    def _narrow(self, words: str) -> None:
        self._filter = words
        self.listing.begin()
        self.redraw()

    def _end_filter(self) -> None:
        self.query_one("#bar").display = False
        self.query_one("#foot").display = True
        self.listing.focus()

    # --- a row ---

    def on_listing_opened(self) -> None:
        row, tab = self.listing.chosen, self.tab
        if row is not None:
            title = details.title(tab, row)
            sheet = Reading(
                title, lambda screen: screen.hint("asking …"), partial(self._ask, tab, row)
            )
            self.push_screen(sheet)

    def _ask(self, tab: Tab, row: Row, sheet: Reading) -> None:
        self.run_worker(self._look(tab, row, sheet), group="detail", exclusive=True)

    async def _look(self, tab: Tab, row: Row, sheet: Reading) -> None:
        try:
            draw = await anyio.to_thread.run_sync(self._found, tab, row)
        except (Error, IcError) as exc:
            told = str(exc)
            sheet.text.put(lambda screen: screen.bad(told))
        else:
            sheet.text.put(draw)

    def _found(self, tab: Tab, row: Row) -> details.Drawn:
        with self._choice.client(row.project) as client:
            return converse(client, details.find(self._world, tab, row))

    def action_act(self, key: str) -> None:
        row = self.listing.chosen
        action = next((action for action in self.tab.actions if action.key == key), None)
        if row is None or action is None or self._is_read_only:
            return
        if why_not := action.fits(row):
            self.tell(why_not, is_bad=True)
            return

        def answered(is_wanted: bool | None) -> None:  # noqa: FBT001 -- textual calls it
            if is_wanted:
                self.run_worker(self._act(action, row))

        self.push_screen(Question(action.question(row)), answered)

    async def _act(self, action: Action, row: Row) -> None:
        try:
            told = await anyio.to_thread.run_sync(self._done, action, row)
        except (Error, IcError) as exc:
            self.tell(str(exc), is_bad=True)
        else:
            self.tell(told)
        self.feed.look_again()

    def _done(self, action: Action, row: Row) -> str:
        with self._choice.client(row.project) as client:
            return action.act(self._world, client.ask, row)
