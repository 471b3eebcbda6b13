"""What to do when files of a database were removed, emptied or replaced while it was in use.

In order of preference: recover what is still open, keep what may hold the only copy of a commit
under a name of its own, and say what is lost.  `LogLost` is told once: the state that it leaves
behind is a sound one.

The caller holds the database's lock.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from icd.db.connection import is_log_emptied
from icd.db.lock import FileLock, Note, files_of, has_open, sqlite_holder
from icd.db.permissions import free_name
from icd.db.wal import (
    Companions,
    Index,
    Seen,
    has_gone_back,
    is_other,
    read_index,
    salt_of,
    see,
    sum_of,
)
from icd.errors import IcError, LogLost, from_os
from icd.files import create, opened, remove

LOST = ".lost-"  # `<db>-wal.lost-<time>`
_STRANGE_LOG = (
    "the next call applies it; if it is an old copy, move it away first, or it undoes later writes"
)
_IN_USE = "nothing was changed; call through the daemon, which recovers, or stop it first"


def note(
    lock: FileLock,
    path: str,
    state: str,
    index: Index | None = None,
    main_sum: int | None = None,
) -> None:
    """Tell the next process which files we use, or that SQLite is about to remove them."""
    files, kept = files_of(path), placed(lock)
    lock.write_note(Note.of(state, files, index, main_sum=main_sum, placed=kept).encode())


def note_replacement(lock: FileLock, fresh: str) -> None:
    """The file that is about to take the place of the database comes from us."""
    noted = Note.of("closed", files_of(fresh))
    lock.write_note(replace(noted, placed=noted.main).encode())


def placed(lock: FileLock) -> int:
    """The inode of the file that a program of ours put there, if it was."""
    known = Note.decode(lock.read_note())
    return known.placed if known else 0


# --- while it is open -----------------------------------------------------------------------


def leave(lock: FileLock, conn: sqlite3.Connection, companions: Companions) -> bool:
    """The file was moved, deleted or replaced: bring our commits to it, wherever it is now.

    Whether one of our own programs did it, such as `restore`: it noted the file that is there now.
    """
    companions.lengthen_index()
    if _has_other_log(lock, companions):
        _keep_content(companions)
        companions.empty_log()
    elif companions.has_wrong_log() or not _copy_log(conn):
        _keep_content(companions)
    main = see(companions.path)
    return main is not None and placed(lock) == main.identity[1]


def put_away(companions: Companions) -> None:
    """Free the names for whatever is there now.  An empty log, and any index, hold no commit."""
    log, index = see(f"{companions.path}-wal"), see(f"{companions.path}-shm")
    ours = companions.log and log and log.identity == companions.log.identity
    if ours and log:
        _clear_name(log, companions.path)
        if companions.index and index and index.identity == companions.index.identity:
            remove(f"{companions.path}-shm")


def recover(
    lock: FileLock, conn: sqlite3.Connection, companions: Companions, *, is_copied: bool
) -> list[str]:
    """Log or index have another name, or none: what is open still holds every commit of ours.

    Another program may have begun a log of its own under the name; its commits know nothing of
    ours, and SQLite cannot merge the two.
    """
    path, told = companions.path, ""
    try:
        mend(lock, conn, companions, is_copied=is_copied)  # it may have been changed before
    except LogLost as exc:
        told = f"; {exc.message}"
    copied = _copy_log(conn)
    kept = [] if copied else [_keep_content(companions)]
    log = see(f"{path}-wal")
    if log and companions.log and log.identity != companions.log.identity and log.size:
        kept.append(_keep_file(f"{path}-wal"))
        remove(f"{path}-shm")
    if told or kept:
        where = "".join(f"; a log is kept as {name}" for name in kept if name)
        raise LogLost(f"files of {path} were removed while it was in use{told}{where}")
    return [f"files of {path} were removed while it was in use; nothing is lost"]


def mend(
    lock: FileLock, conn: sqlite3.Connection, companions: Companions, *, is_copied: bool
) -> None:
    """Have SQLite read again what does not fit together of what is open.

    `is_copied`: the main file has changed, so that another process may have begun a log anew.
    """
    if not is_copied and _has_other_log(lock, companions):
        give_up(companions, f"the log of {companions.path}")
    before, claimed = companions.known, companions.read()
    if not companions.has_wrong_log() and not _is_behind(before, claimed, is_copied=is_copied):
        return  # other processes went on with it
    companions.rebuild_index()
    conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    now = companions.read()
    if is_shorter(before, now) or is_shorter(claimed, now):
        raise LogLost(f"the log of {companions.path} was cut or changed while it was in use")


def _has_other_log(lock: FileLock, companions: Companions) -> bool:
    """Whether another log, such as an old copy, was written over what we, or others, left."""
    known, salt = companions.known, companions.log_salt()
    noted = Note.decode(lock.read_note())  # by the process that was here last
    if noted is not None and not noted.is_about(companions.files):
        noted = None
    if known is None or not known.frames:  # it was begun anew, and others may have written to it
        return noted is not None and noted.is_other(salt)
    if noted is not None and noted.salt != known.salt and not noted.is_other(salt):
        return False
    return is_other(known.salt, salt)


def _is_behind(before: Index | None, now: Index | None, *, is_copied: bool) -> bool:
    if before is None or now is None:
        return before is not None
    if is_copied and now.salt != before.salt:
        return False
    return has_gone_back(before, now)


def is_shorter(before: Index | None, now: Index | None) -> bool:
    """Whether frames are gone that were in the log, and not yet in the database."""
    if before is None or not before.uncopied:
        return False
    return now is None or now.salt != before.salt or now.frames < before.frames


def is_overwritten(
    companions: Companions, before: Seen, main: Seen, before_sum: int | None
) -> bool:
    """Whether the open file changed, and no checkpoint of SQLite explains it.

    Not one that was only touched.
    """
    now = companions.read()
    if main == before or companions.known is None or now is None:
        return False
    if now.is_copying or now.checkpoints != companions.known.checkpoints:
        return False
    return main.size != before.size or before_sum is None or before_sum != companions.main_sum()


def give_up(companions: Companions, what: str) -> NoReturn:
    """Another program wrote into an open file: the log does not belong to what the file is now.

    Where a third one has it open, SQLite copies nothing when we close it, and the log stays.
    """
    kept = _keep_content(companions)
    if sqlite_holder(companions.path) is None:
        companions.empty_log()
    where = f"; its log is kept as {kept}" if kept else ""
    raise LogLost(f"{what} was overwritten while it was in use{where}")


def _copy_log(conn: sqlite3.Connection) -> bool:
    """Whether every commit is in the database file by now."""
    try:
        return is_log_emptied(conn)
    except sqlite3.Error:
        return False


# --- before it is opened, and after -----------------------------------------------------------


class Expected(Struct, frozen=True):
    """What an earlier process left: its note, and the index of its log."""

    noted: Note | None
    known: Index | None
    there: Note  # the files themselves


def expect(lock: FileLock, path: str) -> Expected:
    """Look at the files before SQLite does; raise if it must not touch them."""
    known = Note.decode(lock.read_note())
    now = Note.of("open", files_of(path))
    wal = see(f"{path}-wal")
    if known is not None and known.state == "lost":
        raise _told(lock, path, f"files of {path} were removed or changed")
    if now.main:
        has_log = wal is not None and wal.size > 0
        if has_log and _is_emptied(path):  # SQLite would delete the log
            raise _told(lock, path, f"{path} was emptied", _keep_file(f"{path}-wal"))
        if known is not None and known.main != now.main and known.state != "closed":
            kept = _keep_file(f"{path}-wal") if has_log and known.wal == now.wal else ""
            raise _told(lock, path, f"{path} was replaced", kept)
        _refuse_while_in_use(path, known, now)
        if known is not None and known.state == "open" and known.inodes == now.inodes:
            _refuse_overwritten(lock, path, known, now)
            _refuse_other_log(lock, path, known, now)
        if has_log and known is not None and known.state == "closed" and known.main == now.main:
            _refuse_strange_log(lock, path)
    return Expected(known, read_index(path), now)


def _is_emptied(path: str) -> bool:
    main = see(path)
    return main is not None and not main.size


def known_sum(expected: Expected, main: Seen | None) -> int | None:
    """The sum that a host noted of a file that has not changed since."""
    noted = expected.noted
    same = noted is not None and main is not None and noted.changed_ns == main.changed_ns
    return noted.main_sum if same and noted is not None and noted.main_sum >= 0 else None


def _refuse_while_in_use(path: str, known: Note | None, now: Note) -> None:
    """A process that has other files open than those here must recover them, not we."""
    is_noted = known is not None and known.state != "closed"
    if is_noted and known is not None and known.inodes == now.inodes:
        return
    pid = sqlite_holder(path)
    if pid is None:
        return
    is_same = has_open(pid, f"{path}-wal", f"{path}-shm") if pid else None
    if is_same is None:
        is_same = not is_noted and bool(now.wal and now.shm)
    if not is_same:
        who = f"process {pid}" if pid else "a process"
        raise LogLost(f"files of {path} were removed while {who} uses it", hint=_IN_USE)


def _refuse_overwritten(lock: FileLock, path: str, known: Note, now: Note) -> None:
    """The main file has changed, and no checkpoint of SQLite explains it."""
    if now.changed_ns == known.changed_ns or not known.is_unwritten(read_index(path)):
        return
    if known.main_sum == _sum_of(path):
        return  # it was only touched
    if sqlite_holder(path) is not None:
        raise LogLost(f"{path} was overwritten while it was in use", hint=_IN_USE)
    raise _told(lock, path, f"{path} was overwritten", _keep_file(f"{path}-wal"))


def _refuse_other_log(lock: FileLock, path: str, known: Note, now: Note) -> None:
    """The log has the content of another one, such as an old copy: it would undo later writes."""
    is_copied = now.changed_ns != known.changed_ns  # and may have been begun anew by its program
    if is_copied or not known.is_other(salt_of(f"{path}-wal")):
        return
    if sqlite_holder(path) is not None:
        raise LogLost(f"the log of {path} was overwritten while it was in use", hint=_IN_USE)
    raise _told(lock, path, f"the log of {path} was overwritten", _keep_file(f"{path}-wal"))


def _sum_of(path: str) -> int:
    """Only while this process has the database closed."""
    try:
        with opened(path) as fd:
            return sum_of(fd)
    except OSError as exc:
        raise from_os(exc, f"read {path}") from exc


def _refuse_strange_log(lock: FileLock, path: str) -> None:
    """All was copied when the database was closed: another program left this log, or it is old."""
    if sqlite_holder(path) is None:
        note(lock, path, "open")
        raise LogLost(f"{path}-wal is not a log that intercore left", hint=_STRANGE_LOG)


def refuse_less(lock: FileLock, path: str, expected: Expected, companions: Companions) -> None:
    """Raise if the log, as SQLite has read it, has less than was noted, or than its index knew."""
    now, known, main = companions.read(), expected.noted, see(path)
    if main is None or (known is not None and known.main != main.identity[1]):
        return
    if expected.there.wal and companions.log and companions.log.identity[1] != expected.there.wal:
        raise LogLost(f"files of {path} were replaced while it was opened", hint=_IN_USE)
    noted = known is not None and known.state != "closed"
    copied = known is not None and known.changed_ns != main.changed_ns
    less = noted and known is not None and not known.is_kept(now)
    if not copied and (less or is_shorter(expected.known, now)):
        raise _told(lock, path, f"the log of {path} was removed or changed")


def _told(lock: FileLock, path: str, what: str, kept: str = "") -> IcError:
    note(lock, path, "closed")
    where = f"; its log is kept as {kept}" if kept else ""
    return LogLost(f"{what} while it was in use, and the last writes with it{where}")


# --- keeping ----------------------------------------------------------------------------------


def keep_orphan(path: str) -> list[str]:
    """Before a new file is made: SQLite would delete a log that has none."""
    log = see(f"{path}-wal")
    if log is None or not log.size:
        return []
    kept = _keep_file(f"{path}-wal")
    remove(f"{path}-shm")
    return [f"the log of a database that is gone is kept as {kept}"]


def _clear_name(log: Seen, path: str) -> None:
    if log.size:
        _keep_file(f"{path}-wal")
    else:
        remove(f"{path}-wal")


def _keep_file(name: str) -> str:
    kept = _free_name(name)
    try:
        os.rename(name, kept)
    except OSError as exc:
        raise from_os(exc, f"rename {name}") from exc
    return kept


def _keep_content(companions: Companions) -> str:
    """The open log, by content: SQLite has it open, and its name may lead elsewhere."""
    if not companions.has_log():
        return ""
    kept = _free_name(f"{companions.path}-wal")
    try:
        with open(create(kept), "wb") as file:
            companions.copy_log(file)
    except OSError as exc:
        raise from_os(exc, f"write {kept}") from exc
    return kept


def _free_name(name: str) -> str:
    return free_name(f"{name}{LOST}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
