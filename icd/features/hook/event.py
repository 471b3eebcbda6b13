"""The event that an agent sends to its hook: JSON on stdin, in one of four dialects.

It is read once, and kept in a memory file, from which the command reads it again.  Of what is too
long for an event only the beginning is held, and another process passes on all of it.

Nothing in it is trusted.  What is not JSON, is too long, or is of another kind than expected, is
as if it were not there; what names a scope is plain, or hashed.  icctl/event.c reads the same, and
a test holds both to it.
"""

import hashlib
import json
import os
import re
import select
from typing import Any, NoReturn

from msgspec import Struct

EVENT_BYTES = 8 * 1024 * 1024  # what an agent writes into one file at a time is far smaller
FIELD_BYTES = 64 * 1024  # so that all of them fit into an environment
DEPTH = 256  # of brackets; the events of today have five
CHUNK_BYTES = 1 << 16
HASH_DIGITS = 32
NONE = "none"  # the scope of all events that name no session, or no file

_PLAIN = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_FILES = ("file_path", "path", "notebook_path")
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.*)$", re.MULTILINE)
# And what a file of a patch is called afterwards.
_NAMED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.*)$", re.MULTILINE)
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
    others: list[str] = []  # what the tool edits besides

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
        # No number is wanted, and Python refuses to read long ones: any other will do.
        found = json.loads(data.decode(), parse_constant=_refuse, parse_int=len, parse_float=len)
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
    patch = ""
    if found.get("tool_name") == "apply_patch":  # of Codex, whose only tool for edits it is
        patch = _text(of_tool.get("command"), limit=EVENT_BYTES)
        patched = _PATCHED.search(patch)
        files.append(_text(patched[1]) if patched else "")
    file = next(filter(None, files), "") or _text(found.get("file_path"))
    return Event(
        session=_text(found.get("session_id")) or _text(found.get("conversation_id")),
        cwd=_text(found.get("cwd")) or _text(root),
        event=_text(found.get("hook_event_name")),
        tool=_text(found.get("tool_name")),
        file=file,
        agent=_agent(found),
        stop_active=found.get("stop_hook_active") is True,
        others=_others(file, of_tool.get("edits"), patch),
    )


def _others(file: str, edits: object, patch: str) -> list[str]:
    """Each once: a tool may edit several, by a patch or by a list of edits."""
    of_edits = [each for each in edits if isinstance(each, dict)] if isinstance(edits, list) else []
    named = [_text(each.get(name)) for each in of_edits for name in _FILES]
    named += (_text(name) for name in _NAMED.findall(patch))
    return [name for name in dict.fromkeys(named) if name not in ("", file)]


def _text(value: object, limit: int = FIELD_BYTES) -> str:
    """A string that an environment can hold."""
    if not isinstance(value, str) or "\0" in value:
        return ""
    try:
        return value if len(value.encode()) <= limit else ""
    except UnicodeEncodeError:  # half of a surrogate pair
        return ""


def _agent(found: dict[str, Any]) -> str:
    """Who sends such events, by fields that no other agent sends."""
    if not _CURSOR.isdisjoint(found):
        return "cursor"
    if "timestamp" in found:
        return "gemini"
    transcript = _text(found.get("transcript_path"))
    is_unnamed = "transcript_path" in found and found["transcript_path"] is None
    # Some events of Claude Code have a turn, too.
    if is_unnamed or "/rollout-" in transcript or ("turn_id" in found and not transcript):
        return "codex"
    # What Claude Code sends to a status line has no event.
    return "claude" if transcript or _text(found.get("hook_event_name")) else ""


# --- names and scopes -----------------------------------------------------------------------------


def is_plain(word: str) -> bool:
    return _PLAIN.fullmatch(word) is not None


def hashed(*words: str, digits: int = HASH_DIGITS) -> str:
    text = "\0".join(words).encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:digits]


def session_scope(event: Event) -> str:
    if not event.session:
        return NONE
    return event.session if is_plain(event.session) else f"s-{hashed(event.session)}"


def file_scope(event: Event) -> str:
    path = os.path.join(event.cwd, event.file)
    return f"f-{hashed(path)}" if event.file else NONE


def command_name(command: tuple[str, ...]) -> str:
    """A name for a command that tells it from others of the same program."""
    program = os.fsencode(command[0]).rpartition(b"/")[2].decode("latin-1")
    plain = re.sub(r"[^A-Za-z0-9_-]", "-", program)[:40]
    return f"{plain}-{hashed(*command, digits=8)}"


# --- stdin ----------------------------------------------------------------------------------------


def take() -> bytes | None:
    """What is on stdin, which can be read again; None if it is too long to be an event.

    A terminal is not read: no agent sends an event there.
    """
    if os.isatty(0):
        return b""
    data = _read_stdin(EVENT_BYTES + 1)
    if len(data) > EVENT_BYTES:
        _put(_passed_on(data))
        return None
    _put(_kept(data))
    return data


def _kept(data: bytes) -> int:
    try:
        fd = os.memfd_create("intercore-event")
    except OSError:  # a kernel may refuse them
        return _passed_on(data)
    _write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _read_stdin(most: int) -> bytes:
    parts, size = [], 0
    while size < most:
        try:
            part = os.read(0, min(most - size, CHUNK_BYTES))
        except BlockingIOError:  # the writer takes its time
            select.select([0], [], [])
            continue
        except OSError:  # such as a directory: there is no event
            break
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _passed_on(begun: bytes) -> int:
    """Where a process of its own writes what was read, and then the rest."""
    end, start = os.pipe()
    if os.fork() == 0:
        os.close(end)
        _pass_on(begun, start)
    os.close(start)
    return end


def _pass_on(data: bytes, to: int) -> NoReturn:
    wanted = True
    try:
        for fd in (1, 2):  # a reader of ours waits for their end
            os.close(fd)
        while data:  # also what is not wanted: an agent may wait until all of it was read
            try:
                if wanted:
                    _write_all(to, data)
            except OSError:
                wanted = False
            data = os.read(0, CHUNK_BYTES)
    finally:
        os._exit(0)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _put(fd: int) -> None:
    os.dup2(fd, 0)
    os.close(fd)
