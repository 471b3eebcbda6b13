"""Taking over a database of the original that is newer than those we know.

Ours is built beside it, from the tables and columns that we know by name, with the same code that
takes over the earlier ones; the old file is kept under another name.

Promises
    - no other process uses the original meanwhile: we hold SQLite's exclusive lock on it from
      before the first row is read until after the switch, and refuse if another has it open.
      A process that opens it in between waits for that lock in vain, and then finds the new file;
    - whenever we are killed, the path names the old file, complete, or ours, complete: what is
      built has another name until it is on the disk, and the switch is one rename;
    - what is ours already stays as it is.

The caller holds our own lock, so no process of intercore has the file open.
"""

import glob
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from msgspec import Struct

from icd import procfs
from icd.db import backup, migrate
from icd.db.connection import connect, transaction, until
from icd.db.database import Database, identity
from icd.db.files import lost
from icd.db.files import permissions as access
from icd.db.files import private as files
from icd.db.original import tables as original_tables
from icd.db.original.tables import Left
from icd.errors import Corrupt, IcError, Locked, NoDatabase, from_os
from icd.files import sync

# The original gives up on a locked database after a tenth of a second.
LOOK_AGAIN_SECONDS = 0.01

_UNTRUSTED = "the database is not trusted, so it starts no programs; accept it with 'icctl trust'"
_WAIT = "end what uses it, then run 'icctl init --adopt' again; nothing was changed"


class Adoption(Struct, frozen=True):
    """`schema`: of the original; `taken`: the rows of each of its tables that are in ours.

    `still_open`: processes that opened the old file too late to be refused, and keep it open.
    """

    schema: int
    kept: str
    taken: dict[str, int]
    left: list[Left]
    still_open: list[int]


def adopt(database: Database, *, now_ms: int, deadline: float) -> Adoption | None:
    """Take it over; None if it is ours, or can be upgraded like any other."""
    path = database.path
    if identity(path) is None:
        raise NoDatabase(f"no database at {path}")
    access.refuse_read_only(path)
    with closing(connect(path)) as conn:
        if not migrate.is_newer_original(conn):
            return None
    fresh = f"{path}.adopt"
    _remove(fresh, f"{fresh}-journal")  # we hold the lock, so its owner died over it
    try:
        with _alone(path) as old:
            schema = migrate.version(old)
            taken, left = _build(old, fresh, path, now_ms=now_ms, deadline=deadline)
            lost.note_replacement(database.lock, fresh)
            kept = _switch(old, fresh, path, f"{path}.original-{backup.stamp(now_ms)}")
            still_open = _stragglers(kept, deadline)
    finally:
        _remove(fresh)
    # Its rows are another program's, perhaps a stranger's, and that file was never trusted.
    database.notes.append(_UNTRUSTED)
    return Adoption(schema, kept, taken, left, still_open)


@contextmanager
def _alone(path: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file while no other process reads, writes or has it open."""
    with closing(connect(path)) as conn:
        conn.execute("PRAGMA main.locking_mode = EXCLUSIVE")  # kept until the connection is closed
        try:
            conn.execute("BEGIN EXCLUSIVE")
            conn.execute("COMMIT")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise _in_use(path) from exc
        # After the lock, or a process could come between the two.
        if _users(path):
            raise _in_use(path)
        yield conn


def _users(path: str) -> list[int]:
    there = identity(path)
    return procfs.openers(*there) if there else []


def _in_use(path: str) -> IcError:
    """The error that names the user of the file, if it can be seen: another user's cannot."""
    pids = _users(path)
    found = procfs.stat(pids[0]) if pids else None
    who = f"process {pids[0]} ({found.name})" if found else "another process"
    return Locked(f"the original is in use: {who} has {path} open", hint=_WAIT)


def _build(
    old: sqlite3.Connection, fresh: str, path: str, *, now_ms: int, deadline: float
) -> tuple[dict[str, int], list[Left]]:
    """Make ours, complete and on the disk, under its temporary name."""
    os.close(files.create(fresh))
    with until(old, deadline):
        _refuse_damage(old, path)
        counts, left = original_tables.stage(old, fresh)
    with closing(connect(fresh)) as conn, until(conn, deadline):
        conn.execute("PRAGMA journal_mode = MEMORY")  # if we are killed it is worth nothing
        conn.execute("PRAGMA foreign_keys = ON")
        with transaction(conn):
            migrate.apply(conn, path, now_ms=now_ms)
            taken, missing = original_tables.taken(conn, counts)
        conn.execute("VACUUM")  # the copies of the original's tables have left room behind
    sync(fresh)
    return taken, left + missing


def _refuse_damage(conn: sqlite3.Connection, path: str) -> None:
    (verdict,) = conn.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Corrupt(f"{path} is damaged: {verdict}", hint="repair it with the original program")


def _switch(old: sqlite3.Connection, fresh: str, path: str, name: str) -> str:
    """Put ours in its place; return where the original is now."""
    (busy, _, _) = old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise _in_use(path)
    try:
        kept = _keep(old, path, name)
        # Their content is in the file by now.  SQLite would apply them to ours.
        _remove(f"{path}-wal", f"{path}-shm", f"{path}-journal")
        os.replace(fresh, path)
        sync(os.path.dirname(path))
    except OSError as exc:
        raise from_os(exc, f"replace {path}") from exc
    return kept


def _keep(old: sqlite3.Connection, path: str, stem: str) -> str:
    """A second name for the file, or a copy where there are no such; the path still names it."""
    for name in glob.glob(f"{glob.escape(path)}.original-*"):
        if identity(name) == identity(path):
            os.unlink(name)  # of an attempt that was killed before its switch
    kept = files.free_name(stem)
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:
        backup.to(old, kept)
    return kept


def _stragglers(kept: str, deadline: float) -> list[int]:
    """A process that opened the old file before the switch must not get to write to it.

    While we hold its lock they cannot, and they give up soon; those that do not are told.
    """
    while (found := _users(kept)) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_SECONDS)
    return found


def _remove(*names: str) -> None:
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(name)
