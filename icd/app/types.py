"""How a word that people type becomes a value.  No float touches time.

Click is not needed to read a word that is right, and takes longer to load than most calls take to
run: see icd/app/parser.py, and icd/app/reference/help.py for what click does with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from msgspec import Struct

from icd.durations import duration_ms, milliseconds
from icd.values.wire import CENTURY_MS, INT64


class Kind:
    """`read` makes the value; its ValueError says what is wrong with the word."""

    # What stands for a value in help where the option has no metavar.
    name: str

    def read(self, word: str) -> Any:
        raise NotImplementedError


def _fail(told: str) -> NoReturn:
    raise ValueError(told)


def _meant(word: str) -> str:
    """What was meant by a word that is no duration, if that is clear."""
    from icd.app.reference.mistakes import duration

    return duration(word)


class Duration(Kind):
    """A duration that is not negative, in milliseconds.  Its unit is said: it is for deletions."""

    name = "duration"
    parse = staticmethod(milliseconds)
    written = "500ms, 5m or 24h"

    def read(self, word: str) -> int:
        found = self.parse(word)
        if found is None:
            _fail(f"invalid duration {word!r}: {_meant(word) or f'write {self.written}'}")
        if found < 0:
            _fail(f"the duration {word!r} is negative")
        if found > CENTURY_MS:
            _fail(f"the duration {word!r} is longer than a century")
        return found


class Whole(Kind):
    """A decimal integer, within bounds; Python would also take 1_000."""

    name = "integer"

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def read(self, word: str) -> int:
        if not _is_integer(word):
            _fail(f"{word!r} is not an integer")
        return self.within(int(word), word)

    def within(self, found: int, word: str) -> int:
        if not self.least <= found <= self.most:
            _fail(f"{word} is not between {self.least} and {self.most}")
        return found


class Seconds(Whole):
    """Whole seconds, or a duration, which is rounded up: no interval is shorter than asked."""

    name = "interval"

    def read(self, word: str) -> int:
        if _is_integer(word):
            return self.within(int(word), word)
        found = milliseconds(word)
        if found is None:
            told = _meant(word) or "use 300 or 5m"
            _fail(f"{word!r} is neither seconds nor a duration: {told}")
        seconds = -(-found // 1000)
        return self.within(seconds, str(seconds))


def _is_integer(word: str) -> bool:
    digits = word[1:] if word[:1] in ("+", "-") else word
    return 0 < len(digits) < 20 and digits.isascii() and digits.isdigit()


class Moment(Struct, frozen=True):
    """A place in the log of events: a sequence number, an age, or a Unix time."""

    seq: int | None = None
    age_ms: int | None = None
    at_ms: int | None = None


class Place(Kind):
    """A sequence number, a duration back from now, or a time, which is UTC if it does not say."""

    name = "time"

    def read(self, word: str) -> Moment:
        if word.isascii() and word.isdigit():
            return Moment(seq=Whole(0, INT64 - 1).read(word))
        if milliseconds(word) is not None:
            return Moment(age_ms=DURATION.read(word))
        return Moment(at_ms=_unix_ms(word))


def _unix_ms(word: str) -> int:
    from datetime import UTC, datetime  # few words are times

    try:
        found = datetime.fromisoformat(word)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        moment = found - datetime(1970, 1, 1, tzinfo=UTC)
        at_ms = moment.days * 86_400_000 + moment.seconds * 1000 + moment.microseconds // 1000
    except (ValueError, OverflowError):
        told = _meant(word) or "use 1h, 2026-01-31, 2026-01-31T12:00Z or a sequence number"
        _fail(f"{word!r} is no time: {told}")
    return max(at_ms, 0)


class Truth(Kind):
    """Yes or no, in the words that Go takes for it, and no others."""

    name = "bool"

    def read(self, word: str) -> bool:
        if word not in _TRUTHS:
            _fail(f"{word!r} is neither true nor false")
        return _TRUTHS[word]


_TRUTHS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True)
_TRUTHS |= dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False)


class Span(Duration):
    """A duration, or a number of seconds."""

    parse = staticmethod(duration_ms)
    written = "500ms, 5m, 24h or a number of seconds"


class Score(Kind):
    """A number from 0 to 1; Python would also take nan and 1_0."""

    name = "score"

    def read(self, word: str) -> float:
        import re  # few words are scores, and a hook pays for every import

        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", word):
            _fail(f"{word!r} is not a number")
        if not 0 <= float(word) <= 1:
            _fail(f"{word} is not between 0 and 1")
        return float(word)


class Number(Kind):
    """Any number that Python knows."""

    name = "float"

    def read(self, word: str) -> float:
        try:
            return float(word)
        except ValueError:
            _fail(f"{word!r} is not a valid float.")


class Choice(Kind):
    """One of some words; help shows them."""

    name = "choice"

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = choices

    def read(self, word: str) -> str:
        if word not in self.choices:
            known = ", ".join(map(repr, self.choices))
            from icd.app.reference.mistakes import choice

            _fail(f"{word!r} is not one of {known}{choice(word, self.choices)}")
        return word


class UnixTime(Kind):
    """A time, which is UTC if it does not say, in Unix seconds."""

    name = "time"

    def read(self, word: str) -> int:
        return _unix_ms(word) // 1000


DURATION = Duration()
MOMENT = Place()
SPAN = Span()
SCORE = Score()
TRUTH = Truth()
NUMBER = Number()
UNIX_TIME = UnixTime()
