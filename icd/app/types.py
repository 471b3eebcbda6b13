"""Words that people type, turned into numbers.  No float touches time."""

import re

import click

from icd.durations import duration_ms, milliseconds
from icd.values.wire import CENTURY_MS


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
            self.fail(f"{text!r} is neither seconds nor a duration: use 300 or 5m", param, ctx)
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
