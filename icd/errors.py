"""Every way a call can fail, and what a caller can do about it.

One class per fact a caller can act on.  Each carries its wire code, the string name that is the
contract of the JSON-RPC API, the exit status of `icctl`, a sentence, and a hint.  Nothing above
this module invents error texts for these facts; the dispatcher maps them once.

Exit statuses: 1 an expected "no", 2 an error, 3 a mistake in how we were called.
"""

import errno
import sqlite3
from typing import Any, ClassVar


class IcError(Exception):
    """A fact worth telling the caller."""

    code: ClassVar[int] = -32000
    name: ClassVar[str] = "error"
    exit: ClassVar[int] = 2
    hint: str = ""
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if hint is not None:
            self.hint = hint

    @property
    def data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "exit": self.exit,
            "hint": self.hint,
            "retryable": self.retryable,
        }


# --- the JSON-RPC 2.0 specification's own codes ---------------------------------------------


class ParseError(IcError):
    code, name, exit = -32700, "parse_error", 3
    hint = "send one JSON-RPC 2.0 object or array per line, as UTF-8"


class InvalidRequest(IcError):
    code, name, exit = -32600, "invalid_request", 3
    hint = "see docs/protocol.md"


class MethodNotFound(IcError):
    code, name, exit = -32601, "method_not_found", 3
    hint = "call rpc.discover for the list of methods"


class InvalidParams(IcError):
    code, name, exit = -32602, "invalid_params", 3
    hint = "call rpc.discover for the parameters of this method"


class Internal(IcError):
    code, name = -32603, "internal"
    hint = "this is a bug in intercore; please report it with the log entry of that reference"


# --- how we were called ---------------------------------------------------------------------


class Usage(IcError):
    code, name, exit = -32001, "usage", 3


class InvalidName(IcError):
    code, name = -32002, "invalid_name"


class RequestMismatch(IcError):
    code, name = -32003, "request_id_mismatch"
    hint = "use a fresh random request_id for every new call"


class NoCommonProtocol(IcError):
    """Nothing was executed."""

    code, name = -32004, "no_common_protocol"
    hint = (
        "upgrade the older of the two; "
        "'icctl service reload' brings the daemon to what is installed"
    )


class ClientTooOld(IcError):
    code, name = -32005, "client_too_old"
    hint = "upgrade icctl; from the bash library, use its functions"


# --- payloads -------------------------------------------------------------------------------


class InvalidPayload(IcError):
    code, name = -32010, "invalid_payload"
    hint = "send one JSON value"


class PayloadTooLarge(InvalidPayload):
    code, name = -32011, "payload_too_large"
    hint = "store a path or a digest instead of the content"


class SecretRefused(InvalidPayload):
    code, name = -32012, "secret_refused"
    hint = "store the name of the variable that holds it, not the value"


class NotAnInteger(IcError):
    code, name = -32013, "not_an_integer"
    hint = "delete the row, or count under another key"


class VersionConflict(IcError):
    code, name, exit = -32014, "version_conflict", 1
    hint = "read the row again and decide anew"


class UnreadableInput(IcError):
    code, name = -32015, "unreadable_input"
    hint = "check that the file exists and that you may read it"


class InvalidTtl(IcError):
    code, name = -32016, "invalid_ttl"
    hint = "use 1s or more, or leave it out to keep the row for ever"


class CursorBehind(IcError):
    """What comes next was pruned; `oldest` is the first event that is still there."""

    code, name = -32017, "cursor_behind"

    def __init__(self, message: str, *, oldest: int, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.oldest = oldest

    @property
    def data(self) -> dict[str, Any]:
        return super().data | {"oldest": self.oldest}


class NoSuchEvent(IcError):
    code, name = -32018, "no_such_event"
    hint = "give the seq of an event that was shown to you"


class CursorAhead(IcError):
    """The log has never been that long: it is another one by now."""

    code, name = -32047, "cursor_ahead"
    hint = "the database was replaced, such as by a restore; start from the sequence that it is at"


class TooManyRows(IcError):
    code, name = -32019, "too_many_rows"
    hint = "watch one scope"


# --- finding and opening a database ---------------------------------------------------------


class NoDatabase(IcError):
    code, name = -32020, "no_database"
    hint = "run 'icctl init' in the project's directory to create it"


class BadPath(IcError):
    code, name = -32021, "bad_path"
    hint = "name a .db file inside the project, or inside a .clavain directory"


class SymlinkRefused(BadPath):
    code, name = -32022, "symlink_refused"
    hint = "replace the symbolic link by a real directory or file"


class SchemaTooNew(IcError):
    code, name = -32023, "schema_too_new"
    hint = "upgrade intercore; this version leaves the database untouched"


class NotOurs(IcError):
    code, name = -32024, "not_an_intercore_database"
    hint = "point --db or INTERCORE_DB at an intercore database, or move this file away"


class Corrupt(IcError):
    code, name = -32025, "corrupt"
    hint = (
        "run 'icctl db check' to see the damage, and 'icctl restore FILE' to restore a backup; "
        "backups lie beside the database and are named after it"
    )


class DiskFull(IcError):
    code, name = -32026, "disk_full"
    hint = "free some space and try again; nothing was changed"


class PermissionRefused(IcError):
    code, name = -32027, "permission_denied"
    hint = "check owner and mode of the database, its directory and its lock file"


class InputOutput(IcError):
    code, name = -32028, "io_error"
    hint = "check the disk and the system log, then run 'icctl db check'"


class Unhealthy(IcError):
    code, name = -32029, "unhealthy"


class Misconfigured(IcError):
    code, name = -32030, "misconfigured"
    hint = "correct the file, then try again"


class UntrustedDatabase(IcError):
    """Its schema is not what our migrations make, or files beside it are not ours."""

    code, name = -32032, "untrusted_database"
    hint = (
        "nothing was changed; if the file came with the project, move it away and run "
        "'icctl init'; if the change is yours, undo it with sqlite3, or restore a backup with "
        "'icctl restore FILE'"
    )


class LogLost(IcError):
    """Files of the database were removed or changed while it was in use: writes may be lost."""

    code, name = -32038, "log_lost"
    hint = (
        "this is told once; run 'icctl db check', and restore a backup with 'icctl restore FILE' "
        "if something is missing; what was kept lies beside the database"
    )


class TooFewDescriptors(IcError):
    code, name, retryable = -32031, "too_few_descriptors", True
    hint = "close what is not needed, or raise the limit with 'ulimit -n'; nothing was changed"


class Untrusted(IcError):
    """What a project says or ships would have effects that the user has not accepted."""

    code, name = -32033, "untrusted"
    hint = "look at what it would do with 'icctl trust --dry-run', and accept it with 'icctl trust'"


class DamagedRow(IcError):
    """A row that intercore would not have written; the rest of the database can be used."""

    code, name = -32035, "damaged_row"
    hint = (
        "run 'icctl db check' for all such rows; then restore a backup with 'icctl restore FILE', "
        "or delete the rows with sqlite3"
    )


class OtherOwner(IcError):
    """Root's daemon does not serve it; root's client acts as the owner, if it can."""

    code, name = -32036, "other_owner"
    hint = "run icctl as that user, or use a daemon of that user"


class ReplyTooLarge(IcError):
    """What was asked for is there; it is too much to be answered at once."""

    code, name = -32034, "reply_too_large"
    hint = "ask for less at once, such as with --limit, or for one row by its name"


# --- time, contention and the daemon --------------------------------------------------------


class Locked(IcError):
    code, name, retryable = -32040, "locked", True
    hint = "try again, or give more time with --timeout"


class DeadlineExceeded(IcError):
    """Nothing was executed, or what was begun was rolled back."""

    code, name, retryable = -32041, "deadline_exceeded", True
    hint = "try again, or give more time with --timeout"


class UnknownOutcome(IcError):
    """The call was sent, or started, and nobody can say how it ended."""

    code, name = -32042, "unknown_outcome"
    hint = "ask again: read the state before you repeat a write"


class Overloaded(IcError):
    code, name, retryable = -32043, "overloaded", True
    hint = "try again in a moment"


class ReloadRefused(IcError):
    """Everything is as it was."""

    code, name = -32046, "reload_refused"
    hint = "the daemon goes on as it is; see its log, or stop and start it"


class SlowConsumer(IcError):
    """`seq`: the last event that was sent; what comes after it is in the log."""

    code, name = -32048, "slow_consumer"
    hint = "watch again, from where you were"

    def __init__(self, message: str, *, seq: int | None = None) -> None:
        super().__init__(message)
        self.seq = seq

    @property
    def data(self) -> dict[str, Any]:
        return super().data | ({} if self.seq is None else {"seq": self.seq})


class NoDaemon(IcError):
    code, name, exit = -32044, "no_daemon", 1
    hint = "start it with: icd serve"


# --- the service ----------------------------------------------------------------------------


class NoSystemd(IcError):
    code, name = -32050, "no_systemd"
    hint = "run 'icd serve' in the foreground, or start it with what you have; see docs/service.md"


class ForeignUnit(IcError):
    code, name = -32051, "foreign_unit"
    hint = "move it away, or overwrite it with --force"


class ForegroundDaemon(IcError):
    code, name = -32052, "foreground_daemon"
    hint = "stop it, then try again"


class ServiceFailed(IcError):
    code, name = -32053, "service_failed"
    hint = "see 'icctl service status' and 'icctl service logs'"


# --- hooks ----------------------------------------------------------------------------------


class NoHook(IcError):
    code, name, exit = -32070, "no_hook", 1
    hint = "see 'icctl hooks list'"


class HookRefused(IcError):
    code, name = -32071, "hook_refused"
    hint = "only a file that nobody but you can change can be trusted"


# --- what SQLite and the operating system say -----------------------------------------------

_SQLITE: dict[int, tuple[type[IcError], str]] = {
    sqlite3.SQLITE_FULL: (DiskFull, "disk full, cannot write to the database"),
    sqlite3.SQLITE_CORRUPT: (Corrupt, "the database file is damaged"),
    sqlite3.SQLITE_NOTADB: (Corrupt, "the file is not a SQLite database"),
    sqlite3.SQLITE_BUSY: (Locked, "another program that does not use intercore holds the database"),
    sqlite3.SQLITE_LOCKED: (Locked, "the database is locked"),
    sqlite3.SQLITE_READONLY: (PermissionRefused, "the database is read-only"),
    sqlite3.SQLITE_PERM: (PermissionRefused, "the database may not be accessed"),
    sqlite3.SQLITE_CANTOPEN: (PermissionRefused, "the database cannot be opened"),
    sqlite3.SQLITE_IOERR: (InputOutput, "the disk reported an error"),
    # Only a clock stops a statement; see icd/db/bounds.py.
    sqlite3.SQLITE_INTERRUPT: (DeadlineExceeded, "the deadline passed; nothing was changed"),
    sqlite3.SQLITE_TOOBIG: (ReplyTooLarge, "a value in the database is too long to be read"),
    # The index of the log is made before anything is written, and needs room like anything else.
    sqlite3.SQLITE_IOERR_SHMSIZE: (DiskFull, "disk full, cannot make room for the database's log"),
}


def from_sqlite(exc: sqlite3.Error) -> IcError | None:
    """Name a SQLite error that a person can act on; None means it is our bug."""
    code = getattr(exc, "sqlite_errorcode", 0)
    found = _SQLITE.get(code) or _SQLITE.get(code & 0xFF)
    if found is None:
        return None
    kind, sentence = found
    return kind(sentence)


def from_os(exc: OSError, what: str) -> IcError:
    """Name an operating system error met while doing `what` to the database's files."""
    sentence = f"cannot {what}: {exc.strerror or exc}"
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionRefused(sentence)
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(sentence)
    if exc.errno in (errno.EMFILE, errno.ENFILE):
        return TooFewDescriptors(sentence)
    return InputOutput(sentence)


def every() -> list[type[IcError]]:
    """All error classes, for the documentation and its test."""
    found: list[type[IcError]] = []
    queue = [IcError]
    while queue:
        children = queue.pop().__subclasses__()
        found += children
        queue += children
    return sorted(found, key=lambda kind: kind.code)
