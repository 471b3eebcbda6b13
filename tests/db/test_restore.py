"""Putting a backup in the place of a database."""

import math
import os
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress

import pytest

from icd import config
from icd.db import backup, lock, migrate
from icd.db.backup import restore
from icd.db.database import Database
from icd.errors import (
    BadPath,
    Corrupt,
    DeadlineExceeded,
    Locked,
    NoDatabase,
    NotOurs,
    SchemaTooNew,
    SymlinkRefused,
)
from icd.features.leases import store as leases
from icd.features.state import store as state
from icd.values.processes import Writer
from tests.data import original

NOW_MS = 1_800_000_000_000
STAMP = "20270115-080000"


def put(conn, payload):
    state.set(conn, "k", "s", payload, writer=Writer(), now_ms=NOW_MS)


def payload(conn):
    row = state.get(conn, "k", "s", now_ms=NOW_MS)
    return row and row.payload


def looked_into(file):
    with closing(sqlite3.connect(file)) as conn:
        return payload(conn)


def names(database):
    directory, name = os.path.split(database.path)
    return {n.removeprefix(name) for n in os.listdir(directory)} - {".gitignore", ".lock", ""}


def put_back(database, file, *, deadline=math.inf):
    with database.hold(time.monotonic() + 5, create=True):
        return restore(database, str(file), now_ms=NOW_MS, deadline=deadline)


@pytest.fixture
def database(opened, project):
    found = opened(project / ".clavain" / "intercore.db", create=True)
    put(found.connection(), '"old"')
    return found


@pytest.fixture
def file(database, tmp_path):
    """A backup of the database, which has changed since."""
    file = backup.to(database.connection(), str(tmp_path / "file"))
    put(database.connection(), '"new"')
    return file


def test_what_the_backup_holds_is_there_again(database, file):
    put_back(database, file)

    assert payload(database.connection()) == '"old"'


def test_what_was_there_is_kept_as_a_backup(database, file):
    kept = put_back(database, file)

    assert kept == f"{database.path}.backup-{STAMP}"
    assert looked_into(kept) == '"new"'
    assert names(database) == {f".backup-{STAMP}"}


def test_the_backup_itself_stays_even_if_it_is_the_oldest_of_too_many(database, project):
    conn = database.connection()
    files = [backup.beside(conn, database.path, keep=99, now_ms=day) for day in range(5)]
    os.utime(files[0], (1, 1))

    put_back(database, files[0])

    assert os.path.exists(files[0])


def test_the_restored_file_is_private_and_in_use_by_nobody_else(database, file, mode, open_umask):
    os.chmod(file, 0o644)

    put_back(database, file)

    assert mode(database.path) == 0o600
    assert os.stat(database.path).st_ino != os.stat(file).st_ino


def test_whoever_has_the_old_file_open_reads_the_new_one(opened, database, file):
    """As a daemon has; it sits idle, because we hold the lock."""
    daemon = opened(database.path)
    put(daemon.connection(), '"newer, still in the log"')

    kept = put_back(database, file)

    assert looked_into(kept) == '"newer, still in the log"'
    with daemon.hold(time.monotonic() + 5):
        assert payload(daemon.connection()) == '"old"'
        put(daemon.connection(), '"newest"')
    assert daemon.reopened == 1
    with database.hold(time.monotonic() + 5):
        assert payload(database.connection()) == '"newest"'


def test_a_database_that_is_gone_is_made_anew(database, file):
    database.close()
    os.unlink(database.path)

    kept = put_back(database, file)

    assert kept is None
    assert payload(database.connection()) == '"old"'


def test_what_a_killed_restore_left_behind_is_in_nobodys_way(database, file):
    with open(f"{database.path}.restore", "w", encoding="utf-8") as left:
        left.write("half of it")

    put_back(database, file)

    assert payload(database.connection()) == '"old"'
    assert names(database) == {f".backup-{STAMP}", "-wal", "-shm"}


def test_a_directory_that_is_gone_is_made_anew(file, tmp_path):
    path = tmp_path / "elsewhere" / ".clavain" / "intercore.db"
    database = Database(str(path), config.DEFAULTS)

    put_back(database, file)

    assert looked_into(path) == '"old"'
    database.lock.close()


def test_a_database_too_damaged_to_be_copied_is_set_aside_with_its_log(database, file, spoil):
    with closing(sqlite3.connect(database.path)) as daemon:
        daemon.execute("SELECT * FROM state").fetchall()
        database.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        put(database.connection(), '"in the log"')
        database.close()  # the other one keeps the log from being emptied
        spoil(database.path, "sentinels")

        kept = put_back(database, file)

    assert kept == f"{database.path}.damaged-{STAMP}"
    assert looked_into(kept) == '"in the log"'
    assert payload(database.connection()) == '"old"'


def test_what_was_set_aside_before_stays(database, file, spoil):
    for _ in range(2):
        database.close()
        spoil(database.path)
        put_back(database, file)

    assert names(database) == {f".damaged-{STAMP}", f".damaged-{STAMP}-1"}


def test_what_is_no_database_at_all_is_set_aside(database, file):
    database.close()
    with open(database.path, "wb") as spoiled:
        spoiled.write(b"this is not a database" * 1000)

    kept = put_back(database, file)

    assert kept == f"{database.path}.damaged-{STAMP}"
    assert payload(database.connection()) == '"old"'


def test_a_database_from_the_future_may_be_replaced(database, file):
    database.connection().execute("PRAGMA user_version = 9999")

    kept = put_back(database, file)

    assert looked_into(kept) == '"new"'
    assert payload(database.connection()) == '"old"'


def test_a_backup_of_an_older_schema_is_upgraded_when_it_is_opened(database, tmp_path):
    original.write(str(tmp_path / "old.db"), 3)

    put_back(database, tmp_path / "old.db")

    assert migrate.is_current(database.connection())


def claim(conn, owner):
    lease = leases.acquire(conn, "n", owner, owner, ttl_ms=1, actor=Writer(), now_ms=NOW_MS)
    return lease.token


def version(conn):
    return state.get(conn, "k", "s", now_ms=NOW_MS).version


def test_tokens_and_versions_that_were_given_since_the_backup_do_not_come_again(database, file):
    given = [claim(database.connection(), owner) for owner in ("a", "b", "c")]
    last = version(database.connection())

    put_back(database, file)
    put(database.connection(), '"next"')

    assert claim(database.connection(), "late") > max(given)
    assert version(database.connection()) > last


def test_nor_do_they_after_a_backup_that_knew_no_leases(database, tmp_path):
    given = claim(database.connection(), "a")
    original.write(str(tmp_path / "old.db"), 3)

    put_back(database, tmp_path / "old.db")

    assert claim(database.connection(), "late") > given


def test_a_backup_from_elsewhere_that_gave_more_keeps_its_count(database, file):
    with closing(sqlite3.connect(file)) as conn, conn:
        conn.execute("UPDATE counters SET value = 70 WHERE name = 'leases'")

    put_back(database, file)

    assert claim(database.connection(), "late") == 71


def killed_at(step, work):
    """Do it in a process that is killed just before its nth change of a directory."""
    child = os.fork()
    if child == 0:
        steps = iter(range(1, step))

        def look(event, _arguments):
            if event in {"os.rename", "os.remove", "os.link"} and next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)
        with suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("damaged", [False, True])
def test_killed_at_any_step_it_leaves_the_old_database_or_the_new_one(
    database, file, spoil, damaged
):
    database.close()
    database.lock.close()
    if damaged:
        spoil(database.path, "sentinels")
    with open(database.path, "rb") as there:
        before = there.read()
    ends = []

    while 0 not in ends:
        with open(database.path, "wb") as there:
            there.write(before)
        ends.append(killed_at(len(ends) + 1, lambda: put_back(database, file)))

        assert os.path.exists(database.path), f"killed at step {len(ends)}"
        assert looked_into(database.path) in {'"old"', '"new"'}

    assert ends[:-1] == [-signal.SIGKILL] * (len(ends) - 1)
    assert len(ends) > 3
    assert looked_into(database.path) == '"old"'


# --- what is refused ------------------------------------------------------------------------


@pytest.fixture
def unchanged(database):
    """Whatever was refused, the database is as it was, and nothing lies beside it."""
    yield
    database.close()
    assert looked_into(database.path) in ('"new"', '"old"')
    assert {name for name in names(database) if name not in ("-wal", "-shm")} == set()


def foreign(path):
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE theirs (x)")


def future(path):
    with closing(sqlite3.connect(path)) as conn:
        conn.execute(f"PRAGMA application_id = {migrate.APPLICATION_ID}")
        conn.execute("PRAGMA user_version = 9999")


@pytest.mark.parametrize(
    "make, error, told",
    [
        (lambda path: None, BadPath, "No such file"),
        (os.mkdir, BadPath, "not a regular file"),
        (os.mkfifo, BadPath, "not a regular file"),
        (lambda path: os.symlink("/etc/passwd", path), SymlinkRefused, "symlink"),
        (lambda path: open(path, "w").close(), NoDatabase, "is empty"),
        (lambda path: path.write_bytes(b"text" * 1000), Corrupt, "not a SQLite database"),
        (foreign, NotOurs, "another program"),
        (future, SchemaTooNew, "newer than"),
    ],
)
@pytest.mark.usefixtures("unchanged")
def test_what_is_no_backup_is_refused(database, tmp_path, make, error, told):
    path = tmp_path / "given"
    make(path)

    with pytest.raises(error, match=told) as caught:
        put_back(database, path)

    assert str(path) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("table", ["state", "sentinels", "requests"])
@pytest.mark.usefixtures("unchanged")
def test_a_damaged_backup_is_refused(database, file, spoil, table):
    spoil(file, table)

    with pytest.raises(Corrupt, match=r"file\b.*damaged"):
        put_back(database, file)


@pytest.mark.usefixtures("unchanged")
def test_the_database_itself_is_no_backup(database):
    with pytest.raises(BadPath, match="the database itself"):
        put_back(database, database.path)


@pytest.mark.usefixtures("unchanged")
def test_a_deadline_that_passes_changes_nothing(database, file):
    with pytest.raises(DeadlineExceeded):
        put_back(database, file, deadline=0.0)


@pytest.mark.usefixtures("unchanged")
def test_a_program_without_our_lock_that_is_reading_is_not_robbed(database, file):
    put(database.connection(), '"new"')
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM state").fetchall()

        with pytest.raises(Locked, match="does not use intercore"):
            put_back(database, file)


@pytest.mark.usefixtures("unchanged")
def test_whoever_holds_the_lock_is_not_robbed(database, file):
    holder = lock.FileLock(f"{database.path}.lock", lock.poll)
    holder.acquire(time.monotonic() + 5)

    with pytest.raises(Locked, match="process"), database.hold(time.monotonic() + 0.05):
        raise AssertionError("two hold the lock")

    holder.close()


def test_the_database_of_another_program_is_not_replaced(file, project):
    path = project / "theirs.db"
    foreign(path)
    database = Database(str(path), config.DEFAULTS)

    with pytest.raises(NotOurs):
        put_back(database, file)

    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    database.lock.close()
