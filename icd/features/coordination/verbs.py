"""coordination: reservations of files."""

import time
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from icd.app import render
from icd.app.call import EVENTS, Answer, Context, Params, Topic
from icd.app.invocation import LOOK_AGAIN_SECONDS, Ask, Output, World, line
from icd.app.types import SPAN
from icd.app.verb import (
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
from icd.errors import IcError, Usage
from icd.features.coordination import names, records, store
from icd.features.coordination.forms import (
    Check,
    CheckMany,
    Conflict,
    List,
    Named,
    Outcome,
    Release,
    Released,
    Renew,
    Renewed,
    Reserve,
    Sweep,
    Touched,
    Transfer,
    Transferred,
)
from icd.features.coordination.globs import Glob
from icd.features.coordination.names import Place
from icd.features.coordination.records import Lock, Shown, Wish
from icd.features.coordination.store import Swept
from icd.values import processes, validation
from icd.values.wire import CENTURY_MS

HINT = "wait for it with --wait, ask its owner to release it, or work on something else"


class ReserveForm(Reserve):
    __doc__ = Reserve.__doc__

    wait_ms: Annotated[
        int, Meta(ge=0, le=CENTURY_MS), SPAN, Option("--wait", "Wait this long for others.")
    ] = 0


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
        return _conflict(records.shown(blocker, now_ms=ctx.now_ms))
    assert lock is not None
    return Outcome(records.shown(lock, now_ms=ctx.now_ms))


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
    locks = [lock for lock in _meant(ctx, p) if records.stands(lock, now_ms=ctx.now_ms)]
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
    return [records.shown(lock, now_ms=ctx.now_ms) for lock in found]


def check_many(ctx: Context, p: CheckMany) -> list[Touched]:
    here = _place(ctx, p)
    found = store.check_many(
        ctx.conn,
        names.scope_of(p.scope, here),
        [(path, names.path(path, here)) for path in p.paths],
        but=p.exclude_owner,
        now_ms=ctx.now_ms,
    )
    return [Touched(path, records.shown(lock, now_ms=ctx.now_ms)) for path, lock in found]


def list_(ctx: Context, p: List) -> list[Shown]:
    scope = _scope(p.scope, _place(ctx, p))
    locks = store.every(ctx.conn, scope=scope, owner=p.owner, type_=p.type)
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

    params = narrow(f, Reserve)
    if not f.wait_ms:
        return Ask("coordination.reserve", params, show)
    return _waiting(params, show, time.monotonic() + f.wait_ms / 1000)


class _Left(Struct):
    """Where a waiting is by now: the moment of its end stays what it was."""

    params: msgspec.Raw
    ends_at: float


def _waiting(params: Reserve, show: Callable[[Outcome], Output], ends_at: float) -> Ask:
    """Ask again whenever a reservation has ended, which is an event: a daemon pushes it.

    A deadline that passes, and a process that ends, are found by looking; so is everything without
    a daemon.
    """
    is_over = True

    def shown(outcome: Outcome) -> Output:
        nonlocal is_over
        is_over = outcome.lock is not None or time.monotonic() >= ends_at
        return show(outcome) if is_over else Output(1)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None or is_over:
            return None
        return _waiting(structs.replace(params, again=True), show, ends_at)

    def resume(place: bytes) -> Ask:
        left = msgspec.json.decode(place, type=_Left)
        return _waiting(msgspec.json.decode(left.params, type=Reserve), show, left.ends_at)

    return Ask(
        "coordination.reserve",
        params,
        shown,
        follow=follow,
        patience=LOOK_AGAIN_SECONDS,
        ends_at=ends_at,
        cut_short=2,
        place=msgspec.json.encode(_Left(msgspec.Raw(msgspec.json.encode(params)), ends_at)),
        resume=resume,
    )


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
            'icctl coordination reserve --owner="$SESSION" --pattern="src/**" --ttl=15m',
            "icctl coordination reserve --path=src/app.py --exclusive=false",
            "icctl coordination reserve --scope=api --pattern=v1 --json",
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
