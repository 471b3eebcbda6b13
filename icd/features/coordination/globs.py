r"""Patterns of paths, and whether two of them have a path in common.

`*` stands for any characters of a segment, `?` for one, `[a-z]` and `[!a-z]` for one of a set; `**`
as a whole segment stands for any number of segments, also none; `\` takes the next character as it
is.  Names that begin with a dot are names like others.

The answer is exact.  A pattern is an automaton that reads segments, and a segment one that reads
characters; two patterns overlap if both can reach their ends with the same segments, and each of
those is one that both can read.  Of two segments, all states of one are kept as the bits of a
number, so a comparison takes as many steps as the other has characters.

A pattern is refused if it is longer than a comparison may take, and a call that compares too much
is ended by its `Budget`: no pattern keeps others waiting.
"""

from functools import lru_cache
from typing import Any

from msgspec import Struct

from icd.errors import InvalidPattern, PatternTooComplex
from icd.values.validation import shown

# The longest path of Linux, which may be reserved as it is.
PATH_BYTES = 4096
SEGMENTS = 128
# With wildcards, what is compared must stay short: 64 segments, 64 wildcards.
WILD_CHARACTERS = 512
WILD_SEGMENTS = 64
WILDCARDS = 64
# Characters that one call may compare: about a third of a second.
STEPS = 400_000

_LAST = 0x10FFFF
_SPECIAL = frozenset("*?[\\")

Ranges = tuple[tuple[int, int], ...]
# What a token may read: a character, one of some ranges, or any number of any (None).
Token = str | Ranges | None
ANY: Ranges = ((1, 46), (48, _LAST))  # all but NUL and the slash


class Wild:
    """A segment with wildcards, and which of its tokens may read what."""

    __slots__ = ("_letters", "_ranges", "end", "stars", "tokens", "weight")

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self.tokens = tokens
        self.end = 1 << len(tokens)
        self.stars = 0
        self._letters: dict[str, int] = {}
        self._ranges: list[tuple[int, Ranges]] = []
        for number, token in enumerate(tokens):
            bit = 1 << number
            if token is None:
                self.stars |= bit
            elif isinstance(token, str):
                self._letters[token] = self._letters.get(token, 0) | bit
            else:
                self._ranges.append((bit, token))
        # What a look at one character may take.
        self.weight = 1 + sum(len(ranges) for _, ranges in self._ranges)

    def reading(self, token: str | Ranges) -> int:
        """The bits of the tokens that can read a character that `token` can read."""
        if isinstance(token, str):
            found = self._letters.get(token, 0)
            own: Ranges = ((ord(token), ord(token)),)
        else:
            own = token
            found = 0
            for letter, bits in self._letters.items():
                if _meet(own, ((ord(letter), ord(letter)),)):
                    found |= bits
        for bit, ranges in self._ranges:
            if _meet(own, ranges):
                found |= bit
        return found


# `**` is None, a name without wildcards is text.
Segment = str | Wild | None


class Glob(Struct, frozen=True, gc=False):
    """`key`: what every path of it begins with, else `*` and what every path ends with; of a path
    without wildcards, all of it."""

    text: str
    segments: tuple[Any, ...]
    path: str | None
    key: str


class Budget:
    """How much one call may still compare."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise PatternTooComplex("the patterns that are reserved take too long to compare with")


def escape(path: str) -> str:
    """The pattern that matches this path and no other."""
    if _SPECIAL.isdisjoint(path):
        return path
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in path)


def literal(segment: str) -> str | None:
    """The one name that a segment matches; None: there are wildcards in it."""
    if _SPECIAL.isdisjoint(segment):
        return segment
    found = _segment(segment, segment)
    return found if isinstance(found, str) else None


@lru_cache(maxsize=4096)
def parse(text: str) -> Glob:
    """A pattern that was normalised: no empty segment, no `.` and no `..`."""
    names = text[1:].split("/") if text[:1] == "/" else text.split("/")
    segments = tuple(_segment(name, text) for name in names)
    if text[:1] == "/":
        segments = ("", *segments)
    _check_size(text, segments)
    if all(isinstance(segment, str) for segment in segments):
        path = "/".join(str(segment) for segment in segments)
        return Glob(text, segments, path, path)
    head = _head(segments)
    return Glob(text, segments, None, head or "*" + _tail(segments))


def overlap(one: Glob, other: Glob, budget: Budget) -> bool:
    """Whether some path matches both."""
    if one.path is not None and other.path is not None:
        return one.path == other.path
    if (one.text[:1] == "/") != (other.text[:1] == "/"):
        return False  # outside of the project, and inside
    p, q = one.segments, other.segments
    seen, todo = {(0, 0)}, [(0, 0)]
    while todo:
        i, j = todo.pop()
        if i == len(p) and j == len(q):
            return True
        for state in _steps(p, q, i, j, budget):
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return False


def _steps(
    p: tuple[Segment, ...], q: tuple[Segment, ...], i: int, j: int, budget: Budget
) -> list[tuple[int, int]]:
    found = []
    if i < len(p) and p[i] is None:
        found.append((i + 1, j))
    if j < len(q) and q[j] is None:
        found.append((i, j + 1))
    if i < len(p) and j < len(q) and _both_read(p[i], q[j], budget):
        found.append((i + (p[i] is not None), j + (q[j] is not None)))
    return found


def _both_read(one: Segment, other: Segment, budget: Budget) -> bool:
    """Whether there is a name that fits both segments."""
    if one is None or other is None:
        budget.spend(1)
        return True
    if isinstance(other, str):
        one, other = other, one
    if isinstance(other, str):
        budget.spend(1)
        return one == other
    tokens = one if isinstance(one, str) else one.tokens
    size = len(tokens) if isinstance(one, str) else one.weight + len(tokens)
    budget.spend((size + 1) * other.weight)
    return _reads(tokens, other)


def _reads(tokens: str | tuple[Token, ...], other: Wild) -> bool:
    """Bit n of `at`: the characters so far may have led `other` before its token n."""
    at = 1 | (other.stars & 1) << 1
    for token in tokens:
        if token is None:
            at = (other.end << 1) - (at & -at)  # from the first of them, anywhere further
        else:
            at = at & other.stars | (at & other.reading(token)) << 1
            at |= (at & other.stars) << 1  # no two stars follow each other
        if not at:
            return False
    return bool(at & other.end)


def _meet(one: Ranges, other: Ranges) -> bool:
    return any(low <= top and bottom <= high for low, high in one for bottom, top in other)


# --- reading a pattern ----------------------------------------------------------------------------


def _segment(name: str, text: str) -> Segment:
    if name == "**":
        return None
    if _SPECIAL.isdisjoint(name):
        return name
    tokens: list[Token] = []
    at = 0
    while at < len(name):
        token, at = _token(name, at, text)
        if token is not None or not tokens or tokens[-1] is not None:
            tokens.append(token)
    letters = [token for token in tokens if isinstance(token, str)]
    return "".join(letters) if len(letters) == len(tokens) else Wild(tuple(tokens))


def _token(name: str, at: int, text: str) -> tuple[Token, int]:
    char = name[at]
    if char == "*":
        return None, at + 1
    if char == "?":
        return ANY, at + 1
    if char == "[":
        return _set(name, at + 1, text)
    if char == "\\":
        if at + 1 == len(name):
            raise InvalidPattern(f"{shown(text)} ends a name with a backslash")
        return name[at + 1], at + 2
    return char, at + 1


def _set(name: str, at: int, text: str) -> tuple[Token, int]:
    """What stands behind `[`, up to `]`, which is one of the set if it comes first."""
    inverse = name.startswith(("!", "^"), at)
    at += inverse
    found: list[tuple[int, int]] = []
    while not (found and name[at : at + 1] == "]"):
        low, at = _member(name, at, text)
        high = low
        if name[at : at + 1] == "-" and name[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(name, at + 1, text)
        if high < low:
            raise InvalidPattern(f"{shown(text)} has a range that ends before it begins")
        found.append((low, high))
    ranges = _inverted(found) if inverse else tuple(found)
    if not _meet(ranges, ANY):
        raise InvalidPattern(f"{shown(text)} has a set that no character is in")
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return chr(ranges[0][0]), at + 1
    return ranges, at + 1


def _member(name: str, at: int, text: str) -> tuple[int, int]:
    at += name[at : at + 1] == "\\"
    if at >= len(name):
        raise InvalidPattern(f"{shown(text)} has a [ without its ]")
    return ord(name[at]), at + 1


def _inverted(ranges: list[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    start = 1
    for low, high in sorted([*ranges, (47, 47)]):
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    return (*found, (start, _LAST)) if start <= _LAST else tuple(found)


def _check_size(text: str, segments: tuple[Segment, ...]) -> None:
    wild = [segment for segment in segments if not isinstance(segment, str)]
    most = WILD_SEGMENTS if wild else SEGMENTS
    if len(segments) > most:
        raise PatternTooComplex(f"{shown(text)} has more than {most} segments")
    if wild and len(text) > WILD_CHARACTERS:
        raise PatternTooComplex(
            f"{shown(text)} has wildcards and more than {WILD_CHARACTERS} characters"
        )
    if sum(_wildcards(segment) for segment in wild) > WILDCARDS:
        raise PatternTooComplex(f"{shown(text)} has more than {WILDCARDS} wildcards")


def _wildcards(segment: Segment) -> int:
    if isinstance(segment, Wild):
        return sum(not isinstance(token, str) for token in segment.tokens)
    return 1


# --- what is literal in it ------------------------------------------------------------------------


def _head(segments: tuple[Segment, ...]) -> str:
    """What every path begins with.  `**` may be nothing, and then there is no slash before it."""
    names: list[str] = []
    for segment in segments:
        if isinstance(segment, str):
            names.append(segment)
            continue
        if isinstance(segment, Wild):
            names.append(_letters(segment.tokens))
        break
    return "/".join(names)


def _tail(segments: tuple[Segment, ...]) -> str:
    """What every path ends with."""
    names: list[str] = []
    for segment in reversed(segments):
        if isinstance(segment, str):
            names.append(segment)
            continue
        if isinstance(segment, Wild):
            names.append(_letters(segment.tokens[::-1])[::-1])
        break
    return "/".join(reversed(names))


def _letters(tokens: tuple[Token, ...]) -> str:
    """The characters before the first wildcard."""
    found = ""
    for token in tokens:
        if not isinstance(token, str):
            break
        found += token
    return found
