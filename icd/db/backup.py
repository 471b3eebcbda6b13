"""Backups: consistent, private, verified, and only a few of them.

Made with SQLite's backup API: copying the file would miss what is still in the write-ahead log.
The caller holds the database's lock.  A backup that could not be finished leaves no file behind;
one whose process was killed is not taken for a backup, and makes room for the next.
"""

import glob
import math
import os
import re
import sqlite3
import stat
import time
from contextlib import closing, suppress

from icd.db import check
from icd.db.connection import connect_to_read, until
from icd.db.files import private as files
from icd.errors import (
    Corrupt,
    DeadlineExceeded,
    DiskFull,
    IcError,
    InputOutput,
    from_os,
    from_sqlite,
)
from icd.files import create

# Copied between two looks at the clock; 4 MiB.
PAGES_AT_ONCE = 1024


def beside(
    conn: sqlite3.Connection,
    path: str,
    *,
    keep: int,
    now_ms: int,
    deadline: float = math.inf,
    spare: str = "",
) -> str:
    """Write `<db>.backup-YYYYMMDD-HHMMSS[-n]`; of all such, leave the youngest `keep`, and `spare`.

    The new one stays in any case, whatever the files' times say.
    """
    unfinished = f"{path}.unfinished"
    with suppress(FileNotFoundError):
        os.unlink(unfinished)  # we hold the lock, so its owner died over it
    _make(unfinished)
    _fill(conn, unfinished, deadline=deadline)
    backup = _name(unfinished, f"{path}.backup-{stamp(now_ms)}")
    _rotate(path, keep, spared={backup, spare})
    return backup


def to(conn: sqlite3.Connection, file: str, *, deadline: float = math.inf) -> str:
    """Write a backup to a file that a person named, and that is not there yet."""
    os.close(files.create(file))
    _fill(conn, file, deadline=deadline)
    return file


def stamp(now_ms: int) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ms // 1000))


def _make(name: str) -> None:
    """What is there, a link included, is left alone."""
    try:
        os.close(create(name))
    except OSError as exc:
        raise from_os(exc, f"create the backup {name}") from exc


def _name(unfinished: str, stem: str) -> str:
    try:
        name = files.free_name(stem)
    except InputOutput:
        os.unlink(unfinished)
        raise InputOutput(f"there are a thousand backups named {stem}") from None
    os.rename(unfinished, name)
    return name


def _fill(conn: sqlite3.Connection, backup: str, *, deadline: float) -> None:
    try:
        _copy(conn, backup, deadline)
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


def _copy(conn: sqlite3.Connection, backup: str, deadline: float) -> None:
    def look(_status: int, _remaining: int, _total: int) -> None:
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
