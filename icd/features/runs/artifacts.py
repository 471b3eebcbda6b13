"""Artifacts: what a run has produced, phase by phase.

An artifact is a path and, if its adder could read the file at that moment, the digest of what was
in it; the file itself stays where it is, and nothing here opens it.  Phases are names: they need
not be in the run's chain.  Each artifact is a sign of life of its run.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Literal

from msgspec import Struct

from icd.db.rows import Column, checked, put, select, values
from icd.features.runs import store as runs
from icd.values.validation import new_id
from icd.values.wire import Result, iso

Status = Literal["active", "rolled_back"]


class Artifact(Result):
    id: str
    run_id: str
    phase: str
    path: str
    type: str
    status: Status
    created_at: int
    content_hash: Column[str | None] = None
    dispatch_id: Column[str | None] = None
    created_at_iso: str = ""

    def __post_init__(self) -> None:
        self.created_at_iso = iso(self.created_at)


class Origin(Struct, frozen=True):
    """An artifact with the dispatch that made it, in the order of the original's fields."""

    dispatch_id: str | None
    dispatch_name: str | None
    phase: str
    path: str
    content_hash: str | None
    type: str
    status: Status


_ADD = put(Artifact, "run_artifacts")
_OF_RUN = select(
    Artifact,
    "run_artifacts",
    "WHERE run_id = ?1 AND (?2 IS NULL OR phase = ?2) ORDER BY created_at, rowid",
)
_ORIGINS = """
SELECT a.dispatch_id, d.name, a.phase, a.path, a.content_hash, a.type, a.status
FROM run_artifacts AS a LEFT JOIN dispatches AS d ON d.id = a.dispatch_id
WHERE a.run_id = ?1 AND (?2 IS NULL OR a.phase = ?2) ORDER BY a.phase, a.created_at, a.rowid
"""


def add(
    conn: sqlite3.Connection,
    run_id: str,
    *,
    phase: str,
    path: str,
    type: str,  # noqa: A002 -- the field's name
    content_hash: str | None,
    dispatch_id: str | None,
    now_ms: int,
) -> str:
    """Note what a run has produced; the answer is the artifact's id."""
    runs.require(conn, run_id)
    made = Artifact(
        new_id(), run_id, phase, path, type, "active", now_ms // 1000, content_hash, dispatch_id
    )
    conn.execute(_ADD, values(made))
    runs.touch(conn, run_id, now_ms=now_ms)
    return made.id


def of_run(conn: sqlite3.Connection, run_id: str, phase: str | None = None) -> list[Artifact]:
    """Those of a run, or of one phase, the oldest first; of an unknown run, none."""
    return [checked(Artifact, row) for row in conn.execute(_OF_RUN, (run_id, phase))]


def origins(conn: sqlite3.Connection, run_id: str, phase: str | None = None) -> list[Origin]:
    """What to look at when the code of a run is to be rolled back: by phase, then by age."""
    runs.require(conn, run_id)
    return [checked(Origin, row) for row in conn.execute(_ORIGINS, (run_id, phase))]
