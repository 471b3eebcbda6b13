"""What a server says, as errors that a person can act on.

A server that cannot be reached has many sentences and no code: they are told as they are, in one
line.  What is not known here is raised as Python's own kind of such errors, and counts as our bug.
"""

import sqlite3

from icd.errors import (
    DeadlineExceeded,
    DiskFull,
    IcError,
    Locked,
    Overloaded,
    PermissionRefused,
    StoreUnfit,
    StoreUnreachable,
)

_BY_STATE: dict[str, tuple[type[IcError], str]] = {
    "57014": (DeadlineExceeded, "the deadline passed; nothing was changed"),
    "55P03": (Locked, "another host holds the project's turn on the server"),
    "40001": (Locked, "another host wrote at the same time; nothing was changed"),
    "40P01": (Locked, "another host wrote at the same time; nothing was changed"),
    "25006": (StoreUnfit, "the server is a standby, which takes no writes"),
    "42501": (PermissionRefused, "the server refuses this role"),
    "53100": (DiskFull, "the server's disk is full"),
    "53200": (Overloaded, "the server has too little memory"),
    "54000": (Overloaded, "a statement is too large for the server"),
    # It ends the connection, too; but what has begun is certainly undone.
    "25P03": (DeadlineExceeded, "the turn was silent for too long; nothing was changed"),
}
# Of the first two characters: a connection, the operator or the resources of the server.
_UNREACHABLE = {"08", "57", "53", "58", "3D", "28"}
# What the server says to these adds nothing.
_TOLD = (DeadlineExceeded, Locked)
_GRANT = "ask the administrator of the server for the rights"


def named(state: str, message: str) -> Exception:
    """The error for a SQLSTATE and what the server says to it."""
    sentence = one_line(message)
    found = _BY_STATE.get(state)
    if found is not None:
        kind, about = found
        hint = _GRANT if kind is PermissionRefused else None
        told = about if kind in _TOLD else f"{about}: {sentence}"
        return kind(told, hint=hint)
    if state[:2] in _UNREACHABLE:
        return StoreUnreachable(f"the store does not answer: {sentence}")
    if state[:2] == "23":
        return sqlite3.IntegrityError(sentence)
    return sqlite3.ProgrammingError(f"{state} {sentence}")


def lost(message: str) -> IcError:
    """A connection that cannot be made, or is gone."""
    return StoreUnreachable(f"the store does not answer: {one_line(message)}")


def one_line(message: str) -> str:
    return " ".join(message.split())
