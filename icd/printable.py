r"""What may be printed: no character that comes from data commands a terminal or forges a line.

ESC and the other control characters, DEL, the C1 controls and the characters that turn the
direction of text are spelled out as `\u001b`.  That is the same value inside a JSON string, so
one rule serves text and JSON alike; everything else keeps its bytes.
"""

import re

_UNSAFE = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
    rb"|\xc2[\x80-\x9f]"  # U+0080 to U+009F
    rb"|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]"  # U+202A to U+202E, U+2066 to U+2069
)
_STYLES = re.compile(rb"(\x1b\[[0-9]{1,2}m)")
# All bytes with which none of these begins: what consists of them needs no closer look.
SAFE = bytes(b for b in range(256) if b not in (0xC2, 0xE2) and not _UNSAFE.match(bytes([b])))
_BREAKS = {"\t": r"\u0009", "\n": r"\u000a", "\r": r"\u000d"}
LINE_BREAKS = str.maketrans({char: _BREAKS[char] for char in "\n\r"})
_FIELD_BREAKS = str.maketrans(_BREAKS)


def printable(data: bytes) -> bytes:
    """UTF-8 text, or JSON, of any number of lines."""
    if not data.translate(None, SAFE):
        return data
    return _UNSAFE.sub(lambda found: rb"\u%04x" % ord(found[0].decode()), data)


def styled(data: bytes) -> bytes:
    """The same, for text that has colours, and no other sequence that commands a terminal."""
    if not _UNSAFE.search(_STYLES.sub(b"", data)):
        return data
    parts = enumerate(_STYLES.split(data))
    return b"".join(part if number % 2 else printable(part) for number, part in parts)


def line(text: str) -> str:
    """Without a line break, so that no data looks like a line of its own."""
    return text.translate(LINE_BREAKS)


def field(text: str) -> str:
    """Without a tab as well, for one of several columns."""
    return text.translate(_FIELD_BREAKS)


def escaped(text: str) -> str:
    """With nothing but what shows: a stranger's words for one line of a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def encoded(text: str) -> bytes:
    """As UTF-8; paths and variables may hold any bytes, and those that are no text are spelled out.

    What comes from the caller's world is stored, printed and sent like that.
    """
    return text.encode("utf-8", "backslashreplace")


def spelled(text: str) -> str:
    """The same as text."""
    return encoded(text).decode()
