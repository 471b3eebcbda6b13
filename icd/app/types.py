"""Words that people type, turned into numbers.  No float touches time."""

import re

import click

from icd.values.wire import CENTURY_MS

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_PART = re.compile(r"(\d{0,18})(?:\.(\d{0,18}))?(ns|us|µs|μs|ms|s|m|h|d)", re.ASCII)


def milliseconds(text: str) -> int | None:
    """A Go duration such as 1h30m or 250ms (and days, `d`), rounded up; None if it is not one."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    total_ns = 0
    while rest:
        part = _PART.match(rest)
        if part is None or not (part[1] or part[2]):
            return None
        unit = _UNITS_NS[part[3]]
        fraction = part[2] or ""
        total_ns += int(part[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        rest = rest[part.end() :]
    return sign * -(-total_ns // 1_000_000) if text.strip("+-") else None


def duration_ms(text: str) -> int | None:
    """A duration, or a number of seconds: both are written in scripts.  None if it is neither."""
    return milliseconds(f"{text}s" if re.fullmatch(r"[+-]?[0-9]{1,12}", text) else text)


class Duration(click.ParamType[int]):
    """A duration that is not negative, in milliseconds.  Its unit is said: it is for deletions."""

    name = "duration"
    parse = staticmethod(milliseconds)
    written = "500ms, 5m or 24h"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = self.parse(value)
        if found is None:
            self.fail(f"invalid duration {value!r}: write {self.written}", param, ctx)
        if found < 0:
            self.fail(f"the duration {value!r} is negative", param, ctx)
        if found > CENTURY_MS:
            self.fail(f"the duration {value!r} is longer than a century", param, ctx)
        return found


class Whole(click.ParamType[int]):
    """A decimal integer, within bounds; Python would also take 1_000."""

    name = "integer"

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            self.fail(f"{text!r} is not an integer", param, ctx)
        if not self.least <= int(text) <= self.most:
            self.fail(f"{text} is not between {self.least} and {self.most}", param, ctx)
        return int(text)


class Seconds(Whole):
    """Whole seconds, or a duration, which is rounded up: no interval is shorter than asked."""

    name = "interval"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        found = milliseconds(text)
        if found is None and not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            self.fail(f"{text!r} is neither seconds nor a duration: write 300 or 5m", param, ctx)
        return super().convert(value if found is None else -(-found // 1000), param, ctx)


class Truth(click.ParamType[bool]):
    """Yes or no, in the words that Go takes for it, and no others."""

    name = "bool"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if value not in _TRUTHS:
            self.fail(f"{value!r} is neither true nor false", param, ctx)
        return _TRUTHS[value]


_TRUTHS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True)
_TRUTHS |= dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False)


class Span(Duration):
    """A duration, or a number of seconds."""

    parse = staticmethod(duration_ms)
    written = "500ms, 5m, 24h or a number of seconds"


class Score(click.ParamType[float]):
    """A number from 0 to 1; Python would also take nan and 1_0."""

    name = "score"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value)
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text):
            self.fail(f"{text!r} is not a number", param, ctx)
        if not 0 <= float(text) <= 1:
            self.fail(f"{text} is not between 0 and 1", param, ctx)
        return float(text)


DURATION = Duration()
SPAN = Span()
SCORE = Score()
TRUTH = Truth()
