"""`icctl top --once`: one screen, in plain text where no person reads, without textual."""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from icctl.api import Client, Error
from icd.app.human.screen import Screen
from icd.app.invocation import MOST_COLUMNS, Output, Terminal, World
from icd.features.daemon.report import Report
from icd.top import head, tabs, work
from icd.top.projects import Choice, Project, names
from icd.top.rows import Row, Tab, converse
from icd.top.tabs import TABS

# Of each list, where all are shown; and of one, where it is asked for alone.
ROWS, MANY = 5, 200
COLUMNS = 80


class Seen(Struct):
    """All that a screen shows; `troubles` are sentences."""

    report: Report | None
    projects: list[Project]
    rows: dict[str, list[Row]]
    troubles: list[str]


def show(world: World, choice: Choice, only: Tab | None) -> Output:
    screen = Screen(world.terminal or _paper(world))
    shown = lines(screen, look(world, choice, [only] if only else TABS), only)
    told = "".join(f"{line.rstrip()}\n" for line in shown)
    return Output(0, told.encode("utf-8", "backslashreplace"), styled=screen.colour)


def _paper(world: World) -> Terminal:
    """What a pipe leads to: as wide as is said, without colours."""
    given = world.env.get("COLUMNS") or os.environ.get("COLUMNS", "")
    columns = int(given[:5]) if given.isascii() and given.isdecimal() else COLUMNS
    offset = time.localtime().tm_gmtoff
    return Terminal(min(max(columns, 20), MOST_COLUMNS), offset)


# --- looking --------------------------------------------------------------------------------------


def look(world: World, choice: Choice, wanted: Iterable[Tab]) -> Seen:
    found = Seen(None, [], {tab.name: [] for tab in wanted}, [])
    try:
        with choice.client(None) as client:
            found.report = client.icd.status()
    except Error as exc:
        if exc.name != "no_daemon":
            found.troubles.append(str(exc))
    found.projects = choice.among(found.report)
    for project in found.projects:
        _look_at(found, choice, project)
    for tab in TABS:
        rows = found.rows.get(tab.name)
        if rows is None:
            continue
        if tab.of_report is not None and found.report is not None:
            rows += tab.of_report(found.report)
        if tab.beside is not None:
            rows += tab.beside(world, rows)
        found.rows[tab.name] = tabs.in_order(rows, tab)
    return found


def _look_at(found: Seen, choice: Choice, project: Project) -> None:
    with choice.client(project) as client:
        for tab in TABS:
            if tab.name in found.rows:
                try:
                    found.rows[tab.name] += _rows(client, tab, project)
                except Error as exc:
                    found.troubles.append(f"{project.name}: {exc}")


def _rows(client: Client, tab: Tab, project: Project) -> list[Row]:
    if tab.find is not None:
        return converse(client, tab.find(project))
    if tab.of_report is not None:
        return []
    batch = client.events.tail(newest=MANY)
    return [work.event(project, event) for event in batch.events]


# --- drawing --------------------------------------------------------------------------------------


def lines(screen: Screen, found: Seen, only: Tab | None) -> Iterator[str]:
    """A function of what was seen and of the moment, and of nothing else."""
    named = names(found.projects)
    figures = head.figures(found.report, None, 0.0) if found.report else None
    state = "" if found.report else "no daemon"
    yield from head.lines(screen, found.report, figures, named, state)
    for trouble in found.troubles:
        yield from screen.doubt(trouble)
    if only is not None:
        yield ""
        yield from _list(screen, found, only, named, MANY)
        return
    empty = [tab.name.lower() for tab in TABS if not found.rows[tab.name]]
    for tab in TABS:
        if found.rows[tab.name]:
            yield ""
            yield screen.heading(f"{tab.name} ({len(found.rows[tab.name])})")
            yield from _list(screen, found, tab, named, ROWS)
    if empty:
        yield ""
        yield from screen.hint(f"nothing: {', '.join(empty)}")


def _list(
    screen: Screen, found: Seen, tab: Tab, named: dict[Project, str], most: int
) -> Iterator[str]:
    rows = found.rows[tab.name]
    yield from screen.table(tabs.form_of(tab, named, screen.width), [*islice(rows, most)])
    if len(rows) > most:
        yield from screen.hint(f"and {len(rows) - most} more")
