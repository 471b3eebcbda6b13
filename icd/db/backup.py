"""Backups: consistent, private, verified, and only a few of them; and putting one back.

Made with SQLite's backup API: copying the file would miss what is still in the write-ahead log.
The caller holds the database's lock.  A backup that could not be finished leaves no file behind;
one whose process was killed is not taken for a backup, and makes room for the next.

Promises of a restore
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

import glob
import math
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from icd import files, trust
from icd.db import check, lost, migrate, paths, permissions, schema
from icd.db.connection import (
    Progress,
    connect,
    connect_to_read,
    is_log_emptied,
    transaction,
    until,
    untold,
)
from icd.db.database import Database, identity
from icd.errors import (
    BadPath,
    Corrupt,
    DeadlineExceeded,
    DiskFull,
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

# Copied between two looks at the clock; 4 MiB.
PAGES_AT_ONCE = 1024


def beside(
    conn: sqlite3.Connection,
    path: str,
    *,
    keep: int,
    now_ms: int,
    deadline: float = math.inf,
    tell: Progress = untold,
    spare: str = "",
) -> str:
    """Write `<db>.backup-YYYYMMDD-HHMMSS[-n]`; of all such, leave the youngest `keep`, and `spare`.

    The new one stays in any case, whatever the files' times say.
    """
    unfinished = f"{path}.unfinished"
    files.remove(unfinished)  # we hold the lock, so its owner died over it
    _make(unfinished)
    _fill(conn, unfinished, deadline=deadline, tell=tell)
    backup = _name(unfinished, f"{path}.backup-{stamp(now_ms)}")
    _rotate(path, keep, spared={backup, spare})
    return backup


def to(
    conn: sqlite3.Connection, file: str, *, deadline: float = math.inf, tell: Progress = untold
) -> str:
    """Write a backup to a file that a person named, and that is not there yet."""
    os.close(permissions.create(file))
    _fill(conn, file, deadline=deadline, tell=tell)
    return file


def stamp(now_ms: int) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ms // 1000))


def _make(name: str) -> None:
    """What is there, a link included, is left alone."""
    try:
        os.close(files.create(name))
    except OSError as exc:
        raise from_os(exc, f"create the backup {name}") from exc


def _name(unfinished: str, stem: str) -> str:
    try:
        name = permissions.free_name(stem)
    except InputOutput:
        os.unlink(unfinished)
        raise InputOutput(f"there are already a thousand backups named {stem}") from None
    os.rename(unfinished, name)
    return name


def _fill(conn: sqlite3.Connection, backup: str, *, deadline: float, tell: Progress) -> None:
    try:
        _copy(conn, backup, deadline, tell)
        tell(0, 0, "verifying the copy")
        _verify(backup, deadline)
    except BaseException as exc:
        os.unlink(backup)
        if isinstance(exc, sqlite3.Error):
            raise _named(exc, backup) from exc
        raise


def _named(exc: sqlite3.Error, backup: str) -> IcError:
    """The disk of the backup need not be that of the database."""
    known = from_sqlite(exc) or InputOutput(f"the backup failed: {exc}")
    full = f"disk full, cannot write {backup}"
    return DiskFull(full) if isinstance(known, DiskFull) else known


def _copy(conn: sqlite3.Connection, backup: str, deadline: float, tell: Progress) -> None:
    def look(_status: int, remaining: int, total: int) -> None:
        tell(total - remaining, total, "copying")
        if time.monotonic() >= deadline:
            raise DeadlineExceeded("the deadline passed before the backup was complete")

    with closing(sqlite3.connect(backup, isolation_level=None)) as copy:
        conn.backup(copy, pages=PAGES_AT_ONCE, progress=look)
        # A backup in WAL mode would grow files of its own with the first look at it.
        copy.execute("PRAGMA journal_mode = DELETE")


def _verify(backup: str, deadline: float) -> None:
    with closing(connect_to_read(backup)) as copy, until(copy, deadline):
        damage = check.first(copy)
    if damage:
        raise Corrupt(f"the database is damaged: {damage}")


def _rotate(path: str, keep: int, *, spared: set[str]) -> None:
    ours = re.compile(re.escape(os.path.basename(path)) + r"\.backup-\d{8}-\d{6}(-\d+)?")
    found = glob.glob(f"{glob.escape(path)}.backup-*")
    backups = [name for name in found if ours.fullmatch(os.path.basename(name)) and _is_file(name)]
    backups.sort(key=os.path.getmtime)
    for old in [name for name in backups if name not in spared][: max(0, len(backups) - keep)]:
        with suppress(OSError):  # the new backup is there, whatever becomes of an old one
            os.unlink(old)


def _is_file(name: str) -> bool:
    """A link or a directory of such a name is a person's own."""
    return stat.S_ISREG(os.lstat(name).st_mode)


# --- restore --------------------------------------------------------------------------------------

_UNFIT = "use a backup made by 'icctl backup' or an upgrade; nothing was changed"
_GIVEN = "SELECT value, name FROM counters WHERE name IN ('state', 'leases')"
_GO_ON = "UPDATE counters SET value = max(value, ?) WHERE name = ?"


def restore(
    database: Database, file: str, *, now_ms: int, deadline: float, tell: Progress = untold
) -> str | None:
    """Replace the database by a copy of `file`; where what was there is kept, if anything was."""
    found = refuse_name(file)
    if files.identity(found) == identity(database.path):
        raise BadPath(f"{file} is the database itself", hint=_UNFIT)
    permissions.refuse_own_names(file, database.path)
    fresh = f"{database.path}.restore"
    files.remove(fresh)  # we hold the lock, so its owner died over it
    is_trusted = _may_be_trusted(database.path)
    try:
        _copy_judged(file, fresh, deadline, tell)
        tell(0, 0, "upgrading the copy")
        _upgrade(fresh, database.path, now_ms=now_ms)
        database.close()
        given: list[tuple[int, str]] = []
        tell(0, 0, "keeping what was there")
        kept = _keep(database, file, given, now_ms=now_ms, deadline=deadline)
        _go_on(fresh, given)
        lost.note_replacement(database.lock, fresh)
        put(fresh, database.path)
    finally:
        files.remove(fresh)
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


def _copy_judged(file: str, fresh: str, deadline: float, tell: Progress) -> None:
    """Judge the file, copy it and examine the copy."""
    try:
        with closing(connect_to_read(file)) as source:
            migrate.refuse_foreign(source, file, create=False)
            to(source, fresh, deadline=deadline, tell=tell)
        tell(0, 0, "checking the copy")
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
    """Now: a schema that knows no leases has no place for their tokens."""
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
            if not is_log_emptied(conn):  # also the proof that there is no reader
                raise Locked("another program that does not use intercore reads the database")
            return beside(
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
        return _set_aside(path, f"{path}.damaged-{stamp(now_ms)}")


def _refuse_strange(conn: sqlite3.Connection, path: str) -> None:
    """Another program's database stays; an empty one, or one from the future, may be replaced."""
    with suppress(SchemaTooNew, NoDatabase):
        migrate.refuse_foreign(conn, path, create=True)


def _set_aside(path: str, name: str) -> str:
    """Keep the file as it is, with its log: a rescue needs both.

    By a second name, where the filesystem has such: a restore that is killed now must not leave
    a project without a database, which would pass for one that never had any.
    """
    free = permissions.free_name(name, "-wal")
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


def put(fresh: str, path: str, ends: tuple[str, ...] = ("-wal", "-shm")) -> None:
    """The log of the old file is empty by now, or kept elsewhere; its name must be free.

    Before the new file is there: SQLite would apply the log of another database to it.
    """
    try:
        files.remove(*(path + end for end in ends))
        os.replace(fresh, path)
        files.sync(os.path.dirname(path))
    except OSError as exc:
        raise from_os(exc, f"replace {path}") from exc
