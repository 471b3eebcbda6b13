"""Backups: their names, their contents, their privacy, and how many there are."""

import os
import sqlite3
import sys
from contextlib import closing

import pytest

from icd.db import backup
from icd.errors import BadPath, Corrupt, DeadlineExceeded, InputOutput, PermissionRefused
from tests.data import original

NOW_MS = 1_800_000_000_999
STAMP = "20270115-080000"
KEEP = 5


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "intercore.db")


@pytest.fixture
def source(path):
    """A database whose rows are still in the write-ahead log."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("PRAGMA wal_autocheckpoint = 0")
        conn.execute("CREATE TABLE t (x)")
        conn.execute("INSERT INTO t VALUES ('in the log')")
        yield conn


def rows(path):
    with closing(sqlite3.connect(path)) as conn:
        return conn.execute("SELECT x FROM t").fetchall()


def names(path):
    directory = os.path.dirname(path)
    return sorted(name for name in os.listdir(directory) if ".backup-" in name)


def test_a_backup_is_named_after_the_second_in_utc(source, path):
    made = backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)

    assert made == f"{path}.backup-{STAMP}"
    assert os.path.exists(made)


def test_a_second_backup_in_the_same_second_gets_a_number(source, path):
    made = [backup.beside(source, path, keep=KEEP, now_ms=NOW_MS) for _ in range(3)]

    assert made == [f"{path}.backup-{STAMP}{suffix}" for suffix in ("", "-1", "-2")]


def test_a_backup_contains_what_was_still_in_the_log(source, path):
    assert os.path.getsize(path) < os.path.getsize(path + "-wal")

    made = backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)

    assert rows(made) == [("in the log",)]


def test_a_backup_is_one_file_that_stays_one_file(source, path):
    made = backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)
    rows(made)

    assert names(path) == [os.path.basename(made)]


def test_a_backup_is_private_whatever_the_umask(source, path, mode, open_umask):
    assert mode(backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)) == 0o600


def test_only_the_youngest_few_are_kept(source, path):
    for day in range(KEEP + 2):
        made = backup.beside(source, path, keep=KEEP, now_ms=NOW_MS + day * 86_400_000)
        os.utime(made, (day, day))

    assert [name[-15:] for name in names(path)] == [
        f"202701{day}-080000" for day in range(17, 17 + KEEP)
    ]


def test_a_backup_never_makes_room_for_itself_by_removing_itself(source, path):
    """A clock that stepped back makes the newest one look like the oldest."""
    for number in range(KEEP):
        other = f"{path}.backup-2030010{number}-000000"
        open(other, "w").close()
        os.utime(other, (2**31, 2**31))

    made = backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)

    assert os.path.basename(made) in names(path)
    assert len(names(path)) == KEEP


def test_the_backups_of_another_database_are_left_alone(source, path, tmp_path):
    others = [tmp_path / f"other.db.backup-2026010{number}-000000" for number in range(9)]
    for other in others:
        other.touch()

    backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)

    assert all(other.exists() for other in others)


def test_a_copy_that_a_person_made_is_left_alone(source, path):
    mine = f"{path}.backup-before-the-move"
    open(mine, "w").close()
    os.utime(mine, (1, 1))

    for second in range(KEEP + 1):
        backup.beside(source, path, keep=KEEP, now_ms=NOW_MS + second * 1000)

    assert os.path.exists(mine)


@pytest.mark.parametrize("make", [lambda name: os.symlink("nowhere", name), os.mkdir])
def test_what_is_no_file_but_named_like_a_backup_is_left_alone(source, path, make):
    mine = f"{path}.backup-20190101-000000"
    make(mine)
    for second in range(KEEP + 1):
        backup.beside(source, path, keep=KEEP, now_ms=NOW_MS + second * 1000)

    assert os.path.lexists(mine)
    assert len(names(path)) == KEEP + 1


def test_what_a_killed_backup_left_behind_is_no_backup(source, path, tmp_path):
    """Else five of them would push five good ones out."""
    child = os.fork()
    if child == 0:
        sys.addaudithook(lambda event, _: event == "os.rename" and os.kill(os.getpid(), 9))
        backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert names(path) == []

    made = backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)

    assert rows(made) == [("in the log",)]
    assert sorted(os.listdir(tmp_path)) == [
        "intercore.db", "intercore.db-shm", "intercore.db-wal", os.path.basename(made)
    ]  # fmt: skip


def test_a_path_that_looks_like_a_pattern_is_taken_literally(tmp_path):
    (tmp_path / "a[b]*").mkdir()
    path = str(tmp_path / "a[b]*" / "x.db")
    with closing(sqlite3.connect(path)) as conn:
        for second in range(KEEP + 3):
            backup.beside(conn, path, keep=KEEP, now_ms=NOW_MS + second * 1000)

    assert len(names(path)) == KEEP


def test_a_damaged_database_is_not_passed_off_as_a_backup(path):
    original.write(path, 1)
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)

    with closing(sqlite3.connect(path)) as conn, pytest.raises((Corrupt, InputOutput)):
        backup.beside(conn, path, keep=KEEP, now_ms=NOW_MS)

    assert names(path) == []


def test_a_backup_that_cannot_be_written_leaves_nothing_behind(path):
    with open(path, "wb") as file:
        file.write(b"this is not a database" * 100)

    with closing(sqlite3.connect(path)) as conn, pytest.raises(Corrupt):
        backup.beside(conn, path, keep=KEEP, now_ms=NOW_MS)

    assert names(path) == []


def test_a_directory_that_is_gone_is_told(source, tmp_path):
    with pytest.raises(InputOutput, match="cannot create the backup"):
        backup.beside(source, str(tmp_path / "gone" / "x.db"), keep=KEEP, now_ms=NOW_MS)


def test_a_thousand_backups_in_one_second_are_enough(source, path):
    stem = f"{path}.backup-{STAMP}"
    for number in range(1000):
        open(stem if number == 0 else f"{stem}-{number}", "w").close()

    with pytest.raises(InputOutput, match="a thousand backups"):
        backup.beside(source, path, keep=KEEP, now_ms=NOW_MS)


def test_one_backup_is_spared_by_the_rotation(source, path):
    spared = backup.beside(source, path, keep=1, now_ms=NOW_MS)
    os.utime(spared, (1, 1))

    made = backup.beside(source, path, keep=1, now_ms=NOW_MS + 1000, spare=spared)

    assert names(path) == [os.path.basename(spared), os.path.basename(made)]


def test_a_deadline_that_passes_leaves_nothing_behind(source, path):
    with pytest.raises(DeadlineExceeded, match="before the backup was complete"):
        backup.beside(source, path, keep=KEEP, now_ms=NOW_MS, deadline=0.0)

    assert names(path) == []


# --- where a person wants it ----------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "mine")


def test_a_backup_goes_where_it_is_wanted(source, file, mode, open_umask):
    assert backup.to(source, file) == file

    assert rows(file) == [("in the log",)]
    assert mode(file) == 0o600


def test_a_file_that_exists_is_never_overwritten(source, file):
    with open(file, "w", encoding="utf-8") as mine:
        mine.write("precious")

    with pytest.raises(BadPath, match="already exists"):
        backup.to(source, file)

    with open(file, encoding="utf-8") as mine:
        assert mine.read() == "precious"


def test_a_link_is_not_followed_not_even_to_nowhere(source, file, tmp_path):
    os.symlink(tmp_path / "elsewhere", file)

    with pytest.raises(BadPath, match="already exists"):
        backup.to(source, file)

    assert not os.path.exists(tmp_path / "elsewhere")


def test_a_backup_that_a_person_named_removes_no_other(source, path, file):
    made = [backup.beside(source, path, keep=KEEP, now_ms=NOW_MS + n * 1000) for n in range(KEEP)]

    backup.to(source, file)

    assert all(os.path.exists(name) for name in made)


def test_a_directory_that_is_not_there_is_a_mistake_in_the_name(source, tmp_path):
    with pytest.raises(BadPath, match="No such file or directory") as caught:
        backup.to(source, str(tmp_path / "gone" / "x"))

    assert caught.value.hint == "choose a file in an existing directory"


def test_a_disk_that_may_not_be_written_is_told(source):
    with pytest.raises((PermissionRefused, InputOutput, BadPath)):
        backup.to(source, "/proc/x")


def test_a_deadline_that_passes_leaves_no_file_of_that_name(source, file):
    with pytest.raises(DeadlineExceeded):
        backup.to(source, file, deadline=0.0)

    assert not os.path.exists(file)
