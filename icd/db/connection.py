"""One SQLite connection, set up the same way wherever it is opened."""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from icd.config import Settings
from icd.db import access, bounds
from icd.db.bounds import Bounds, Connection
from icd.errors import DeadlineExceeded, Unhealthy

MINIMUM = (3, 37, 0)  # STRICT tables and RETURNING
# Everybody who uses intercore waits for our own lock; this is for programs that do not.  Short,
# because the dispatcher asks again until the call's deadline.
BUSY_TIMEOUT_MS = 50
CACHE_KIB = 8192


def connect(path: str) -> Connection:
    """Open an existing file.  The caller holds the lock: even a reader may checkpoint at close."""
    if sqlite3.sqlite_version_info < MINIMUM:
        raise Unhealthy(
            f"SQLite {sqlite3.sqlite_version} is too old",
            hint=f"use a Python built with SQLite {'.'.join(map(str, MINIMUM))} or newer",
        )
    access.refuse_irregular(path)
    conn = sqlite3.connect(
        f"file:{_uri(path)}?mode=rw",
        uri=True,
        isolation_level=None,
        cached_statements=256,
        factory=Connection,
    )
    # First, or opening could fail on a busy database at once.
    conn.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return conn


def connect_to_read(path: str, *, immutable: bool = False) -> Connection:
    """Open a file that must stay as it is; `immutable`: nobody writes it, and it has no log."""
    access.refuse_irregular(path)
    words = "mode=ro&immutable=1" if immutable else "mode=ro"
    uri = f"file:{_uri(path)}?{words}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, factory=Connection)


def set_up(conn: sqlite3.Connection, settings: Settings) -> None:
    """Make it ours.  Only for a database that is: the journal mode is stored in the file."""
    conn.execute("PRAGMA trusted_schema = OFF")
    conn.execute("PRAGMA foreign_keys = ON")
    if journal_mode(conn) != "wal":
        conn.execute("PRAGMA journal_mode = WAL")
    conn.execute(f"PRAGMA synchronous = {settings.durability.upper()}")
    # Room for the pages that are hot in a large database; a small one never fills it.
    conn.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    # Reading through a memory map would turn a truncated file into a SIGBUS for every project.
    conn.execute("PRAGMA mmap_size = 0")


@contextmanager
def transaction(conn: sqlite3.Connection) -> Iterator[None]:
    """Run the block in one write transaction; roll back on any exception."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        _finish(conn, "COMMIT")
    except BaseException:
        if conn.in_transaction:  # a full disk has already rolled back for us
            _finish(conn, "ROLLBACK")
        raise


@contextmanager
def until(conn: sqlite3.Connection, deadline: float) -> Iterator[None]:
    """Stop the statements of the block at the deadline; what they had begun is rolled back."""
    held = conn.bounds if isinstance(conn, Connection) else bounds.put_on(conn)
    with _bounded(held, min(deadline, held.stop_at)):
        if held.is_over():
            raise DeadlineExceeded("the deadline passed; nothing was changed")
        try:
            yield
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            raise DeadlineExceeded("the deadline passed; nothing was changed") from exc


def _finish(conn: sqlite3.Connection, statement: str) -> None:
    """End a transaction, which nothing may stop; see icd/db/bounds.py."""
    if isinstance(conn, Connection):
        with _bounded(conn.bounds, math.inf):
            conn.execute(statement)
    else:
        conn.execute(statement)


@contextmanager
def _bounded(held: Bounds, stop_at: float) -> Iterator[None]:
    before, held.stop_at = held.stop_at, stop_at
    try:
        yield
    finally:
        held.stop_at = before


def journal_mode(conn: sqlite3.Connection) -> str:
    (mode,) = conn.execute("PRAGMA journal_mode").fetchone()
    return str(mode)


def page_bytes(conn: sqlite3.Connection) -> int:
    """The size of all pages together, whether they are in the file or still in the log."""
    (count,) = conn.execute("PRAGMA page_count").fetchone()
    (size,) = conn.execute("PRAGMA page_size").fetchone()
    return int(count * size)


def _uri(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
