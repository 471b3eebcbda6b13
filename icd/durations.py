"""Durations as people type them.  No float touches time.

This module imports nothing: the client reads --timeout with it, and hooks pay for every import.
"""

from __future__ import annotations

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
_NUMBER = "0123456789."
_UNIT = "nuµμmshd"
_DIGITS = 18  # of a number before and behind the point


def milliseconds(text: str) -> int | None:
    """A Go duration such as 1h30m or 250ms (and days, `d`), rounded up; None if it is not one."""
    rest = _unsigned(text)
    if rest in ("", "0"):
        return 0 if rest else None
    total_ns = 0
    while rest:
        number, rest = _split(rest, _NUMBER)
        name, rest = _split(rest, _UNIT)
        whole, _, fraction = number.partition(".")
        if name not in _UNITS_NS or "." in fraction or not whole + fraction:
            return None
        if len(whole) > _DIGITS or len(fraction) > _DIGITS:
            return None
        unit = _UNITS_NS[name]
        total_ns += int(whole or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
    found = -(-total_ns // 1_000_000)
    return -found if text[0] == "-" else found


def duration_ms(text: str) -> int | None:
    """A duration, or a number of seconds: both are written in scripts.  None if it is neither."""
    number = _unsigned(text)
    is_number = number.isascii() and number.isdecimal() and len(number) <= 12
    return milliseconds(f"{text}s" if is_number else text)


def _unsigned(text: str) -> str:
    return text[1:] if text[:1] in ("-", "+") else text


def _split(text: str, characters: str) -> tuple[str, str]:
    """The part at the start that has only these characters, and the rest."""
    rest = text.lstrip(characters)
    return text[: len(text) - len(rest)], rest
