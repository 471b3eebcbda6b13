"""What a check says: a sentence, how bad it is, and what to do."""

from typing import Literal

from msgspec import Struct

from icd.errors import (
    Corrupt,
    DiskFull,
    IcError,
    NoDatabase,
    NotOurs,
    PermissionRefused,
    SchemaTooNew,
    SymlinkRefused,
)

# In rising order; `fixed` is what a repair did.
Severity = Literal["ok", "fixed", "note", "warning", "error"]


class Repair(Struct, frozen=True):
    """Something safe that would help.  `mode` is for chmod only."""

    action: Literal["chmod", "remove", "remove socket", "write gitignore"]
    path: str
    mode: int = 0


class Finding(Struct, frozen=True):
    """`hint` says what to do; an `ok` needs none."""

    check: str
    severity: Severity
    message: str
    hint: str = ""
    repair: Repair | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def note(check: str, message: str, hint: str = "", repair: Repair | None = None) -> Finding:
    return Finding(check, "note", message, hint, repair)


def warning(check: str, message: str, hint: str, repair: Repair | None = None) -> Finding:
    return Finding(check, "warning", message, hint, repair)


def error(check: str, message: str, hint: str, repair: Repair | None = None) -> Finding:
    return Finding(check, "error", message, hint, repair)


# Under which name a person looks for what an error says.
_CHECKS: dict[type[IcError], str] = {
    Corrupt: "integrity",
    DiskFull: "space",
    NoDatabase: "database",
    NotOurs: "schema",
    PermissionRefused: "permissions",
    SchemaTooNew: "schema",
    SymlinkRefused: "symlinks",
}


def from_error(check: str, exc: IcError) -> Finding:
    return error(_CHECKS.get(type(exc), check), exc.message, exc.hint)


FIX = "run 'icctl doctor --fix'"
