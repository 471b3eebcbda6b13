"""Artifacts: what a run has produced, phase by phase.

An artifact is a path and, if somebody could read the file at that moment, the digest of what was
in it; the file itself stays where it is, and nobody here looks at it.  Phases are names: they
need not be in the run's chain.  Whatever is added is a sign of life of its run.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Literal

from msgspec import Struct

from icd.db.rows import checked
from icd.features.runs import store as runs
from icd.values import ids

Status = Literal["active", "rolled_back"]


class Artifact(Struct, frozen=True):
    id: str
    run_id: str
    phase: str
    path: str
    type: str
    content_hash: str | None
    dispatch_id: str | None
    status: Status
    created_at: int


class Origin(Struct, frozen=True):
    """An artifact with the dispatch that made it, in the order of the original's fields."""

    dispatch_id: str | None
    dispatch_name: str | None
    phase: str
    path: str
    content_hash: str | None
    type: str
    status: Status


_ADD = """
INSERT INTO run_artifacts
    (id, run_id, phase, path, type, content_hash, dispatch_id, status, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 'active', ?)
"""
_OF_RUN = """
SELECT id, run_id, phase, path, type, content_hash, dispatch_id, status, created_at
FROM run_artifacts WHERE run_id = ?1 AND (?2 IS NULL OR phase = ?2) ORDER BY created_at, rowid
"""
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
    """Note what a run has produced; the artifact's id is returned."""
    runs.require(conn, run_id)
    artifact_id = ids.new()
    row = (artifact_id, run_id, phase, path, type, content_hash, dispatch_id, now_ms // 1000)
    conn.execute(_ADD, row)
    runs.touch(conn, run_id, now_ms=now_ms)
    return artifact_id


def of_run(conn: sqlite3.Connection, run_id: str, phase: str | None = None) -> list[Artifact]:
    """Those of a run, or of one phase, the oldest first; of an unknown run, none."""
    return [checked(Artifact, row) for row in conn.execute(_OF_RUN, (run_id, phase))]


def origins(conn: sqlite3.Connection, run_id: str, phase: str | None = None) -> list[Origin]:
    """What to look at when the code of a run is to be rolled back: by phase, then by age."""
    runs.require(conn, run_id)
    return [checked(Origin, row) for row in conn.execute(_ORIGINS, (run_id, phase))]
