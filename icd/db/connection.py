"""One SQLite connection, set up the same way wherever it is opened, and what it keeps to.

Invariants
    - a statement that runs at `stop_at` is stopped there, whatever it computes; but SQLite counts
      a whole table or index in one step, in which it does not look, for `count(*)` without a
      condition: all rows of a table are counted with `count(1)`;
    - rows are counted as they come: beyond `room` no further row of the same call is read;
    - a statement that ends a transaction is never stopped: SQLite looks at the clock once more when
      its work is done, and a COMMIT that took effect would be told as one that did not.

A handler that is set once and reads the moment from here costs nothing per call.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from icd.config import Settings
from icd.db import permissions
from icd.errors import Corrupt, DeadlineExceeded, ReplyTooLarge, Unhealthy, UntrustedDatabase

# --- a statement ends, and what a call reads has a size -------------------------------------------

# Steps of SQLite's machine between two looks at the clock: a tenth of a millisecond, if nothing but
# steps are done.  Each look needs Python's lock, for which a busy daemon may make it wait for five
# milliseconds; most calls take fewer steps than this, and never look.
STEPS_BETWEEN_LOOKS = 10_000
# What a row costs beside its texts, in the same unit as a character.
ROW_CHARACTERS = 64
_NEVER = math.inf
# What one call may read: twice what a page of events holds, and far below what a daemon may use.
RESULT_CHARACTERS = 16 * 1024 * 1024


class Bounds:
    """Those of one connection.  `stop_at` is a moment of the clock that `monotonic` reads."""

    __slots__ = ("monotonic", "room", "stop_at", "taken")

    def __init__(self) -> None:
        self.monotonic: Callable[[], float] = time.monotonic
        self.stop_at = math.inf
        self.room: float = math.inf
        self.taken = 0  # characters that were read since `begin`

    def begin(self, stop_at: float, room: float, monotonic: Callable[[], float]) -> None:
        """From here on, until `end`."""
        self.monotonic, self.stop_at, self.room, self.taken = monotonic, stop_at, room, 0

    def end(self) -> None:
        self.monotonic, self.stop_at, self.room = time.monotonic, _NEVER, _NEVER

    def is_over(self) -> bool:
        return self.monotonic() >= self.stop_at

    def count(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The row as it is, unless it is one too many."""
        taken = ROW_CHARACTERS
        for value in row:
            kind = value.__class__
            if kind is str or kind is bytes:
                taken += len(value)
        self.take(taken)
        return row

    def take(self, characters: int) -> None:
        self.taken += characters
        if self.taken > self.room:
            self.refuse()

    def refuse(self) -> None:
        raise ReplyTooLarge(f"the answer has more than {RESULT_CHARACTERS} characters")


class Connection(sqlite3.Connection):
    """A connection with bounds, none at first."""

    bounds: Bounds
    # For statements that find one row at most, which whoever reads it has to count.
    single: sqlite3.Cursor

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.bounds = put_on(self)
        self.single = self.cursor()
        self.row_factory = self.bounds.count

    def close(self) -> None:
        # It knows us, and only the garbage collector would free the two.  It may be gone already.
        self.__dict__.pop("single", None)
        super().close()


def put_on(conn: sqlite3.Connection) -> Bounds:
    """Have a connection look at the clock."""
    found = Bounds()
    conn.set_progress_handler(found.is_over, STEPS_BETWEEN_LOOKS)
    return found


def look_on(conn: Connection) -> None:
    """Look at the clock again, after another handler."""
    conn.set_progress_handler(conn.bounds.is_over, STEPS_BETWEEN_LOOKS)


# --- progress -------------------------------------------------------------------------------------

# Told how much is done, of how much (0: that cannot be known), and of what; "": of the whole.
Progress = Callable[[int, int, str], None]


def untold(_done: int, _total: int, _what: str) -> None:
    """For work that no person waits for."""


# --- opening --------------------------------------------------------------------------------------

MINIMUM = (3, 37, 0)  # STRICT tables and RETURNING
# Programs of intercore wait for our own lock; this is for those that do not know it.  Short,
# because the dispatcher asks again until the call's deadline.
BUSY_TIMEOUT_MS = 50
CACHE_KIB = 8192
# A value or a row: as long as the longest line that can be imported.  A daemon that answers with a
# value holds several copies of it for a moment, so a larger one would cost too much memory.
VALUE_BYTES = 8 * 1024 * 1024
# Of SQLite's machine, to read a schema: enough for some hundred objects; ours has 50.
SCHEMA_STEPS = 5_000
# Far above what intercore stores and asks, far below what could exhaust memory or time.
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 256 * 1024),
    (sqlite3.SQLITE_LIMIT_COLUMN, 200),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 10_000),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 1),  # for taking over a database of the original
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 10),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)


def connect(path: str) -> Connection:
    """Open an existing file.  The caller holds the lock: even a reader may checkpoint at close."""
    if sqlite3.sqlite_version_info < MINIMUM:
        raise Unhealthy(
            f"SQLite {sqlite3.sqlite_version} is too old",
            hint=f"use a Python built with SQLite {'.'.join(map(str, MINIMUM))} or newer",
        )
    permissions.refuse_companions(path)
    conn = sqlite3.connect(
        f"file:{_uri(path)}?mode=rw",
        uri=True,
        isolation_level=None,
        cached_statements=256,
        factory=Connection,
    )
    # First, or opening could fail on a busy database at once.
    conn.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    _shrink_surface(conn)
    _read_schema(conn, path)
    return conn


def connect_to_read(path: str, *, immutable: bool = False) -> Connection:
    """Open a file that must stay as it is; `immutable`: no program writes it, and it has no log."""
    permissions.refuse_companions(path)
    words = "mode=ro&immutable=1" if immutable else "mode=ro"
    uri = f"file:{_uri(path)}?{words}"
    conn = sqlite3.connect(uri, uri=True, isolation_level=None, factory=Connection)
    _shrink_surface(conn)
    _read_schema(conn, path)
    return conn


def _read_schema(conn: Connection, path: str) -> None:
    """Have SQLite read the schema, as it does before any statement, and stop it in a huge one.

    Parsed, each object takes kilobytes, and a file of 40 MB can hold a hundred thousand.

    Of some damage SQLite tells nothing that can be mapped: it quotes what it found in its message,
    which Python takes for UTF-8; and an unknown format has the code of a mistake in our SQL.
    """
    conn.set_progress_handler(lambda: True, SCHEMA_STEPS)
    try:
        conn.execute("SELECT 1 FROM sqlite_schema LIMIT 0")
    except UnicodeDecodeError as exc:
        conn.close()
        raise Corrupt("the database file is damaged: its schema cannot be read") from exc
    except sqlite3.Error as exc:
        code = getattr(exc, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_INTERRUPT:
            conn.close()
            told = f"{path} does not have intercore's schema: its schema is huge"
            raise UntrustedDatabase(told) from exc
        if code == sqlite3.SQLITE_ERROR:
            conn.close()
            raise Corrupt(f"the database file is damaged: {exc}") from exc
        # What has a name is raised by the first statement that needs the schema.
    look_on(conn)


def _shrink_surface(conn: sqlite3.Connection) -> None:
    """What a stranger's file could make SQLite do, as far as SQLite can be told not to."""
    for limit, value in _LIMITS:
        conn.setlimit(limit, value)
    configure = getattr(conn, "setconfig", None)  # from Python 3.12 on
    if configure is not None:
        configure(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009, FBT003
    conn.execute("PRAGMA trusted_schema = OFF")
    conn.execute("PRAGMA cell_size_check = ON")
    # Reading through a memory map would turn a truncated file into a SIGBUS for every project.
    conn.execute("PRAGMA mmap_size = 0")


def set_up(conn: sqlite3.Connection, settings: Settings) -> None:
    """Make it ours.  Only for a database that is: the journal mode is stored in the file."""
    conn.execute("PRAGMA foreign_keys = ON")
    if journal_mode(conn) != "wal":
        conn.execute("PRAGMA journal_mode = MEMORY")  # the change itself leaves no journal, either
        conn.execute("PRAGMA journal_mode = WAL")
    conn.execute(f"PRAGMA synchronous = {settings.durability.upper()}")
    # Room for the pages that are hot in a large database; a small one never fills it.
    conn.execute(f"PRAGMA cache_size = -{CACHE_KIB}")


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
    held = getattr(conn, "bounds", None) or put_on(conn)
    with _bounded(held, min(deadline, held.stop_at)):
        if held.is_over():
            raise DeadlineExceeded("the deadline passed; nothing was changed")
        try:
            yield
        except sqlite3.OperationalError as exc:
            if getattr(exc, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
                raise
            raise DeadlineExceeded("the deadline passed; nothing was changed") from exc


def _finish(conn: sqlite3.Connection, statement: str) -> None:
    """End a transaction, which nothing may stop."""
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


def is_log_emptied(conn: sqlite3.Connection) -> bool:
    """Copy the log to the database file; False: another program holds on to it."""
    (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


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
