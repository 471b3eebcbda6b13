"""Reservations of files: an owner, a pattern, and until when.

Invariants
    - no two owners of one scope hold patterns with a path in common, unless both are shared;
    - a reservation that has expired, or whose process is certainly gone, is in no one's way;
    - an owner that reserves the same pattern again keeps the id, and a deadline only moves further;
    - every reservation, renewal, release, transfer, expiry and refusal is an event.

Candidates are found by what is literal in a pattern (`Glob.key`), then compared exactly: a check of
a path reads the few rows that could match it, however many there are.

Callers run these inside a transaction, check names and durations first, and take `now_ms` after
they hold the lock.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import structs

from icd.db.rows import WrongValue, checked, put, select, values
from icd.errors import IcError, ReservationLost
from icd.features.coordination import globs, records
from icd.features.coordination.globs import Budget, Glob
from icd.features.coordination.names import check_stored
from icd.features.coordination.records import Lock, Wish
from icd.values.processes import Process, Writer
from icd.values.validation import new_id
from icd.values.validation import shown as quoted
from icd.values.wire import Result

_EVER = -1  # a moment before all deadlines
# Of what has expired, each new reservation sweeps so many.
SWEPT_PER_RESERVE = 8
# Of `check_many`: a commit may have thousands of paths, and a guard must judge them all.
STEPS_PER_PATH = 4000


class Swept(Result):
    expired: int
    total: int


# Of those that stand: others' than `but`, and of a shared wish the exclusive ones.
_ASKED = """
  AND (owner <> :but OR :but IS NULL) AND (:exclusive = 1 OR exclusive = 1)
  AND (expires_ms IS NULL OR expires_ms > :now_ms)
"""
_BY_KEYS = select(
    Lock,
    "reservations",
    f"WHERE scope = :scope AND key IN (SELECT value FROM json_each(:keys)) {_ASKED}",  # noqa: S608
)
_BY_RANGE = select(
    Lock, "reservations", f"WHERE scope = :scope AND key >= :low AND key < :high {_ASKED}"
)
_OF_SCOPE = select(Lock, "reservations", f"WHERE scope = :scope {_ASKED}")
_FIND = select(Lock, "reservations", "WHERE id = ?")
_OF_OWNER = select(
    Lock, "reservations", "WHERE owner = ?1 AND (scope = ?2 OR ?2 IS NULL) ORDER BY rowid"
)
_ALL = select(
    Lock,
    "reservations",
    """
WHERE (scope = ?1 OR ?1 IS NULL) AND (owner = ?2 OR ?2 IS NULL) AND (type = ?3 OR ?3 IS NULL)
ORDER BY rowid
""",
)
_SAME = select(
    Lock,
    "reservations",
    """
WHERE scope = ?1 AND key = ?2 AND owner = ?3 AND pattern = ?4 AND type = ?5 AND exclusive = ?6
ORDER BY rowid LIMIT 1
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
    blocker = _way_cleared(conn, wish, actor=actor, now_ms=now_ms)
    if blocker is not None:
        if not is_retry:
            records.tell_conflict(conn, wish, blocker, actor=actor, now_ms=now_ms)
        return None, blocker
    lock, change = _taken(conn, wish, actor=actor, now_ms=now_ms)
    records.tell(conn, lock, change, actor=actor, now_ms=now_ms)
    sweep(conn, most=SWEPT_PER_RESERVE, actor=actor, now_ms=now_ms)
    return lock, None


def _way_cleared(
    conn: sqlite3.Connection, wish: Wish, *, actor: Writer, now_ms: int
) -> Lock | None:
    """The reservation that is in the way; if there is none, what was in it is deleted.

    Else a clock that is set back could have what has expired stand again, beside another owner's.
    """
    found = list(
        _overlapping(
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


def blockers(
    conn: sqlite3.Connection,
    scope: str,
    glob: Glob,
    *,
    but: str | None = None,
    exclusive: bool = True,
    now_ms: int,
) -> Iterator[Lock]:
    """The reservations that are in the way of one, oldest first."""
    rows = _overlapping(conn, scope, glob, but=but, exclusive=exclusive, now_ms=now_ms)
    return (lock for lock in rows if not records.is_dead(lock))


def _overlapping(
    conn: sqlite3.Connection,
    scope: str,
    glob: Glob,
    *,
    but: str | None,
    exclusive: bool,
    now_ms: int,
) -> Iterator[Lock]:
    budget = Budget()
    asked = {"scope": scope, "but": but, "exclusive": exclusive, "now_ms": now_ms}
    for lock in sorted(_candidates(conn, asked, glob), key=_age):
        if globs.overlap(glob, _stored(lock), budget):
            yield lock


def _stored(lock: Lock) -> Glob:
    try:
        return globs.parse(lock.pattern)
    except IcError as exc:
        raise WrongValue(f"a row of the database has the pattern {quoted(lock.pattern)}") from exc


def _age(lock: Lock) -> tuple[int, str]:
    return lock.created_at, lock.id


def _candidates(conn: sqlite3.Connection, asked: dict[str, Any], glob: Glob) -> list[Lock]:
    """All that could overlap, and few others: their keys begin alike, or have a common end."""
    key = glob.key
    if glob.path is not None:
        begins = [key[:end] for end in range(1, len(key) + 1)]
        ends = ["*" + key[start:] for start in range(len(key) + 1)]
        return _rows(conn, _BY_KEYS, asked, keys=_json(begins + ends))
    if key[0] == "*":
        return _rows(conn, _OF_SCOPE, asked)
    begins = [key[:end] for end in range(1, len(key))]
    return (
        _rows(conn, _BY_KEYS, asked, keys=_json(begins))
        + _rows(conn, _BY_RANGE, asked, low=key, high=_behind(key))
        + _rows(conn, _BY_RANGE, asked, low="*", high="+")
    )


def _behind(key: str) -> str | bytes:
    """What sorts behind all that begins with it; of the last character there is, no text does."""
    head = key.rstrip("\U0010ffff")
    if not head:
        return b""  # behind all text
    last = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if last == 0xD800 else last)


def _rows(
    conn: sqlite3.Connection, text: str, asked: dict[str, Any], **more: str | bytes
) -> list[Lock]:
    return [checked(Lock, row) for row in conn.execute(text, asked | more)]


def _json(words: list[str]) -> str:
    return msgspec.json.encode(words).decode()


def check_many(
    conn: sqlite3.Connection,
    scope: str,
    paths: Sequence[tuple[str, Glob]],
    *,
    but: str | None,
    now_ms: int,
) -> list[tuple[str, Lock]]:
    """For each path the first reservation in its way.  All rows are read once, not per path."""
    asked = {"scope": scope, "but": but, "exclusive": True, "now_ms": now_ms}
    by_key: dict[str, list[Lock]] = {}
    for lock in sorted(_rows(conn, _OF_SCOPE, asked), key=_age):
        if not records.is_dead(lock):
            by_key.setdefault(lock.key, []).append(lock)
    lengths = sorted({len(key) for key in by_key})
    budget = Budget(max(globs.STEPS, min(STEPS_PER_PATH * len(paths), 50 * globs.STEPS)))
    found = []
    for path, glob in paths:
        near = _near(by_key, lengths, glob)
        touched = (x for x in near if globs.overlap(glob, _stored(x), budget))
        blocker = next(touched, None)
        if blocker is not None:
            found.append((path, blocker))
    return found


def _near(by_key: dict[str, list[Lock]], lengths: list[int], glob: Glob) -> Iterator[Lock]:
    key = glob.key
    if glob.path is None:  # a directory: all that is below it
        yield from (lock for locks in by_key.values() for lock in locks)
        return
    for length in lengths:
        if length <= len(key):
            yield from by_key.get(key[:length], ())
        if length <= len(key) + 1:
            yield from by_key.get("*" + key[len(key) + 1 - length :], ())


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
    locks = every(conn)
    ended = [
        lock
        for lock in locks
        if (lock.expires_ms is not None and lock.expires_ms <= now_ms - older_ms)
        or (not older_ms and records.is_dead(lock))
    ]
    for lock in () if is_dry else ended:
        _end(conn, lock, "expired", actor=actor, now_ms=now_ms)
    return Swept(len(ended), len(locks))


# --- looking --------------------------------------------------------------------------------------


def find(conn: sqlite3.Connection, id_: str) -> Lock | None:
    row = conn.execute(_FIND, (id_,)).fetchone()
    return checked(Lock, row) if row else None


def of_owner(conn: sqlite3.Connection, owner: str, scope: str | None) -> list[Lock]:
    return [checked(Lock, row) for row in conn.execute(_OF_OWNER, (owner, scope))]


def every(
    conn: sqlite3.Connection,
    *,
    scope: str | None = None,
    owner: str | None = None,
    type_: str | None = None,
) -> list[Lock]:
    return [checked(Lock, row) for row in conn.execute(_ALL, (scope, owner, type_))]


# --- writing --------------------------------------------------------------------------------------


def _taken(conn: sqlite3.Connection, wish: Wish, *, actor: Writer, now_ms: int) -> tuple[Lock, str]:
    glob = wish.glob
    same = (wish.scope, glob.key, wish.owner, glob.text, wish.type, wish.exclusive)
    row = conn.execute(_SAME, same).fetchone()
    before = checked(Lock, row) if row else None
    if before is not None and records.stands(before, now_ms=now_ms):
        # What one process of the owner wants to keep must not end with another one.
        process = before.process if before.process == wish.process else None
        kept = _of_process(structs.replace(before, reason=wish.reason or before.reason), process)
        return _written(conn, kept, wish.ttl_ms, actor=actor, now_ms=now_ms), "renewed"
    if before is not None:
        _end(conn, before, "expired", actor=actor, now_ms=now_ms)
    lock = Lock(
        id=new_id(),
        type=wish.type,
        owner=wish.owner,
        scope=wish.scope,
        pattern=glob.text,
        exclusive=wish.exclusive,
        reason=wish.reason,
        ttl_ms=wish.ttl_ms,
        run_id=wish.run_id,
        dispatch_id=wish.dispatch_id,
        created_at=now_ms // 1000,
        renewed_ms=now_ms,
        expires_at=None,
        expires_ms=0,
        session=actor.session,
        pid=None,
        pid_start=None,
        pid_boot=None,
        pid_ns=None,
        key=glob.key,
    )
    lock = _of_process(lock, wish.process)
    return _written(conn, lock, wish.ttl_ms, actor=actor, now_ms=now_ms), "acquired"


def _of_process(lock: Lock, process: Process | None) -> Lock:
    if process is None:
        return structs.replace(lock, pid=None, pid_start=None, pid_boot=None, pid_ns=None)
    return structs.replace(
        lock,
        pid=process.pid,
        pid_start=process.start,
        pid_boot=process.boot,
        pid_ns=process.pidns,
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
