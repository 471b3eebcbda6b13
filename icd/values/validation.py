"""Rules for what things may be called, and the names that intercore gives itself.

Names travel in tab-separated lines, so control characters are refused everywhere.
"""

import re

from icd.errors import InvalidName

KEY_BYTES = 200
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_CHARACTERS = 8
NAME_BYTES = 4096  # far above any session id; keeps a runaway variable out of the index

_KEY = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_.:-]+)*")
_KEY_PREFIX = re.compile(r"[a-z0-9_.:-]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_key(key: str) -> None:
    if not key or len(key) > KEY_BYTES or not _KEY.fullmatch(key):
        raise InvalidName(
            f"invalid key {shown(key)}",
            hint=f"use lower-case words joined by dots, such as dispatch.codex, "
            f"at most {KEY_BYTES} bytes",
        )


def check_key_prefix(prefix: str) -> None:
    if len(prefix) > KEY_BYTES or not _KEY_PREFIX.fullmatch(prefix):
        raise InvalidName(
            f"invalid key prefix {shown(prefix)}", hint="pass the first letters of a key"
        )


def check_scope(scope_id: str) -> None:
    if _CONTROL.search(scope_id) or len(scope_id) > NAME_BYTES // 4:  # in bytes, it may be too long
        _check(scope_id, "scope")


def check_name(name: str) -> None:
    if not name:
        raise InvalidName("the name is empty", hint="is the variable that holds it unset?")
    _check(name, "name")


def check_owner(owner: str) -> None:
    if not owner:
        raise InvalidName("the owner is empty", hint="is the variable that holds it unset?")
    _check(owner, "owner")


def _check(text: str, what: str) -> None:
    if _CONTROL.search(text):
        raise InvalidName(
            f"the {what} {shown(text)} contains control characters",
            hint="remove tabs and newlines from it",
        )
    if len(text.encode()) > NAME_BYTES:
        raise InvalidName(
            f"the {what} is longer than {NAME_BYTES} bytes", hint="use an identifier, not content"
        )


def shown(text: str, limit: int = 60) -> str:
    """Quote a caller's word for a message: one line, not too long."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def new_id(length: int = ID_CHARACTERS) -> str:
    """Short enough to type, and one of too many to be given twice."""
    import secrets  # only what makes something pays for it

    return "".join(secrets.choice(ID_ALPHABET) for _ in range(length))
