"""coordination: reservations of files."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.types import DURATION
from icd.app.verb import Column, Option, Table, Verb, Writes, no_rows
from icd.errors import Usage
from icd.features.coordination import lookup, names, records, store
from icd.features.coordination import reserve as reserving
from icd.features.coordination.forms import (
    Check,
    CheckMany,
    List,
    Project,
    Release,
    Released,
    Renew,
    Renewed,
    Scope,
    Touched,
    Transferred,
)
from icd.features.coordination.globs import Glob
from icd.features.coordination.names import Place
from icd.features.coordination.records import Lock, Shown
from icd.features.coordination.reserve import check_named, glob, place
from icd.features.coordination.store import Swept
from icd.values import validation
from icd.values.wire import CENTURY_MS

# --- parameters -----------------------------------------------------------------------------------


class Sweep(Params):
    """Delete reservations that have expired, or whose process is gone."""

    older_than_ms: Annotated[
        int,
        Meta(ge=0, le=CENTURY_MS),
        DURATION,
        Option("--older-than", "Minimum time since the deadline (default: 0s)."),
    ] = 0
    dry_run: Annotated[bool, Option("--dry-run", "Count them only.")] = False


class Transfer(Params):
    """Transfer all reservations of an owner in a scope to another owner."""

    from_owner: Annotated[
        str, Option("--from", "Owner that holds them now.", "O"), validation.check_owner
    ]
    to_owner: Annotated[str, Option("--to", "New owner.", "O"), validation.check_owner]
    scope: Scope = names.FILES
    force: Annotated[
        bool, Option("--force", "Accepted for older scripts; a transfer has no conflicts.")
    ] = False
    project: Project | None = None


# --- what is done ---------------------------------------------------------------------------------


def _scope(given: str | None, here: Place) -> str | None:
    return None if given is None else names.scope_of(given, here)


def renew(ctx: Context, p: Renew) -> Renewed:
    locks = [lock for lock in _meant(ctx, p) if records.stands(lock, now_ms=ctx.now_ms)]
    if not locks:
        raise store.lost(p.id or f"of {p.owner}")
    done = store.renew(ctx.conn, locks, ttl_ms=p.ttl_ms, actor=ctx.writer, now_ms=ctx.now_ms)
    return Renewed(len(done))


def release(ctx: Context, p: Release) -> Released:
    locks = _meant(ctx, p)
    if p.pattern is not None or p.path is not None:
        here = place(ctx, p.project or p.cwd)
        files, name = glob(p, here).text, glob(p, here.of_names).text
        locks = [x for x in locks if x.pattern == (name if x.type == "named_lock" else files)]
    ctx.changed = bool(locks)
    return Released(store.release(ctx.conn, locks, actor=ctx.writer, now_ms=ctx.now_ms))


def _meant(ctx: Context, p: Renew | Release) -> list[Lock]:
    """One by its id, or those of an owner."""
    if p.id is None:
        return lookup.of_owner(
            ctx.conn, p.owner or "", _scope(p.scope, place(ctx, p.project or p.cwd))
        )
    lock = lookup.find(ctx.conn, p.id)
    return [lock] if lock and p.owner in (None, lock.owner) else []


def check(ctx: Context, p: Check) -> list[Shown]:
    here = place(ctx, p.project or p.cwd)
    scope, files, name = names.scope_of(p.scope, here), glob(p, here), glob(p, here.of_names)
    found = list(_blockers(ctx, p, scope, files))
    if name.text != files.text:  # in a worktree, whose files are others
        found += (lock for lock in _blockers(ctx, p, scope, name) if lock.type == "named_lock")
    return [records.shown(lock, now_ms=ctx.now_ms) for lock in found]


def _blockers(ctx: Context, p: Check, scope: str, glob: Glob) -> Iterator[Lock]:
    return lookup.blockers(
        ctx.conn, scope, glob, but=p.exclude_owner, exclusive=p.exclusive, now_ms=ctx.now_ms
    )


def check_many(ctx: Context, p: CheckMany) -> list[Touched]:
    here = place(ctx, p.project or p.cwd)
    found = lookup.check_many(
        ctx.conn,
        names.scope_of(p.scope, here),
        [(path, names.path(path, here)) for path in p.paths],
        but=p.exclude_owner,
        now_ms=ctx.now_ms,
    )
    return [Touched(path, records.shown(lock, now_ms=ctx.now_ms)) for path, lock in found]


def list_(ctx: Context, p: List) -> list[Shown]:
    scope = _scope(p.scope, place(ctx, p.project or p.cwd))
    locks = lookup.every(ctx.conn, scope=scope, owner=p.owner, type_=p.type)
    found = (records.shown(lock, now_ms=ctx.now_ms) for lock in locks)
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
    locks = lookup.of_owner(ctx.conn, p.from_owner, _scope(p.scope, place(ctx, p.project or p.cwd)))
    done = store.transfer(ctx.conn, locks, p.to_owner, actor=ctx.writer, now_ms=ctx.now_ms)
    ctx.changed = bool(done)
    return Transferred(done)


def _check_meant(p: Renew | Release) -> None:
    if p.id is None and p.owner is None:
        raise Usage("pass a reservation id or an owner")


# --- what is shown --------------------------------------------------------------------------------


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


_HELD = (
    Column("ID", "id"),
    Column("PATTERN", "pattern", "path"),
    Column("OWNER", "owner"),
    Column("HOLDS", lambda r: "exclusively" if r.exclusive else "shared"),
    Column("STATE", lambda r: "active" if r.active else "ended", "state"),
    Column("SINCE", "created_at", "age"),
    Column("EXPIRES", "expires_at", "until"),
    Column("PROCESS", lambda r: r.pid and f"{r.pid} {r.alive}", spare=True),
    Column("WHY", "reason", spare=True),
)
_FREE = "It is free: no other owner has reserved it."
HELD = Table(
    *_HELD,
    empty="Nothing is reserved. Do so: icctl coordination reserve --path=FILE --ttl=15m",
    filtered=True,
)

VERBS = [
    *reserving.VERBS,
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
        check=check_named,
        show=show_check,
        human=Table(*_HELD, empty=_FREE),
        exit=lambda found: 1 if found else 0,
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
        human=Table(
            Column("PATH", "path", "path"),
            Column("PATTERN", lambda r: r.blocker.pattern, "path"),
            Column("OWNER", lambda r: r.blocker.owner),
            Column("SINCE", lambda r: r.blocker.created_at, "age"),
            Column("EXPIRES", lambda r: r.blocker.expires_at, "until"),
            Column("ID", lambda r: r.blocker.id, "id", spare=True),
            empty="All of them are free: no other owner has reserved them.",
        ),
        exit=lambda found: 1 if found else 0,
        summary="Print which of many paths are reserved.",
        examples=['icctl coordination check-many a.py b.py --exclude-owner="$SESSION"'],
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
        summary="Transfer reservations to another owner.",
        examples=['icctl coordination transfer --from="$SESSION" --to=reviewer'],
    ),
]
