"""Text on a screen: its width in cells, where to cut it, and nothing that commands a terminal."""

import re
from unicodedata import category, east_asian_width

ELLIPSIS = "…"
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
# What a terminal obeys, or what hides or turns text: all of `icd.printable`, and more.  A joiner of
# emoji is kept, and only between characters that it can join.
_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# What joins or styles one emoji; a run of them would be no text.
_MARKS = 8


def clean(text: str) -> str:
    """One line with nothing but what shows: breaks become a space, the rest is spelled out."""
    if text.isprintable():
        return text
    text = _BREAKS.sub(" ", text)
    return text if text.isprintable() else _UNSAFE.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def width(text: str) -> int:
    """Cells of clean text."""
    return len(text) if text.isascii() else sum(_widths(text))


def cut(text: str, room: int) -> str:
    """As much of clean text as fits, with `…` where something is missing."""
    if width(text) <= room:
        return text
    if room <= 0:
        return ""
    return text[: _fitting(text, room - 1)].rstrip() + ELLIPSIS


def _fitting(text: str, room: int) -> int:
    """How many characters fit."""
    if text.isascii():
        return room
    taken = end = 0
    for size in _widths(text):
        if taken + size > room:
            break
        taken, end = taken + size, end + 1
    return end


def cut_middle(text: str, room: int) -> str:
    """The same for a path, whose end says most."""
    if width(text) <= room:
        return text
    if room <= 0:
        return ""
    taken, start = 0, len(text)
    sizes = list(_widths(text))
    while start and taken + sizes[start - 1] <= room - 1:
        start -= 1
        taken += sizes[start]
    while start < len(text) and not sizes[start]:  # a mark belongs to the character before it
        start += 1
    return ELLIPSIS + text[start:]


def pad(text: str, room: int) -> str:
    return text + " " * (room - width(text))


def wrapped(text: str, room: int) -> list[str]:
    """Clean text in lines of this width, broken between words where it can be."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if width(longer) <= room:
            line = longer
            continue
        *full, line = _pieces(word, room)
        lines += [longer[: -len(word) - 1], *full] if longer != word else full
    return [*lines, line] if line or not lines else lines


def _pieces(word: str, room: int) -> list[str]:
    """Measured once: a word may be a whole document without a space."""
    found, start, taken = [], 0, 0
    for place, size in enumerate(_widths(word)):
        if taken + size > room and place > start:
            found.append(word[start:place])
            start, taken = place, 0
        taken += size
    return [*found, word[start:]]


def _widths(text: str) -> list[int]:
    """Cells of each character, as terminals draw them: what joins the one before takes none."""
    found: list[int] = []
    joined, before = False, -1  # the place of the last character that takes room
    for place, char in enumerate(text):
        size = _width(char)
        if char == _EMOJI_STYLE and before >= 0 and found[before] == 1:
            found[before] = 2
        elif joined and size == 2:
            size = 0
        elif "\U0001f3fb" <= char <= "\U0001f3ff" and before >= 0 and found[before] == 2:
            size = 0  # the colour of a skin
        joined = char == _JOINER and before >= 0 and place - before < _MARKS
        if size:
            before = place
        found.append(size)
    return found


def _width(char: str) -> int:
    if char < "\u0300":
        return 1
    if category(char) in ("Mn", "Me", "Cf") or "\u1160" <= char <= "\u11ff":
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
