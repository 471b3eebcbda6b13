"""The event that an agent sends to its hook: JSON on stdin, in one of four dialects.

Nothing in it is trusted.  What is not JSON, is too long, or is of another kind than expected, is
as if it were not there; what names a scope is plain, or hashed.  icctl/event.c reads the same, and
a test holds both to it.
"""

import hashlib
import json
import os
import re
from typing import Any

from msgspec import Struct

EVENT_BYTES = 8 * 1024 * 1024  # what an agent writes into one file at a time is far smaller
FIELD_BYTES = 64 * 1024  # so that all of them fit into an environment
DEPTH = 256  # of brackets; the events of today have five
HASH_DIGITS = 32
NOBODY = "none"  # the scope of all events that name no session, or no file

_PLAIN = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_FILES = ("file_path", "path", "notebook_path")
_CURSOR = {"conversation_id", "workspace_roots", "cursor_version"}


class Event(Struct):
    """What hooks want to know; empty: the event does not tell."""

    session: str = ""
    cwd: str = ""
    event: str = ""
    tool: str = ""
    file: str = ""
    agent: str = ""  # claude, codex, gemini, cursor
    stop_active: bool = False

    def environment(self) -> dict[str, str]:
        return {
            "INTERCORE_SESSION": self.session,
            "INTERCORE_EVENT": self.event,
            "INTERCORE_TOOL": self.tool,
            "INTERCORE_FILE": self.file,
            "INTERCORE_CWD": self.cwd,
            "INTERCORE_AGENT": self.agent,
            "INTERCORE_STOP_ACTIVE": "true" if self.stop_active else "",
        }


def read(data: bytes) -> Event | None:
    """The event; None if this is none."""
    try:
        found = json.loads(data.decode(), parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return _event(found) if isinstance(found, dict) and _fits(found, DEPTH) else None


def _refuse(word: str) -> None:
    raise ValueError(word)  # NaN and its like are Python's own


def _fits(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    within = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_fits(each, depth - 1) for each in within)


def _event(found: dict[str, Any]) -> Event:
    given = found.get("tool_input")
    of_tool = given if isinstance(given, dict) else {}
    roots = found.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots else ""
    files = [_text(of_tool.get(name)) for name in _FILES]
    return Event(
        session=_text(found.get("session_id")) or _text(found.get("conversation_id")),
        cwd=_text(found.get("cwd")) or _text(root),
        event=_text(found.get("hook_event_name")),
        tool=_text(found.get("tool_name")),
        file=next(filter(None, files), "") or _text(found.get("file_path")),
        agent=_agent(found),
        stop_active=found.get("stop_hook_active") is True,
    )


def _text(value: object) -> str:
    """A string that an environment can hold."""
    if not isinstance(value, str) or "\0" in value:
        return ""
    try:
        return value if len(value.encode()) <= FIELD_BYTES else ""
    except UnicodeEncodeError:  # half of a surrogate pair
        return ""


def _agent(found: dict[str, Any]) -> str:
    """Who sends such events; see docs/agent-hooks.md for the fields of each."""
    if not _CURSOR.isdisjoint(found):
        return "cursor"
    if "timestamp" in found:
        return "gemini"
    transcript = found.get("transcript_path", "")
    if "turn_id" in found or transcript is None or "/rollout-" in _text(transcript):
        return "codex"
    return "claude" if _text(found.get("hook_event_name")) else ""


# --- names and scopes -----------------------------------------------------------------------------


def is_plain(word: str) -> bool:
    return _PLAIN.fullmatch(word) is not None


def hashed(*words: str, digits: int = HASH_DIGITS) -> str:
    text = "\0".join(words).encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:digits]


def session_scope(event: Event) -> str:
    if not event.session:
        return NOBODY
    return event.session if is_plain(event.session) else f"s-{hashed(event.session)}"


def file_scope(event: Event) -> str:
    path = os.path.join(event.cwd, event.file)
    return f"f-{hashed(path)}" if event.file else NOBODY


def command_name(command: tuple[str, ...]) -> str:
    """A name for a command that tells it from others of the same program."""
    program = os.fsencode(command[0]).rpartition(b"/")[2].decode("latin-1")
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", program)[:40]
    return f"{plain}-{hashed(*command, digits=8)}"
