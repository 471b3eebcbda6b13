"""The interest profile: what a project is interested in.  There is one, or none yet.

Invariants
    - every update gives it the next version, and keeps what it does not mention;
    - an update that expects another version changes nothing: of two that have read the same
      profile, one wins, and the other is told so;
    - weights are objects of numbers (see `weights`), the topic is a vector (see `vectors`).

Callers run these inside a transaction; nothing here begins or commits one.
"""

import sqlite3

import msgspec
from msgspec import Struct, structs

from icd.db.rows import checked
from icd.errors import ProfileConflict
from icd.features.events import store as events
from icd.values.processes import Writer


class Profile(Struct, frozen=True):
    """Before the first update, nothing is of interest: version 0."""

    version: int = 0
    topic_vector: bytes | None = None
    keyword_weights: str = "{}"
    source_weights: str = "{}"
    updated_at: int = 0


class Changes(Struct, frozen=True):
    """What was checked already; None keeps what there is, and an empty vector forgets the topic."""

    keyword_weights: str | None = None
    source_weights: str | None = None
    topic_vector: bytes | None = None


_GET = """
SELECT version, topic_vector, keyword_weights, source_weights, updated_at
FROM interest_profile WHERE id = 1
"""
_PUT = """
INSERT INTO interest_profile (id, version, topic_vector, keyword_weights, source_weights,
                              updated_at)
VALUES (1, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    version = excluded.version, topic_vector = excluded.topic_vector,
    keyword_weights = excluded.keyword_weights, source_weights = excluded.source_weights,
    updated_at = excluded.updated_at
"""


def get(conn: sqlite3.Connection) -> Profile:
    row = conn.execute(_GET).fetchone()
    return Profile() if row is None else checked(Profile, row)


def update(
    conn: sqlite3.Connection,
    changes: Changes,
    *,
    if_version: int | None = None,
    actor: Writer,
    now_ms: int,
) -> Profile:
    """Change what is mentioned; `if_version` 0: only if there is no profile yet."""
    there = get(conn)
    if if_version is not None and if_version != there.version:
        raise ProfileConflict(_conflict(there.version, if_version))
    given = {name: value for name, value in structs.asdict(changes).items() if value is not None}
    new = structs.replace(
        there, **given, version=there.version + 1, updated_at=max(now_ms // 1000, 0)
    )
    put(conn, structs.replace(new, topic_vector=new.topic_vector or None))
    _record(conn, sorted(given), new.version, actor=actor, now_ms=now_ms)
    return get(conn)


def put(conn: sqlite3.Connection, profile: Profile) -> None:
    """Replace it as a whole."""
    conn.execute(_PUT, structs.astuple(profile))


def _conflict(version: int, expected: int) -> str:
    here = f"at version {version}" if version else "not there yet"
    wanted = f"version {expected}" if expected else "that there is none"
    return f"the profile is {here}, expected {wanted}"


def _record(
    conn: sqlite3.Connection, changed: list[str], version: int, *, actor: Writer, now_ms: int
) -> None:
    said = msgspec.json.encode({"changed": changed, "version": version}).decode()
    fact = events.Fact("discovery", "profile.updated", payload=said)
    events.append(conn, fact, actor=actor, now_ms=now_ms)
