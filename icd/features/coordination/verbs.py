"""coordination: reservations of files."""

import os
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from icd.app import render
from icd.app.call import EVENTS, Context, Params, Topic
from icd.app.invocation import Ask, Output, World, line
from icd.app.types import DURATION, SPAN, TRUTH
from icd.app.verb import (
    Argument,
    Column,
    Command,
    Method,
    Option,
    Stream,
    Table,
    Verb,
    Writes,
    narrow,
    no_rows,
)
from icd.errors import BadPath, IcError, InvalidTtl, Usage
from icd.features.coordination import names, reserving, store
from icd.features.coordination.globs import Glob
from icd.features.coordination.names import Place
from icd.features.coordination.store import Lock, Shown, Swept, Type, Wish
from icd.features.leases.store import MAX_TTL_MS
from icd.values import processes, validation
from icd.values.processes import PID_MAX
from icd.values.wire import CENTURY_MS, Result

# Paths in one check-many: four times the largest commit that people make by hand.
MANY = 20_000
HINT = "wait for it with --wait, ask its owner to release it, or work on something else"


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
Age = Annotated[int, Meta(ge=0, le=CENTURY_MS), DURATION]
Pid = Annotated[int, Meta(ge=1, le=PID_MAX)]


# --- parameters -----------------------------------------------------------------------------------


class Named(Params):
    """Files within a scope."""

    pattern: Pattern | None = None
    path: Path | None = None
    scope: Scope = names.FILES
    project: Project | None = None


class Reserve(Named):
    """Reserve files for an owner, and print the id of the reservation.

    Exit 1 if another owner holds a pattern that some path has in common with this one; prints that
    owner, the age, the session, and whether its process is alive.
    Patterns have *, ?, [a-z] and, as a whole segment, **; a slash at the end means all below.
    The same owner and pattern again extends the reservation and keeps its id.
    """

    rpc = (
        "Reserve files for an owner.\n"
        "`conflict` names the reservation of another owner that is in the way; nothing is reserved "
        "then.\n"
        "The same owner and pattern again extends the reservation and keeps its id."
    )
    owner: Owner = ""
    type: Annotated[Type, Option("--type", "Kind of reservation, a label.")] = "file_reservation"
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
    again: Annotated[
        bool, Meta(description="The caller has asked before: a conflict is not recorded again.")
    ] = False


class ReserveForm(Reserve):
    __doc__ = Reserve.__doc__

    wait_ms: Annotated[
        int, Meta(ge=0, le=CENTURY_MS), SPAN, Option("--wait", "Wait this long for others.")
    ] = 0


class Renew(Params):
    """Extend a reservation, or all of an owner; exit 1 if it has ended.

    The deadline never moves to an earlier time.
    """

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


class Sweep(Params):
    """Delete reservations that have expired, or whose process is gone."""

    older_than_ms: Annotated[
        Age, Option("--older-than", "Minimum time since the deadline (default: 0s).")
    ] = 0
    dry_run: Annotated[bool, Option("--dry-run", "Count them only.")] = False


class Transfer(Params):
    """Give all reservations of an owner in a scope to another owner."""

    from_owner: Annotated[str, Option("--from", "Present owner.", "O"), validation.check_owner]
    to_owner: Annotated[str, Option("--to", "New owner.", "O"), validation.check_owner]
    scope: Scope = names.FILES
    force: Annotated[
        bool, Option("--force", "Accepted for older scripts; a transfer has no conflicts.")
    ] = False
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


# --- what is done ---------------------------------------------------------------------------------


def _place(ctx: Context, p: "Named | Renew | Release | List | Transfer | CheckMany") -> Place:
    return names.place(ctx.path, p.project or p.cwd)


def _glob(p: "Named | Release", here: Place) -> Glob:
    return names.path(p.path, here) if p.path is not None else names.pattern(p.pattern or "", here)


def _scope(given: str | None, here: Place) -> str | None:
    return None if given is None else names.scope_of(given, here)


def reserve(ctx: Context, p: Reserve) -> Outcome:
    here = _place(ctx, p)
    wish = Wish(
        owner=p.owner,
        scope=names.scope_of(p.scope, here),
        glob=_glob(p, here),
        exclusive=p.exclusive,
        type=p.type,
        ttl_ms=p.ttl_ms,
        reason=p.reason,
        run_id=p.run_id,
        dispatch_id=p.dispatch_id,
        process=None if p.pid is None else processes.identify(p.pid),
    )
    lock, blocker = store.reserve(
        ctx.conn, wish, actor=ctx.writer, now_ms=ctx.now_ms, is_retry=p.again
    )
    if blocker is not None:
        ctx.changed = not p.again
        return _conflict(store.shown(blocker, now_ms=ctx.now_ms))
    assert lock is not None
    return Outcome(store.shown(lock, now_ms=ctx.now_ms))


def _conflict(blocker: Shown) -> Outcome:
    found = Conflict(
        blocker.id,
        blocker.owner,
        blocker.pattern,
        blocker.reason,
        blocker.exclusive,
        blocker.age_seconds,
        blocker.alive,
        blocker.session,
        blocker.pid,
        blocker.expires_at,
    )
    return Outcome(conflict=found, told=blocker.told)


def renew(ctx: Context, p: Renew) -> Renewed:
    locks = [lock for lock in _meant(ctx, p) if store.stands(lock, now_ms=ctx.now_ms)]
    if not locks:
        raise store.lost(p.id or f"of {p.owner}")
    done = store.renew(ctx.conn, locks, ttl_ms=p.ttl_ms, actor=ctx.writer, now_ms=ctx.now_ms)
    return Renewed(len(done))


def release(ctx: Context, p: Release) -> Released:
    locks = _meant(ctx, p)
    if p.pattern is not None or p.path is not None:
        wanted = _glob(p, _place(ctx, p)).text
        locks = [lock for lock in locks if lock.pattern == wanted]
    ctx.changed = bool(locks)
    return Released(store.release(ctx.conn, locks, actor=ctx.writer, now_ms=ctx.now_ms))


def _meant(ctx: Context, p: Renew | Release) -> list[Lock]:
    """One by its id, or those of an owner."""
    if p.id is None:
        return store.of_owner(ctx.conn, p.owner or "", _scope(p.scope, _place(ctx, p)))
    lock = store.find(ctx.conn, p.id)
    return [lock] if lock and p.owner in (None, lock.owner) else []


def check(ctx: Context, p: Check) -> list[Shown]:
    here = _place(ctx, p)
    found = store.blockers(
        ctx.conn,
        names.scope_of(p.scope, here),
        _glob(p, here),
        but=p.exclude_owner,
        exclusive=p.exclusive,
        now_ms=ctx.now_ms,
    )
    return [store.shown(lock, now_ms=ctx.now_ms) for lock in found]


def check_many(ctx: Context, p: CheckMany) -> list[Touched]:
    here = _place(ctx, p)
    found = store.check_many(
        ctx.conn,
        names.scope_of(p.scope, here),
        [(path, names.path(path, here)) for path in p.paths],
        but=p.exclude_owner,
        now_ms=ctx.now_ms,
    )
    return [Touched(path, store.shown(lock, now_ms=ctx.now_ms)) for path, lock in found]


def list_(ctx: Context, p: List) -> list[Shown]:
    scope = _scope(p.scope, _place(ctx, p))
    locks = store.every(ctx.conn, scope=scope, owner=p.owner, type_=p.type)
    found = (store.shown(lock, now_ms=ctx.now_ms) for lock in locks)
    return [lock for lock in found if lock.active or not p.active]


def sweep(ctx: Context, p: Sweep) -> Swept:
    found = store.sweep_dead(
        ctx.conn,
        is_dry=p.dry_run,
        older_ms=p.older_than_ms,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    ctx.changed = bool(found.expired) and not p.dry_run
    return found


def transfer(ctx: Context, p: Transfer) -> Transferred:
    locks = store.of_owner(ctx.conn, p.from_owner, _scope(p.scope, _place(ctx, p)))
    done = store.transfer(ctx.conn, locks, p.to_owner, actor=ctx.writer, now_ms=ctx.now_ms)
    ctx.changed = bool(done)
    return Transferred(done)


def _check_named(p: Named) -> None:
    if (p.pattern is None) == (p.path is None):
        raise Usage("pass either a pattern or a path", hint="--pattern='src/**', or --path=FILE")


def _check_reserve(p: Reserve) -> None:
    _check_named(p)
    validation.check_owner(p.owner)


def _check_meant(p: Renew | Release) -> None:
    if p.id is None and p.owner is None:
        raise Usage("pass a reservation id or an owner")


def _events(_params: Params) -> Topic:
    """Whatever ends a reservation is an event."""
    return EVENTS


# --- what is shown --------------------------------------------------------------------------------


def ask_reserve(world: World, f: ReserveForm) -> Ask:
    def show(found: Outcome) -> Output:
        if found.lock is not None:
            return (
                render.to_json({"lock": found.lock}) if world.json else render.text(found.lock.id)
            )
        told = line(world, "coordination reserve", IcError(found.told, hint=HINT))
        shown = render.to_json({"conflict": found.conflict}, 1) if world.json else Output(1)
        shown.stderr = told
        return shown

    return reserving.ask(narrow(f, Reserve), show, f.wait_ms)


def show_check(found: list[Shown], _p: Check) -> Iterator[str]:
    return (lock.told for lock in found)


def show_many(found: list[Touched], _p: CheckMany) -> Iterator[str]:
    return (render.columns(x.path, x.blocker.pattern, x.blocker.owner, x.blocker.id) for x in found)


def show_list(found: list[Shown], _p: List) -> Iterator[str]:
    return (
        render.columns(
            x.id,
            x.owner,
            "exclusive" if x.exclusive else "shared",
            x.scope,
            x.pattern,
            x.expires_at or 0,
        )
        for x in found
    )


HELD = Table(
    Column("ID", "id"),
    Column("PATTERN", "pattern", "path"),
    Column("OWNER", "owner"),
    Column("HOLDS", lambda r: "exclusively" if r.exclusive else "shared"),
    Column("STATE", lambda r: "active" if r.active else "ended", "state"),
    Column("SINCE", "created_at", "age"),
    Column("EXPIRES", "expires_at", "until"),
    Column("PROCESS", lambda r: r.pid and f"{r.pid} {r.alive}", spare=True),
    Column("WHY", "reason", spare=True),
    empty="Nothing is reserved. Do so: icctl coordination reserve --path=FILE --ttl=15m",
)

VERBS = [
    Method(
        "coordination.reserve",
        Reserve,
        Outcome,
        reserve,
        check=_check_reserve,
        writes=Writes(no_rows, appends=True),
        stream=Stream(_events),
    ),
    Command(
        "coordination reserve",
        ReserveForm,
        ask_reserve,
        order=("owner", "ttl_ms", "wait_ms"),
        summary="Reserve files; exit 1 if another owner holds them.",
        examples=[
            'icctl coordination reserve --owner="$SESSION" --pattern="src/**/*.py" --ttl=15m',
            'icctl coordination reserve --owner="$SESSION" --path=README.md --exclusive=false',
            'icctl coordination reserve --owner="$SESSION" --scope=api --pattern=v1 --json',
        ],
    ),
    Verb(
        "coordination renew",
        Renew,
        Renewed,
        renew,
        check=_check_meant,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _p: [f"{r.renewed} renewed"],
        summary="Extend reservations; exit 1 if they have ended.",
        examples=['icctl coordination renew --owner="$SESSION" --ttl=15m'],
    ),
    Verb(
        "coordination check",
        Check,
        list[Shown],
        check,
        check=_check_named,
        show=show_check,
        human=HELD,
        exit=bool,
        summary="Print who holds files; exit 1 if anyone does.",
        examples=[
            'icctl coordination check --path=src/app.py --exclude-owner="$SESSION"',
            "icctl coordination check --pattern='src/*' --json",
        ],
    ),
    Verb(
        "coordination check-many",
        CheckMany,
        list[Touched],
        check_many,
        show=show_many,
        exit=bool,
        summary="Print which of many paths are reserved.",
        examples=['icctl coordination check-many src/a.py src/b.py --exclude-owner="$SESSION"'],
    ),
    Verb(
        "coordination release",
        Release,
        Released,
        release,
        check=_check_meant,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _p: [f"{r.released} released"],
        summary="Release reservations.",
        examples=[
            'icctl coordination release --owner="$SESSION"',
            'icctl coordination release --owner="$SESSION" --path=src/app.py',
        ],
    ),
    Verb(
        "coordination list",
        List,
        list[Shown],
        list_,
        show=show_list,
        human=HELD,
        summary="List reservations.",
        examples=["icctl coordination list --active", "icctl coordination list --json"],
    ),
    Verb(
        "coordination sweep",
        Sweep,
        Swept,
        sweep,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _p: [f"{r.expired} expired"],
        summary="Delete reservations that have ended.",
        examples=["icctl coordination sweep", "icctl coordination sweep --dry-run --json"],
    ),
    Verb(
        "coordination transfer",
        Transfer,
        Transferred,
        transfer,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _p: [f"{r.transferred} transferred"],
        summary="Give an owner's reservations to another.",
        examples=['icctl coordination transfer --from="$SESSION" --to=reviewer'],
    ),
]
