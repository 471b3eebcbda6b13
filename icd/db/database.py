"""A database and its lock: what a host holds, be it the daemon's lane or a direct call.

Invariants
    - every method but `hold` is called while the lock is held;
    - the file that is open is the file that the path names: replaced or deleted, it is reopened;
    - what somebody else cut off or upgraded under our feet is judged anew before it is used;
    - nothing in this process opens or closes the database file except SQLite itself, because
      POSIX drops all our locks on a file when any descriptor of it is closed.
"""

import math
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from icd import config
from icd.db import access, health, lock, migrate
from icd.db.bounds import Connection
from icd.db.connection import connect, page_bytes, set_up
from icd.errors import Corrupt, NoDatabase, from_os

# Reading every page of a database takes this long at most when it is opened: somebody waits.
CAREFUL_SECONDS = 0.1
# Nor is a larger one read: SQLite before 3.41 cannot be stopped while it walks through the pages.
CAREFUL_BYTES = 64 * 1024 * 1024
GITIGNORE = """\
# written by intercore: the database is this machine's own
intercore.db*
dispatches/
"""


class Database:
    """The only connection of this process to one database file."""

    def __init__(
        self,
        path: str,
        settings: config.Settings,
        *,
        wait: lock.Wait = lock.block,
        careful: bool = False,
    ) -> None:
        self.path = path
        self.settings = settings
        self.lock = lock.FileLock(path + ".lock", wait)
        self.careful = careful  # a host that keeps it open looks for damage first
        self.reopened = 0
        self.stop_at = math.inf  # statements that open it are stopped then, monotonic
        self.foreign = 0  # how often we noticed that the file holds what we did not write
        self._conn: Connection | None = None
        self.identity: tuple[int, int] | None = None  # (device, inode) of the open file
        self._companions: dict[str, tuple[int, int] | None] = {}
        self._data_version = -1
        self._others_wrote = False
        self._size = 0  # of the open file, when we last looked

    @property
    def is_open(self) -> bool:
        return self._conn is not None

    @contextmanager
    def hold(self, deadline: float, *, create: bool = False) -> Iterator[None]:
        """Hold the lock until `deadline` at most; `create` makes the directory it lives in."""
        if create:
            _make_directory(os.path.dirname(self.path))
        self.lock.acquire(deadline)
        try:
            yield
        finally:
            self.lock.release()

    def connection(self, *, create: bool = False) -> Connection:
        """The connection to the file that the path names now, migrated and ready."""
        if self._conn is not None:
            self._look_again(self._conn)
        if self._conn is None:
            try:
                self._conn = self._open(create=create)
            except sqlite3.Error as exc:
                cause = access.cause(exc, self.path)
                if cause is None:
                    raise
                raise cause from exc
            self._notice(self._conn)
        return self._conn

    def others_wrote(self) -> bool:
        """Whether another connection had committed when `connection` looked; told once."""
        told, self._others_wrote = self._others_wrote, False
        return told

    def _look_again(self, conn: sqlite3.Connection) -> None:
        """Close what is no longer what we opened, so that it is opened with all the care."""
        there, size = _glance(self.path)
        if there != self.identity:
            self.close()
            self._remove_orphans()
            self.reopened += 1
        elif size < self._size or (self._notice(conn) and not migrate.is_current(conn)):
            self.close()
        else:
            self._size = size

    def _notice(self, conn: sqlite3.Connection) -> bool:
        """Whether another connection committed since we last looked; it is told once, later."""
        (data_version,) = conn.execute("PRAGMA data_version").fetchone()
        changed = bool(data_version != self._data_version)
        self._data_version = data_version
        self.foreign += changed
        self._others_wrote |= changed
        return changed

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = None
        self.identity = None

    def _open(self, *, create: bool) -> Connection:
        if identity(self.path) is None:
            if not create:
                raise NoDatabase(f"no database at {self.path}")
            _make_file(self.path)
        access.refuse_read_only(self.path)
        conn = connect(self.path)
        conn.bounds.stop_at = self.stop_at
        try:
            current = migrate.is_current(conn)
            self._refuse_stump(conn)
            if not current:
                migrate.refuse_foreign(conn, self.path, create=create)
            set_up(conn, self.settings)
            if not current:
                keep, now_ms = self.settings.backups_kept, time.time_ns() // 1_000_000
                migrate.migrate(conn, self.path, keep=keep, now_ms=now_ms, deadline=self.stop_at)
            if self.careful and os.path.getsize(self.path) <= CAREFUL_BYTES:
                health.refuse_damage(conn, deadline=time.monotonic() + CAREFUL_SECONDS)
        except BaseException:
            conn.close()
            raise
        conn.bounds.end()
        self.identity, self._size = _glance(self.path)
        self._companions = {name: identity(name) for name in self._companion_names()}
        self._data_version = -1
        return conn

    def _refuse_stump(self, conn: sqlite3.Connection) -> None:
        """SQLite sees by itself that pages are missing, but not if others have it open."""
        log = _glance(self.path + "-wal")[1]
        have, need = _glance(self.path)[1], page_bytes(conn)
        if not log and have < need:  # else the rest may be in the log
            raise Corrupt(f"the database is cut off: {have} of {need} bytes are there")

    def _companion_names(self) -> list[str]:
        return [f"{self.path}-wal", f"{self.path}-shm"]

    def _remove_orphans(self) -> None:
        """The log of a file that is gone would be played over the one that took its place."""
        for name, known in self._companions.items():
            if known is not None and identity(name) == known:
                with suppress(FileNotFoundError):
                    os.unlink(name)


def identity(path: str) -> tuple[int, int] | None:
    """(device, inode), by `stat` only; None if there is nothing."""
    return _glance(path)[0]


def _glance(path: str) -> tuple[tuple[int, int] | None, int]:
    """Its identity and its size."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None, 0
    except OSError as exc:
        raise from_os(exc, f"look at {path}") from exc
    return (found.st_dev, found.st_ino), found.st_size


def _make_directory(directory: str) -> None:
    try:
        _make_private(directory)
        if os.path.basename(directory) == ".clavain":
            _write_once(os.path.join(directory, ".gitignore"), GITIGNORE)
    except OSError as exc:
        raise from_os(exc, f"create {directory}") from exc


def _make_private(directory: str) -> None:
    """Like makedirs, which gives its mode to the last directory only."""
    if os.path.isdir(directory):
        return
    _make_private(os.path.dirname(directory))
    try:
        os.mkdir(directory, mode=0o700)
    except FileExistsError:
        if not os.path.isdir(directory):
            raise


def _write_once(path: str, text: str) -> None:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        pass


def _make_file(path: str) -> None:
    """Create the file private from its first moment; SQLite gives -wal and -shm the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600))
    except OSError as exc:
        raise from_os(exc, f"create {path}") from exc
