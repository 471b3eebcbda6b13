"""sentinel.*: throttle guards."""

import sqlite3
from typing import Annotated

from msgspec import Meta, Struct

from icd.app.method import Context, Method, Params, no_rows
from icd.app.results import Result
from icd.features.sentinels import store as sentinels
from icd.values import validation as names
from icd.values.validation import iso

MANY = 256  # guards in one check_many: a batch must stay short for everybody else

Interval = Annotated[int, Meta(ge=0, le=sentinels.MAX_INTERVAL_S)]


class Check(Params):
    name: str
    scope_id: str
    interval: Interval


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    scope_id: str
    interval: Interval


class CheckMany(Params):
    guards: Annotated[list[Claim], Meta(min_length=1, max_length=MANY)]


class Reset(Params):
    name: str
    scope_id: str


class ResetAll(Params):
    name: str


class List(Params):
    pass


class Prune(Params):
    older_than_ms: Annotated[int, Meta(ge=0, le=sentinels.MAX_INTERVAL_S * 1000)]
    keep_once: bool = False
    keep_live: bool = False


class Checked(Result):
    """A verdict; `retry_after` and `expires` are null when it will never be allowed again."""

    name: str
    scope_id: str
    allowed: bool
    last_fired: int
    last_fired_iso: str
    retry_after: int | None
    expires: int | None
    expires_iso: str | None


class Fired(Result):
    name: str
    scope_id: str
    last_fired: int
    last_fired_iso: str
    once: bool
    interval: int


class ResetCount(Result):
    reset: int


class Pruned(Result):
    pruned: int


def check(ctx: Context, p: Check) -> Checked:
    verdict = _claim(ctx, p, ctx.request_id)
    if verdict.allowed:  # the table grows with claims only
        _auto_prune(ctx)
    return verdict


def check_many(ctx: Context, p: CheckMany) -> list[Checked]:
    """Independent claims: those granted stand, whatever the others are told."""
    verdicts = [
        _claim(ctx, guard, f"{ctx.request_id}#{number}" if ctx.request_id else None)
        for number, guard in enumerate(p.guards)
    ]
    if any(verdict.allowed for verdict in verdicts):
        _auto_prune(ctx)
    return verdicts


def reset(ctx: Context, p: Reset) -> ResetCount:
    return ResetCount(sentinels.reset(ctx.conn, p.name, p.scope_id))


def reset_all(ctx: Context, p: ResetAll) -> ResetCount:
    return ResetCount(sentinels.reset_all(ctx.conn, p.name))


def list_(ctx: Context, _p: List) -> list[Fired]:
    return [
        Fired(s.name, s.scope_id, s.last_fired, iso(s.last_fired), s.once, s.interval_ms // 1000)
        for s in sentinels.every(ctx.conn)
    ]


def prune(ctx: Context, p: Prune) -> Pruned:
    return Pruned(
        sentinels.prune(
            ctx.conn,
            older_than_ms=p.older_than_ms,
            keep_once=p.keep_once,
            keep_live=p.keep_live,
            now_ms=ctx.now_ms,
        )
    )


def check_names(p: Check | Reset) -> None:
    names.check_name(p.name)
    names.check_scope(p.scope_id)


def check_name(p: ResetAll) -> None:
    names.check_name(p.name)


def check_guards(p: CheckMany) -> None:
    for guard in p.guards:
        names.check_name(guard.name)
        names.check_scope(guard.scope_id)


def _claim(ctx: Context, guard: Check | Claim, request_id: str | None) -> Checked:
    if guard.scope_id in ("", "unknown"):
        ctx.warnings.append(
            f"the scope of sentinel {guard.name} is {guard.scope_id or 'empty'}: "
            "all sessions without an id share it"
        )
    verdict = sentinels.check(
        ctx.conn,
        guard.name,
        guard.scope_id,
        interval_s=guard.interval,
        request_id=request_id,
        now_ms=ctx.now_ms,
    )
    last_fired = verdict.fired_ms // 1000
    retry_after = expires = None
    if verdict.retry_ms is not None:
        retry_after = -(-verdict.retry_ms // 1000)
        expires = -(-(ctx.now_ms + verdict.retry_ms) // 1000)
    return Checked(
        guard.name,
        guard.scope_id,
        verdict.allowed,
        last_fired,
        iso(last_fired),
        retry_after,
        expires,
        None if expires is None else iso(expires),
    )


def _auto_prune(ctx: Context) -> None:
    """Best effort, but never in silence: a failure here is an early sign of a failing disk."""
    try:
        sentinels.auto_prune(ctx.conn, now_ms=ctx.now_ms)
    except sqlite3.Error as exc:
        if not ctx.conn.in_transaction:
            raise
        ctx.warnings.append(f"auto-prune: {exc}")


METHODS = [
    Method(
        "sentinel.check",
        Check,
        Checked,
        check,
        check=check_names,
        writes=True,
        keeps_effects=False,
        atomic=True,
        touches=no_rows,
    ),
    Method(
        "sentinel.check_many",
        CheckMany,
        list[Checked],
        check_many,
        check=check_guards,
        writes=True,
        keeps_effects=False,
        touches=no_rows,
    ),
    Method(
        "sentinel.reset",
        Reset,
        ResetCount,
        reset,
        check=check_names,
        writes=True,
        touches=no_rows,
    ),
    Method(
        "sentinel.reset_all",
        ResetAll,
        ResetCount,
        reset_all,
        check=check_name,
        writes=True,
        touches=no_rows,
    ),
    Method("sentinel.list", List, list[Fired], list_),
    Method("sentinel.prune", Prune, Pruned, prune, writes=True, touches=no_rows),
]
