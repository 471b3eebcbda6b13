"""What legacy temporary files say, against what the database says.  Knows no files.

Invariants
    - the database wins: a row that is newer than the file, or as new, is never overwritten;
    - a row brought in carries the file's time, so age and throttling go on where the file left off;
    - bringing the same file in again changes nothing;
    - what was written is read back inside the same transaction, or everything is undone.

A time that lies in the future says nothing about what is newer: such a file waits for its time.
Only a once-only guard needs no time.
State shows whole seconds, so a tie within a second goes to the database.
"""

import sqlite3
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, field

from icd.errors import IcError, Unhealthy
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.values.processes import Writer
from icd.values.wire import Milliseconds, Result, iso_if

# new, updated: to be brought in, over nothing or over something older.  same: it is there already.
# superseded: the database has something else, at least as new.  expired: an expired cache.
# early: its time is still to come.
Verdict = Literal["new", "updated", "same", "superseded", "expired", "early"]
WRITTEN: frozenset[Verdict] = frozenset({"new", "updated"})
# The year 9999, in milliseconds: the last one that RFC 3339 can show.
Moment = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON of a file that was last written at `mtime_ms`."""

    key: str
    scope_id: str
    payload: Raw
    mtime_ms: Moment
    ttl_ms: Milliseconds = 0

    @property
    def text(self) -> str:
        return bytes(self.payload).strip().decode()


class Guard(Struct, frozen=True, forbid_unknown_fields=True):
    """A file whose existence and time are its whole meaning; interval 0: once, for ever."""

    name: str
    scope_id: str
    mtime_ms: Moment
    interval_s: Annotated[int, Meta(ge=0, le=sentinels.MAX_INTERVAL_S)] = field(name="interval")


class Side(Result, omit_defaults=False):
    """What the database holds of a key; times in seconds."""

    key: str
    state: int
    sentinels: int
    state_at: int | None
    sentinels_at: int | None
    state_at_iso: str | None = None
    sentinels_at_iso: str | None = None

    def __post_init__(self) -> None:
        self.state_at_iso = iso_if(self.state_at)
        self.sentinels_at_iso = iso_if(self.sentinels_at)


_STATE = """
SELECT count(*), max(updated_at) FROM state
WHERE key = ? AND (expires_ms IS NULL OR expires_ms > ?)
"""
_SENTINELS = "SELECT count(*), max(last_fired) FROM sentinels WHERE name = ?"
_SCOPES = """
SELECT count(*) FROM (
    SELECT scope_id FROM state WHERE key = ?1 AND (expires_ms IS NULL OR expires_ms > ?2)
    UNION SELECT scope_id FROM sentinels WHERE name = ?1) AS scopes
"""


def side(conn: sqlite3.Connection, key: str, *, now_ms: int) -> Side:
    rows, state_at = conn.execute(_STATE, (key, now_ms)).fetchone()
    claims, sentinels_at = conn.execute(_SENTINELS, (key,)).fetchone()
    return Side(key, rows, claims, state_at, sentinels_at)


def scopes(conn: sqlite3.Connection, key: str, *, now_ms: int) -> int:
    """In how many scopes the key is known, as state or as a sentinel."""
    (count,) = conn.execute(_SCOPES, (key, now_ms)).fetchone()
    return int(count)


def judge_document(conn: sqlite3.Connection, file: Document, *, now_ms: int) -> Verdict:
    if file.ttl_ms and file.mtime_ms + file.ttl_ms <= now_ms:
        return "expired"
    if file.mtime_ms > now_ms:
        return "early"
    row = state.get(conn, file.key, file.scope_id, now_ms=now_ms)
    if row is None:
        return "new"
    if row.updated_at < file.mtime_ms // 1000:
        return "updated"
    return "same" if row.payload == file.text else "superseded"


def judge_guard(conn: sqlite3.Connection, file: Guard, *, now_ms: int) -> Verdict:
    if file.interval_s and file.mtime_ms > now_ms:
        return "early"
    claim = sentinels.find(conn, file.name, file.scope_id)
    if claim is None:
        return "new"
    if claim.once:
        return "superseded" if file.interval_s else "same"
    if claim.fired_ms < file.mtime_ms <= now_ms:
        return "updated"
    return "same" if file.interval_s and claim.fired_ms == file.mtime_ms else "superseded"


def bring_document(
    conn: sqlite3.Connection, file: Document, *, writer: Writer, now_ms: int
) -> Verdict:
    """Put the file into state, unless the database knows better."""
    verdict = judge_document(conn, file, now_ms=now_ms)
    if verdict in WRITTEN:
        written = state.set(
            conn,
            file.key,
            file.scope_id,
            file.text,
            ttl_ms=file.ttl_ms,
            writer=writer,
            now_ms=file.mtime_ms,
        )
        if state.get(conn, file.key, file.scope_id, now_ms=now_ms) != written:
            raise _lost(f"{file.key} {file.scope_id}")
    return verdict


def bring_guard(conn: sqlite3.Connection, file: Guard, *, now_ms: int) -> Verdict:
    """Put the file's claim into the sentinels, unless the database knows better."""
    verdict = judge_guard(conn, file, now_ms=now_ms)
    if verdict in WRITTEN:
        fired_ms = min(file.mtime_ms, now_ms)
        sentinels.adopt(
            conn, file.name, file.scope_id, interval_s=file.interval_s, fired_ms=fired_ms
        )
        claim = sentinels.find(conn, file.name, file.scope_id)
        if claim is None or claim.fired_ms != fired_ms or claim.once != (file.interval_s == 0):
            raise _lost(f"sentinel {file.name} {file.scope_id}")
    return verdict


def _lost(what: str) -> IcError:
    return Unhealthy(
        f"{what} could not be verified after the import; nothing was imported",
        hint="run 'icctl db check'",
    )
