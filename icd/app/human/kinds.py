"""How a value looks to a person: its text, and its colour if it has one.

A kind is a function of all values of a column: what it looks up once, it need not look up again.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from icd.app.human.text import clean

BOLD, DIM = "1", "2"
RED, GREEN, YELLOW, CYAN = "31", "32", "33", "36"
NOTHING = "-"
MINUTE, HOUR, DAY = 60, 3600, 86_400
WEEK, YEAR = 7 * DAY, 365 * DAY
BAR = 10  # cells
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Clock(NamedTuple):
    """The moment of a call, and how its caller wants to read times."""

    now: float
    offset: int = 0  # seconds east of Greenwich
    absolute: bool = False


class Sign(NamedTuple):
    sign: str
    colour: str


_GOOD, _BAD, _BUSY = Sign("✓", GREEN), Sign("✗", RED), Sign("●", CYAN)
_WAITS, _DOUBT, _OVER = Sign("○", YELLOW), Sign("!", YELLOW), Sign("-", DIM)
STATES = {
    **dict.fromkeys(["completed", "passed", "pass", "ok", "fired", "trusted", "promoted"], _GOOD),
    **dict.fromkeys(["allowed", "alive", "advance", "approved", "accepted", "set", "free"], _GOOD),
    **dict.fromkeys(["failed", "fail", "error", "timeout", "dead", "exceeded", "block"], _BAD),
    **dict.fromkeys(["refused", "blocked", "damaged", "expired", "reject", "rejected"], _BAD),
    **dict.fromkeys(["active", "running", "spawned", "held", "live"], _BUSY),
    **dict.fromkeys(["new", "scored", "proposed", "pending", "waiting", "throttled"], _WAITS),
    **dict.fromkeys(
        ["changed", "warning", "warn", "stale", "unknown", "untrusted", "override"], _DOUBT
    ),
    **dict.fromkeys(["cancelled", "dismissed", "skip", "skipped", "rollback", "none"], _OVER),
    **dict.fromkeys(["rolled_back", "abandoned", "ignored", "off", "inactive"], _OVER),
    **dict.fromkeys(["closed", "archived"], _OVER),
}

# What a column shows, and in which colours; None where none has one.
Cells = tuple[list[str], Sequence[str] | None]
Kind = Callable[[Sequence[Any], Clock], Cells]


def text(values: Sequence[Any], _clock: Clock) -> Cells:
    return [NOTHING if v is None or v == "" else clean(str(v)) for v in values], None


def state(values: Sequence[Any], _clock: Clock) -> Cells:
    shown = {value: _state(value) for value in set(values)}
    return [shown[v][0] for v in values], [shown[v][1] for v in values]


def _state(value: Any) -> tuple[str, str]:
    sign = STATES.get(value)
    if sign is None:
        return clean(str(value or NOTHING)), ""
    return f"{sign.sign} {value}", sign.colour


def number(values: Sequence[Any], _clock: Clock) -> Cells:
    return [NOTHING if v is None else f"{v:,}" for v in values], None


def percent(values: Sequence[Any], _clock: Clock) -> Cells:
    return [NOTHING if v is None else f"{v:.0f}%" for v in values], None


def size(values: Sequence[Any], _clock: Clock) -> Cells:
    return [NOTHING if v is None else in_bytes(v) for v in values], None


def yes(values: Sequence[Any], _clock: Clock) -> Cells:
    return ["yes" if v else "no" for v in values], None


def age(values: Sequence[Any], clock: Clock) -> Cells:
    """Unix seconds; None has not happened."""
    return [NOTHING if v is None else moment(v, clock) for v in values], None


def until(values: Sequence[Any], clock: Clock) -> Cells:
    """Unix seconds of what is to come; None never does."""
    return ["never" if v is None else _until(v, clock) for v in values], None


def span(values: Sequence[Any], _clock: Clock) -> Cells:
    """Seconds."""
    return [NOTHING if v is None else in_words(v) for v in values], None


def elapsed(values: Sequence[Any], clock: Clock) -> Cells:
    """From a moment to another one, or until now."""
    known = [None if v is None else (v[1] or clock.now) - v[0] for v in values]
    return [NOTHING if v is None else in_words(max(v, 0)) for v in known], None


def score(values: Sequence[Any], _clock: Clock) -> Cells:
    """From 0 to 1, as a bar."""
    known = [min(max(v or 0.0, 0.0), 1.0) for v in values]
    colours = [GREEN if v >= 0.8 else YELLOW if v >= 0.3 else DIM for v in known]
    shown = zip(values, known, strict=True)
    return [NOTHING if v is None else f"{bar(k, BAR)} {v:.2f}" for v, k in shown], colours


def share(values: Sequence[Any], _clock: Clock) -> Cells:
    """Percent of what there is, as a bar that warns."""
    known = [(v or 0.0) / 100 for v in values]
    colours = [RED if k >= 1 else YELLOW if k >= 0.8 else GREEN for k in known]
    shown = zip(values, known, strict=True)
    return [
        NOTHING if v is None else f"{bar(min(k, 1.0), BAR)} {v:.0f}%" for v, k in shown
    ], colours


def document(values: Sequence[Any], _clock: Clock) -> Cells:
    """JSON in one line."""
    return [_compact(value) for value in values], None


KINDS: dict[str, Kind] = {
    "text": text,
    "id": text,
    "path": text,
    "state": state,
    "number": number,
    "percent": percent,
    "bytes": size,
    "yes": yes,
    "age": age,
    "until": until,
    "span": span,
    "elapsed": elapsed,
    "score": score,
    "share": share,
    "json": document,
}
TIMES = ("age", "until")
# These stand on the right of their column.
NUMBERS = ("number", "percent", "bytes", "span", "elapsed")
# These may be cut before a column is left out; the others would say something else.
FLEXIBLE = ("text", "path", "json")


def moment(seconds: float, clock: Clock) -> str:
    if clock.absolute:
        return date(seconds, clock.offset)
    past = clock.now - seconds
    if -1 < past < 1:
        return "now"
    return f"{coarse(past)} ago" if past > 0 else f"in {coarse(-past)}"


def _until(seconds: float, clock: Clock) -> str:
    return "now" if seconds <= clock.now else moment(seconds, clock)


def date(seconds: float, offset: int) -> str:
    """In the caller's zone; the heading says which, because a summer has another one."""
    import time

    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds + offset))
    except (OverflowError, ValueError, OSError):
        return "?"  # no clock ever showed it


def zone(offset: int) -> str:
    if not offset:
        return "UTC"
    hours, minutes = divmod(abs(offset) // 60, 60)
    return f"UTC{'-' if offset < 0 else '+'}{hours}" + (f":{minutes:02}" if minutes else "")


def coarse(seconds: float) -> str:
    """One unit: `42s`, `3m`, `5h`, `12d`, `8w`, `9mo`, `2y`."""
    if seconds < MINUTE:
        return f"{int(seconds)}s"
    if seconds < HOUR:
        return f"{int(seconds / MINUTE)}m"
    if seconds < 2 * DAY:
        return f"{int(seconds / HOUR)}h"
    if seconds < 8 * WEEK:
        return f"{int(seconds / DAY)}d"
    if seconds < 26 * WEEK:
        return f"{int(seconds / WEEK)}w"
    return f"{int(seconds / YEAR * 12)}mo" if seconds < 2 * YEAR else f"{int(seconds / YEAR)}y"


def in_words(seconds: float) -> str:
    """Two units: `250ms`, `42s`, `3m 20s`, `5h 10m`, `12d 3h`."""
    if seconds < 0:
        return NOTHING
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.01 else f"{seconds * 1000:.1f}ms"
    if seconds < MINUTE:
        return f"{seconds:.0f}s"
    for unit, name, below, short in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "m")):
        if seconds >= unit:
            rest = int(seconds % unit / below)
            return f"{int(seconds / unit)}{name}" + (f" {rest}{short}" if rest else "")
    rest = int(seconds % MINUTE)
    return f"{int(seconds / MINUTE)}m" + (f" {rest}s" if rest else "")


def in_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def bar(part: float, cells: int) -> str:
    """As wide as `cells`, filled up to a part between 0 and 1."""
    eighths = round(part * cells * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)


def _compact(value: Any) -> str:
    if value is None or value is msgspec.UNSET:
        return NOTHING
    try:
        return clean(" ".join(msgspec.json.encode(value).decode().split()))
    except UnicodeEncodeError:  # a path that is no text
        return clean(str(value))
