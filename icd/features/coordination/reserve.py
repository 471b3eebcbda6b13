"""coordination reserve, reserve-many: take files, at once or when their holders have ended."""

import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from icd.app import render
from icd.app.call import EVENTS, Answer, Context, Params, Topic
from icd.app.invocation import LOOK_AGAIN_SECONDS, Ask, Output, World, line
from icd.app.types import SPAN
from icd.app.verb import Command, Method, Option, Stream, Writes, narrow, no_rows
from icd.errors import IcError, Usage
from icd.features.coordination import names, records, store
from icd.features.coordination.forms import (
    Conflict,
    Named,
    Outcome,
    Outcomes,
    Release,
    Reserve,
    ReserveMany,
    Terms,
)
from icd.features.coordination.globs import Glob
from icd.features.coordination.names import Place
from icd.features.coordination.records import Shown, Wish
from icd.values import processes, validation
from icd.values.wire import CENTURY_MS

HINT = "ask its owner to release it, or work on something else"


class ReserveForm(Reserve):
    __doc__ = Reserve.__doc__

    wait_ms: Annotated[
        int, Meta(ge=0, le=CENTURY_MS), SPAN, Option("--wait", "Wait this long for others.")
    ] = 0


# --- what is done ---------------------------------------------------------------------------------


def place(ctx: Context, directory: str | None) -> Place:
    return names.place(ctx.path, directory)


def glob(p: Reserve | Named | Release, here: Place) -> Glob:
    return names.path(p.path, here) if p.path is not None else names.pattern(p.pattern or "", here)


def reserve(ctx: Context, p: Reserve) -> Outcome:
    here = place(ctx, p.project or p.cwd)
    meant = glob(p, here.of_names if p.type == "named_lock" else here)
    wish = structs.replace(_wish(p, here, meant), type=p.type)
    lock, blocker = store.reserve(
        ctx.conn, wish, actor=ctx.writer, now_ms=ctx.now_ms, is_retry=p.again
    )
    if blocker is not None:
        ctx.changed = not p.again
        shown = records.shown(blocker, now_ms=ctx.now_ms)
        return Outcome(conflict=_conflict(shown), told=shown.told)
    assert lock is not None
    return Outcome(records.shown(lock, now_ms=ctx.now_ms))


def reserve_many(ctx: Context, p: ReserveMany) -> Outcomes:
    here = place(ctx, p.project or p.cwd)
    # One file may be spelled in several ways.
    paths = names.followed(p.paths, here) if p.follow else p.paths
    files = {file.text: file for file in (names.path(path, here) for path in paths)}
    wishes = [_wish(p, here, file) for file in files.values()]
    locks, blocker = store.reserve_all(ctx.conn, wishes, actor=ctx.writer, now_ms=ctx.now_ms)
    if blocker is not None:
        shown = records.shown(blocker, now_ms=ctx.now_ms)
        return Outcomes([], _conflict(shown), shown.told)
    return Outcomes([records.shown(lock, now_ms=ctx.now_ms) for lock in locks])


def _wish(p: Terms, here: Place, files: Glob) -> Wish:
    return Wish(
        owner=p.owner,
        scope=names.scope_of(p.scope, here),
        glob=files,
        exclusive=p.exclusive,
        ttl_ms=p.ttl_ms,
        reason=p.reason,
        run_id=p.run_id,
        dispatch_id=p.dispatch_id,
        process=None if p.pid is None else processes.identify(p.pid),
    )


def _conflict(blocker: Shown) -> Conflict:
    return Conflict(
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


def check_named(p: Reserve | Named) -> None:
    if (p.pattern is None) == (p.path is None):
        raise Usage("pass either a pattern or a path", hint="--pattern='src/**', or --path=FILE")


def _check_reserve(p: Reserve) -> None:
    check_named(p)
    _check_terms(p)


def _check_terms(p: Terms) -> None:
    """One that is left out is not looked at by its type."""
    validation.check_owner(p.owner)


def _events(_params: Params) -> Topic:
    """Whatever ends a reservation is an event."""
    return EVENTS


# --- what is shown --------------------------------------------------------------------------------


def ask_reserve(world: World, f: ReserveForm) -> Ask:
    def show(found: Outcome) -> Output:
        if found.lock is None:
            waits = "" if f.wait_ms else "wait for it with --wait, "
            return _refused(world, "reserve", found, waits + HINT)
        return render.to_json({"lock": found.lock}) if world.json else render.text(found.lock.id)

    params = narrow(f, Reserve)
    if not f.wait_ms:
        return Ask("coordination.reserve", params, show)
    return _waiting(params, show, time.monotonic() + f.wait_ms / 1000)


def ask_reserve_many(world: World, f: ReserveMany) -> Ask:
    def show(found: Outcomes) -> Output:
        if found.conflict is not None:
            return _refused(world, "reserve-many", found, HINT)
        if world.json:
            return render.to_json({"locks": found.locks})
        return render.text(*(lock.id for lock in found.locks))

    return Ask("coordination.reserve_many", f, show)


def _refused(world: World, verb: str, found: Outcome | Outcomes, hint: str) -> Output:
    shown = render.to_json({"conflict": found.conflict}, 1) if world.json else Output(1)
    shown.stderr = line(world, f"coordination {verb}", IcError(found.told, hint=hint))
    return shown


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
    Method(
        "coordination.reserve_many",
        ReserveMany,
        Outcomes,
        reserve_many,
        check=_check_terms,
        writes=Writes(no_rows, appends=True),
    ),
    Command(
        "coordination reserve-many",
        ReserveMany,
        ask_reserve_many,
        order=("owner", "ttl_ms"),
        summary="Reserve several paths, all or none.",
        examples=['icctl coordination reserve-many a.py b.py --owner="$SESSION" --ttl=15m'],
    ),
]
