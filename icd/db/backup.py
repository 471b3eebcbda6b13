"""Backups: consistent, private, verified, and only a few of them.

Made with SQLite's backup API: copying the file would miss what is still in the write-ahead log.
The caller holds the database's lock.
"""

import glob
import os
import re
import sqlite3
import time

from icd.errors import InputOutput, from_os, from_sqlite

KEEP = 5


def before_upgrade(conn: sqlite3.Connection, path: str, *, now_ms: int) -> str:
    """Write `<db>.backup-YYYYMMDD-HHMMSS[-n]`, check that it opens, and drop the oldest ones."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_ms // 1000))
    backup = _create(f"{path}.backup-{stamp}")
    try:
        _copy(conn, backup)
    except sqlite3.Error as exc:
        os.unlink(backup)
        raise from_sqlite(exc) or InputOutput(f"the backup failed: {exc}") from exc
    _rotate(path, keep=backup)
    return backup


def _create(stem: str) -> str:
    for number in range(1000):
        name = stem if number == 0 else f"{stem}-{number}"
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            continue
        except OSError as exc:
            raise from_os(exc, f"create the backup {name}") from exc
        return name
    raise InputOutput(f"there are a thousand backups named {stem}")


def _copy(conn: sqlite3.Connection, backup: str) -> None:
    copy = sqlite3.connect(backup, isolation_level=None)
    try:
        conn.backup(copy)
        # A backup in WAL mode would grow files of its own as soon as somebody looks at it.
        copy.execute("PRAGMA journal_mode = DELETE")
        (verdict,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(f"the copy is damaged: {verdict}")
    finally:
        copy.close()


def _rotate(path: str, *, keep: str) -> None:
    ours = re.compile(re.escape(os.path.basename(path)) + r"\.backup-\d{8}-\d{6}(-\d+)?")
    found = glob.glob(f"{glob.escape(path)}.backup-*")
    backups = [name for name in found if ours.fullmatch(os.path.basename(name))]
    backups.sort(key=os.path.getmtime)
    for old in [name for name in backups if name != keep][: max(0, len(backups) - KEEP)]:
        os.unlink(old)
