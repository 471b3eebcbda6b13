"""What to do when files of a database were removed, emptied or replaced while it was in use.

In order of preference: recover what is still open, keep what may hold the only copy of a commit
under a name of its own, and say what is lost.  `LogLost` is told once: the state that it leaves
behind is a sound one.

The caller holds the database's lock.
"""

import os
import sqlite3
import time
from contextlib import suppress

from icd.db import usage
from icd.db.companions import Companions, Index, Seen, read_index, see
from icd.db.lock import FileLock
from icd.errors import LogLost, from_os

LOST = ".lost-"  # `<db>-wal.lost-<time>`
_IN_USE = "nothing was changed; make the call through the daemon, which recovers, or stop it first"


def note(lock: FileLock, path: str, state: str) -> None:
    """Tell the next process which files we use, or that SQLite is about to remove them."""
    lock.write_note(usage.note(path, state).encode())


# --- while it is open -----------------------------------------------------------------------


def leave(conn: sqlite3.Connection, companions: Companions) -> list[str]:
    """The file was moved or deleted: bring our commits to it, wherever it is now."""
    companions.lengthen_index()
    if not companions.is_cut() and _copy_log(conn):
        return []
    kept = _keep_content(companions)
    return [f"the log of a database that is gone is kept as {kept}"] if kept else []


def put_away(companions: Companions) -> None:
    """Free the names for whatever is there now.  An empty log, and any index, hold no commit."""
    log, index = see(f"{companions.path}-wal"), see(f"{companions.path}-shm")
    ours = companions.log and log and log.identity == companions.log.identity
    if ours and log:
        _clear_name(log, companions.path)
        if companions.index and index and index.identity == companions.index.identity:
            _unlink(f"{companions.path}-shm")


def recover(conn: sqlite3.Connection, companions: Companions) -> list[str]:
    """Log or index have another name, or none: what is open still holds every commit of ours.

    Another program may have begun a log of its own under the name; its commits know nothing of
    ours, and SQLite cannot merge the two.
    """
    path = companions.path
    cut = companions.is_cut()
    if cut:
        companions.rebuild_index()
    copied = _copy_log(conn)
    kept = [] if copied else [_keep_content(companions)]
    log = see(f"{path}-wal")
    if log and companions.log and log.identity != companions.log.identity and log.size:
        kept.append(_keep_file(f"{path}-wal"))
        _unlink(f"{path}-shm")
    if cut or kept:
        where = "".join(f"; a log is kept as {name}" for name in kept if name)
        raise LogLost(f"files of {path} were removed while it was in use{where}")
    return [f"files of {path} were removed while it was in use; nothing is lost"]


def mend(conn: sqlite3.Connection, companions: Companions) -> None:
    """The files are those that are open: have SQLite read again what does not fit together."""
    before = companions.known
    now = companions.read()
    if not companions.is_cut() and not _has_gone_back(before, now):
        return  # other processes went on with it
    companions.rebuild_index()
    conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if companions.has_lost(before):
        raise LogLost(f"the log of {companions.path} was cut while it was in use")


def _has_gone_back(before: Index | None, now: Index | None) -> bool:
    if before is None or now is None:
        return before is not None
    return now.salt == before.salt and now.frames < before.frames


def is_overwritten(companions: Companions, before: Seen, main: Seen) -> bool:
    """Whether the open file changed, and no checkpoint of SQLite explains it."""
    now = companions.read()
    if main == before or companions.known is None or now is None:
        return False
    return now.checkpoints == companions.known.checkpoints


def give_up(companions: Companions) -> None:
    """Another program wrote into the open file: our log does not belong to what it is now."""
    kept = _keep_content(companions)
    companions.empty_log()
    where = f"; its log is kept as {kept}" if kept else ""
    raise LogLost(f"{companions.path} was overwritten while it was in use{where}")


def _copy_log(conn: sqlite3.Connection) -> bool:
    """Whether every commit is in the database file by now."""
    try:
        (busy, _, _) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error:
        return False
    return not busy


# --- before it is opened --------------------------------------------------------------------


def refuse_leftovers(lock: FileLock, path: str) -> None:
    """Compare the files with what the last process noted; raise if commits are missing."""
    known = usage.decode(lock.read_note())
    main, log = see(path), see(f"{path}-wal")
    if main is None:
        return
    if not main.size and log and log.size:  # SQLite would delete the log
        raise _told(lock, path, f"{path} was emptied", _keep_file(f"{path}-wal"))
    if known is None or known.state == "closed":
        return
    if known.main != main.identity[1]:
        if log and log.size and log.identity[1] == known.wal:
            raise _told(lock, path, f"{path} was replaced", _keep_file(f"{path}-wal"))
        return
    _refuse_other_files(lock, path, known, main, log)


def _refuse_other_files(
    lock: FileLock, path: str, known: usage.Note, main: Seen, log: Seen | None
) -> None:
    index = see(f"{path}-shm")
    same_log = log is not None and log.identity[1] == known.wal
    same_index = index is not None and index.identity[1] == known.shm
    there = read_index(path)
    is_cut = log is not None and there is not None and log.size < there.log_bytes
    if same_log and same_index and not is_cut:
        return
    pid = usage.holder(path)
    if pid is not None:
        who = f"process {pid}" if pid else "a process"
        told = f"files of {path} were removed while {who} uses it"
        raise LogLost(told, hint=_IN_USE)
    if is_cut:
        _unlink(f"{path}-shm")  # SQLite makes it anew from what is left of the log
        raise _told(lock, path, f"the log of {path} was cut")
    if same_log or known.state == "closing" or main.modified_ns != known.modified_ns:
        return  # the index is made anew; or SQLite has copied the log and removed it
    if known.wal and not _is_complete(log, there):
        raise _told(lock, path, f"the log of {path} was removed or replaced")


def _is_complete(log: Seen | None, index: Index | None) -> bool:
    """A log under a new name that has all that the index knows of."""
    return log is not None and index is not None and log.size >= index.log_bytes


def _told(lock: FileLock, path: str, what: str, kept: str = "") -> LogLost:
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
    _unlink(f"{path}-shm")
    return [f"the log of a database that is gone is kept as {kept}"]


def _clear_name(log: Seen, path: str) -> None:
    if log.size:
        _keep_file(f"{path}-wal")
    else:
        _unlink(f"{path}-wal")


def _keep_file(name: str) -> str:
    kept = _free_name(name)
    try:
        os.rename(name, kept)
    except OSError as exc:
        raise from_os(exc, f"rename {name}") from exc
    return kept


def _keep_content(companions: Companions) -> str:
    """The open log, by content: SQLite has it open, and its name may lead elsewhere."""
    content = companions.log_content()
    if not content:
        return ""
    kept = _free_name(f"{companions.path}-wal")
    try:
        fd = os.open(kept, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(content)
    except OSError as exc:
        raise from_os(exc, f"write {kept}") from exc
    return kept


def _free_name(name: str) -> str:
    stem = f"{name}{LOST}{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    names = (stem, *(f"{stem}-{number}" for number in range(1, 1000)))
    return next(each for each in names if not os.path.lexists(each))


def _unlink(name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name)
