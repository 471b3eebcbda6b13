"""Bringing a database to the schema of this program, once, whole or not at all.

`user_version` is read inside the transaction that changes it, so ten programs may try at once.
An existing database is backed up first.  A newer one is refused and left untouched.
"""

from __future__ import annotations

import math
import os
import sqlite3
from functools import cache

from icd import __version__
from icd.db.connection import transaction
from icd.db.rows import quoted
from icd.errors import NoDatabase, NotOurs, SchemaTooNew

APPLICATION_ID = 0x69634442  # "icDB"
FIRST, LATEST = 1001, 1009
LAST_ORIGINAL = 9  # of the original program's schemas, what is upgraded in place
_ADOPT = (
    "run 'icctl init --adopt' to convert what intercore knows and keep the old file, "
    "or keep using the original program"
)
DIRECTORY = os.path.join(os.path.dirname(__file__), "migrations")


def is_ours(conn: sqlite3.Connection) -> bool:
    return _pragma(conn, "application_id") == APPLICATION_ID


def is_current(conn: sqlite3.Connection) -> bool:
    return is_ours(conn) and version(conn) == LATEST


def version(conn: sqlite3.Connection) -> int:
    """Of the schema: in the head of a file, or noted among the tables of a server."""
    if isinstance(conn, sqlite3.Connection):
        return _pragma(conn, "user_version")
    (found,) = conn.execute("SELECT max(version) FROM migrations").fetchone()
    return int(found)


def migrate(
    conn: sqlite3.Connection, path: str, *, keep: int, now_ms: int, deadline: float = math.inf
) -> None:
    """Upgrade in place, or fill a database that is still empty; `keep` backups stay.

    What is not done at the deadline is not done at all.
    """
    from icd.db import backup  # most calls open a database that is current

    if not _is_empty(conn):
        backup.beside(conn, path, keep=keep, now_ms=now_ms, deadline=deadline)
    with transaction(conn):
        upgrade(conn, path, now_ms=now_ms)


def upgrade(conn: sqlite3.Connection, path: str, *, now_ms: int) -> None:
    """Leave nothing but our own schema; a backup has the tables that are unknown here.

    The caller has begun a transaction.
    """
    from icd.db import schema

    try:
        apply(conn, path, now_ms=now_ms)
        # Tables may go before those that refer to them; the commit sees that none is left.
        conn.execute("PRAGMA defer_foreign_keys = ON")
        for table in schema.foreign_tables(conn):
            conn.execute(f"DROP TABLE {quoted(table)}")
    except sqlite3.OperationalError as exc:
        if getattr(exc, "sqlite_errorcode", 0) != sqlite3.SQLITE_ERROR:
            raise
        # The statements fit every schema of ours and of the original: this one is neither.
        raise schema.untrusted(path, [str(exc)]) from exc
    schema.refuse_strange(conn, path)


def refuse_foreign(conn: sqlite3.Connection, path: str, *, create: bool) -> None:
    """Raise if the database is not ours to change; `create` allows one that is still empty."""
    mark, number = _pragma(conn, "application_id"), version(conn)
    if mark == APPLICATION_ID:
        if number > LATEST:
            raise SchemaTooNew(
                f"{path} has schema v{number}, newer than v{LATEST} of this intercore "
                f"{__version__}; it was written by intercore {_writer(conn)}"
            )
        return
    if _is_original(mark, number) and _has_its_tables(conn):
        if number > LAST_ORIGINAL:
            raise SchemaTooNew(
                f"{path} has schema v{number} of the original program; "
                f"this intercore knows v1 to v{LAST_ORIGINAL}",
                hint=_ADOPT,
            )
        return
    if mark or not _is_empty(conn):
        raise NotOurs(f"{path} belongs to another program")
    if not create:
        raise NoDatabase(f"{path} is empty")


def is_newer_original(conn: sqlite3.Connection) -> bool:
    """One that is not upgraded in place: only a person can say that it may be taken over."""
    number = version(conn)
    is_original = _is_original(_pragma(conn, "application_id"), number)
    return is_original and number > LAST_ORIGINAL and _has_its_tables(conn)


def _is_original(application_id: int, user_version: int) -> bool:
    return application_id == 0 and user_version > 0


def _has_its_tables(conn: sqlite3.Connection) -> bool:
    """Any program may count its schema from one; only the original has these two tables."""
    (found,) = conn.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('state', 'sentinels')"
    ).fetchone()
    return bool(found == 2)


def apply(conn: sqlite3.Connection, path: str, *, now_ms: int) -> None:
    """Run the migrations that are pending.  The caller has begun a transaction."""
    from icd.db.original import runs, tables  # most calls open a database that is current

    start = version(conn)
    takes_over = _is_original(_pragma(conn, "application_id"), start)
    limits: list[runs.Limits] = []
    if takes_over:
        tables.set_aside(conn, ("state", "sentinels"))
        start = 0
    for number, file in pending(start):
        _make_room(conn, number)
        if number == _RUNS:
            limits = runs.limits_of(conn)
        for statement in statements(file):
            conn.execute(statement)
        _bring(conn, number, path, takes_over=takes_over, now_ms=now_ms)
        if number == _LIMITS:
            runs.bring_limits(conn, limits)
        conn.execute(
            "INSERT INTO migrations (version, program, applied_at) VALUES (?, ?, ?)",
            (number, __version__, now_ms // 1000),
        )
    conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    conn.execute(f"PRAGMA user_version = {LATEST}")


def _make_room(conn: sqlite3.Connection, number: int) -> None:
    """Set tables of the original aside whose names a migration needs."""
    from icd.db.original import nouns, runs, tables

    if number == _RUNS:
        tables.set_aside(conn, runs.RUNS)
    if number == _DISCOVERIES:
        tables.set_aside(conn, tables.DISCOVERIES)
    if number == _SESSIONS:  # the original's, or a person's that an earlier release left alone
        tables.set_aside(conn, nouns.TABLES)


def _bring(
    conn: sqlite3.Connection, number: int, path: str, *, takes_over: bool, now_ms: int
) -> None:
    """Copy the rows of the original into the tables that a migration has made."""
    from icd.db.original import nouns, runs, tables

    if takes_over and number == FIRST:
        tables.bring_state(conn)
    if number == _EVENTS:
        tables.bring_events(conn, nouns.logged(conn))
    if number == _RUNS:
        runs.bring_runs(conn, path, now_ms=now_ms)
    if number == _DISCOVERIES:
        tables.bring_discoveries(conn, now_ms=now_ms)
    if takes_over and number == _SESSIONS:
        nouns.bring_sessions(conn, path)
    if takes_over and number == _LANES:
        nouns.bring_lanes(conn)


# A database that was taken over before there was a log still has the original's events, and one
# from before there were runs or discoveries has its own.
_EVENTS = 1002
_RUNS = 1004
_DISCOVERIES = 1005
# What these bring comes with a takeover only: what an earlier intercore left in place is no one's.
_SESSIONS = 1007
_LANES = 1008
_LIMITS = 1009


def is_set_aside(name: str) -> bool:
    """Whether an upgrade moves a table or an index of that name out of the way."""
    from icd.db.original import nouns, runs, tables

    aside = (*runs.RUNS, *tables.DISCOVERIES, *nouns.TABLES)
    return name in aside or name.startswith("sqlite_")


def pending(start: int) -> list[tuple[int, str]]:
    """The migrations after `start`, in order."""
    return [(number, file) for number, file in _files() if start < number]


@cache
def _files() -> list[tuple[int, str]]:
    """An upgrade may have put later ones beside those of the program that runs."""
    files = sorted(name for name in os.listdir(DIRECTORY) if name.endswith(".sql"))
    numbered = [(int(name.split("_", 1)[0]), os.path.join(DIRECTORY, name)) for name in files]
    return [(number, file) for number, file in numbered if number <= LATEST]


def load() -> None:
    """Read the files of all migrations: a daemon outlives its installation."""
    for _, file in _files():
        statements(file)


@cache
def statements(file: str) -> list[str]:
    """Split a file; `executescript` would commit the transaction we are in."""
    found, rest = [], ""
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            rest += line
            if sqlite3.complete_statement(rest):
                found.append(rest.strip())
                rest = ""
    return found


def _pragma(conn: sqlite3.Connection, name: str) -> int:
    (value,) = conn.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _is_empty(conn: sqlite3.Connection) -> bool:
    return conn.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None


def _writer(conn: sqlite3.Connection) -> str:
    try:
        row = conn.execute("SELECT program FROM migrations ORDER BY version DESC LIMIT 1")
        (program,) = row.fetchone()
    except (sqlite3.Error, TypeError):
        return "of a later version"
    return str(program)
