"""Which reservations cover files: reading, for those who ask and for those who reserve.

Candidates are found by what is literal in a pattern (`Glob.key`), then compared exactly: a check of
a path reads the few rows that could match it, however many there are.

Callers run these inside a transaction, and check names first.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from icd.db.rows import WrongValue, checked, select
from icd.errors import IcError
from icd.features.coordination import globs, records
from icd.features.coordination.globs import Budget, Glob
from icd.features.coordination.records import Lock
from icd.values.validation import shown as quoted

# Of `check_many`: a commit may have thousands of paths, and a guard must judge them all.
STEPS_PER_PATH = 4000

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
    rows = overlapping(conn, scope, glob, but=but, exclusive=exclusive, now_ms=now_ms)
    return (lock for lock in rows if not records.is_dead(lock))


def overlapping(
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
