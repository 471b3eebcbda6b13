"""Weights by name: a JSON object of finite numbers, stored as it was written.

To count with, they are integers, in millionths like scores: sums of them depend on no order.
"""

import re
import unicodedata

import msgspec

from icd.errors import InvalidWeights
from icd.features.discoveries.tiers import ONE
from icd.values import payloads
from icd.values.validation import shown

# More than a person maintains by hand; the time that a ranking takes grows with it.
MAX_WEIGHTS = 1000
# Beside it no score counts any more; sums of all weights stay exact as a float, too.
MAX_WEIGHT = 1_000_000

# With what follows a letter in the names of some languages: C++, C#.
_WORD = re.compile(r"\w+[+#]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BREAKS = str.maketrans("\r\n", "  ")

_decoder = msgspec.json.Decoder(dict[str, float])


def check(raw: bytes) -> str:
    """The same text in one line, if it is an object of weights."""
    text = payloads.check(raw)
    for name in _decoded(text):
        if not name or _CONTROL.search(name):  # they are shown between tabs
            raise InvalidWeights(f"the name {shown(name)} is empty or has control characters")
    return text.translate(_BREAKS)  # white space: inside a string they would be escaped


def check_keywords(raw: bytes) -> str:
    """The same, if each name has a word that can be found."""
    text = check(raw)
    for keyword in _decoded(text):
        if not words(keyword):
            raise InvalidWeights(f"the keyword {shown(keyword)} has no letter or digit")
    return text


def parse(text: str) -> dict[str, int]:
    """In millionths; `text` was checked when it was stored."""
    return {name: round(weight * ONE) for name, weight in _decoded(text).items()}


def words(text: str) -> list[str]:
    """As they are compared: whatever their case, and whatever stands between them."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _decoded(text: str) -> dict[str, float]:
    try:
        found = _decoder.decode(text)
    except msgspec.DecodeError as exc:  # of the wrong type, or too large for a float
        raise InvalidWeights(f"no object of numbers: {exc}") from exc
    if len(found) > MAX_WEIGHTS:
        raise InvalidWeights(f"{len(found)} weights are too many; {MAX_WEIGHTS} are allowed")
    for name, weight in found.items():
        if abs(weight) > MAX_WEIGHT:
            raise InvalidWeights(
                f"the weight {weight:g} of {shown(name)} is not between {-MAX_WEIGHT} "
                f"and {MAX_WEIGHT}"
            )
    return found
