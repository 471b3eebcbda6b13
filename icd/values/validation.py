"""Rules for what things may be called, and the names that intercore gives itself.

Names travel in tab-separated lines, so control characters are refused everywhere.
"""

from __future__ import annotations

from icd.errors import InvalidName

KEY_BYTES = 200
ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_CHARACTERS = 8
NAME_BYTES = 4096  # far above any session id; keeps a runaway variable out of the index
PLAIN_CHARACTERS = NAME_BYTES // 4  # whatever they are, they have no more bytes

# What the first word of a key consists of, and what follows its first dot.
_WORD = ID_ALPHABET + "_-"
_KEY = _WORD + ".:"


def check_key(key: str) -> None:
    word, dot, rest = key.partition(".")
    is_fit = "a" <= key[:1] <= "z" and not word.strip(_WORD) and not rest.strip(_KEY)
    if not is_fit or (dot and not rest) or len(key) > KEY_BYTES:
        raise InvalidName(
            f"invalid key {shown(key)}",
            hint=f"use lower-case words joined by dots, such as dispatch.codex, "
            f"at most {KEY_BYTES} bytes",
        )


def check_key_prefix(prefix: str) -> None:
    if len(prefix) > KEY_BYTES or prefix.strip(_KEY):
        raise InvalidName(
            f"invalid key prefix {shown(prefix)}", hint="pass the first letters of a key"
        )


def check_scope(scope_id: str) -> None:
    if not scope_id.isprintable() or len(scope_id) > PLAIN_CHARACTERS:
        _check(scope_id, "scope")


def check_name(name: str) -> None:
    if not name:
        raise InvalidName("the name is empty", hint="is the variable that holds it unset?")
    if not name.isprintable() or len(name) > PLAIN_CHARACTERS:
        _check(name, "name")


def check_owner(owner: str) -> None:
    if not owner:
        raise InvalidName("the owner is empty", hint="is the variable that holds it unset?")
    _check(owner, "owner")


def _check(text: str, what: str) -> None:
    if _has_control(text):
        raise InvalidName(
            f"the {what} {shown(text)} contains control characters",
            hint="remove tabs and newlines from it",
        )
    if len(text.encode()) > NAME_BYTES:
        raise InvalidName(
            f"the {what} is longer than {NAME_BYTES} bytes", hint="use an identifier, not content"
        )


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(char < " " or char == "\x7f" for char in text)


def shown(text: str, limit: int = 60) -> str:
    """Quote a caller's word for a message: one line, not too long."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def new_id(length: int = ID_CHARACTERS) -> str:
    """Short enough to type, and one of too many to be given twice."""
    import secrets  # only what makes something pays for it

    return "".join(secrets.choice(ID_ALPHABET) for _ in range(length))
