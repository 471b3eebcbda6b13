"""The line that an agent shows below its prompt: the agent's own figures, and what is known here.

The agent's JSON is a stranger's: any JSON may stand anywhere, and what cannot be used is left out.
Text passes `store.as_text` and `printable`, so that no character of it commands a terminal; the
colours are added afterwards.  A line that is wider than the terminal loses its least important
parts first.
"""

import json
from typing import Any

from msgspec import Struct

from icd.app.invocation import Output
from icd.errors import IcError
from icd.features.statusline.store import Statusline, as_number, as_text
from icd.printable import printable
from icd.values.validation import check_scope

# Agents send a few kilobytes.
EVENT_BYTES = 64 * 1024
# Where the caller does not say: terminals have had so many for fifty years.
WIDTH, LEAST_WIDTH, MOST_WIDTH = 80, 20, 1000
SEPARATOR = " | "

_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _DIM = "31", "32", "33", "34", "35", "36", "2"
_WARN, _ALARM = 60, 85  # percent
_LEVELS = {"green": _GREEN, "low": _GREEN, "yellow": _YELLOW, "orange": _YELLOW, "red": _RED}


class Figures(Struct, frozen=True):
    """What an agent tells; percentages are of what there is."""

    session: str = ""
    directory: str = ""
    model: str | None = None
    context: float | None = None
    cost: float | None = None
    hours: float | None = None
    week: float | None = None


class _Part(Struct, frozen=True):
    """`rank`: the part with the highest goes first, if there is no room."""

    rank: int
    text: str
    colour: str = ""


def read(data: bytes) -> Figures:
    try:
        event = json.loads(data) if len(data) <= EVENT_BYTES else None
    except (ValueError, RecursionError):
        event = None
    directory = _at(event, "workspace", "current_dir") or _at(event, "cwd")
    is_path = isinstance(directory, str) and directory[:1] == "/" and "\0" not in directory
    return Figures(
        session=_scope(_at(event, "session_id")),
        directory=directory if is_path else "",
        model=as_text(_at(event, "model", "display_name")),
        context=_percent(_at(event, "context_window", "used_percentage")),
        cost=_within(_at(event, "cost", "total_cost_usd"), 1e6),
        hours=_percent(_at(event, "rate_limits", "five_hour", "used_percentage")),
        week=_percent(_at(event, "rate_limits", "seven_day", "used_percentage")),
    )


def show(figures: Figures, line: Statusline, *, width: int, colour: bool) -> Output:
    parts = _fit(_parts(figures, line), width)
    words = [_painted(part) if colour and part.colour else part.text for part in parts]
    text = SEPARATOR.join(words)
    return Output(0, f"{text}\n".encode() if text else b"", styled=colour)


def width_of(given: str) -> int:
    """How wide a line may be, by the caller's COLUMNS."""
    fits = given.isascii() and given.isdigit() and len(given) < 5
    return min(max(int(given), LEAST_WIDTH), MOST_WIDTH) if fits else WIDTH


def _parts(figures: Figures, line: Statusline) -> list[_Part]:
    """In the order of the line."""
    run, bead, pressure = line.run, line.bead, line.pressure
    dispatch, others, budget = line.dispatch, line.coordination, line.budget
    used = None if budget is None else _percent(budget.pct_consumed)
    level = None if pressure is None else pressure.level
    reserved = line.reservations
    found = [
        _part(0, _CYAN, figures.model),
        _figure(2, "ctx", figures.context),
        _part(6, _DIM, None if figures.cost is None else f"${figures.cost:.2f}"),
        _figure(8, "5h", figures.hours),
        _figure(9, "7d", figures.week),
        run and _part(1, _BLUE, "run", run.id, run.phase),
        bead and bead.id and _part(5, _MAGENTA, bead.id, bead.phase),
        _part(5, _YELLOW, f"{reserved} reserved") if reserved else None,
        _figure(4, "budget", used),
        level and _part(3, _LEVELS.get(level.lower(), ""), "pressure", level),
        dispatch and dispatch.alive and _part(7, _GREEN, dispatch.name, dispatch.activity),
        others and others.count and _part(10, _DIM, f"{others.count} agents", others.text),
    ]
    return [part for part in found if part]


def _part(rank: int, colour: str, *words: str | None) -> _Part | None:
    text = " ".join(word for word in words if word)
    return _Part(rank, printable(text.encode()).decode(), colour) if text else None


def _figure(rank: int, name: str, percent: float | None) -> _Part | None:
    if percent is None:
        return None
    colour = _RED if percent >= _ALARM else _YELLOW if percent >= _WARN else _GREEN
    return _Part(rank, f"{name} {percent:.0f}%", colour)


def _fit(parts: list[_Part], width: int) -> list[_Part]:
    while len(parts) > 1 and _width(SEPARATOR.join(part.text for part in parts)) > width:
        parts.remove(max(parts, key=lambda part: part.rank))
    if parts and _width(parts[0].text) > width:
        only, text = parts[0], parts[0].text
        while _width(text) > width - 1:
            text = text[:-1]
        return [_Part(only.rank, text + "…", only.colour)]
    return parts


def _width(text: str) -> int:
    """In columns: a Chinese character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _painted(part: _Part) -> str:
    return f"\x1b[{part.colour}m{part.text}\x1b[0m"


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _scope(value: object) -> str:
    """A session that can be one; any other has no rows."""
    try:
        session = value.encode().decode() if isinstance(value, str) else ""
        check_scope(session)
    except (IcError, UnicodeError):
        return ""
    return session


def _percent(value: object) -> float | None:
    return _within(value, 1000)


def _within(value: object, most: float) -> float | None:
    number = as_number(value)
    return float(number) if number is not None and 0 <= number < most else None
