"""lease.*: claims that outlive processes."""

from typing import Annotated

from msgspec import Meta

from icd.app.method import Context, Method, Params, no_rows
from icd.app.results import Result
from icd.errors import InvalidTtl
from icd.features.leases import store as leases
from icd.features.state.store import INT64
from icd.values import validation as names
from icd.values.validation import iso

Token = Annotated[int, Meta(ge=1, le=INT64 - 1)]


class Acquire(Params):
    name: str
    scope_id: str
    owner: str
    ttl_ms: int


class Renew(Params):
    name: str
    scope_id: str
    owner: str
    ttl_ms: int | None = None
    token: Token | None = None


class Release(Params):
    name: str
    scope_id: str
    owner: str
    token: Token | None = None


class List(Params):
    name: str | None = None
    scope_id: str | None = None


class Held(Result):
    """A lease that is held; `change` says what the call did: acquired, renewed or taken_over."""

    name: str
    scope_id: str
    owner: str
    token: int
    ttl_ms: int
    acquired_at: int
    acquired_at_iso: str
    renewed_at: int
    renewed_at_iso: str
    expires_at: int
    expires_at_iso: str
    expires_ms: int
    writer_pid: int | None
    writer_session: str | None
    change: str = ""


class Released(Result):
    released: bool


def acquire(ctx: Context, p: Acquire) -> Held:
    _warn(ctx, p)
    lease, change = leases.acquire(
        ctx.conn,
        p.name,
        p.scope_id,
        p.owner,
        ttl_ms=p.ttl_ms,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return _shown(lease, change)


def renew(ctx: Context, p: Renew) -> Held:
    lease = leases.renew(
        ctx.conn,
        p.name,
        p.scope_id,
        p.owner,
        ttl_ms=p.ttl_ms,
        token=p.token,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return _shown(lease, "renewed")


def release(ctx: Context, p: Release) -> Released:
    done = leases.release(
        ctx.conn,
        p.name,
        p.scope_id,
        p.owner,
        token=p.token,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return Released(done)


def list_(ctx: Context, p: List) -> list[Held]:
    found = leases.held(ctx.conn, name=p.name, scope_id=p.scope_id, now_ms=ctx.now_ms)
    return [_shown(lease) for lease in found]


def check_claim(p: Acquire | Renew | Release) -> None:
    names.check_name(p.name)
    names.check_scope(p.scope_id)
    names.check_owner(p.owner)
    if not isinstance(p, Release) and p.ttl_ms is not None:
        _check_ttl(p.ttl_ms)


def check_list(p: List) -> None:
    if p.name is not None:
        names.check_name(p.name)
    if p.scope_id is not None:
        names.check_scope(p.scope_id)


def _check_ttl(ttl_ms: int) -> None:
    if ttl_ms < 1:
        raise InvalidTtl("a lease needs a TTL above 0", hint="give the time that work may take")
    if ttl_ms > leases.MAX_TTL_MS:
        raise InvalidTtl(
            "a lease lasts a year at most", hint="take a shorter one and renew it in time"
        )


def _warn(ctx: Context, p: Acquire) -> None:
    if p.scope_id in ("", "unknown"):
        ctx.warnings.append(
            f"the scope of lease {p.name} is {p.scope_id or 'empty'}: is the variable unset?"
        )
    if p.owner == "unknown":
        ctx.warnings.append(
            f"the owner of lease {p.name} is unknown: all sessions without an id hold it together"
        )


def _shown(lease: leases.Lease, change: str = "") -> Held:
    return Held(
        name=lease.name,
        scope_id=lease.scope_id,
        owner=lease.owner,
        token=lease.token,
        ttl_ms=lease.ttl_ms,
        acquired_at=lease.acquired_at,
        acquired_at_iso=iso(lease.acquired_at),
        renewed_at=lease.renewed_at,
        renewed_at_iso=iso(lease.renewed_at),
        expires_at=lease.expires_at,
        expires_at_iso=iso(lease.expires_at),
        expires_ms=lease.expires_ms,
        writer_pid=lease.pid,
        writer_session=lease.session,
        change=change,
    )


METHODS = [
    Method(
        "lease.acquire",
        Acquire,
        Held,
        acquire,
        check=check_claim,
        writes=True,
        touches=no_rows,
        appends=True,
    ),
    Method(
        "lease.renew",
        Renew,
        Held,
        renew,
        check=check_claim,
        writes=True,
        touches=no_rows,
        appends=True,
    ),
    Method(
        "lease.release",
        Release,
        Released,
        release,
        check=check_claim,
        writes=True,
        touches=no_rows,
        appends=True,
    ),
    Method("lease.list", List, list[Held], list_, check=check_list),
]
