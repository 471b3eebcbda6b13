"""A project: which database is meant, whose its files are, what was left behind, what is inside.

The database is read under its lock, without changing a byte of it.  Waiting for the lock and
reading are bounded; what takes longer is said, not waited for.
"""

import glob
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from icd.admin.doctor.context import (
    FIX,
    PRIVATE_DIRECTORY,
    PRIVATE_FILE,
    Finding,
    Repair,
    Scene,
    error,
    from_error,
    lock_holder,
    note,
    ok,
    user,
    wake,
    warning,
)
from icd.db import check, migrate, paths, schema
from icd.db.connection import connect_to_read, until
from icd.db.database import CAREFUL_BYTES
from icd.db.lock import FileLock, block
from icd.db.lost import LOST
from icd.db.paths import Where
from icd.errors import (
    Corrupt,
    DeadlineExceeded,
    IcError,
    InputOutput,
    Locked,
    NoDatabase,
    UntrustedDatabase,
    from_sqlite,
)
from icd.values.wire import iso

# --- which database, why, and what lies in the way of another one ---------------------------------

_BACK = (
    "run 'icctl restore FILE' with a backup (they are next to the database and named after it), "
    "or 'icctl init' to start over"
)

SHOWN = 3  # names on one line


def choose(where: Where) -> tuple[str | None, list[Finding]]:
    """The path, if it can be used, and what there is to say about it."""
    try:
        path = paths.canonical(paths.resolve(where))
    except NoDatabase as exc:
        lost = None if where.explicit is not None else _lost(where.cwd)
        return None, [lost or _missing(where, exc)]
    except IcError as exc:
        return None, [from_error("database", exc)]
    return path, [ok("database", f"{path}, {_reason(where, path)}"), *_others(where, path)]


def _missing(where: Where, exc: IcError) -> Finding:
    if where.explicit is None:
        return warning("database", exc.message, exc.hint)
    variable = "--db" if where.db is not None else "INTERCORE_DB"
    told = f"{variable} names a database that does not exist: {exc.message}"
    return error("database", told, f"correct {variable}, or run 'icctl init'")


def _lost(cwd: str) -> Finding | None:
    """What is left of a database that used to be here."""
    for directory in map(_directory, paths.upward(cwd)):
        path = os.path.join(directory, paths.FILE)
        try:
            size = os.lstat(path).st_size
        except FileNotFoundError:
            left = sorted(map(os.path.basename, glob.glob(f"{glob.escape(path)}*")))
            if left:
                told = f"{path} is gone; its companion files are left: {', '.join(left[:SHOWN])}"
                return error("database", told, _BACK)
        except NotADirectoryError:
            continue
        except OSError as exc:
            hint = "check its owner and mode with 'ls -ld', and correct them"
            return error("permissions", f"cannot look into {directory}: {exc.strerror}", hint)
        else:
            told = f"{path} holds nothing ({size} bytes): emptied, or never initialized"
            return error("database", told, _BACK)
    return None


def _reason(where: Where, path: str) -> str:
    if where.explicit is not None:
        return "named by --db" if where.db is not None else "named by INTERCORE_DB"
    project, cwd = os.path.dirname(os.path.dirname(path)), os.path.realpath(where.cwd)
    if project == cwd:
        return "in the current directory"
    if cwd.startswith(os.path.join(project, "")):
        return "the nearest one above the current directory"
    return "the one of the main checkout, because this git worktree has none"


def _others(where: Where, path: str) -> Iterator[Finding]:
    """Databases that a person may have meant instead."""
    if where.explicit is not None:
        near = paths.discover(where.cwd) if where.cwd else None
        if near is not None and paths.canonical(near) != path:
            hint = "unset INTERCORE_DB and omit --db to use it"
            yield note("shadow", f"{near} is nearer, but not used here", hint)
        return
    yield from _passed_over(where.cwd, path)
    project = os.path.dirname(os.path.dirname(path))
    further = paths.discover(os.path.dirname(project))
    if further is None or paths.canonical(further) == path:
        return
    root = os.path.realpath(paths.project_root(where.cwd))
    same = os.path.realpath(further).startswith(os.path.join(root, ""))
    told = f"it hides {further} from everything below {project}"
    hint = "if only one is intended, move the other away; 'icctl export' saves its content"
    yield (warning if same else note)("shadow", told, hint)


def _passed_over(cwd: str, path: str) -> Iterator[Finding]:
    for directory in map(_directory, paths.upward(cwd)):
        empty = os.path.join(directory, paths.FILE)
        if os.path.realpath(empty) == path:
            return
        if os.path.lexists(empty):
            yield note("shadow", f"{empty} has no tables and is ignored", f"remove {empty}")


def _directory(project: str) -> str:
    return os.path.join(project, paths.DIRECTORY)


# --- whose the files are, and who else may touch them ---------------------------------------------

_OTHERS, _OTHERS_WRITE = 0o077, 0o022


def permissions(scene: Scene, path: str) -> Iterator[Finding]:
    """The directory, the database and everything that is named after it."""
    # Root may work on the database of any user, whose files then stay that user's.
    owner = scene.uid or os.lstat(path).st_uid
    directory = os.path.dirname(path)
    # A database elsewhere in a project lies in a directory that is not ours to judge.
    ours = [directory] if os.path.basename(directory) == paths.DIRECTORY else []
    for name in [*ours, *sorted(glob.glob(f"{glob.escape(path)}*"))]:
        try:
            found = os.lstat(name)
        except FileNotFoundError:  # a log comes and goes
            continue
        yield from _judge(name, found, owner)


def _judge(name: str, found: os.stat_result, owner: int) -> Iterator[Finding]:
    mode = stat.S_IMODE(found.st_mode)
    is_directory = stat.S_ISDIR(found.st_mode)
    wanted = PRIVATE_DIRECTORY if is_directory else PRIVATE_FILE
    if stat.S_ISLNK(found.st_mode):
        yield error("symlinks", f"{name} is a symlink (refusing to use it)", f"remove {name}")
    elif found.st_uid != owner:
        told = f"{name} belongs to {user(found.st_uid)}, not {user(owner)}"
        yield error("permissions", told, f"run 'chown {owner} {name}' as root")
    elif mode & wanted != wanted:
        yield _mode(error, "its owner may not read and write", name, mode, wanted)
    elif mode & _OTHERS_WRITE:
        yield _mode(warning, "other users may change", name, mode, wanted)
    elif mode & _OTHERS and is_directory:  # the files in it are private: only names can be seen
        yield _mode(note, "other users may look into", name, mode, wanted)
    elif mode & _OTHERS:
        yield _mode(warning, "other users may read", name, mode, wanted)
    elif not os.access(name, os.R_OK | os.W_OK, effective_ids=True):
        hint = "check its attributes ('lsattr') and its file system ('findmnt')"
        told = f"{name} is not writable, although its mode allows it"
        yield error("permissions", told, hint)


def _mode(
    severity: Callable[..., Finding], what: str, name: str, mode: int, wanted: int
) -> Finding:
    told = f"{what} {name} (mode {mode:04o} instead of {wanted:04o})"
    return severity("permissions", told, FIX, Repair("chmod", name, wanted))


# --- what interrupted programs left behind --------------------------------------------------------

# A backup of the largest database takes less; the maker of what is older is gone.
UNFINISHED_SECONDS = 3600
# What copies are called until they are complete; whatever is called a backup is one.
_COPIES = [
    f".{name}{end}" for name in ("unfinished", "restore", "adopt") for end in ("", "-journal")
]


def unfinished(scene: Scene, path: str) -> Iterator[Finding]:
    """Copies whose maker died over them."""
    for name in [path + ending for ending in _COPIES]:
        with suppress(FileNotFoundError):
            if os.lstat(name).st_mtime < scene.now_ms // 1000 - UNFINISHED_SECONDS:
                yield note("unfinished", f"{name} is incomplete", FIX, Repair("remove", name))


def lost_logs(_scene: Scene, path: str) -> Iterator[Finding]:
    """Logs that were taken from a database, and may hold the only copy of a write."""
    for name in sorted(glob.glob(f"{glob.escape(path)}-wal{LOST}*")):
        told = f"{name} may hold writes that are not in the database"
        yield warning("lost logs", told, "remove it once you know that nothing is missing")


def gitignore(_scene: Scene, path: str) -> Iterator[Finding]:
    directory = os.path.dirname(path)
    file = os.path.join(directory, ".gitignore")
    if os.path.basename(directory) == paths.DIRECTORY and not os.path.lexists(file):
        told = f"{file} is gone: git would add the database to the project"
        yield note("gitignore", told, FIX, Repair("write gitignore", file))


# --- what is inside a database --------------------------------------------------------------------

# A call holds it for milliseconds; only a backup, a vacuum or a check for longer.
LOCK_SECONDS = 1.0
# Others wait meanwhile.
READ_SECONDS = 1.0
# A clock may be corrected by less.
FUTURE_SECONDS = 60

_CHECK = "run 'icctl db check' to read all of it"
_CLOCK = (
    "set the clock if it is wrong ('timedatectl'); else wait until then, or run 'icctl sentinel "
    "reset' for sentinels that stay throttled"
)


def contents(scene: Scene, path: str) -> Iterator[Finding]:
    try:
        with _locked(path, min(scene.deadline, time.monotonic() + LOCK_SECONDS)):
            # To the end, while it is locked: nothing is handed out in between.
            found = list(_inside(scene, path))
    except Locked as exc:
        yield _held(path, exc)
        return
    except (sqlite3.Error, InputOutput) as exc:
        known = exc if isinstance(exc, IcError) else from_sqlite(exc) or InputOutput(str(exc))
        yield from_error("integrity", type(known)(f"{path}: {known.message}", hint=known.hint))
        return
    yield ok("lock", "no process holds it for long")
    yield from found


@contextmanager
def _locked(path: str, deadline: float) -> Iterator[None]:
    """A lock file that is not there is not made: no process would use it, either."""
    lock = FileLock(f"{path}.lock", block)
    if not os.path.exists(lock.path):
        yield
        return
    lock.acquire(deadline)
    try:
        yield
    finally:
        lock.close()


def _held(path: str, exc: IcError) -> Finding:
    holder = lock_holder(f"{path}.lock")
    if holder is None:
        return error("lock", exc.message, exc.hint)
    stopped = " and is stopped" if holder.stopped else ""
    told = f"{holder} has held {path}.lock for more than {LOCK_SECONDS:g} s{stopped}"
    return (error if holder.stopped else warning)("lock", told, wake(holder))


def _inside(scene: Scene, path: str) -> Iterator[Finding]:
    deadline = min(scene.deadline, time.monotonic() + READ_SECONDS)
    with closing(connect_to_read(path, immutable=_has_no_log(path))) as conn:
        migrate.refuse_foreign(conn, path, create=False)
        version = migrate.version(conn)
        current = migrate.is_current(conn)
        try:
            (schema.refuse_strange if current else schema.refuse_active)(conn, path)
        except UntrustedDatabase as exc:
            yield from_error("schema", exc)
            return
        if current:
            yield ok("schema", f"the schema is v{version}, that of this intercore")
        else:
            told = f"the schema is v{version}; the next use makes it v{migrate.LATEST}"
            yield note("schema", told, "nothing: a backup is made first")
        sound = _integrity(conn, path, deadline, current=current)
        yield sound
        if current and sound.severity != "error":
            with suppress(DeadlineExceeded), until(conn, deadline):
                yield from _times(conn, scene.now_ms // 1000)


def _has_no_log(path: str) -> bool:
    """SQLite makes files beside a database that it opens, unless told that no process writes."""
    try:
        return os.stat(f"{path}-wal").st_size == 0
    except FileNotFoundError:
        return True


def _integrity(conn: sqlite3.Connection, path: str, deadline: float, *, current: bool) -> Finding:
    size = os.stat(path).st_size
    if size > CAREFUL_BYTES:
        return note("integrity", f"{path} has {size} bytes, too large to read now", _CHECK)
    try:
        with until(conn, deadline):
            found = check.first(conn)
            row = check.first_row(conn) if current else None
    except DeadlineExceeded:
        return note("integrity", f"{path} could not be read within {READ_SECONDS:g} s", _CHECK)
    if row is not None:
        return error("integrity", f"{path}: {row.message}", row.hint)
    if not found:
        return ok("integrity", "every page can be read")
    damage = " ".join(line for line in found.splitlines() if "***" not in line)
    return error("integrity", f"{path} is damaged: {damage}", Corrupt.hint)


def _times(conn: sqlite3.Connection, now: int) -> Iterator[Finding]:
    """Rows from the future: a clock was ahead when they were written, or is behind now."""
    (rows, latest) = conn.execute(
        """
        SELECT count(*), max(moment) FROM (
            SELECT updated_at AS moment FROM state UNION ALL SELECT last_fired FROM sentinels
        ) WHERE moment > ?
        """,
        (now + FUTURE_SECONDS,),
    ).fetchone()
    if not rows:
        yield ok("times", "no row is from the future")
        return
    told = f"the clock was set back: {rows} rows are from the future, up to {iso(latest)}"
    yield warning("times", told, _CLOCK)
