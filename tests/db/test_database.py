"""A database and its lock: created private, reopened when it was swapped, aware of others."""

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from icd import config
from icd.db.database import GITIGNORE, Database
from icd.db.wal import Companions, see
from icd.errors import Corrupt, IcError, InputOutput, LogLost, NoDatabase, SchemaTooNew
from icd.features.state import store as state
from icd.values.processes import Writer
from tests.support.processes import PATIENCE

NOW_MS = 1_800_000_000_000


def soon():
    return time.monotonic() + 5


def put(conn, payload="1", key="k"):
    return state.set(conn, key, "s", payload, writer=Writer(), now_ms=NOW_MS)


def payload(conn, key="k"):
    row = state.get(conn, key, "s", now_ms=NOW_MS)
    return row and row.payload


@pytest.fixture
def path(project):
    return str(project / ".clavain" / "intercore.db")


@pytest.fixture
def beside(opened, tmp_path):
    """Another intercore database, closed and complete, to put in the first one's place."""
    path = str(tmp_path / "beside" / "other.db")
    made = opened(path, create=True)
    put(made.connection(), '"beside"')
    made.close()
    return path


# --- creating -------------------------------------------------------------------------------


def test_what_is_created_is_private_whatever_the_umask(opened, path, mode, open_umask):
    conn = opened(path, create=True).connection()
    put(conn)

    directory = os.path.dirname(path)
    modes = {name: mode(os.path.join(directory, name)) for name in os.listdir(directory)}

    assert mode(directory) == 0o700
    del modes[".gitignore"]  # says what everybody may know
    assert modes == dict.fromkeys(
        ["intercore.db", "intercore.db-wal", "intercore.db-shm", "intercore.db.lock"], 0o600
    )


def test_directories_on_the_way_are_private_too(opened, project, mode, open_umask):
    opened(project / ".clavain" / "sub" / "x.db", create=True)

    assert (mode(project / ".clavain"), mode(project / ".clavain" / "sub")) == (0o700, 0o700)


def test_a_database_that_is_open_is_in_wal_mode(opened, path):
    first = opened(path, create=True).connection()
    opened_again = opened(path).connection()

    modes = [conn.execute("PRAGMA journal_mode").fetchone() for conn in (first, opened_again)]

    assert modes == [("wal",), ("wal",)]


def test_a_database_that_was_restored_from_a_backup_is_brought_back_to_wal_mode(opened, path):
    opened(path, create=True).close()
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("PRAGMA journal_mode = DELETE")

    conn = opened(path).connection()

    assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_directory_that_exists_keeps_its_mode(opened, path, mode):
    os.mkdir(os.path.dirname(path), 0o755)

    opened(path, create=True)

    assert mode(os.path.dirname(path)) == 0o755


def test_git_is_told_to_ignore_the_database_and_its_files(opened, path):
    opened(path, create=True)

    with open(os.path.join(os.path.dirname(path), ".gitignore"), encoding="utf-8") as file:
        assert file.read() == GITIGNORE
    assert "intercore.db*" in GITIGNORE


def test_a_gitignore_that_exists_is_left_alone(opened, path, project):
    (project / ".clavain").mkdir()
    (project / ".clavain" / ".gitignore").write_text("mine\n")

    opened(path, create=True)

    assert (project / ".clavain" / ".gitignore").read_text() == "mine\n"


def test_outside_a_clavain_directory_no_gitignore_is_written(opened, project):
    opened(project / "data" / "x.db", create=True)

    assert not (project / "data" / ".gitignore").exists()


def test_without_init_neither_directory_nor_file_is_created(opened, path):
    with pytest.raises(NoDatabase, match="no database at"):
        opened(path)

    assert not os.path.exists(os.path.dirname(path))


def test_without_init_no_file_is_created_in_a_directory_that_exists(opened, path):
    os.mkdir(os.path.dirname(path))

    with pytest.raises(NoDatabase, match="no database at"):
        opened(path)

    assert not os.path.exists(path)


def test_a_directory_that_cannot_be_made_is_told(opened, project):
    (project / "file").write_text("in the way")

    with pytest.raises(IcError, match="cannot create"):
        opened(project / "file" / "x.db", create=True)


def test_a_link_that_leads_nowhere_is_not_created_through(opened, path, tmp_path):
    os.mkdir(os.path.dirname(path))
    os.symlink(tmp_path / "planted.db", path)

    with pytest.raises(sqlite3.OperationalError):
        opened(path, create=True)

    assert not os.path.exists(tmp_path / "planted.db")


def test_a_file_that_cannot_be_made_is_told(tmp_path):
    nowhere = Database(str(tmp_path / "gone" / "x.db"), config.DEFAULTS)

    with pytest.raises(InputOutput, match="cannot create"):
        nowhere.connection(create=True)


def test_a_path_that_cannot_be_looked_at_is_told(tmp_path):
    too_long = Database(str(tmp_path / ("x" * 300)), config.DEFAULTS)

    with pytest.raises(InputOutput, match="cannot look at"):
        too_long.connection()


# --- reopening ------------------------------------------------------------------------------


def test_the_same_file_stays_open(opened, path):
    database = opened(path, create=True)

    with database.hold(soon()):
        assert database.connection() is database.connection()
    assert database.reopened == 0


def test_a_file_that_was_replaced_is_reopened(opened, path, beside):
    database = opened(path, create=True)
    put(database.connection(), '"before"')
    database.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    os.replace(beside, path)
    with database.hold(soon()), pytest.raises(LogLost, match="was replaced while it was in use"):
        database.connection()
    with database.hold(soon()):
        conn = database.connection()

    assert payload(conn) == '"beside"'
    assert database.reopened == 1


def test_the_log_of_a_file_that_was_replaced_is_not_played_over_the_new_one(opened, path, beside):
    """A backup is put back with `mv` while the daemon has the database open."""
    database = opened(path, create=True)
    put(database.connection(), '"before"')

    os.replace(beside, path)
    with database.hold(soon()), pytest.raises(LogLost, match="was replaced while it was in use"):
        database.connection()
    with database.hold(soon()):
        conn = database.connection()

    assert payload(conn) == '"beside"'


def test_closing_the_old_file_does_no_harm_to_the_log_of_the_new_one(opened, path, tmp_path):
    database = opened(path, create=True)
    put(database.connection(), '"before"')
    other = str(tmp_path / "other.db")
    writer = opened(other, create=True).connection()
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    put(writer, '"still in the log"')

    for suffix in ("", "-wal", "-shm"):
        shutil.copyfile(other + suffix, path + suffix + ".new")
    for suffix in ("-shm", "-wal", ""):
        os.replace(path + suffix + ".new", path + suffix)
    with database.hold(soon()), pytest.raises(LogLost):
        database.connection()
    with database.hold(soon()), pytest.raises(LogLost, match="not a log that intercore left"):
        database.connection()
    with database.hold(soon()):
        conn = database.connection()

    assert payload(conn) == '"still in the log"'


def test_a_file_that_was_deleted_is_no_database(opened, path):
    database = opened(path, create=True)
    os.unlink(path)

    with database.hold(soon()), pytest.raises(NoDatabase):
        database.connection()

    assert not database.is_open
    assert not os.path.exists(path)


def test_a_file_that_was_deleted_is_made_anew_by_init(opened, path):
    database = opened(path, create=True)
    put(database.connection())
    for suffix in ("", "-wal", "-shm"):
        os.unlink(path + suffix)

    with database.hold(soon(), create=True):
        conn = database.connection(create=True)

    assert payload(conn) is None
    assert database.reopened == 1


def test_a_directory_that_was_deleted_is_no_database(opened, path):
    database = opened(path, create=True)
    shutil.rmtree(os.path.dirname(path))

    with pytest.raises(NoDatabase), database.hold(soon()):
        pass

    assert not os.path.exists(os.path.dirname(path))


def test_closing_twice_is_closing_once(opened, path):
    database = opened(path, create=True)

    database.close()
    database.close()

    assert not database.is_open


# --- the lock -------------------------------------------------------------------------------


def test_the_lock_is_released_when_the_block_fails(opened, path):
    database, other = opened(path, create=True), opened(path)

    with pytest.raises(ZeroDivisionError), database.hold(soon()):
        _ = 1 / 0

    with other.hold(time.monotonic() + 0.05):
        pass


# --- others ---------------------------------------------------------------------------------


def test_others_wrote_is_told_once_after_each_of_their_commits(opened, path):
    database = opened(path, create=True)
    database.others_wrote()

    before = database.others_wrote()
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
        stranger.execute("INSERT INTO counters VALUES ('theirs', 1)")
    database.connection()
    after = [database.others_wrote(), database.others_wrote()]

    assert (before, after) == (False, [True, False])


def test_our_own_writes_are_not_those_of_others(opened, path):
    database = opened(path, create=True)
    database.others_wrote()

    put(database.connection())

    assert not database.others_wrote()


def test_after_reopening_others_may_have_written(opened, path, beside):
    database = opened(path, create=True)
    database.others_wrote()
    os.replace(beside, path)

    with database.hold(soon()), pytest.raises(LogLost):
        database.connection()
    with database.hold(soon()):
        database.connection()

    assert database.others_wrote()


def test_a_database_that_others_upgraded_beyond_us_is_refused_from_then_on(opened, path):
    """It was written to as if nothing had happened."""
    database = opened(path, create=True)
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("PRAGMA user_version = 9999")
        stranger.commit()

    with database.hold(soon()), pytest.raises(SchemaTooNew):
        database.connection()


def test_a_database_that_was_cut_off_while_it_is_open_is_refused(opened, path):
    """Pages that were read before still came from memory."""
    database = opened(path, create=True)
    put(database.connection())
    database.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    database.connection()
    os.truncate(path, os.path.getsize(path) // 2)

    with database.hold(soon()), pytest.raises(LogLost, match="overwritten while it was in use"):
        database.connection()
    with database.hold(soon()), pytest.raises((Corrupt, sqlite3.DatabaseError)):
        database.connection()


def test_a_database_that_is_cut_off_is_refused_although_others_have_it_open(opened, path):
    """SQLite trusts the others about its size."""
    first = opened(path, create=True)
    put(first.connection(), '"' + "x" * 200_000 + '"')  # so that the schema is not what is missing
    first.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    os.truncate(path, os.path.getsize(path) - 100_000)

    with pytest.raises(Corrupt, match=r"truncated: \d+ of \d+ bytes are there"):
        opened(path)


def test_a_database_that_became_smaller_in_good_order_is_used(opened, path):
    database = opened(path, create=True)
    put(database.connection(), '"' + "x" * 200_000 + '"')
    put(database.connection(), "1")
    database.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    database.connection()
    before = os.path.getsize(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
        stranger.execute("VACUUM")
        stranger.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    with database.hold(soon()):
        found = payload(database.connection())

    assert (found, os.path.getsize(path) < before) == ("1", True)


@pytest.mark.parametrize("careful", [False, True], ids=["direct", "daemon"])
@pytest.mark.parametrize(
    "touch",
    [lambda path: os.chmod(path, 0o640), lambda path: os.chown(path, -1, -1), os.utime],
    ids=["chmod", "chown", "utime"],
)
def test_a_database_whose_content_is_the_same_was_not_overwritten(opened, path, touch, careful):
    opened(path, create=True).close()
    database = Database(path, config.DEFAULTS, careful=careful)
    try:
        for checkpoints in (False, True, False):  # the sum of the file follows it
            with database.hold(soon()):
                put(database.connection(), '"kept"')
                if checkpoints:
                    database.connection().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            touch(path)

            with database.hold(soon()):
                assert payload(database.connection()) == '"kept"'
        assert not database.reopened
    finally:
        database.close()
        database.lock.close()


def test_a_process_that_dies_leaves_its_writes_to_the_next_although_the_file_was_touched(
    opened, path
):
    opened(path, create=True).close()
    child = os.fork()
    if not child:
        try:
            database = Database(path, config.DEFAULTS)
            with database.hold(soon()):
                put(database.connection(), '"kept"')
        finally:
            os._exit(0)  # as if it were killed
    os.waitpid(child, 0)
    assert os.path.getsize(f"{path}-wal")
    os.chmod(path, 0o640)

    assert payload(opened(path).connection()) == '"kept"'


# --- many at once -------------------------------------------------------------------------------


@pytest.fixture
def crowd():
    """As many descriptors as a daemon with a hundred databases has."""
    found = [os.open(os.devnull, os.O_RDONLY) for _ in range(400)]
    yield
    for fd in found:
        os.close(fd)


def test_to_open_a_database_costs_the_same_however_much_is_open(path, opened, crowd, monkeypatch):
    looked = []
    readlink = os.readlink
    monkeypatch.setattr(os, "readlink", lambda name: (looked.append(name), readlink(name))[1])

    opened(path, create=True)

    assert len(looked) < 100


def test_the_descriptors_of_a_database_are_found_whatever_was_opened_since(path, opened):
    made = opened(path, create=True)
    made.connection()
    later = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
    try:
        found = Companions(path)
        assert found.open_main() == see(path)
        assert found.read() is not None
    finally:
        for fd in later:
            os.close(fd)


DIES_WHILE_IT_CLOSES = """
import ctypes, os, signal, sys, time
from icd.config import Settings
from icd.db import lost
from icd.db.database import Database

path = sys.argv[1]
found = Database(path, Settings())
with found.hold(time.monotonic() + 30):
    found.connection()
    lost.note(found.lock, path, "closing")
    for end in ("-wal", "-shm"):  # as SQLite does, before it closes the file itself
        os.unlink(path + end)
    found.lock.close()
clone, clone_files = 56, 0x400
if ctypes.CDLL(None).syscall(clone, clone_files | signal.SIGCHLD, 0, 0, 0, 0):
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()  # who shares its files keeps them open, as the kernel does for a moment
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls have other numbers")
def test_a_process_that_was_killed_while_it_closed_is_no_user_of_the_files(
    initialized: Path,
) -> None:
    path = initialized / ".clavain" / "intercore.db"
    argv = [sys.executable, "-c", DIES_WHILE_IT_CLOSES, path]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        pid = int(process.stdout.readline())
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert str(pid) in Path("/proc/locks").read_text()

        found = Database(str(path), config.Settings())
        with found.hold(time.monotonic() + PATIENCE):
            found.connection()
            found.close()
        found.lock.close()
        process.stdin.close()
