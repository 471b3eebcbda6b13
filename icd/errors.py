"""Every way a call can fail, and what a caller can do about it, as one table.

One row per fact that a caller can act on: its code on the wire, the name that is the contract of
the JSON-RPC API, the exit status of `icctl`, and a hint.  The code that raises it gives the
sentence, and further facts, which callers get as data.  The dispatcher maps errors once; nothing
else does.
"""

import errno
import sqlite3
from collections.abc import Callable
from typing import Any, ClassVar

# Exit statuses.
DONE = 0
NO = 1  # an expected "no"
FAILED = 2
MISTAKE = 3  # in how we were called


class IcError(Exception):
    """A fact worth telling the caller."""

    code: ClassVar[int] = -32000
    name: ClassVar[str] = "error"
    exit: ClassVar[int] = FAILED
    hint: str = ""
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None = None, **facts: str | int | None) -> None:
        super().__init__(message)
        self.message = message
        self.facts = {name: fact for name, fact in facts.items() if fact is not None}
        if hint is not None:
            self.hint = hint

    @property
    def data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "exit": self.exit,
            "hint": self.hint,
            "retryable": self.retryable,
            **self.facts,
        }


TABLE: list[type[IcError]] = []


def _error(
    code: int,
    name: str,
    exit: int,  # noqa: A002
    hint: str = "",
    *,
    retryable: bool = False,
    base: type[IcError] = IcError,
) -> type[IcError]:
    row = {"code": code, "name": name, "exit": exit, "retryable": retryable, "hint": hint}
    made = type(name, (base,), row)
    TABLE.append(made)
    return made


# fmt: off

# --- the JSON-RPC 2.0 specification's own codes ---------------------------------------------------

ParseError = _error(-32700, "parse_error", MISTAKE,
    "send one JSON-RPC 2.0 object or array per line, as UTF-8")
InvalidRequest = _error(-32600, "invalid_request", MISTAKE, "see docs/protocol.md")
MethodNotFound = _error(-32601, "method_not_found", MISTAKE,
    "call rpc.discover for the list of methods")
InvalidParams = _error(-32602, "invalid_params", MISTAKE,
    "call rpc.discover for the parameters of this method")
Internal = _error(-32603, "internal", FAILED,
    "this is a bug in intercore; please report it with the log entry of this reference")

# --- how we were called ---------------------------------------------------------------------------

Usage = _error(-32001, "usage", MISTAKE)
InvalidName = _error(-32002, "invalid_name", FAILED)
RequestMismatch = _error(-32003, "request_id_mismatch", FAILED,
    "use a fresh random request_id for every new call")
# Nothing was executed.
NoCommonProtocol = _error(-32004, "no_common_protocol", FAILED,
    "upgrade the older of the two; 'icctl service reload' reloads the daemon with the "
    "installed version")
ClientTooOld = _error(-32005, "client_too_old", FAILED,
    "upgrade icctl; in scripts, use the functions of the bash library")

# --- payloads -------------------------------------------------------------------------------------

InvalidPayload = _error(-32010, "invalid_payload", FAILED, "send one JSON value")
PayloadTooLarge = _error(-32011, "payload_too_large", FAILED,
    "store a path or a digest instead of the content", base=InvalidPayload)
SecretRefused = _error(-32012, "secret_refused", FAILED,
    "store the name of the variable that holds it, not the value", base=InvalidPayload)
NotAnInteger = _error(-32013, "not_an_integer", FAILED,
    "delete the row, or count under another key")
VersionConflict = _error(-32014, "version_conflict", NO, "re-read it and retry")
UnreadableInput = _error(-32015, "unreadable_input", FAILED,
    "check that the file exists and that you may read it")
InvalidTtl = _error(-32016, "invalid_ttl", FAILED,
    "use 1s or more, or omit it to keep the row forever")
# What comes next was pruned; `oldest` is the first event that is still there.
CursorBehind = _error(-32017, "cursor_behind", FAILED)
NoSuchEvent = _error(-32018, "no_such_event", FAILED,
    "pass the seq of an event that you have received")
# The log has never been that long: it is another one by now.
CursorAhead = _error(-32047, "cursor_ahead", FAILED,
    "the database was replaced, such as by a restore; start from its last sequence number")
TooManyRows = _error(-32019, "too_many_rows", FAILED, "watch one scope")

# --- finding and opening a database ---------------------------------------------------------------

NoDatabase = _error(-32020, "no_database", FAILED,
    "run 'icctl init' in the project's directory to create it")
BadPath = _error(-32021, "bad_path", FAILED,
    "name a .db file inside the project, or inside a .clavain directory")
SymlinkRefused = _error(-32022, "symlink_refused", FAILED,
    "replace the symbolic link with a real directory or file", base=BadPath)
SchemaTooNew = _error(-32023, "schema_too_new", FAILED,
    "upgrade intercore; this version leaves the database untouched")
NotOurs = _error(-32024, "not_an_intercore_database", FAILED,
    "point --db or INTERCORE_DB at an intercore database, or move this file away")
Corrupt = _error(-32025, "corrupt", FAILED,
    "run 'icctl db check' to see the damage, and 'icctl restore FILE' to restore a backup; "
    "backups are next to the database and named after it")
DiskFull = _error(-32026, "disk_full", FAILED, "free some space and try again; nothing was changed")
PermissionRefused = _error(-32027, "permission_denied", FAILED,
    "check owner and mode of the database, its directory and its lock file")
InputOutput = _error(-32028, "io_error", FAILED,
    "check the disk and the system log, then run 'icctl db check'")
Unhealthy = _error(-32029, "unhealthy", FAILED)
Misconfigured = _error(-32030, "misconfigured", FAILED, "correct the file and retry")
# Its schema is not what our migrations make, or files beside it are not ours.
UntrustedDatabase = _error(-32032, "untrusted_database", FAILED,
    "nothing was changed; if the file came with the project, move it away and run 'icctl init';"
    " if the change is yours, undo it with sqlite3, or restore a backup with 'icctl restore "
    "FILE'")
# Files of the database were removed or changed while it was in use: writes may be lost.
LogLost = _error(-32038, "log_lost", FAILED,
    "this is reported once; run 'icctl db check', and restore a backup with 'icctl restore FILE' if"
    " something is missing; the kept files are next to the database")
TooFewDescriptors = _error(-32031, "too_few_descriptors", FAILED,
    "close unused files, or raise the limit with 'ulimit -n'; nothing was changed",
    retryable=True)
# What a project says or ships would have effects that the user has not accepted.
Untrusted = _error(-32033, "untrusted", FAILED,
    "review it with 'icctl trust --dry-run', then trust it with 'icctl trust'")
# A row that intercore would not have written; the rest of the database can be used.
DamagedRow = _error(-32035, "damaged_row", FAILED,
    "run 'icctl db check' for all such rows; then restore a backup with 'icctl restore FILE', "
    "or delete the rows with sqlite3")
# Root's daemon does not serve it; root's client acts as the owner, if it can.
OtherOwner = _error(-32036, "other_owner", FAILED,
    "run icctl as that user, or use a daemon of that user")
# What was asked for is there; it is too much to be answered at once.
ReplyTooLarge = _error(-32034, "reply_too_large", FAILED,
    "request less at once, such as with --limit, or one row by name")

# --- time, contention and the daemon --------------------------------------------------------------

Locked = _error(-32040, "locked", FAILED,
    "retry, or raise --timeout", retryable=True)
# Nothing was executed, or what was begun was rolled back.
DeadlineExceeded = _error(-32041, "deadline_exceeded", FAILED,
    "retry, or raise --timeout", retryable=True)
# The call was sent, or started, and how it ended is not known.
UnknownOutcome = _error(-32042, "unknown_outcome", FAILED,
    "read the state before you repeat a write")
Overloaded = _error(-32043, "overloaded", FAILED, "retry in a moment", retryable=True)
# What was asked for is so already.
AlreadyRunning = _error(-32045, "already_running", DONE)
# Everything is as it was.
ReloadRefused = _error(-32046, "reload_refused", FAILED,
    "the daemon keeps running the old version; see its log, or restart it")
# `seq`: the last event that was sent; what comes after it is in the log.
SlowConsumer = _error(-32048, "slow_consumer", FAILED,
    "watch again from the last event you received")
NoDaemon = _error(-32044, "no_daemon", NO, "start it with: icd serve")

# --- the service ----------------------------------------------------------------------------------

NoSystemd = _error(-32050, "no_systemd", FAILED,
    "run 'icd serve' in the foreground, or under another supervisor")
ForeignUnit = _error(-32051, "foreign_unit", FAILED, "move it away, or overwrite it with --force")
ForegroundDaemon = _error(-32052, "foreground_daemon", FAILED, "stop it and retry")
ServiceFailed = _error(-32053, "service_failed", FAILED,
    "see 'icctl service status' and 'icctl service logs'")

# --- hooks ----------------------------------------------------------------------------------------

NoHook = _error(-32070, "no_hook", NO, "see 'icctl hooks list'")
HookRefused = _error(-32071, "hook_refused", FAILED,
    "a trusted file must be writable only by you")

# --- runs, gates, dispatches and leases -----------------------------------------------------------

RunNotFound = _error(-32054, "run_not_found", NO, "see 'icctl run list'")
RunOver = _error(-32055, "run_over", NO,
    "an ended run cannot change; 'icctl run create' starts another one")
# `run_id`: who has it.
RunTaken = _error(-32056, "run_taken", NO,
    "wait for it, or end it with 'icctl run abandon'; see --takeover-after")
PhaseRefused = _error(-32057, "phase_refused", NO, "see 'icctl run status'")
# A run that is where its own chain does not lead; only a foreign program writes such a row.
UnknownPhase = _error(-32072, "unknown_phase", FAILED,
    "see 'icctl run status'; 'icctl run cancel' ends it")
RollbackRefused = _error(-32073, "rollback_refused", FAILED,
    "only an active or a completed run can be rolled back")
InvalidChain = _error(-32058, "invalid_chain", MISTAKE,
    'pass a JSON array of at least two names, such as ["plan", "work", "done"]')
InvalidGates = _error(-32059, "invalid_gates", MISTAKE,
    "see 'icctl gate rules --json' for the shape of rules")
# Stored rules that this program does not understand: no gate opens by that.
UnreadableGates = _error(-32075, "unreadable_gates", FAILED,
    "upgrade intercore if a newer one wrote them; 'icctl gate override' advances without them")
AgentNotFound = _error(-32060, "agent_not_found", NO, "see 'icctl run agent list'")
DispatchNotFound = _error(-32061, "dispatch_not_found", NO, "see 'icctl dispatch list'")
DispatchOver = _error(-32062, "dispatch_over", NO,
    "an ended dispatch cannot change; see 'icctl dispatch status'")
DispatchRunning = _error(-32066, "dispatch_running", NO,
    "a dispatch has one process; see 'icctl dispatch status'")
AgentTaken = _error(-32067, "agent_taken", NO, "see 'icctl run agent list'")
SpawnFailed = _error(-32063, "spawn_failed", FAILED, "see 'icctl dispatch status'")
AgentUnreachable = _error(-32068, "agent_unreachable", FAILED,
    "run it where the agent was started: on that machine, in that container")
# Another owner holds it; `data` tells who, and for how long.
LeaseHeld = _error(-32064, "lease_held", NO,
    "wait until it expires, or ask its owner to release it")
LeaseLost = _error(-32065, "lease_lost", NO, "stop the work that it guards, then acquire it again")

# --- discoveries ----------------------------------------------------------------------------------

DiscoveryNotFound = _error(-32088, "discovery_not_found", NO, "see 'icctl discovery list'")
DuplicateDiscovery = _error(-32089, "duplicate_discovery", NO,
    "nothing was changed; 'icctl discovery score' sets another score")
DiscoveryRefused = _error(-32090, "discovery_refused", NO, "see 'icctl discovery status'")
InvalidScore = _error(-32091, "invalid_score", MISTAKE, "a score is a number from 0 to 1")
InvalidVector = _error(-32092, "invalid_vector", FAILED,
    "an embedding is little-endian float32, at least one of them not zero")
DimensionMismatch = _error(-32093, "dimension_mismatch", FAILED,
    "all embeddings of a source have the same dimension; use another source")
NoEmbedding = _error(-32095, "no_embedding", NO,
    "submit it with --embedding, or search with --embedding")
ProfileConflict = _error(-32094, "profile_conflict", NO,
    "re-read it with 'icctl discovery profile --json' and retry")
# numpy is an extra; everything that compares no embeddings works without it.
VectorsNotInstalled = _error(-32097, "vectors_not_installed", FAILED,
    "install the extra with: pip install 'intercore[vectors]', or: pipx inject intercore numpy")
InvalidWeights = _error(-32096, "invalid_weights", FAILED,
    'pass an object of numbers, such as {"rust": 0.5, "java": -1}', base=InvalidPayload)

# --- locks ----------------------------------------------------------------------------------------

LockHeld = _error(-32080, "lock_held", NO,
    "wait for it, or raise --timeout", retryable=True)
NotHolder = _error(-32081, "not_holder", NO, "see 'icctl lock list'")
NoOwner = _error(-32083, "no_owner", FAILED, "pass a long-lived process with --owner=PID:HOST")
CannotRun = _error(-32082, "cannot_run", FAILED, "check its spelling and that it is executable")

# fmt: on

# --- what we did not expect -----------------------------------------------------------------------


class Guard:
    """`with Guard(tell)`: an exception in the block goes to `tell`, and we go on behind the block.

    For parts of the daemon that must outlive their bugs.  What ends a task or the process is not
    an Exception, and passes.
    """

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[Exception], object]) -> None:
        self._tell = tell

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> bool:
        if not isinstance(exc, Exception):
            return False
        self._tell(exc)
        return True


# --- what SQLite and the operating system say -----------------------------------------------

_SQLITE: dict[int, tuple[type[IcError], str]] = {
    sqlite3.SQLITE_FULL: (DiskFull, "disk full, cannot write to the database"),
    sqlite3.SQLITE_CORRUPT: (Corrupt, "the database file is damaged"),
    sqlite3.SQLITE_NOTADB: (Corrupt, "the file is not a SQLite database"),
    sqlite3.SQLITE_BUSY: (Locked, "another program that does not use intercore holds the database"),
    sqlite3.SQLITE_LOCKED: (Locked, "the database is locked"),
    sqlite3.SQLITE_READONLY: (PermissionRefused, "the database is read-only"),
    sqlite3.SQLITE_PERM: (PermissionRefused, "access to the database is denied"),
    sqlite3.SQLITE_CANTOPEN: (PermissionRefused, "the database cannot be opened"),
    sqlite3.SQLITE_IOERR: (InputOutput, "the disk reported an error"),
    # Only a clock stops a statement; see icd/db/connection.py.
    sqlite3.SQLITE_INTERRUPT: (DeadlineExceeded, "the deadline passed; nothing was changed"),
    sqlite3.SQLITE_TOOBIG: (ReplyTooLarge, "a value in the database is too long to read"),
    # The index of the log is made before anything is written, and needs room like anything else.
    sqlite3.SQLITE_IOERR_SHMSIZE: (DiskFull, "disk full, cannot grow the database's log"),
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
