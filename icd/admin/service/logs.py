"""Lines of the journal, made readable: ours are JSON inside JSON, and systemd adds its own.

Text is for a terminal, so whatever could command one is spelled out.
"""

import time
from typing import Any

import msgspec

# The levels of syslog, from 0; ours has five names for them.
_LEVELS = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")


class _Line(msgspec.Struct):
    """What we read of an entry; a message that is not text comes as bytes, a huge one as null."""

    message: str | list[int] | None = msgspec.field(default=None, name="MESSAGE")
    moment: str = msgspec.field(default="0", name="__REALTIME_TIMESTAMP")
    priority: str = msgspec.field(default="6", name="PRIORITY")
    source: str = msgspec.field(default="", name="SYSLOG_IDENTIFIER")


def as_text(line: str) -> str | None:
    """`time level message name=value…`, and a traceback below it; None: not an entry."""
    found = _decoded(line)
    if found is None:
        return None
    entry, facts = found
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(int(entry.moment) / 1_000_000))
    said = {name: value for name, value in facts.items() if name not in {"time", "level", "msg"}}
    traceback = str(said.pop("traceback", ""))
    words = [clock, facts["level"], facts["msg"], *(f"{n}={_word(v)}" for n, v in said.items())]
    lines = [" ".join(map(str, words)), *(f"    {text}" for text in traceback.splitlines())]
    return "\n".join(map(_harmless, lines))


def as_json(line: str) -> str | None:
    """The daemon's own line as it is; those of others in the same shape."""
    found = _decoded(line)
    return None if found is None else msgspec.json.encode(found[1]).decode()


def _decoded(line: str) -> tuple[_Line, dict[str, Any]] | None:
    try:
        entry = msgspec.json.decode(line.encode("utf-8", "replace"), type=_Line)
    except (msgspec.DecodeError, RecursionError):
        return None
    message = entry.message
    text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else message or ""
    try:
        facts = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        facts = None
    if not (isinstance(facts, dict) and facts.keys() >= {"level", "msg"}):
        moment = time.gmtime(int(entry.moment) / 1_000_000)
        facts = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", moment),
            "level": _LEVELS[min(int(entry.priority), 7)],
            "msg": text,
            "source": entry.source,
        }
    return entry, facts


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _harmless(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
