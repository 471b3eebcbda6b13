"""lease: claims that outlive processes."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import World
from icd.app.types import SPAN
from icd.app.verb import Argument, Column, Option, Table, Verb, Writes, no_rows
from icd.errors import InvalidTtl, Usage
from icd.features.leases import store
from icd.features.leases.store import Lease
from icd.values import validation
from icd.values.wire import INT64, Result


def _check_ttl(ttl_ms: int) -> None:
    if ttl_ms < 1:
        raise InvalidTtl("a lease needs a TTL above 0", hint="pass the time that the work may take")
    if ttl_ms > store.MAX_TTL_MS:
        raise InvalidTtl(
            "a lease lasts at most a year", hint="use a shorter TTL and renew the lease"
        )


def _who(world: World, owner: str | None) -> str:
    """The owner: as given, else the session.  Never a pid: a lease outlives processes."""
    if owner is not None:
        return owner
    if not world.session:
        raise Usage("no owner given", hint="pass --owner, or set INTERCORE_SESSION")
    return world.session


Name = Annotated[str, Argument("NAME", "Name of the lease."), validation.check_name]
Scope = Annotated[
    str, Argument("SCOPE", "Scope of the lease, such as an issue."), validation.check_scope
]
Owner = Annotated[
    str,
    Meta(description="Owner of the lease."),
    Option("--owner", "Owner of the lease (default: the session).", "O", resolve=_who),
    validation.check_owner,
]
Ttl = Annotated[int, SPAN, _check_ttl]
Token = Annotated[
    int,
    Meta(ge=1, le=INT64 - 1),
    Option("--token", "Act only if the lease still has this token.", "N"),
]


# --- parameters -----------------------------------------------------------------------------------


class Acquire(Params):
    """Acquire a lease, and print its fencing token.

    Exit 1 if another owner holds it; prints the owner, the remaining time and the token.
    The current owner extends the lease and keeps the token.
    After the deadline, any caller may take the lease over with a greater token: renew it before.
    """

    rpc = (
        "Acquire a lease with a fencing token.\n"
        "If another owner holds it, the error `lease_held` names the owner, the remaining time "
        "and the token.\n"
        "The current owner extends the lease and keeps the token.\n"
        "After the deadline, any caller may take the lease over with a greater token: renew it "
        "before."
    )
    name: Name
    scope_id: Scope
    owner: Owner
    ttl_ms: Annotated[Ttl, Option("--ttl", "Time until the lease expires.")]


class Renew(Params):
    """Extend a lease that you hold, and print its token.

    The deadline never moves to an earlier time.
    Exit 1 if the lease is lost: it expired, was released, or has another owner.
    """

    rpc = (
        "Extend a lease that you hold.\n"
        "The deadline never moves to an earlier time.\n"
        "The error `lease_lost` means that it expired, was released, or has another owner."
    )
    name: Name
    scope_id: Scope
    owner: Owner
    ttl_ms: Annotated[
        Ttl | None, Option("--ttl", "Time until the lease expires (default: as before).")
    ] = None
    token: Token | None = None


class Release(Params):
    """Release a lease; print released, or not held if it has ended.

    Exit 1 if another owner holds it, or if --token is not its latest token.
    """

    rpc = (
        "Release a lease.\n"
        "This fails if another owner holds it, or if `token` is not its latest token."
    )
    name: Name
    scope_id: Scope
    owner: Owner
    token: Token | None = None


class List(Params):
    """Print name, scope, owner, token and the unix time of the deadline, separated by tabs."""

    rpc = "List the held leases."
    name: Name | None = None
    scope_id: Scope | None = None


class Released(Result):
    released: bool


# --- what is done ---------------------------------------------------------------------------------


def acquire(ctx: Context, p: Acquire) -> Lease:
    _warn(ctx, p)
    return store.acquire(
        ctx.conn,
        p.name,
        p.scope_id,
        p.owner,
        ttl_ms=p.ttl_ms,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )


def renew(ctx: Context, p: Renew) -> Lease:
    return store.renew(
        ctx.conn,
        p.name,
        p.scope_id,
        p.owner,
        ttl_ms=p.ttl_ms,
        token=p.token,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )


def release(ctx: Context, p: Release) -> Released:
    done = store.release(
        ctx.conn,
        p.name,
        p.scope_id,
        p.owner,
        token=p.token,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return Released(done)


def list_(ctx: Context, p: List) -> list[Lease]:
    return store.held(ctx.conn, name=p.name, scope_id=p.scope_id, now_ms=ctx.now_ms)


def _warn(ctx: Context, p: Acquire) -> None:
    if p.scope_id in ("", "unknown"):
        ctx.warnings.append(
            f"the scope of lease {p.name} is {p.scope_id or 'empty'}: is the variable unset?"
        )
    if p.owner == "unknown":
        ctx.warnings.append(
            f"the owner of lease {p.name} is unknown: all sessions without an id share it"
        )


# --- what is shown --------------------------------------------------------------------------------


def show_token(lease: Lease, _p: Params) -> list[str]:
    return [str(lease.token)]


def show_release(r: Released, _p: Release) -> list[str]:
    return ["released" if r.released else "not held"]


def show_list(found: list[Lease], _p: List) -> Iterator[str]:
    return (render.columns(x.name, x.scope_id, x.owner, x.token, x.expires_at) for x in found)


VERBS = [
    Verb(
        "lease acquire",
        Acquire,
        Lease,
        acquire,
        writes=Writes(no_rows, appends=True),
        show=show_token,
        order=("ttl_ms", "owner"),
        summary="Acquire a lease; exit 1 if it is held.",
        examples=[
            'token=$(icctl lease acquire sprint "$BEAD" --ttl=30m) || exit 0',
            'icctl lease acquire deploy production --ttl=10m --owner="$USER" --json',
        ],
    ),
    Verb(
        "lease renew",
        Renew,
        Lease,
        renew,
        writes=Writes(no_rows, appends=True),
        show=show_token,
        order=("ttl_ms", "owner", "token"),
        summary="Renew a lease; exit 1 if it is lost.",
        examples=[
            'icctl lease renew sprint "$BEAD" || exit 1',
            'icctl lease renew sprint "$BEAD" --ttl=1h --token="$TOKEN"',
        ],
    ),
    Verb(
        "lease release",
        Release,
        Released,
        release,
        writes=Writes(no_rows, appends=True),
        show=show_release,
        summary="Release a lease.",
        examples=[
            'icctl lease release sprint "$BEAD"',
            'icctl lease release sprint "$BEAD" --token="$TOKEN"',
        ],
    ),
    Verb(
        "lease list",
        List,
        list[Lease],
        list_,
        show=show_list,
        human=Table(
            Column("LEASE", "name"),
            Column("SCOPE", "scope_id"),
            Column("OWNER", "owner"),
            Column("TOKEN", "token", "number"),
            Column("EXPIRES", "expires_at", "until"),
            Column("ACQUIRED", "acquired_at", "age"),
            Column("RENEWED", "renewed_at", "age", spare=True),
            empty="No lease is held. Take one: icctl lease acquire NAME SCOPE --ttl=30m",
        ),
        summary="List held leases.",
        examples=["icctl lease list", 'icctl lease list sprint "$BEAD" --json'],
    ),
]
