"""Claims that outlive processes: an owner, a deadline, and a fencing token.

Invariants
    - at most one owner holds a lease: another one takes it over only after its deadline;
    - an owner that gets a lease anew gets a token above all that were ever given, so that what the
      lease guards can tell a late holder from the present one;
    - the holder keeps its token for as long as it extends the lease in time; once the deadline has
      passed, the lease is lost, even if no other owner wanted it;
    - a deadline never moves to an earlier moment, whatever is asked and whatever the clock does,
      except by release;
    - every change of hands or deadline is an event.

Callers run these inside a transaction, check names and durations first, and take `now_ms` after
they hold the lock.
"""

import sqlite3

import msgspec
from msgspec import field

from icd.db.rows import checked, put, select, values
from icd.errors import IcError, LeaseHeld, LeaseLost
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.values.processes import Writer
from icd.values.wire import Result, iso

# A year: a longer one would be no lease, since no other owner could ever take it over.
MAX_TTL_MS = 366 * 24 * 3600 * 1000

SOURCE = "lease"

_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000


class Lease(Result):
    """A claim; `writer_session` and `writer_pid` are those of whoever acquired or renewed it last,
    and `change` says what a call did: acquired, renewed or taken_over."""

    name: str
    scope_id: str
    owner: str
    token: int
    ttl_ms: int
    acquired_at: int
    renewed_at: int
    expires_at: int
    expires_ms: int
    session: str | None = field(name="writer_session")
    pid: int | None = field(name="writer_pid")
    acquired_at_iso: str = ""
    renewed_at_iso: str = ""
    expires_at_iso: str = ""
    change: str = ""

    def __post_init__(self) -> None:
        self.acquired_at_iso = iso(self.acquired_at)
        self.renewed_at_iso = iso(self.renewed_at)
        self.expires_at_iso = iso(self.expires_at)

    def is_held(self, *, now_ms: int) -> bool:
        return self.expires_ms > now_ms


_FIND = select(Lease, "leases", "WHERE name = ? AND scope_id = ?")
_HELD = select(
    Lease,
    "leases",
    """
WHERE expires_ms > ?1 AND (name = ?2 OR ?2 IS NULL) AND (scope_id = ?3 OR ?3 IS NULL)
ORDER BY name, scope_id
""",
)
_NEXT = "UPDATE counters SET value = value + 1 WHERE name = 'leases' RETURNING value"
PUT = put(Lease, "leases", key=("name", "scope_id"))
_RELEASE = "UPDATE leases SET expires_at = ?, expires_ms = 0 WHERE name = ? AND scope_id = ?"


def acquire(
    conn: sqlite3.Connection,
    name: str,
    scope_id: str,
    owner: str,
    *,
    ttl_ms: int,
    actor: Writer,
    now_ms: int,
) -> Lease:
    """Hold the lease from now on; its holder extends it."""
    before = find(conn, name, scope_id)
    if before is not None and before.is_held(now_ms=now_ms):
        if before.owner != owner:
            raise _held(before, now_ms=now_ms)
        return _extend(conn, before, ttl_ms=ttl_ms, actor=actor, now_ms=now_ms)
    (token,) = conn.execute(_NEXT).fetchone()
    lease = _made(name, scope_id, owner, token, ttl_ms=ttl_ms, actor=actor, now_ms=now_ms)
    _put(conn, lease)
    if before is None or not before.expires_ms or before.owner == owner:
        before, lease.change = None, "acquired"
    else:
        lease.change = "taken_over"
    _tell(conn, lease, lease.change, previous=before, actor=actor, now_ms=now_ms)
    return lease


def renew(
    conn: sqlite3.Connection,
    name: str,
    scope_id: str,
    owner: str,
    *,
    ttl_ms: int | None = None,
    token: int | None = None,
    actor: Writer,
    now_ms: int,
) -> Lease:
    """Move the deadline; by as much as it was acquired for, if nothing else is asked."""
    lease = find(conn, name, scope_id)
    if lease is None or not _is_of(lease, owner, token) or not lease.is_held(now_ms=now_ms):
        raise LeaseLost(_fate(lease, name, scope_id, owner, now_ms=now_ms))
    ttl_ms = lease.ttl_ms if ttl_ms is None else ttl_ms
    return _extend(conn, lease, ttl_ms=ttl_ms, actor=actor, now_ms=now_ms)


def release(
    conn: sqlite3.Connection,
    name: str,
    scope_id: str,
    owner: str,
    *,
    token: int | None = None,
    actor: Writer,
    now_ms: int,
) -> bool:
    """Give the lease up.  False: it was not held any more, which is no error."""
    lease = find(conn, name, scope_id)
    if token is not None and (lease is None or lease.token != token):
        raise LeaseLost(_fate(lease, name, scope_id, owner, now_ms=now_ms))
    if lease is None or not lease.is_held(now_ms=now_ms):
        return False
    if lease.owner != owner:
        raise LeaseLost(_fate(lease, name, scope_id, owner, now_ms=now_ms))
    conn.execute(_RELEASE, (now_ms // 1000, name, scope_id))
    _tell(conn, lease, "released", actor=actor, now_ms=now_ms)
    return True


def find(conn: sqlite3.Connection, name: str, scope_id: str) -> Lease | None:
    """The last claim, whether it still stands or not."""
    row = conn.execute(_FIND, (name, scope_id)).fetchone()
    return checked(Lease, row) if row else None


def held(
    conn: sqlite3.Connection,
    *,
    name: str | None = None,
    scope_id: str | None = None,
    now_ms: int,
) -> list[Lease]:
    """The leases that are held now."""
    return [checked(Lease, row) for row in conn.execute(_HELD, (now_ms, name, scope_id))]


def about(milliseconds: int) -> str:
    """A duration for people, rounded up, in a unit that leaves two digits or so."""
    for unit, short in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m"), (_SECOND, "s")):
        if milliseconds > 2 * unit:
            return f"{-(-milliseconds // unit)}{short}"
    return f"{milliseconds}ms"


def _made(
    name: str, scope_id: str, owner: str, token: int, *, ttl_ms: int, actor: Writer, now_ms: int
) -> Lease:
    expires_ms = now_ms + ttl_ms
    now = now_ms // 1000
    return Lease(
        name,
        scope_id,
        owner,
        token,
        ttl_ms,
        acquired_at=now,
        renewed_at=now,
        expires_at=-(-expires_ms // 1000),
        expires_ms=expires_ms,
        session=actor.session,
        pid=actor.pid,
    )


def _extend(
    conn: sqlite3.Connection, lease: Lease, *, ttl_ms: int, actor: Writer, now_ms: int
) -> Lease:
    # After a clock stepped back, the old deadline may be the later one; the holder relies on it.
    expires_ms = max(lease.expires_ms, now_ms + ttl_ms)
    extended = msgspec.structs.replace(
        lease,
        ttl_ms=ttl_ms,
        renewed_at=now_ms // 1000,
        expires_at=-(-expires_ms // 1000),
        expires_ms=expires_ms,
        session=actor.session,
        pid=actor.pid,
        change="renewed",
    )
    _put(conn, extended)
    _tell(conn, extended, "renewed", actor=actor, now_ms=now_ms)
    return extended


def _put(conn: sqlite3.Connection, lease: Lease) -> None:
    conn.execute(PUT, values(lease))


def _tell(
    conn: sqlite3.Connection,
    lease: Lease,
    change: str,
    *,
    previous: Lease | None = None,
    actor: Writer,
    now_ms: int,
) -> None:
    said: dict[str, str | int] = {"owner": lease.owner, "token": lease.token}
    if change != "released":
        said["expires_ms"] = lease.expires_ms
    if previous is not None:
        said |= {"previous_owner": previous.owner, "previous_token": previous.token}
    fact = Fact(
        SOURCE,
        change,
        subject_id=f"{lease.name}/{lease.scope_id}",
        payload=msgspec.json.encode(said).decode(),
    )
    events.append(conn, fact, actor=actor, now_ms=now_ms)


def _is_of(lease: Lease, owner: str, token: int | None) -> bool:
    return lease.owner == owner and (token is None or lease.token == token)


def _held(lease: Lease, *, now_ms: int) -> IcError:
    left_ms = lease.expires_ms - now_ms
    return LeaseHeld(
        f"{lease.name} {lease.scope_id} is held by {lease.owner} for another {about(left_ms)} "
        f"(token {lease.token})",
        owner=lease.owner,
        token=lease.token,
        expires_ms=lease.expires_ms,
        left_ms=left_ms,
    )


def _fate(lease: Lease | None, name: str, scope_id: str, owner: str, *, now_ms: int) -> str:
    """What became of a lease that `owner` believes to hold."""
    if lease is None:
        return f"{name} {scope_id} has never been held"
    this = f"{name} {scope_id} (token {lease.token})"
    if lease.is_held(now_ms=now_ms):
        return f"{this} is held by {lease.owner}"
    if lease.owner != owner:
        return f"{this} was last held by {lease.owner}"
    if not lease.expires_ms:
        return f"{this} was released"
    return f"{this} expired {about(now_ms - lease.expires_ms)} ago"
