"""A database and its lock: what a host holds, be it a thread of the daemon or a direct call.

Invariants
    - every method but `hold` is called while the lock is held;
    - nothing in a file is used before its companions and its schema were judged;
    - the file that is open is the file that the path names, its log and index included: replaced or
      deleted, it is reopened; what is missing of them is recovered, or told before the next
      acknowledgement;
    - a log that may hold the only copy of a commit is never removed: it is kept under another name;
    - what another program cut off or upgraded is judged again before it is used;
    - nothing in this process opens or closes the database file except SQLite itself, because
      POSIX drops all our locks on a file when any descriptor of it is closed.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from icd import config
from icd.db import lock, lost, migrate, permissions, schema
from icd.db.connection import Connection, connect, page_bytes, set_up
from icd.db.wal import Companions, Seen, see
from icd.errors import Corrupt, IcError, LogLost, NoDatabase, from_os
from icd.files import create as create_file

# Reading every page of a database takes this long at most when it is opened: a caller waits.
CAREFUL_SECONDS = 0.1
# Nor is a larger one read: SQLite before 3.41 cannot be stopped while it walks through the pages.
CAREFUL_BYTES = 64 * 1024 * 1024
# The kernel's clock for files may stand still for so long: a directory that changed just before it
# was looked at could change once more and look the same.
SETTLED_NS = 50_000_000
GITIGNORE = """\
# written by intercore: the database is this machine's own
intercore.db*
dispatches/
"""


class Debt(Struct, frozen=True, gc=False):
    """A loss that no caller has heard of; the note of it goes with the lock file, if that goes."""

    message: str
    noted_in: int  # the lock's inode


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
        self.notes: list[str] = []  # what the caller that made the file is to be told
        self.foreign = 0  # how often we noticed that the file holds what we did not write
        self.debt: Debt | None = None
        self.incidents: list[str] = []  # what happened to its files, for the log of the host
        self._conn: Connection | None = None
        self.is_open = False
        self.identity: tuple[int, int] | None = None  # (device, inode) of the open file
        self._companions: Companions | None = None
        self._main: Seen | None = None  # the open file, when the lock was last released
        self._main_sum: int | None = None
        self._placed = 0  # the inode of a file that a program of ours put there
        self._directory: Seen | None = None  # while all names in it led to what is open
        self._data_version = -1
        self._schema_version = -1
        self._others_wrote = False

    @contextmanager
    def hold(self, deadline: float, *, create: bool = False) -> Iterator[None]:
        """Hold the lock until `deadline` at most; `create` makes the directory it lives in."""
        if create:
            _make_directory(os.path.dirname(self.path))
        if not self.is_open:
            permissions.refuse_others(os.path.dirname(self.path))
        self.lock.acquire(deadline)
        try:
            yield
        finally:
            self._remember()
            self.lock.release()

    def connection(self, *, create: bool = False) -> Connection:
        """The connection to the file that the path names now, migrated and ready."""
        self.look()
        if self._conn is None:
            try:
                self._conn = self._open(create=create)
                self.is_open = True
            except sqlite3.Error as exc:
                cause = permissions.cause(exc, self.path)
                if cause is None:
                    raise
                raise cause from exc
            self._notice(self._conn)
        return self._conn

    def look(self) -> None:
        """Compare the files of an open database with what is there; before it is closed, too."""
        if self._conn is not None:
            self._look_again(self._conn)

    def is_left_alone(self) -> bool:
        """Whether the lock kept others out, or they must have used the files that we used.

        If not, another process may have recovered these files before our last commit.
        """
        companions = self._companions
        return companions is None or self.lock.is_current() or companions.are_named()

    def owe(self, told: IcError) -> None:
        """Tell the next caller, here or elsewhere, of what the host found out by itself."""
        self.incidents.append(told.message)
        self.debt = Debt(told.message, self.lock.inode)
        lost.note(self.lock, self.path, "lost")

    def take_incidents(self) -> list[str]:
        incidents, self.incidents = self.incidents, []
        return incidents

    def others_wrote(self) -> bool:
        """Whether another connection had committed when `connection` looked; told once."""
        told, self._others_wrote = self._others_wrote, False
        return told

    def _look_again(self, conn: Connection) -> None:
        """Close what is no longer what we opened, so that it is opened with all the care."""
        companions = self._companions
        assert companions is not None
        if not self._is_untouched(companions):
            self._look_closely(conn, companions)
        if self._conn is not None and self._notice(conn) and not self._is_as_judged(conn):
            self.close()

    def _is_untouched(self, companions: Companions) -> bool:
        """No name in the directory has changed, and the files that are open are as we left them."""
        return (
            self._directory is not None
            and see(os.path.dirname(self.path)) == self._directory
            and companions.open_main() == self._main
            and companions.are_whole()
        )

    def _look_closely(self, conn: sqlite3.Connection, companions: Companions) -> None:
        directory, main = see(os.path.dirname(self.path)), _see(self.path)
        if main is None or main.identity != self.identity:
            is_ours = lost.leave(self.lock, conn, companions)
            self._let_go(companions)
            self.reopened += 1
            if main is not None and not is_ours:
                raise LogLost(f"{self.path} was replaced while it was in use")
        else:
            if not companions.are_named() or not companions.are_whole() or main != self._main:
                before = self._main
                self._mend(conn, companions, main)
                if before is not None and main.size < before.size:
                    self.close()  # by a vacuum, or it was cut off: opening it tells which
            is_settled = directory and time.time_ns() - directory.changed_ns > SETTLED_NS
            self._directory = directory if is_settled else None

    def _mend(self, conn: sqlite3.Connection, companions: Companions, main: Seen) -> None:
        """Find out why files are not as we left them, another process or a loss, and recover."""
        companions.lengthen_index()
        is_copied = main != self._main
        try:
            if self._main is not None and lost.is_overwritten(
                companions, self._main, main, self._main_sum
            ):
                lost.give_up(companions, self.path)
            elif not companions.are_named():
                self.incidents += lost.recover(self.lock, conn, companions, is_copied=is_copied)
                self._let_go(companions)
            else:
                lost.mend(self.lock, conn, companions, is_copied=is_copied)
                self._remember()
        except BaseException:
            self.close()
            raise

    def _let_go(self, companions: Companions) -> None:
        """Close what has no name here any more, and free the names for what has."""
        self.close()
        lost.put_away(companions)
        lost.note(self.lock, self.path, "closed")

    def _is_as_judged(self, conn: sqlite3.Connection) -> bool:
        (version,) = conn.execute("PRAGMA schema_version").fetchone()
        return migrate.is_current(conn) and version == self._schema_version

    def _remember(self) -> None:
        """Note how we leave the files, before others get at them."""
        companions = self._companions
        if self._conn is None or companions is None:
            return
        main, index = companions.open_main(), companions.read()
        if (main, index) == (self._main, companions.known):
            return
        if main != self._main:
            self._main_sum = companions.main_sum()
        self._main, companions.known = main, index
        files, placed = (main, companions.log, companions.index), self._placed
        noted = lock.Note.of("open", files, index, main_sum=self._main_sum, placed=placed)
        self.lock.write_note(noted.encode())

    def _notice(self, conn: Connection) -> bool:
        """Whether another connection committed since we last looked; it is told once, later."""
        (data_version,) = conn.single.execute("PRAGMA data_version").fetchone()
        changed = bool(data_version != self._data_version)
        self._data_version = data_version
        self.foreign += changed
        self._others_wrote |= changed
        return changed

    def made(self) -> None:
        """Trust the file, which we have just made; without that it works, but has no effects."""
        from icd import trust  # only who makes a database pays for it

        why = trust.made(self.path)
        if why:
            self.notes.append(f"the database is not trusted and may not start programs: {why}")

    def told(self) -> list[str]:
        """Take the notes: each is told once."""
        told, self.notes = self.notes, []
        return told

    def close(self) -> None:
        if self._conn is not None:
            index = self._companions.read() if self._companions else None
            main_sum = self._main_sum if see(self.path) == self._main else None
            lost.note(self.lock, self.path, "closing", index, main_sum)
            self._conn.close()
            is_used = see(f"{self.path}-wal") is not None  # by another process
            if see(self.path) != self._main:
                main_sum = None  # SQLite has copied the log
            lost.note(self.lock, self.path, "open" if is_used else "closed", index, main_sum)
        self._conn = None
        self.is_open = False
        self.identity = None
        self._companions = None

    def _open(self, *, create: bool) -> Connection:
        debt, self.debt = self.debt, None
        if identity(self.path) is None:
            if not create:
                raise NoDatabase(f"no database at {self.path}")
            self.incidents += lost.keep_orphan(self.path)
            _make_file(self.path)
            lost.note_replacement(self.lock, self.path)
            self.made()
        permissions.refuse_second_name(self.path)
        permissions.refuse_read_only(self.path)
        permissions.refuse_companions(self.path)
        expected = lost.expect(self.lock, self.path)
        is_noted = expected.noted is not None and debt and debt.noted_in == self.lock.inode
        if debt and not create and not is_noted:
            raise LogLost(debt.message)
        conn = connect(self.path)
        conn.bounds.stop_at = self.stop_at
        try:
            self._judge(conn, create=create)
            if self.careful and os.path.getsize(self.path) <= CAREFUL_BYTES:
                from icd.db import check  # few are opened with care

                check.refuse_damage(conn, deadline=time.monotonic() + CAREFUL_SECONDS)
            (self._schema_version,) = conn.execute("PRAGMA schema_version").fetchone()
            companions = Companions(self.path)
            lost.refuse_less(self.lock, self.path, expected, companions)
        except BaseException:
            conn.close()
            raise
        conn.bounds.end()
        self.identity = identity(self.path)
        self._companions, self._main = companions, _see(self.path)
        self._main_sum = None if self.careful else lost.known_sum(expected, self._main)
        if self._main_sum is None:
            self._main_sum = companions.main_sum()
        self._placed = lost.placed(self.lock)
        lost.note(self.lock, self.path, "open", companions.known, self._main_sum)
        self._data_version = -1
        return conn

    def _judge(self, conn: sqlite3.Connection, *, create: bool) -> None:
        """Trust nothing in the file before its schema is known to be ours; bring it up to date."""
        current = migrate.is_current(conn)
        self._refuse_stump(conn)
        if current:
            schema.refuse_strange(conn, self.path)
        else:
            migrate.refuse_foreign(conn, self.path, create=create)
            schema.refuse_active(conn, self.path)
        set_up(conn, self.settings)
        if not current:
            keep, now_ms = self.settings.backups_kept, time.time_ns() // 1_000_000
            migrate.migrate(conn, self.path, keep=keep, now_ms=now_ms, deadline=self.stop_at)

    def _refuse_stump(self, conn: sqlite3.Connection) -> None:
        """SQLite sees by itself that pages are missing, but not if others have it open."""
        log, main = _see(f"{self.path}-wal"), _see(self.path)
        have, need = main.size if main else 0, page_bytes(conn)
        if not (log and log.size) and have < need:  # else the rest may be in the log
            raise Corrupt(f"the database is truncated: {have} of {need} bytes are there")


def identity(path: str) -> tuple[int, int] | None:
    """(device, inode), by `stat` only; None if there is nothing."""
    found = _see(path)
    return found.identity if found else None


def _see(path: str) -> Seen | None:
    try:
        return see(path)
    except OSError as exc:
        raise from_os(exc, f"look at {path}") from exc


def _make_directory(directory: str) -> None:
    try:
        _make_private(directory)
        permissions.refuse_others(directory)
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
        os.close(create_file(path))
    except OSError as exc:
        raise from_os(exc, f"create {path}") from exc
