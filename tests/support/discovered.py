"""Discoveries with embeddings, put into a database without asking anybody."""

import sqlite3
import struct
import time
from pathlib import Path

from icd import config
from icd.db.database import Database
from icd.features.discoveries import vectors

MILLION = 1_000_000


def packed(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def next_version(conn: sqlite3.Connection) -> int:
    (version,) = conn.execute(
        "UPDATE counters SET value = value + 1 WHERE name = 'discoveries' RETURNING value"
    ).fetchone()
    return int(version)


def discover(
    conn: sqlite3.Connection,
    name: str,
    vector: bytes | None = None,
    *,
    source: str = "s",
    score: float = 0.6,
    status: str = "new",
) -> None:
    conn.execute(
        "INSERT INTO discoveries (id, source, source_id, title, summary, url, raw_metadata,"
        " relevance, decay, status, discovered_at, discovered_ms, version)"
        " VALUES (?1, ?2, ?1, 'About ' || ?1, '', '', '{}', ?3, 1000000, ?4, 1, 1000, ?5)",
        (name, source, round(score * MILLION), status, next_version(conn)),
    )
    if vector is not None:
        vectors.store(conn, name, source, vector)


def set_status(conn: sqlite3.Connection, name: str, status: str) -> None:
    conn.execute(
        "UPDATE discoveries SET status = ?, version = ? WHERE id = ?",
        (status, next_version(conn), name),
    )


def delete(conn: sqlite3.Connection, name: str) -> None:
    conn.execute("DELETE FROM discoveries WHERE id = ?", (name,))
    conn.execute("UPDATE counters SET value = value + 1 WHERE name = 'discoveries_deleted'")


class Elsewhere:
    """The database of a project in this process, under its lock, in a transaction."""

    def __init__(self, project: Path) -> None:
        self._database = Database(str(project / ".clavain" / "intercore.db"), config.DEFAULTS)

    def __enter__(self) -> sqlite3.Connection:
        self._held = self._database.hold(time.monotonic() + 45, create=True)
        self._held.__enter__()
        self._conn = self._database.connection(create=True)
        self._conn.execute("BEGIN IMMEDIATE")
        return self._conn

    def __exit__(self, *_: object) -> None:
        self._conn.execute("COMMIT")
        self._database.close()
        self._held.__exit__(None, None, None)
        self._database.lock.close()
