"""Whether a payload is harmless beyond doubt, told without looking at its values one by one.

A megabyte of short values takes a careful reader most of a second, and everybody else waits
meanwhile.  Most payloads are harmless, and that can be seen in a few passes over the text.  "No"
means no more than that somebody has to read it with care, see icd/core/payloads.py.
"""

import re

import msgspec

from icd.core import secrets

CHARACTER_BYTES = 4  # the most that UTF-8 needs
_IS_JSON = msgspec.json.Decoder(msgspec.Raw)  # it reads all, and keeps nothing
# No valid text holds it, so it marks where an escaped character stood.
_ESCAPED = "\0\0"
_STRUCTURE = b"[]{},"
_OTHERS = bytes(set(range(256)) - set(_STRUCTURE))
_GONE = b"0"  # so that what holds it does not look empty before its turn
_INNERMOST = re.compile(rb"[\[{],*[\]}]")


class Limits(msgspec.Struct, frozen=True):
    depth: int
    elements: int
    key_characters: int
    string_bytes: int


def is_harmless(text: str, limits: Limits) -> bool:
    """Whether it is JSON within the limits, without likely secrets and control characters."""
    try:
        _IS_JSON.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    plain = text.replace("\\\\", _ESCAPED).replace('\\"', _ESCAPED) if "\\" in text else text
    if "\\u" in plain:  # it may stand for anything
        return False
    pieces = plain.split('"')  # every second one is a string
    return (
        _are_short(pieces, limits)
        and not any(map(_may_be_secret, secrets.suspects(plain)))
        and _is_shallow("".join(pieces[::2]), limits)
    )


def _are_short(pieces: list[str], limits: Limits) -> bool:
    keys, values = limits.key_characters, limits.string_bytes // CHARACTER_BYTES
    if max(map(len, pieces)) <= min(keys, values):
        return True
    for string, after in zip(pieces[1::2], pieces[2::2], strict=True):
        if after.lstrip()[:1] == ":":
            most = keys
        else:
            most = limits.string_bytes if string.isascii() else values
        if len(string) > most:
            return False
    return True


def _may_be_secret(suspect: str) -> bool:
    is_as_written = "\\" not in suspect and "\0" not in suspect and '"' not in suspect
    return not is_as_written or secrets.looks_like(suspect) is not None


def _is_shallow(structure: str, limits: Limits) -> bool:
    """Take the innermost containers away, one level after the other, until nothing is left."""
    left = structure.encode().translate(None, _OTHERS)
    too_long = b"[" + b"," * limits.elements
    for _ in range(limits.depth):
        if too_long in left:
            return False
        left = left.replace(b"[]", _GONE).replace(b"{}", _GONE)  # many are empty by now
        left = _INNERMOST.sub(b"", left).replace(_GONE, b"")
        if not left:
            return True
    return False
