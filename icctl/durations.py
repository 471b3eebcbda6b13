"""The value of --timeout; the command's own parser complains if it is wrong."""

UNITS_MS = {"ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7, "us": 1e-3, "ns": 1e-6}


def asked(words: list[str]) -> float | None:
    """The last --timeout of a command line."""
    value = None
    rest = iter(words)
    for word in rest:
        if word == "--timeout":
            value = next(rest, None)
        elif word.startswith("--timeout="):
            value = word[10:]
    return go_duration(value) if value else None


def go_duration(text: str) -> float | None:
    """Milliseconds, or None for what is not a positive duration; a number alone is seconds."""
    if text.isdecimal() and text.isascii():
        text += "s"
    total, number, unit = 0.0, "", ""
    for char in [*text, "0"]:
        if char in "0123456789." and unit:
            if unit not in UNITS_MS or number.count(".") > 1 or number in ("", "."):
                return None
            total += float(number) * UNITS_MS[unit]
            number, unit = "", ""
        if char in "0123456789.":
            number += char
        else:
            unit += char
    return total if total > 0 else None
