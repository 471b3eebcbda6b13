"""Every way a call can fail, and what a caller can do about it, as one table.

One row per fact that a caller can act on: its code on the wire, the name that is the contract of
the JSON-RPC API, the exit status of `icctl`, and a hint.  The code that raises it gives the
sentence, and further facts, which callers get as data.  The dispatcher maps errors once; nothing
else does.
"""

from __future__ import annotations

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

# The message is not JSON.
ParseError = _error(-32700, "parse_error", MISTAKE,
    "send one JSON-RPC 2.0 object or array per line, as UTF-8")
# The message is JSON, but not a request, or it exceeds a limit.
InvalidRequest = _error(-32600, "invalid_request", MISTAKE,
    "send a JSON-RPC 2.0 request; call rpc.discover for the methods and their parameters")
# There is no such method, or the daemon does not run it.
MethodNotFound = _error(-32601, "method_not_found", MISTAKE,
    "call rpc.discover for the list of methods")
# A parameter is missing, unknown or invalid.
InvalidParams = _error(-32602, "invalid_params", MISTAKE,
    "call rpc.discover for the parameters of this method")
# A bug in intercore.
Internal = _error(-32603, "internal", FAILED,
    "this is a bug in intercore; please report it with the log entry of this reference")

# --- how we were called ---------------------------------------------------------------------------

# The command line is wrong.
Usage = _error(-32001, "usage", MISTAKE)
# A name, key, scope or owner is empty, too long or has forbidden characters.
InvalidName = _error(-32002, "invalid_name", FAILED)
# The request id was used before, for another call.
RequestMismatch = _error(-32003, "request_id_mismatch", FAILED,
    "use a fresh random request_id for every new call")
# Client and daemon have no protocol version in common; nothing was executed.
NoCommonProtocol = _error(-32004, "no_common_protocol", FAILED,
    "upgrade the older of the two; 'icctl service reload' reloads the daemon with the "
    "installed version")
# The client lacks something that this command needs.
ClientTooOld = _error(-32005, "client_too_old", FAILED,
    "upgrade icctl; in scripts, use the functions of the bash library")

# --- a store on a server --------------------------------------------------------------------------

# The server that keeps the project's data cannot be reached; nothing was decided here instead.
StoreUnreachable = _error(-32000, "store_unreachable", FAILED,
    "retry; the sentence is the server's", retryable=True)
# The server cannot keep a project: its locks or its encoding, or it takes no writes.
StoreUnfit = _error(-32037, "store_unfit", FAILED, "use another server, or correct its settings")
# The data is on a server, and the command works on a file.
OnServer = _error(-32039, "on_server", FAILED,
    "this project's data is on a server; that is its administrator's business")

# --- payloads -------------------------------------------------------------------------------------

# The payload is not JSON, or not what this method accepts.
InvalidPayload = _error(-32010, "invalid_payload", FAILED, "send one JSON value")
# The payload exceeds the size limit.
PayloadTooLarge = _error(-32011, "payload_too_large", FAILED,
    "store a path or a digest instead of the content", base=InvalidPayload)
# The payload, the key or the scope contains a likely secret.
SecretRefused = _error(-32012, "secret_refused", FAILED,
    "store the name of the variable that holds it, not the value", base=InvalidPayload)
# The row is not a counter, or the counter would overflow.
NotAnInteger = _error(-32013, "not_an_integer", FAILED,
    "delete the row, or count under another key")
# The row is at another version than the caller expected.
VersionConflict = _error(-32014, "version_conflict", NO, "re-read it and retry")
# A file cannot be read, or its content is invalid.
UnreadableInput = _error(-32015, "unreadable_input", FAILED,
    "check that the file exists and that you may read it")
# The TTL is out of range.
InvalidTtl = _error(-32016, "invalid_ttl", FAILED,
    "use 1s or more, or omit it to keep the row forever")
# The next event was pruned; `oldest` is the first event that still exists.
CursorBehind = _error(-32017, "cursor_behind", FAILED)
# The log has no event with this sequence number.
NoSuchEvent = _error(-32018, "no_such_event", FAILED,
    "pass the seq of an event that you have received")
# The log has never been that long: it is another one now; `last` is its last event.
CursorAhead = _error(-32047, "cursor_ahead", FAILED,
    "the database was replaced, such as by a restore; start from its last sequence number")
# The key has too many rows to watch.
TooManyRows = _error(-32019, "too_many_rows", FAILED, "watch one scope")

# --- finding and opening a database ---------------------------------------------------------------

# There is no database here.
NoDatabase = _error(-32020, "no_database", FAILED,
    "run 'icctl init' in the project's directory to create it")
# The path cannot be the path of a database or project.
BadPath = _error(-32021, "bad_path", FAILED,
    "name a .db file inside the project, or inside a .clavain directory")
# The database, its directory or the lock directory is a symbolic link.
SymlinkRefused = _error(-32022, "symlink_refused", FAILED,
    "replace the symbolic link with a real directory or file", base=BadPath)
# A newer version of intercore wrote the database.
SchemaTooNew = _error(-32023, "schema_too_new", FAILED,
    "upgrade intercore; this version leaves the database untouched")
# The file is a database of another program.
NotOurs = _error(-32024, "not_an_intercore_database", FAILED,
    "point --db or INTERCORE_DB at an intercore database, or move this file away")
# The database is damaged.
Corrupt = _error(-32025, "corrupt", FAILED,
    "run 'icctl db check' to see the damage, and 'icctl restore FILE' to restore a backup; "
    "backups are next to the database and named after it")
# The disk or the quota is full.
DiskFull = _error(-32026, "disk_full", FAILED, "free some space and try again; nothing was changed")
# The operating system denies access.
PermissionRefused = _error(-32027, "permission_denied", FAILED,
    "check owner and mode of the database, its directory and its lock file")
# The disk reported an error.
InputOutput = _error(-32028, "io_error", FAILED,
    "check the disk and the system log, then run 'icctl db check'")
# The health check found a problem.
Unhealthy = _error(-32029, "unhealthy", FAILED)
# A settings file or a variable has an error.
Misconfigured = _error(-32030, "misconfigured", FAILED, "correct the file and retry")
# The schema is not one that intercore made, or a file beside the database is not its own.
UntrustedDatabase = _error(-32032, "untrusted_database", FAILED,
    "nothing was changed; if the file came with the project, move it away and run 'icctl init';"
    " if the change is yours, undo it with sqlite3, or restore a backup with 'icctl restore "
    "FILE'")
# Files of the database were removed or changed while it was in use: writes may be lost.
LogLost = _error(-32038, "log_lost", FAILED,
    "this is reported once; run 'icctl db check', and restore a backup with 'icctl restore FILE' if"
    " something is missing; the kept files are next to the database")
# The limit of open files is reached.
TooFewDescriptors = _error(-32031, "too_few_descriptors", FAILED,
    "close unused files, or raise the limit with 'ulimit -n'; nothing was changed",
    retryable=True)
# The project would have effects that the user has not accepted.
Untrusted = _error(-32033, "untrusted", FAILED,
    "review it with 'icctl trust --dry-run', then trust it with 'icctl trust'")
# A row that intercore would not have written; the rest of the database is usable.
DamagedRow = _error(-32035, "damaged_row", FAILED,
    "run 'icctl db check' for all such rows; then restore a backup with 'icctl restore FILE', "
    "or delete the rows with sqlite3")
# The database belongs to another user, whom root's daemon does not serve.
OtherOwner = _error(-32036, "other_owner", FAILED,
    "run icctl as that user, or use a daemon of that user")
# The result exceeds the size limit.
ReplyTooLarge = _error(-32034, "reply_too_large", FAILED,
    "request less at once, such as with --limit, or one row by name")

# --- time, contention and the daemon --------------------------------------------------------------

# Another process holds the database or the lock.
Locked = _error(-32040, "locked", FAILED,
    "retry, or raise --timeout", retryable=True)
# The deadline passed; nothing was executed, or it was rolled back.
DeadlineExceeded = _error(-32041, "deadline_exceeded", FAILED,
    "retry, or raise --timeout", retryable=True)
# The call was sent or started, and its outcome is unknown.
UnknownOutcome = _error(-32042, "unknown_outcome", FAILED,
    "read the state before you repeat a write")
# The daemon has too many calls, or too little memory.
Overloaded = _error(-32043, "overloaded", FAILED, "retry in a moment", retryable=True)
# A daemon is already running.
AlreadyRunning = _error(-32045, "already_running", DONE)
# The new version does not start; nothing has changed.
ReloadRefused = _error(-32046, "reload_refused", FAILED,
    "the daemon keeps running the old version; see its log, or restart it")
# The client reads too slowly; `seq` is the last event that was sent.
SlowConsumer = _error(-32048, "slow_consumer", FAILED,
    "watch again from the last event you received")
# No daemon is running.
NoDaemon = _error(-32044, "no_daemon", NO, "start it with: icctl service start")

# --- the service ----------------------------------------------------------------------------------

# There is no systemd for the user.
NoSystemd = _error(-32050, "no_systemd", FAILED,
    "run 'icctl service start', or 'icd serve' under another supervisor")
# A unit file was not written by icctl.
ForeignUnit = _error(-32051, "foreign_unit", FAILED, "move it away, or overwrite it with --force")
# A daemon that systemd did not start is running.
ForegroundDaemon = _error(-32052, "foreground_daemon", FAILED,
    "stop it with 'icctl service stop' and retry")
# systemd, or a call through its socket, failed.
ServiceFailed = _error(-32053, "service_failed", FAILED,
    "see 'icctl service status' and 'icctl service logs'")

# --- agents' configurations -----------------------------------------------------------------------

# An agent's configuration is not a file that icctl may change, or not one that it understands.
AgentConfigRefused = _error(-32086, "agent_config_refused", FAILED,
    "change the agent's configuration by hand")
# Another program wrote the agent's configuration at the same time.
AgentConfigChanged = _error(-32087, "agent_config_changed", FAILED, "run the command again",
    retryable=True)

# --- hooks ----------------------------------------------------------------------------------------

# The project has no such hook.
NoHook = _error(-32070, "no_hook", NO, "see 'icctl triggers list'")
# The hook is unsafe to run: its owner, mode or type is wrong.
HookRefused = _error(-32071, "hook_refused", FAILED,
    "a trusted file must be writable only by you")

# --- runs, gates, dispatches and leases -----------------------------------------------------------

# There is no such run.
RunNotFound = _error(-32054, "run_not_found", NO, "see 'icctl run list'")
# The run has ended.
RunOver = _error(-32055, "run_over", NO,
    "an ended run cannot change; 'icctl run create' starts another one")
# Another run is active for the scope; `run_id` names it.
RunTaken = _error(-32056, "run_taken", NO,
    "wait for it, or end it with 'icctl run abandon'; see --takeover-after")
# The run cannot change its phase in this way.
PhaseRefused = _error(-32057, "phase_refused", NO, "see 'icctl run status'")
# The run is in a phase outside its chain; only another program writes such a row.
UnknownPhase = _error(-32072, "unknown_phase", FAILED,
    "see 'icctl run status'; 'icctl run cancel' ends it")
# The run cannot be rolled back.
RollbackRefused = _error(-32073, "rollback_refused", FAILED,
    "only an active or a completed run can be rolled back")
# The chain of phases is invalid.
InvalidChain = _error(-32058, "invalid_chain", MISTAKE,
    'pass a JSON array of at least two names, such as ["plan", "work", "done"]')
# The gate rules are invalid.
InvalidGates = _error(-32059, "invalid_gates", MISTAKE,
    "see 'icctl gate rules --json' for the shape of rules")
# The stored rules are unknown to this version; no gate opens.
UnreadableGates = _error(-32075, "unreadable_gates", FAILED,
    "upgrade intercore if a newer one wrote them; 'icctl gate override' advances without them")
# There is no such agent.
AgentNotFound = _error(-32060, "agent_not_found", NO, "see 'icctl run agent list'")
# There is no such dispatch.
DispatchNotFound = _error(-32061, "dispatch_not_found", NO, "see 'icctl dispatch list'")
# The dispatch has ended.
DispatchOver = _error(-32062, "dispatch_over", NO,
    "an ended dispatch cannot change; see 'icctl dispatch status'")
# The dispatch has not ended.
DispatchRunning = _error(-32066, "dispatch_running", NO,
    "a dispatch has one process; see 'icctl dispatch status'")
# The agent has ended, or another process has started it.
AgentTaken = _error(-32067, "agent_taken", NO, "see 'icctl run agent list'")
# The agent could not be started.
SpawnFailed = _error(-32063, "spawn_failed", FAILED, "see 'icctl dispatch status'")
# The agent's process cannot be reached from here, or does not end.
AgentUnreachable = _error(-32068, "agent_unreachable", FAILED,
    "run it where the agent was started: on that machine, in that container")
# Another owner holds the lease; `data` names the owner and the remaining time.
LeaseHeld = _error(-32064, "lease_held", NO,
    "wait until it expires, or ask its owner to release it")
# The lease expired, was released, or has another owner.
LeaseLost = _error(-32065, "lease_lost", NO, "stop the work that it guards, then acquire it again")

# The run, or the project, has as many agents or dispatches as it may; `limit` says how many.
LimitReached = _error(-32099, "limit_reached", NO,
    "wait until one of them ends, or raise the limit with 'icctl run set'")

# There is no such session, or it has ended.
UnknownSession = _error(-32085, "unknown_session", FAILED, "see 'icctl session list'")

# --- lanes and actions ----------------------------------------------------------------------------

# There is no such lane.
UnknownLane = _error(-32006, "unknown_lane", FAILED, "see 'icctl lane list'")
# Another lane has this name; a lane that was closed keeps its own.
LaneExists = _error(-32007, "lane_exists", FAILED,
    "choose another name; see 'icctl lane status' for the one that has it")
# The lane was closed before.
LaneClosed = _error(-32008, "lane_closed", FAILED, "see 'icctl lane status'")
# The run has no such action.
ActionNotFound = _error(-32069, "action_not_found", NO, "see 'icctl run action list'")
# The run has an action with this command in this phase already.
DuplicateAction = _error(-32009, "duplicate_action", NO,
    "change it with 'icctl run action update'")

# --- what is declined -----------------------------------------------------------------------------

# The original has this command, and intercore declines it.
Declined = _error(-32084, "declined", MISTAKE, "remove the call")

# --- reservations ---------------------------------------------------------------------------------

# The pattern is not one.
InvalidPattern = _error(-32076, "invalid_pattern", FAILED,
    "write a path or a pattern such as 'src/**/*.py'; a backslash makes the next character literal")
# The pattern, or comparing it with those that are reserved, would take too long.
PatternTooComplex = _error(-32077, "pattern_too_complex", FAILED,
    "use fewer wildcards, or several shorter patterns")
# There is no such reservation, or it has expired.
ReservationLost = _error(-32078, "reservation_lost", NO,
    "reserve it again before you go on; see 'icctl coordination list'")

# The guard of commits cannot be installed here, or git does not answer.
GuardRefused = _error(-32079, "guard_refused", FAILED, "install the hook by hand, or not at all")

# --- discoveries ----------------------------------------------------------------------------------

# There is no such discovery.
DiscoveryNotFound = _error(-32088, "discovery_not_found", NO, "see 'icctl discovery list'")
# The source has already submitted this discovery.
DuplicateDiscovery = _error(-32089, "duplicate_discovery", NO,
    "nothing was changed; 'icctl discovery score' sets another score")
# The status or the score of the discovery does not allow this.
DiscoveryRefused = _error(-32090, "discovery_refused", NO, "see 'icctl discovery status'")
# The score is not a number from 0 to 1.
InvalidScore = _error(-32091, "invalid_score", MISTAKE, "a score is a number from 0 to 1")
# The embedding is invalid.
InvalidVector = _error(-32092, "invalid_vector", FAILED,
    "an embedding is little-endian float32, at least one of them not zero")
# The embedding has another dimension than those of its source.
DimensionMismatch = _error(-32093, "dimension_mismatch", FAILED,
    "all embeddings of a source have the same dimension; use another source")
# The discovery has no embedding.
NoEmbedding = _error(-32095, "no_embedding", NO,
    "submit it with --embedding, or search with --embedding")
# The profile is at another version than the caller expected.
ProfileConflict = _error(-32094, "profile_conflict", NO,
    "re-read it with 'icctl discovery profile --json' and retry")
# numpy, which compares embeddings, is not installed.
VectorsNotInstalled = _error(-32097, "vectors_not_installed", FAILED,
    "install the extra with: pip install 'intercore[vectors]', or: pipx inject intercore numpy")
# The SDK of the Model Context Protocol is not installed.
McpNotInstalled = _error(-32098, "mcp_not_installed", FAILED,
    "install the extra with: pip install 'intercore[mcp]', or: pipx inject intercore mcp")
# textual, which draws `icctl top`, is not installed.
TopNotInstalled = _error(-32074, "top_not_installed", FAILED,
    "install the extra with: pip install 'intercore[top]', or: pipx inject intercore textual; "
    "'icctl top --once' needs nothing")
# The weights are invalid.
InvalidWeights = _error(-32096, "invalid_weights", FAILED,
    'pass an object of numbers, such as {"rust": 0.5, "java": -1}', base=InvalidPayload)

# --- locks ----------------------------------------------------------------------------------------

# Another process holds the lock.
LockHeld = _error(-32080, "lock_held", NO,
    "wait for it, or raise --timeout", retryable=True)
# The lock is free, or has another owner.
NotHolder = _error(-32081, "not_holder", NO, "see 'icctl lock list'")
# The process that would own the lock has ended.
NoOwner = _error(-32083, "no_owner", FAILED, "pass a long-lived process with --owner=PID:HOST")
# The command cannot be executed.
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
