"""Throttle guards: of all who ask within an interval, one is told "allowed".

Invariants
    - one statement decides the winner; no caller reads first and writes later;
    - interval 0 claims once, for ever: such a row never fires again, whatever is asked later;
    - a claim never fires earlier than its interval, and a clock that steps back delays the next
      claim by at most one interval after the first check that sees it;
    - auto-prune removes only rows whose absence cannot change an answer;
    - a claim that is asked again with the id it was made with is told "allowed" again.

Callers run these inside a transaction, and take `now_ms` after they hold the lock: an older `now`
would look like a clock that stepped back.
"""

import sqlite3

from msgspec import Struct

from icd.db.rows import checked, one
from icd.errors import RequestMismatch
from icd.values.wire import Result, iso

WEEK_MS = 7 * 24 * 3600 * 1000
PRUNED_PER_CHECK = 8
# Three hundred years: larger intervals are slips of the finger, and must not overflow.
MAX_INTERVAL_S = 300 * 366 * 24 * 3600


class Verdict(Struct, frozen=True, gc=False):
    """`retry_ms`: until a check with this interval may be allowed; None means never."""

    allowed: bool
    fired_ms: int
    retry_ms: int | None


class Sentinel(Result):
    """A claim, as it is listed; `interval` is in seconds."""

    name: str
    scope_id: str
    last_fired: int
    once: bool
    interval: int
    last_fired_iso: str = ""

    def __post_init__(self) -> None:
        self.last_fired_iso = iso(self.last_fired)


class Claim(Struct, frozen=True, gc=False):
    fired_ms: int
    once: bool


class _Row(Struct, frozen=True, gc=False):
    fired_ms: int
    interval_ms: int
    once: int
    prune_ms: int | None
    claim_ms: int | None
    request_id: str | None


# ?1 name, ?2 scope, ?3 now, ?4 interval, ?5 a week, ?6 request id
_CLAIM = """
INSERT INTO sentinels
    (name, scope_id, last_fired, fired_ms, interval_ms, once, prune_ms, claim_ms, request_id)
VALUES (?1, ?2, ?3 / 1000, ?3, ?4, CASE ?4 WHEN 0 THEN 1 ELSE 0 END,
    CASE WHEN ?4 > 0 THEN ?3 + max(?4, ?5) END, ?4, ?6)
ON CONFLICT (name, scope_id) DO UPDATE SET
    last_fired = excluded.last_fired,
    fired_ms = excluded.fired_ms,
    interval_ms = max(sentinels.interval_ms, excluded.interval_ms),
    prune_ms = CASE WHEN sentinels.prune_ms IS NOT NULL THEN
        excluded.fired_ms + max(sentinels.interval_ms, excluded.interval_ms, ?5) END,
    claim_ms = excluded.claim_ms,
    request_id = excluded.request_id
WHERE sentinels.once = 0 AND excluded.interval_ms > 0
    AND excluded.fired_ms - sentinels.fired_ms >= excluded.interval_ms
    AND (sentinels.request_id IS NULL OR excluded.request_id IS NULL
         OR sentinels.request_id <> excluded.request_id)
RETURNING 1
"""
_FIND = """
SELECT fired_ms, interval_ms, once, prune_ms, claim_ms, request_id
FROM sentinels WHERE name = ? AND scope_id = ?
"""
# A claim made elsewhere, by people who may ask with any interval: it is never pruned by itself.
_ADOPT = """
INSERT INTO sentinels (name, scope_id, last_fired, fired_ms, interval_ms, once)
VALUES (?1, ?2, ?3 / 1000, ?3, ?4, CASE ?4 WHEN 0 THEN 1 ELSE 0 END)
ON CONFLICT (name, scope_id) DO UPDATE SET
    last_fired = excluded.last_fired,
    fired_ms = excluded.fired_ms,
    interval_ms = max(sentinels.interval_ms, excluded.interval_ms),
    once = max(sentinels.once, excluded.once),
    prune_ms = NULL,
    claim_ms = NULL,
    request_id = NULL
"""
_NOTE = """
UPDATE sentinels
SET last_fired = ?1 / 1000, fired_ms = ?1, interval_ms = ?2, prune_ms = ?3
WHERE name = ?4 AND scope_id = ?5
"""
_AUTO_PRUNE = """
DELETE FROM sentinels WHERE (name, scope_id) IN (
    SELECT name, scope_id FROM sentinels WHERE prune_ms < ? ORDER BY prune_ms LIMIT ?)
"""
_RESET = "DELETE FROM sentinels WHERE name = ? AND scope_id = ?"
_RESET_ALL = "DELETE FROM sentinels WHERE name = ?"
_LIST = """
SELECT name, scope_id, last_fired, once, interval_ms / 1000 FROM sentinels
ORDER BY name, scope_id
"""
_PRUNE = """
DELETE FROM sentinels
WHERE fired_ms <= ?1 AND (?2 = 0 OR once = 0)
    AND (?3 = 0 OR (once = 0 AND fired_ms + interval_ms <= ?4))
"""


def check(
    conn: sqlite3.Connection,
    name: str,
    scope_id: str,
    *,
    interval_s: int,
    request_id: str | None = None,
    now_ms: int,
) -> Verdict:
    """Claim the sentinel if it is due."""
    interval_ms = interval_s * 1000
    claim = (name, scope_id, now_ms, interval_ms, WEEK_MS, request_id)
    if conn.execute(_CLAIM, claim).fetchone():
        return Verdict(allowed=True, fired_ms=now_ms, retry_ms=interval_ms or None)
    row = one(conn, _Row, _FIND, (name, scope_id))
    assert row is not None, "what cannot be claimed is claimed"
    if request_id and row.request_id == request_id:
        return _repeat(row, interval_ms, now_ms=now_ms)
    row = _note(conn, name, scope_id, row, interval_ms, now_ms=now_ms)
    return Verdict(
        allowed=False,
        fired_ms=row.fired_ms,
        retry_ms=_retry_ms(row, interval_ms, now_ms=now_ms),
    )


def find(conn: sqlite3.Connection, name: str, scope_id: str) -> Claim | None:
    """The claim that stands."""
    row = conn.execute(_FIND, (name, scope_id)).fetchone()
    return Claim(row[0], bool(row[2])) if row else None


def adopt(
    conn: sqlite3.Connection, name: str, scope_id: str, *, interval_s: int, fired_ms: int
) -> None:
    """Record a claim that was made without us, such as by a guard file; interval 0: once."""
    conn.execute(_ADOPT, (name, scope_id, fired_ms, interval_s * 1000))


def auto_prune(conn: sqlite3.Connection, *, now_ms: int) -> int:
    return conn.execute(_AUTO_PRUNE, (now_ms, PRUNED_PER_CHECK)).rowcount


def reset(conn: sqlite3.Connection, name: str, scope_id: str) -> int:
    return conn.execute(_RESET, (name, scope_id)).rowcount


def reset_all(conn: sqlite3.Connection, name: str) -> int:
    return conn.execute(_RESET_ALL, (name,)).rowcount


def every(conn: sqlite3.Connection) -> list[Sentinel]:
    return [
        checked(Sentinel, (name, scope_id, last_fired, bool(once), interval))
        for name, scope_id, last_fired, once, interval in conn.execute(_LIST)
    ]


def prune(
    conn: sqlite3.Connection,
    *,
    older_than_ms: int,
    keep_once: bool = False,
    keep_live: bool = False,
    now_ms: int,
) -> int:
    """Remove what fired at least that long ago; 0 removes everything, whatever the clock did.

    `keep_live` spares what still throttles: once-only claims, and those of which the largest
    interval that any caller asked with has not passed.
    """
    cutoff = now_ms - older_than_ms if older_than_ms else 2**63 - 1
    return conn.execute(_PRUNE, (cutoff, int(keep_once), int(keep_live), now_ms)).rowcount


def _repeat(row: _Row, interval_ms: int, *, now_ms: int) -> Verdict:
    """Answer a winner that asks again, because it never heard that it had won."""
    if row.claim_ms != interval_ms:
        raise RequestMismatch("this request_id was used for a claim with another interval")
    return Verdict(
        allowed=True,
        fired_ms=row.fired_ms,
        retry_ms=_retry_ms(row, interval_ms, now_ms=now_ms),
    )


def _note(
    conn: sqlite3.Connection, name: str, scope_id: str, row: _Row, interval_ms: int, *, now_ms: int
) -> _Row:
    """Remember what a refused check taught us: a stepped clock, a longer interval, interval 0."""
    pins = interval_ms == 0 and row.prune_ms is not None
    if row.fired_ms <= now_ms and interval_ms <= row.interval_ms and not pins:
        return row
    fired_ms = min(row.fired_ms, now_ms)
    longest = max(row.interval_ms, interval_ms)
    forever = row.prune_ms is None or pins
    prune_ms = None if forever else fired_ms + max(longest, WEEK_MS)
    conn.execute(_NOTE, (fired_ms, longest, prune_ms, name, scope_id))
    return _Row(fired_ms, longest, row.once, prune_ms, row.claim_ms, row.request_id)


def _retry_ms(row: _Row, interval_ms: int, *, now_ms: int) -> int | None:
    if row.once or interval_ms == 0:
        return None
    return max(0, row.fired_ms + interval_ms - now_ms)
