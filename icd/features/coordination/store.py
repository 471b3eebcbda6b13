"""Reservations of files: an owner, a pattern, and until when.

Invariants
    - no two owners of one scope hold patterns with a path in common, unless both are shared;
    - a reservation that has expired, or whose process is certainly gone, is in no one's way;
    - an owner that reserves the same pattern again keeps the id, and a deadline only moves further;
      what is to end with another process is another reservation;
    - of several paths that are asked for together, all are reserved, or none;
    - every reservation, renewal, release, transfer, expiry and refusal is an event.

Callers run these inside a transaction, check names and durations first, and take `now_ms` after
they hold the lock.
"""

import sqlite3
from collections.abc import Sequence

from msgspec import structs

from icd.db.rows import checked, put, select, values
from icd.errors import IcError, ReservationLost
from icd.features.coordination import globs, lookup, records
from icd.features.coordination.names import check_stored
from icd.features.coordination.records import Lock, Wish
from icd.values.processes import Writer
from icd.values.validation import new_id
from icd.values.wire import Result

_EVER = -1  # a moment before all deadlines
# Of what has expired, each new reservation sweeps so many.
SWEPT_PER_RESERVE = 8


class Swept(Result):
    expired: int
    total: int


_SAME = select(
    Lock,
    "reservations",
    """
WHERE scope = ?1 AND key = ?2 AND owner = ?3 AND pattern = ?4 AND type = ?5 AND exclusive = ?6
ORDER BY rowid
""",
)
_EXPIRED = select(Lock, "reservations", "WHERE expires_ms <= ? ORDER BY expires_ms LIMIT ?")
_COUNT = "SELECT count(1) FROM reservations"
_DELETE = "DELETE FROM reservations WHERE id = ?"
_GIVE = "UPDATE reservations SET owner = ?2 WHERE id = ?1"
PUT = put(Lock, "reservations", key=("id",))


def reserve(
    conn: sqlite3.Connection, wish: Wish, *, actor: Writer, now_ms: int, is_retry: bool = False
) -> tuple[Lock, None] | tuple[None, Lock]:
    """The reservation, or the one that is in its way.  A retry that fails is no news."""
    locks, blocker = reserve_all(conn, [wish], actor=actor, now_ms=now_ms, is_retry=is_retry)
    return (locks[0], None) if blocker is None else (None, blocker)


def reserve_all(
    conn: sqlite3.Connection,
    wishes: Sequence[Wish],
    *,
    actor: Writer,
    now_ms: int,
    is_retry: bool = False,
) -> tuple[list[Lock], Lock | None]:
    """A reservation for each wish, or none and what is in the way of one."""
    for wish in wishes:
        blocker = _way_cleared(conn, wish, actor=actor, now_ms=now_ms)
        if blocker is not None:
            if not is_retry:
                records.tell_conflict(conn, wish, blocker, actor=actor, now_ms=now_ms)
            return [], blocker
    locks = []
    for wish in wishes:
        lock, change = _taken(conn, wish, actor=actor, now_ms=now_ms)
        records.tell(conn, lock, change, actor=actor, now_ms=now_ms)
        sweep(conn, most=SWEPT_PER_RESERVE, actor=actor, now_ms=now_ms)
        locks.append(lock)
    return locks, None


def _way_cleared(
    conn: sqlite3.Connection, wish: Wish, *, actor: Writer, now_ms: int
) -> Lock | None:
    """The reservation that is in the way; if there is none, what was in it is deleted.

    Else a clock that is set back could have what has expired stand again, beside another owner's.
    """
    found = list(
        lookup.overlapping(
            conn,
            wish.scope,
            wish.glob,
            but=wish.owner,
            exclusive=wish.exclusive,
            now_ms=_EVER,
        )
    )
    for lock in found:
        if records.stands(lock, now_ms=now_ms):
            return lock
    for lock in found:
        _end(conn, lock, "expired", actor=actor, now_ms=now_ms)
    return None


def renew(
    conn: sqlite3.Connection,
    locks: Sequence[Lock],
    *,
    ttl_ms: int | None,
    actor: Writer,
    now_ms: int,
) -> list[Lock]:
    """Move the deadlines of reservations that stand; by as much as before, if not said."""
    return [
        _extended(conn, lock, lock.ttl_ms if ttl_ms is None else ttl_ms, actor=actor, now_ms=now_ms)
        for lock in locks
    ]


def release(conn: sqlite3.Connection, locks: Sequence[Lock], *, actor: Writer, now_ms: int) -> int:
    """Give reservations up, and count those that still stood."""
    count = 0
    for lock in locks:
        stood = records.stands(lock, now_ms=now_ms)
        count += stood
        _end(conn, lock, "released" if stood else "expired", actor=actor, now_ms=now_ms)
    return count


def release_all(conn: sqlite3.Connection, owner: str, *, actor: Writer, now_ms: int) -> int:
    return release(conn, lookup.of_owner(conn, owner, None), actor=actor, now_ms=now_ms)


def transfer(
    conn: sqlite3.Connection, locks: Sequence[Lock], to: str, *, actor: Writer, now_ms: int
) -> int:
    """Give what stands to another owner.  What was in no one's way stays so.

    What has ended is deleted: if the clock were set back, it would stand beside the new owner's.
    """
    given = [lock for lock in locks if records.stands(lock, now_ms=now_ms)]
    for lock in locks:
        if lock not in given:
            _end(conn, lock, "expired", actor=actor, now_ms=now_ms)
    for lock in given:
        conn.execute(_GIVE, (lock.id, to))
        now = structs.replace(lock, owner=to)
        records.tell(conn, now, "transferred", previous=lock.owner, actor=actor, now_ms=now_ms)
    return len(given)


def sweep(
    conn: sqlite3.Connection,
    *,
    most: int,
    before_ms: int | None = None,
    actor: Writer,
    now_ms: int,
) -> int:
    """Delete what has expired, the oldest first."""
    until = now_ms if before_ms is None else before_ms
    rows = conn.execute(_EXPIRED, (until, most)).fetchall()
    for row in rows:
        _end(conn, checked(Lock, row), "expired", actor=actor, now_ms=now_ms)
    return len(rows)


def sweep_dead(
    conn: sqlite3.Connection, *, is_dry: bool, older_ms: int, actor: Writer, now_ms: int
) -> Swept:
    """Delete all that has ended, by its deadline or with its process; or only count it."""
    locks = lookup.every(conn)
    ended = [
        lock
        for lock in locks
        if (lock.expires_ms is not None and lock.expires_ms <= now_ms - older_ms)
        or (not older_ms and records.is_dead(lock))
    ]
    for lock in () if is_dry else ended:
        _end(conn, lock, "expired", actor=actor, now_ms=now_ms)
    return Swept(len(ended), len(locks))


# --- writing --------------------------------------------------------------------------------------


def _taken(conn: sqlite3.Connection, wish: Wish, *, actor: Writer, now_ms: int) -> tuple[Lock, str]:
    before = _same(conn, wish, actor=actor, now_ms=now_ms)
    if before is None:
        lock = _new(wish, session=actor.session, now_ms=now_ms)
        return _written(conn, lock, wish.ttl_ms, actor=actor, now_ms=now_ms), "acquired"
    kept = structs.replace(before, reason=wish.reason or before.reason)
    return _written(conn, kept, wish.ttl_ms, actor=actor, now_ms=now_ms), "renewed"


def _same(conn: sqlite3.Connection, wish: Wish, *, actor: Writer, now_ms: int) -> Lock | None:
    """What the owner holds already, to end with the same process.  What has ended is deleted.

    What another process of the owner wants to keep is another reservation: each ends with its own.
    """
    glob = wish.glob
    same = (wish.scope, glob.key, wish.owner, glob.text, wish.type, wish.exclusive)
    found = None
    for row in conn.execute(_SAME, same).fetchall():
        lock = checked(Lock, row)
        if not records.stands(lock, now_ms=now_ms):
            _end(conn, lock, "expired", actor=actor, now_ms=now_ms)
        elif found is None and lock.process == wish.process:
            found = lock
    return found


def _new(wish: Wish, *, session: str | None, now_ms: int) -> Lock:
    """Without its deadline."""
    pid, start, boot, pid_ns = (
        (None,) * 4 if wish.process is None else structs.astuple(wish.process)
    )
    return Lock(
        id=new_id(),
        type=wish.type,
        owner=wish.owner,
        scope=wish.scope,
        pattern=wish.glob.text,
        exclusive=wish.exclusive,
        reason=wish.reason,
        ttl_ms=wish.ttl_ms,
        run_id=wish.run_id,
        dispatch_id=wish.dispatch_id,
        created_at=now_ms // 1000,
        renewed_ms=now_ms,
        expires_at=None,
        expires_ms=0,
        session=session,
        pid=pid,
        pid_start=start,
        pid_boot=boot,
        pid_ns=pid_ns,
        key=wish.glob.key,
    )


def _extended(
    conn: sqlite3.Connection, lock: Lock, ttl_ms: int | None, *, actor: Writer, now_ms: int
) -> Lock:
    found = _written(conn, lock, ttl_ms, actor=actor, now_ms=now_ms)
    records.tell(conn, found, "renewed", actor=actor, now_ms=now_ms)
    return found


def _written(
    conn: sqlite3.Connection, lock: Lock, ttl_ms: int | None, *, actor: Writer, now_ms: int
) -> Lock:
    """With its deadline from now; after a clock stepped back, the old one may be the later one."""
    expires_ms = None
    if ttl_ms is not None and lock.expires_ms is not None:
        expires_ms = max(lock.expires_ms, now_ms + ttl_ms)
    found = structs.replace(
        lock,
        ttl_ms=ttl_ms if expires_ms is not None else None,
        renewed_ms=now_ms,
        expires_ms=expires_ms,
        expires_at=None if expires_ms is None else -(-expires_ms // 1000),
        session=actor.session or lock.session,
    )
    conn.execute(PUT, values(found))
    return found


def _end(conn: sqlite3.Connection, lock: Lock, change: str, *, actor: Writer, now_ms: int) -> None:
    conn.execute(_DELETE, (lock.id,))
    records.tell(conn, lock, change, actor=actor, now_ms=now_ms)


def lost(id_: str) -> IcError:
    return ReservationLost(f"there is no reservation {id_} that still stands")


# --- what comes with a dump -----------------------------------------------------------------------

check_pattern = check_stored


def key_if_free(
    conn: sqlite3.Connection, scope: str, pattern: str, owner: str, *, exclusive: bool, now_ms: int
) -> str | None:
    """The key of a reservation that was made elsewhere; None if one that is here is in its way."""
    wish = Wish(owner, scope, globs.parse(pattern), exclusive)
    blocker = _way_cleared(conn, wish, actor=Writer(), now_ms=now_ms)
    return wish.glob.key if blocker is None else None
