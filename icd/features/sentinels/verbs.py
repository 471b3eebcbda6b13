"""sentinel: throttle guards."""

import sqlite3
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, World
from icd.app.types import DURATION, Seconds
from icd.app.verb import (
    Argument,
    Column,
    Command,
    Method,
    Option,
    Table,
    Verb,
    Writes,
    narrow,
    no_rows,
)
from icd.errors import Usage
from icd.features.sentinels import store
from icd.values import validation
from icd.values.wire import Result, iso

MANY = 256  # guards in one check_many: a batch must stay short for other callers

Name = Annotated[str, Argument("NAME", "Name of the sentinel."), validation.check_name]
Scope = Annotated[str, Argument("SCOPE", "Scope, such as a session id."), validation.check_scope]
SECONDS = Seconds(0, store.MAX_INTERVAL_S)
Interval = Annotated[int, Meta(ge=0, le=store.MAX_INTERVAL_S), SECONDS]
Age = Annotated[int, Meta(ge=0, le=store.MAX_INTERVAL_S * 1000), DURATION]


# --- parameters -----------------------------------------------------------------------------------


class Check(Params):
    """Claim a sentinel; print allowed (exit 0) or throttled (exit 1).

    Exactly one caller per interval gets allowed.
    An interval is a number of seconds, or a duration such as 5m, rounded up to seconds.
    Interval 0 allows one claim per scope, until the claim is reset or pruned.
    The claim stands even if the caller crashes afterwards: a retry is throttled.
    For work that must complete, record started and done in state as well.
    """

    rpc = (
        "Claim a sentinel.\n"
        "Exactly one caller per interval is allowed.\n"
        "Interval 0 allows one claim per scope, until the claim is reset or pruned.\n"
        "The claim stands even if the caller crashes afterwards: a retry is throttled.\n"
        "For work that must complete, record started and done in state as well."
    )
    name: Name
    scope_id: Scope
    interval: Annotated[
        Interval,
        Option("--interval", "Interval of the rate limit; 0 allows one claim, once.", "SECONDS"),
    ]


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """One of several claims."""

    name: Name
    scope_id: Scope
    interval: Annotated[
        Interval, Meta(description="Interval in seconds; 0 allows one claim, once.")
    ]


def _claim_of(text: str) -> Claim:
    name, colon, rest = text.partition(":")
    scope, second, interval = rest.rpartition(":")
    if not (colon and second):
        raise Usage(f"{text!r} is not NAME:SCOPE:INTERVAL")
    return Claim(name, scope, SECONDS.read(interval))


class CheckMany(Params):
    """Claim several sentinels in one transaction, and print one verdict per line.

    Prints name, scope and verdict, separated by tabs.
    Exit 0 if all are allowed, 1 if any is throttled; the claims are independent, and those that
    were allowed stand.
    NAME ends at the first colon, INTERVAL (seconds, or a duration) starts after the last.
    """

    rpc = (
        "Claim several sentinels in one transaction.\n"
        "The claims are independent, and those that were allowed stand."
    )
    guards: Annotated[
        list[Claim],
        Meta(min_length=1, max_length=MANY),
        Argument("NAME:SCOPE:INTERVAL...", "Sentinels to claim.", read=_claim_of, nargs=-1),
    ]


class Reset(Params):
    """Clear a claim, so that the next check is allowed."""

    name: Name
    scope_id: Scope


class ResetAll(Params):
    """Clear the claims of a name in all scopes."""

    name: Name


class ResetForm(ResetAll):
    """Clear a claim, so that the next check is allowed."""

    scope: Scope | None = None
    every: Annotated[bool, Option("--all", "Reset NAME in all scopes.")] = False


class List(Params):
    """Print name, scope and the unix time of the last claim, separated by tabs."""

    rpc = "List the claims with the time of the last one."


class Prune(Params):
    """Delete old claims, including once-only claims unless --keep-once is given."""

    rpc = "Delete old claims, including once-only claims unless `keep_once` is set."
    older_than_ms: Annotated[Age, Option("--older-than", "Minimum time since the last claim.")]
    keep_once: Annotated[bool, Option("--keep-once", "Keep once-only claims (interval 0).")] = False
    keep_live: Annotated[bool, Option("--keep-live", "Keep claims that still throttle.")] = False


# --- results --------------------------------------------------------------------------------------


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

    @property
    def verdict(self) -> str:
        return "allowed" if self.allowed else "throttled"


class ResetCount(Result):
    reset: int


class Pruned(Result):
    pruned: int


# --- what is done ---------------------------------------------------------------------------------


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
    return ResetCount(store.reset(ctx.conn, p.name, p.scope_id))


def reset_all(ctx: Context, p: ResetAll) -> ResetCount:
    return ResetCount(store.reset_all(ctx.conn, p.name))


def list_(ctx: Context, _p: List) -> list[store.Sentinel]:
    return store.every(ctx.conn)


def prune(ctx: Context, p: Prune) -> Pruned:
    return Pruned(
        store.prune(
            ctx.conn,
            older_than_ms=p.older_than_ms,
            keep_once=p.keep_once,
            keep_live=p.keep_live,
            now_ms=ctx.now_ms,
        )
    )


def _claim(ctx: Context, guard: Check | Claim, request_id: str | None) -> Checked:
    if guard.scope_id in ("", "unknown"):
        ctx.warnings.append(
            f"the scope of sentinel {guard.name} is {guard.scope_id or 'empty'}: "
            "all sessions without an id share it"
        )
    verdict = store.check(
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
        store.auto_prune(ctx.conn, now_ms=ctx.now_ms)
    except sqlite3.Error as exc:
        if not ctx.conn.in_transaction:
            raise
        ctx.warnings.append(f"auto-prune: {exc}")


def _check_guards(p: CheckMany) -> None:
    if len(p.guards) > MANY:
        raise Usage(f"at most {MANY} sentinels in one call")
    for guard in p.guards:
        validation.check_name(guard.name)
        validation.check_scope(guard.scope_id)


# --- what is shown --------------------------------------------------------------------------------


def show_check(r: Checked, _p: Check) -> list[str]:
    return [r.verdict]


def show_checks(found: list[Checked], _p: CheckMany) -> Iterator[str]:
    return (render.columns(r.name, r.scope_id, r.verdict) for r in found)


def ask_reset(_world: World, f: ResetForm) -> Ask:
    if f.every == (f.scope is not None):
        raise Usage("pass either a scope or --all")
    if f.every:
        return Ask("sentinel.reset_all", narrow(f, ResetAll))
    return Ask("sentinel.reset", Reset(f.name, f.scope or ""))


def show_reset(r: ResetCount, f: ResetForm) -> list[str]:
    if f.every:
        return [f"{r.reset} reset"]
    return ["reset" if r.reset else "not found"]


def show_list(found: list[store.Sentinel], _p: List) -> Iterator[str]:
    return (render.columns(s.name, s.scope_id, s.last_fired) for s in found)


def show_prune(r: Pruned, _p: Prune) -> list[str]:
    return [f"{r.pruned} pruned"]


VERBS = [
    Verb(
        "sentinel check",
        Check,
        Checked,
        check,
        writes=Writes(no_rows, atomic=True, keeps_effects=False),
        show=show_check,
        exit=lambda r: 0 if r.allowed else 1,
        summary="Claim one: allowed (0) or throttled (1).",
        examples=[
            'icctl sentinel check stop "$SESSION" --interval=0 || exit 0',
            'icctl sentinel check drift "$SESSION" --interval=300',
            "icctl sentinel check daily global --interval=24h",
        ],
    ),
    Verb(
        "sentinel check-many",
        CheckMany,
        list[Checked],
        check_many,
        check=_check_guards,
        writes=Writes(no_rows, keeps_effects=False),
        show=show_checks,
        human=Table(
            Column("VERDICT", "verdict", "state"),
            Column("SENTINEL", "name"),
            Column("SCOPE", "scope_id"),
            Column("FREE AGAIN", "expires", "until"),
        ),
        exit=lambda found: 0 if all(r.allowed for r in found) else 1,
        summary="Claim several at once.",
        examples=['icctl sentinel check-many "stop:$SESSION:0" "drift:$SESSION:300"'],
    ),
    Method("sentinel.reset", Reset, ResetCount, reset, writes=Writes(no_rows)),
    Method("sentinel.reset_all", ResetAll, ResetCount, reset_all, writes=Writes(no_rows)),
    Command(
        "sentinel reset",
        ResetForm,
        ask_reset,
        show=show_reset,
        summary="Clear a claim.",
        examples=['icctl sentinel reset stop "$SESSION"', "icctl sentinel reset --all stop"],
    ),
    Verb(
        "sentinel list",
        List,
        list[store.Sentinel],
        list_,
        show=show_list,
        human=Table(
            Column("SENTINEL", "name"),
            Column("SCOPE", "scope_id"),
            Column("FIRED", "last_fired", "age"),
            Column("INTERVAL", lambda s: None if s.once else s.interval, "span"),
            Column("FREE AGAIN", lambda s: None if s.once else s.last_fired + s.interval, "until"),
            empty="No claims yet. Make one: icctl sentinel check NAME SCOPE --interval=5m",
        ),
        summary="List claims and their times.",
        examples=["icctl sentinel list"],
    ),
    Verb(
        "sentinel prune",
        Prune,
        Pruned,
        prune,
        writes=Writes(no_rows),
        show=show_prune,
        summary="Delete old claims.",
        examples=["icctl sentinel prune --older-than=7d --keep-once"],
    ),
]
