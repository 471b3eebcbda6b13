"""What a watcher of state does not know yet: the rows whose versions are not those that it has.

Level-triggered: a row that was written twice between two looks differs once, and one that was
written and deleted again does not differ at all.
"""

import sqlite3

from msgspec import Struct

from icd.errors import TooManyRows
from icd.features.state import store as state
from icd.features.state.store import Row
from icd.values.validation import shown

# Rows of one key that are watched together: each look compares all of them.
WATCHED_ROWS = 1000
# Payloads that one look brings; what is more comes with the next, or a look could fill the memory.
WATCHED_BYTES = 1024 * 1024

_WATCHED = """
SELECT scope_id, version, expires_ms FROM state
WHERE key = ? AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY scope_id LIMIT ?
"""


class Differences(Struct):
    """`gone` are scopes; `expires_ms` is the next moment at which a row vanishes by itself."""

    rows: list[Row]
    gone: list[str]
    more: bool
    expires_ms: int | None


def find(
    conn: sqlite3.Connection,
    key: str,
    scope_id: str | None,
    known: dict[str, int],
    *,
    now_ms: int,
) -> Differences:
    """Compare one row, or all rows of a key, with the versions that the watcher knows."""
    if scope_id is not None:
        return _of_one(conn, key, scope_id, known.get(scope_id, 0), now_ms=now_ms)
    found = conn.execute(_WATCHED, (key, now_ms, WATCHED_ROWS + 1)).fetchall()
    if len(found) > WATCHED_ROWS:
        raise TooManyRows(f"{shown(key)} has more than {WATCHED_ROWS} scopes")
    changed = [scope for scope, version, _ in found if known.get(scope) != version]
    rows = _read(conn, key, changed, now_ms=now_ms)
    there = {scope for scope, _, _ in found}
    return Differences(
        rows,
        gone=[scope for scope in known if scope not in there],
        more=len(rows) < len(changed),
        expires_ms=min((at for _, _, at in found if at is not None), default=None),
    )


def _of_one(
    conn: sqlite3.Connection, key: str, scope_id: str, known: int, *, now_ms: int
) -> Differences:
    row = state.get(conn, key, scope_id, now_ms=now_ms)
    if row is None:
        return Differences([], [scope_id] if known else [], more=False, expires_ms=None)
    rows = [row] if row.version != known else []
    return Differences(rows, [], more=False, expires_ms=row.expires_ms)


def _read(conn: sqlite3.Connection, key: str, scopes: list[str], *, now_ms: int) -> list[Row]:
    rows: list[Row] = []
    size = 0
    for scope_id in scopes:
        row = state.get(conn, key, scope_id, now_ms=now_ms)
        assert row is not None, "it was there in the same transaction"
        rows.append(row)
        size += len(row.payload)
        if size >= WATCHED_BYTES:
            break
    return rows
