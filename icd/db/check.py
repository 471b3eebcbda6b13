"""Everything that can be wrong inside a database, as sentences; none means that it is sound.

Reads every page and every index, so it takes time on a large database; the caller holds the lock.
A disk that cannot be read is no damage, although SQLite lists it as such: it is raised.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice

from icd.db import migrate, permissions, schema
from icd.db.connection import Progress, journal_mode, until, untold
from icd.errors import (
    Corrupt,
    DeadlineExceeded,
    DiskFull,
    IcError,
    InputOutput,
    Unhealthy,
    from_sqlite,
)

# A damaged page can spoil thousands of rows; the first few are enough.
FINDINGS = 100
# How SQLite's checks tell of a page that could not be read; of a free one without the reason.
_UNREAD = re.compile(r"error code=(\d+)|failed to get page \d+")

Look = Callable[[sqlite3.Connection], Iterable[str]]


def findings(conn: sqlite3.Connection, *, deadline: float, tell: Progress = untold) -> list[str]:
    def pages(conn: sqlite3.Connection) -> Iterator[str]:
        tell(0, 0, "checking the pages")
        return _pages(conn)

    def references(conn: sqlite3.Connection) -> list[str]:
        tell(0, 0, "checking the references")
        return _references(conn)

    def rows(conn: sqlite3.Connection) -> list[str]:
        return _rows(conn, tell)

    return _look(conn, (pages, references, rows, _schema), deadline)


def damage(conn: sqlite3.Connection, *, deadline: float) -> list[str]:
    """What cannot be read; rows that contradict each other can be, whatever the schema."""
    return _look(conn, (_pages,), deadline)


def first(conn: sqlite3.Connection) -> str:
    """The first damage of a look at every page, but not at every index; empty: there is none."""
    (verdict,) = conn.execute("PRAGMA quick_check(1)").fetchone()
    return "" if verdict == "ok" else _damage(verdict)


def first_row(conn: sqlite3.Connection) -> IcError | None:
    """The first damaged row of all tables; a damaged page hides those that it holds."""
    from icd.db import damaged_rows  # most callers look at the pages only

    try:
        return next(damaged_rows.every(conn), None) if migrate.is_current(conn) else None
    except sqlite3.DatabaseError as exc:
        if not isinstance(from_sqlite(exc), Corrupt):
            raise
        return None


def _damage(text: str) -> str:
    unread = _UNREAD.search(text)
    if unread and (unread[1] is None or int(unread[1]) & 0xFF == sqlite3.SQLITE_IOERR):
        raise InputOutput(f"the disk reported an error: {' '.join(text.split())}")
    return text


def _look(conn: sqlite3.Connection, looks: tuple[Look, ...], deadline: float) -> list[str]:
    found: list[str] = []
    with until(conn, deadline):
        for look in looks:
            try:
                found.extend(look(conn))
            except sqlite3.DatabaseError as exc:
                known = from_sqlite(exc)
                if not isinstance(known, Corrupt):
                    raise
                found.append(f"{known.message}: {exc}")
    return found


def _pages(conn: sqlite3.Connection) -> Iterator[str]:
    """One by one: after the first few SQLite may give up."""
    for (text,) in conn.execute(f"PRAGMA integrity_check({FINDINGS})"):
        lines = _damage(text).splitlines()
        yield from (line for line in lines if line != "ok" and "***" not in line)


def _references(conn: sqlite3.Connection) -> list[str]:
    rows = conn.execute("PRAGMA foreign_key_check").fetchmany(FINDINGS)
    return [f"a row of {row[0]} refers to a row of {row[2]} that is gone" for row in rows]


def _rows(conn: sqlite3.Connection, tell: Progress) -> list[str]:
    """What no page betrays: text that is no UTF-8, payloads that are no JSON, times beyond time."""
    from icd.db import damaged_rows  # most callers look at the pages only

    if not migrate.is_current(conn):
        return []
    return [found.message for found in islice(damaged_rows.every(conn, tell=tell), FINDINGS)]


def _schema(conn: sqlite3.Connection) -> list[str]:
    """Compare with what the migrations make; further tables are the original's, or a person's."""
    if not migrate.is_current(conn):
        return [f"the schema is v{migrate.version(conn)}, not v{migrate.LATEST}"]
    expected, there = (_texts(o) for o in (schema.expected(migrate.LATEST), schema.objects(conn)))
    missing = [name for name in expected if name not in there]
    changed = [name for name in expected if name in there and there[name] != expected[name]]
    return [f"the {name} is missing" for name in missing] + [
        f"the {name} differs from intercore's schema" for name in changed
    ]


def _texts(objects: list[schema.Object]) -> dict[str, str]:
    """What the schema consists of; SQLite's own indexes have no text."""
    by_name = sorted(objects, key=lambda each: each[1])
    tables_first = sorted(by_name, key=lambda each: each[0], reverse=True)
    return {f"{kind} {name}": sql for kind, name, _, sql in tables_first if sql is not None}


# --- fit to be used -------------------------------------------------------------------------------

FREE_BYTES_NEEDED = 10 * 1024 * 1024


def examine(conn: sqlite3.Connection, path: str, *, thorough: bool) -> None:
    """Raise what is wrong.  `thorough` reads every page, so it takes time on a large database."""
    conn.execute("SELECT count(1) FROM migrations").fetchone()
    if not isinstance(conn, sqlite3.Connection):
        return  # a server looks after its pages; that it answers is what can be told here
    if not migrate.is_current(conn):
        raise Unhealthy(
            f"the schema is v{migrate.version(conn)}, not v{migrate.LATEST}",
            hint="run 'icctl init' to upgrade it",
        )
    mode = journal_mode(conn)
    if mode != "wal":
        raise Unhealthy(
            f"the journal mode is {mode}, not wal",
            hint="move the database to a local filesystem that supports shared memory",
        )
    obstacle = permissions.obstacle(path)
    if obstacle is not None:
        raise obstacle
    free = free_bytes(os.path.dirname(path))
    if free <= FREE_BYTES_NEEDED:
        raise DiskFull(f"disk full: {free} bytes available (need {FREE_BYTES_NEEDED})")
    if thorough:
        _read_every_page(conn)
        damaged = first_row(conn)
        if damaged is not None:
            raise damaged


def refuse_damage(conn: sqlite3.Connection, *, deadline: float) -> None:
    """Raise if damage is found before the deadline; what is too large to read is trusted."""
    with suppress(DeadlineExceeded), until(conn, deadline):
        _read_every_page(conn)


def _read_every_page(conn: sqlite3.Connection) -> None:
    found = first(conn)
    if found:
        # What can be read although it breaks the schema has a row and a column to be named.
        raise first_row(conn) or Corrupt(f"the database is damaged: {found}")


def free_bytes(directory: str) -> int:
    space = os.statvfs(directory)
    return space.f_bavail * space.f_frsize
