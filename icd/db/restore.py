"""Putting a backup in the place of a database.

Promises
    - what is restored is an intercore database that this program can read, and sound: it is copied
      and examined before anything is touched;
    - what was there is kept, as a backup, or as it is where it is too damaged to be copied;
    - the change is one rename under the lock, which every process of intercore takes before it
      looks: those that have the old file open notice that it was replaced, and open the new one;
    - a program that does not know the lock and is reading the database is an error;
    - versions of state and tokens of leases that the old database gave away do not come again, if
      it can still be read.  The log does go back: a consumer that has read further is told so, and
      would not be if its numbers went on;
    - the new file is trusted if the old one was, or if there was none: a clone ships backups, too.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from icd import trust
from icd.db import backup, check, migrate, paths, schema
from icd.db.connection import connect, connect_to_read, transaction
from icd.db.database import Database, identity
from icd.db.files import lost
from icd.db.files import private as files
from icd.errors import (
    BadPath,
    Corrupt,
    IcError,
    InputOutput,
    Locked,
    NoDatabase,
    NotOurs,
    SchemaTooNew,
    SymlinkRefused,
    from_os,
    from_sqlite,
)
from icd.files import identity as file_identity
from icd.files import sync

_UNFIT = "name a backup that 'icctl backup' or an upgrade made; nothing was changed"
_GIVEN = "SELECT value, name FROM counters WHERE name IN ('state', 'leases')"
_GO_ON = "UPDATE counters SET value = max(value, ?) WHERE name = ?"


def restore(database: Database, file: str, *, now_ms: int, deadline: float) -> str | None:
    """Replace the database by a copy of `file`; where what was there is kept, if anything was."""
    found = refuse_name(file)
    if file_identity(found) == identity(database.path):
        raise BadPath(f"{file} is the database itself", hint=_UNFIT)
    files.refuse_own_names(file, database.path)
    fresh = f"{database.path}.restore"
    with suppress(FileNotFoundError):
        os.unlink(fresh)  # we hold the lock, so its owner died over it
    is_trusted = _may_be_trusted(database.path)
    try:
        _copy(file, fresh, deadline)
        _upgrade(fresh, database.path, now_ms=now_ms)
        database.close()
        given: list[tuple[int, str]] = []
        kept = _keep(database, file, given, now_ms=now_ms, deadline=deadline)
        _go_on(fresh, given)
        lost.note_replacement(database.lock, fresh)
        _put(fresh, database.path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(fresh)
    if is_trusted:
        database.made()
    return kept


def _may_be_trusted(path: str) -> bool:
    """A clone can ship a backup, too: where nothing is, a trusted database must have been."""
    home = os.environ.get("HOME")
    gone = identity(path) is None
    return trust.was_trusted(home, path) if gone else trust.allows(home, path)


def refuse_name(file: str) -> os.stat_result:
    """Raise if it can be no backup, whatever is in it; nothing is locked or made for that."""
    try:
        found = os.lstat(file)
    except OSError as exc:
        raise BadPath(f"cannot read {file}: {exc.strerror}", hint=_UNFIT) from exc
    if stat.S_ISLNK(found.st_mode):
        raise SymlinkRefused(f"{file} is a symlink (refusing to use it)")
    if not stat.S_ISREG(found.st_mode):
        raise BadPath(f"{file} is not a regular file", hint=_UNFIT)
    return found


def _copy(file: str, fresh: str, deadline: float) -> None:
    """Judge the file, copy it and examine the copy."""
    try:
        with closing(connect_to_read(file)) as source:
            migrate.refuse_foreign(source, file, create=False)
            backup.to(source, fresh, deadline=deadline)
        with closing(connect_to_read(fresh)) as copy:
            found = check.damage(copy, deadline=deadline)
    except sqlite3.Error as exc:
        known = from_sqlite(exc) or InputOutput(str(exc))
        raise type(known)(f"{file}: {known.message}", hint=_UNFIT) from exc
    except Corrupt as exc:
        raise Corrupt(f"{file}: {exc.message}", hint=_UNFIT) from exc
    except (NotOurs, NoDatabase) as exc:
        raise type(exc)(exc.message, hint=_UNFIT) from exc
    except SchemaTooNew as exc:
        raise SchemaTooNew(exc.message) from exc  # a backup cannot be adopted
    if found:
        raise Corrupt(f"{file} is damaged: {found[0]}", hint=_UNFIT)


def _upgrade(fresh: str, path: str, *, now_ms: int) -> None:
    """Upgrade the copy now: a schema that knows no leases has no place for their tokens."""
    with _changing(fresh) as conn:
        if migrate.is_current(conn):
            schema.refuse_strange(conn, path)
        else:
            schema.refuse_active(conn, path)
            migrate.upgrade(conn, path, now_ms=now_ms)


def _go_on(fresh: str, given: list[tuple[int, str]]) -> None:
    with _changing(fresh) as conn:
        conn.executemany(_GO_ON, given)


@contextmanager
def _changing(fresh: str) -> Iterator[sqlite3.Connection]:
    """The copy, in a transaction; if we are killed it is worth nothing, and needs no journal."""
    with closing(connect(fresh)) as conn:
        conn.execute("PRAGMA journal_mode = MEMORY")
        conn.execute("PRAGMA foreign_keys = ON")
        with transaction(conn):
            yield conn


def _keep(
    database: Database,
    file: str,
    given: list[tuple[int, str]],
    *,
    now_ms: int,
    deadline: float,
) -> str | None:
    """Where what was there is kept; `given` are the last numbers that it gave away."""
    path = database.path
    if identity(path) is None:
        return None
    try:
        with closing(connect(path)) as conn:
            _refuse_strange(conn, path)
            with suppress(sqlite3.Error):  # of an earlier schema, or damaged
                given += conn.execute(_GIVEN)
            _empty_log(conn)
            return backup.beside(
                conn,
                path,
                keep=database.settings.backups_kept,
                now_ms=now_ms,
                deadline=deadline,
                spare=paths.canonical(file),
            )
    except (sqlite3.Error, IcError) as exc:
        known = exc if isinstance(exc, IcError) else from_sqlite(exc)
        if not isinstance(known, Corrupt):
            raise
        return _set_aside(path, f"{path}.damaged-{backup.stamp(now_ms)}")


def _refuse_strange(conn: sqlite3.Connection, path: str) -> None:
    """Another program's database stays; an empty one, or one from the future, may be replaced."""
    with suppress(SchemaTooNew, NoDatabase):
        migrate.refuse_foreign(conn, path, create=True)


def _empty_log(conn: sqlite3.Connection) -> None:
    """Empty the log, which also proves that there is no reader: one would hold on to it."""
    (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise Locked("another program that does not use intercore reads the database")


def _set_aside(path: str, name: str) -> str:
    """Keep the file as it is, with its log: a rescue needs both.

    By a second name, where the filesystem has such: a restore that is killed now must not leave
    a project without a database, which would pass for one that never had any.
    """
    free = files.free_name(name, "-wal")
    for end in ("-wal", ""):
        with suppress(FileNotFoundError):
            _name_too(f"{path}{end}", f"{free}{end}")
    return free


def _name_too(file: str, name: str) -> None:
    try:
        os.link(file, name, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        os.rename(file, name)


def _put(fresh: str, path: str) -> None:
    """The log of the old file is empty by now, or kept elsewhere; its name must be free.

    Before the new file is there: SQLite would apply the log of another database to it.
    """
    try:
        for companion in (f"{path}-wal", f"{path}-shm"):
            with suppress(FileNotFoundError):
                os.unlink(companion)
        os.replace(fresh, path)
        sync(os.path.dirname(path))
    except OSError as exc:
        raise from_os(exc, f"replace {path}") from exc
