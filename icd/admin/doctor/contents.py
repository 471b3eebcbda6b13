"""What is inside a database, read under its lock, without changing a byte of it.

Waiting for the lock and reading are bounded; what takes longer is said, not waited for.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from icd.admin.doctor import processes
from icd.admin.doctor.context import Finding, Scene, error, from_error, note, ok, warning
from icd.db import check, migrate, schema
from icd.db.connection import connect_to_read, until
from icd.db.database import CAREFUL_BYTES
from icd.db.lock import FileLock, block
from icd.errors import (
    Corrupt,
    DeadlineExceeded,
    IcError,
    InputOutput,
    Locked,
    UntrustedDatabase,
    from_sqlite,
)
from icd.values.wire import iso

# A call holds it for milliseconds; only a backup, a vacuum or a check for longer.
LOCK_SECONDS = 1.0
# Others wait meanwhile.
READ_SECONDS = 1.0
# A clock may be corrected by less.
FUTURE_SECONDS = 60

_CHECK = "run 'icctl db check' to read all of it"
_CLOCK = (
    "set the clock if it is wrong ('timedatectl'); else wait until then, or run 'icctl sentinel "
    "reset' for guards that stay shut"
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
    yield ok("lock", "nobody holds it for long")
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
    holder = processes.holder(f"{path}.lock")
    if holder is None:
        return error("lock", exc.message, exc.hint)
    stopped = " and is stopped" if holder.stopped else ""
    told = f"{holder} has held {path}.lock for more than {LOCK_SECONDS:g} s{stopped}"
    return (error if holder.stopped else warning)("lock", told, processes.wake(holder))


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
    """SQLite makes files beside a database that it opens, unless it is told that none writes."""
    try:
        return os.stat(f"{path}-wal").st_size == 0
    except FileNotFoundError:
        return True


def _integrity(conn: sqlite3.Connection, path: str, deadline: float, *, current: bool) -> Finding:
    size = os.stat(path).st_size
    if size > CAREFUL_BYTES:
        return note("integrity", f"{path} has {size} bytes, too many to read them now", _CHECK)
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
