"""What the methods of coordination are given, and what they answer."""

import os
from typing import Annotated

from msgspec import Meta

from icd.app.call import Params
from icd.app.invocation import World
from icd.app.types import SPAN, TRUTH
from icd.app.verb import Argument, Option
from icd.errors import BadPath, InvalidTtl, Usage
from icd.features.coordination import names
from icd.features.coordination.records import Shown, Type
from icd.features.leases.store import MAX_TTL_MS
from icd.values import validation
from icd.values.processes import PID_MAX
from icd.values.wire import Result

# Paths in one check-many: four times the largest commit that people make by hand.
MANY = 20_000
# Paths in one reserve-many: it keeps all others waiting for a tenth of a second.
TOGETHER = 1000


def _check_ttl(ttl_ms: int) -> None:
    if ttl_ms < 1:
        raise InvalidTtl("a reservation needs a TTL above 0", hint="omit it to set no deadline")
    if ttl_ms > MAX_TTL_MS:
        raise InvalidTtl("a TTL is at most a year", hint="omit it to set no deadline")


def _who(world: World, owner: str | None) -> str:
    if owner is not None:
        return owner
    if not world.session:
        raise Usage("no owner given", hint="pass --owner, or set INTERCORE_SESSION")
    return world.session


def _directory(world: World, given: str | None) -> str:
    return world.directory(given)


def _check_directory(directory: str) -> None:
    if not os.path.isabs(directory) or "\0" in directory:
        raise BadPath(f"the project must be an absolute path, not {directory!r}")


Id = Annotated[str, Argument("ID", "Reservation id."), validation.check_name]
Owner = Annotated[
    str,
    Meta(description="Owner of the reservation."),
    Option("--owner", "Owner of the reservation (default: the session).", "O", resolve=_who),
    validation.check_owner,
]
Scope = Annotated[
    str,
    Option("--scope", "Scope of the reservation (default: the project's files).", "S"),
    validation.check_scope,
]
Pattern = Annotated[
    str, Option("--pattern", "Pattern, such as 'src/**/*.py', seen from the project.", "GLOB")
]
Path = Annotated[str, Option("--path", "Path, in which no character is a wildcard.", "PATH")]
Project = Annotated[
    str,
    Meta(description="Directory of the checkout that has the files (default: cwd)."),
    Option("--project", "Directory of the checkout that has the files.", "DIR", resolve=_directory),
    _check_directory,
]
Ttl = Annotated[int, SPAN, _check_ttl]
Exclusive = Annotated[
    bool,
    TRUTH,
    Meta(description="Exclude all others; if false, only those who are exclusive."),
    Option("--exclusive", "Exclude all others; false: only those who are.", "BOOL", bare="true"),
]
Pid = Annotated[int, Meta(ge=1, le=PID_MAX)]


# --- parameters -----------------------------------------------------------------------------------


class Named(Params):
    """Files within a scope."""

    pattern: Pattern | None = None
    path: Path | None = None
    scope: Scope = names.FILES
    project: Project | None = None


class Terms(Params):
    """For whom something is reserved, and until when."""

    scope: Scope = names.FILES
    project: Project | None = None
    owner: Owner = ""
    exclusive: Exclusive = True
    ttl_ms: Annotated[
        Ttl | None, Option("--ttl", "Time until the reservation expires (default: never).")
    ] = None
    pid: Annotated[Pid | None, Option("--pid", "End the reservation with this process.", "PID")] = (
        None
    )
    reason: Annotated[
        str, Option("--reason", "Reason that others are told.", "TEXT"), validation.check_scope
    ] = ""
    run_id: Annotated[
        str, Option("--run", "Run that it is for.", "RUN"), validation.check_scope
    ] = ""
    dispatch_id: Annotated[
        str, Option("--dispatch", "Dispatch that it is for.", "ID"), validation.check_scope
    ] = ""


class Reserve(Terms):
    """Reserve files for an owner, and print the id of the reservation.

    Exit 1 if another owner holds a pattern that some path has in common with this one; prints that
    owner, the age, the session, and whether its process is alive.
    Patterns have *, ?, [a-z] and, as a whole segment, **; a slash at the end means all below.
    The same owner and pattern again extends the reservation and keeps its id; with another --pid
    it is another reservation, so that each ends with its own process.
    """

    rpc = (
        "Reserve files for an owner.\n"
        "`conflict` names the reservation of another owner that is in the way; nothing is reserved "
        "then.\n"
        "The same owner and pattern again extends the reservation and keeps its id; with another "
        "`pid` it is another reservation."
    )
    pattern: Pattern | None = None
    path: Path | None = None
    type: Annotated[Type, Option("--type", "Kind; a named_lock has one name in all worktrees.")] = (
        "file_reservation"
    )
    again: Annotated[
        bool, Meta(description="Record no further conflict: the caller asks again for the same.")
    ] = False


class ReserveMany(Terms, kw_only=True):
    """Reserve several paths for an owner, all or none, and print their ids.

    Exit 1 if another owner holds one of them; prints the first that is in the way.
    Paths are literal; one that ends with a slash means all below it.
    """

    rpc = (
        "Reserve several paths for an owner, all or none.\n"
        "`conflict` names the first reservation of another owner that is in the way."
    )
    paths: Annotated[
        list[str],
        Meta(min_length=1, max_length=TOGETHER, description="Paths, without wildcards."),
        Argument("PATH...", "Paths, without wildcards.", nargs=-1),
    ]
    follow: Annotated[bool, Option("--follow", "Reserve what links lead to, too.")] = False


class Renew(Params):
    """Extend a reservation, or all of an owner; exit 1 if it has ended.

    The deadline never moves to an earlier time.
    """

    rpc = (
        "Extend a reservation, or all of an owner.\n"
        "The error `reservation_lost` means that it has ended.\n"
        "The deadline never moves to an earlier time."
    )
    id: Id | None = None
    owner: Annotated[
        str | None, Option("--owner", "Renew all of this owner.", "O"), validation.check_owner
    ] = None
    scope: Scope | None = None
    ttl_ms: Annotated[
        Ttl | None, Option("--ttl", "Time until it expires (default: as before).")
    ] = None
    project: Project | None = None


class Check(Named):
    """Print the reservations that cover files; exit 1 if there are any."""

    rpc = "List the reservations that cover files."
    exclude_owner: Annotated[
        str | None,
        Option("--exclude-owner", "Leave out those of this owner.", "O"),
        validation.check_owner,
    ] = None
    exclusive: Exclusive = True


class CheckMany(Params):
    """Print the paths that are reserved, and by whom; exit 1 if there are any.

    Prints path, pattern, owner and reservation id, separated by tabs.
    Paths are literal; one that ends with a slash means all below it.
    """

    rpc = "List those of many paths that are reserved, each with one reservation that covers it."
    paths: Annotated[
        list[str],
        Meta(max_length=MANY, description="Paths, without wildcards."),
        Argument("PATH...", "Paths, without wildcards.", nargs=-1),
    ]
    exclude_owner: Annotated[
        str | None,
        Option("--exclude-owner", "Leave out those of this owner.", "O"),
        validation.check_owner,
    ] = None
    scope: Scope = names.FILES
    project: Project | None = None


class Release(Params):
    """Release a reservation by its id, or all of an owner; print how many."""

    rpc = "Release a reservation by its id, or all of an owner."
    id: Id | None = None
    owner: Annotated[
        str | None, Option("--owner", "Release all of this owner.", "O"), validation.check_owner
    ] = None
    scope: Scope | None = None
    pattern: Annotated[
        str | None, Option("--pattern", "Release only this pattern of the owner.", "GLOB")
    ] = None
    path: Annotated[
        str | None, Option("--path", "Release only this path of the owner.", "PATH")
    ] = None
    project: Project | None = None


class List(Params):
    """Print id, owner, mode, scope, pattern and the unix time of the deadline (0: none).

    The columns are separated by tabs; those that have ended, and are not swept yet, are included.
    """

    rpc = "List the reservations, including those that have ended and are not swept yet."
    scope: Scope | None = None
    owner: Annotated[str | None, Option("--owner", "Include only those of this owner.", "O")] = None
    type: Annotated[Type | None, Option("--type", "Include only this kind.")] = None
    active: Annotated[bool, Option("--active", "Include only those that stand.")] = False
    project: Project | None = None


# --- results --------------------------------------------------------------------------------------


class Conflict(Result):
    """The reservation that is in the way."""

    blocker_id: str
    blocker_owner: str
    blocker_pattern: str
    blocker_reason: str
    blocker_exclusive: bool
    blocker_age_seconds: int
    blocker_alive: str
    blocker_session: str | None = None
    blocker_pid: int | None = None
    blocker_expires_at: int | None = None


class Outcome(Result):
    """A reservation, or what is in its way, which `told` says in a sentence."""

    lock: Shown | None = None
    conflict: Conflict | None = None
    told: str = ""


class Outcomes(Result):
    """The reservations, or what is in the way of one, which `told` says in a sentence."""

    locks: list[Shown]
    conflict: Conflict | None = None
    told: str = ""


class Renewed(Result):
    renewed: int


class Released(Result):
    released: int


class Transferred(Result):
    transferred: int


class Touched(Result):
    """A path, and a reservation that covers it."""

    path: str
    blocker: Shown
