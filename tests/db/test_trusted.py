"""What we make here is trusted; what was there, or came from elsewhere, is not."""

import math
import os
import shutil
import time

import pytest

from icd import config, trust
from icd.db import backup
from icd.db.backup import restore
from icd.db.database import Database
from icd.db.original.adopt import adopt
from icd.features.database import store
from tests.data import later
from tests.support.processes import icctl, running

NOW_MS = 1_800_000_000_000


@pytest.fixture
def home(tmp_path, monkeypatch):
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    return str(found)


@pytest.fixture
def path(project):
    return str(project / ".clavain" / "intercore.db")


@pytest.fixture
def made(home, path):
    """Whose database was made here."""
    return use(path, lambda database: database.connection(create=True))


def use(path, work):
    """Do something under the lock; the notes for whoever asked for it."""
    database = Database(path, config.DEFAULTS)
    try:
        with database.hold(time.monotonic() + 5, create=True):
            work(database)
            notes = database.told()
            database.close()
    finally:
        database.lock.close()
    return notes


def put_back(path, file):
    return use(path, lambda d: restore(d, file, now_ms=NOW_MS, deadline=math.inf))


def backup_of(path, tmp_path):
    file = str(tmp_path / "backup.db")
    use(path, lambda database: backup.to(database.connection(), file))
    return file


def replace(path):
    """As git does: the same bytes in another file."""
    shutil.copy2(path, f"{path}.new")
    os.replace(f"{path}.new", path)


def test_a_database_that_is_made_here_is_trusted(made, home, path):
    assert made == []
    assert trust.allows(home, path)


def test_a_database_that_was_there_is_not_trusted_by_using_it(made, home, path):
    replace(path)

    use(path, lambda database: database.connection(create=True))

    assert not trust.allows(home, path)


def test_a_database_is_made_where_nothing_can_be_recorded_and_that_is_told(home, path):
    with open(os.path.join(home, ".local"), "x"):
        pass

    (note,) = use(path, lambda database: database.connection(create=True))

    assert note.startswith(
        "the database is not trusted and may not start programs: cannot write to"
    )


def test_what_is_restored_over_a_trusted_database_is_trusted(made, home, path, tmp_path):
    file = backup_of(path, tmp_path)
    before = os.stat(path).st_ino

    put_back(path, file)

    assert os.stat(path).st_ino != before
    assert trust.allows(home, path)


def test_what_is_restored_where_a_trusted_database_was_is_trusted(made, home, path, tmp_path):
    file = backup_of(path, tmp_path)
    os.unlink(path)

    put_back(path, file)

    assert trust.allows(home, path)


def test_a_backup_that_a_clone_ships_is_not_trusted_where_nothing_was(made, home, path, tmp_path):
    file = backup_of(path, tmp_path)
    elsewhere = tmp_path / "clone" / ".clavain" / "intercore.db"

    put_back(str(elsewhere), file)

    assert not trust.allows(home, str(elsewhere))


def test_what_is_restored_over_a_damaged_database_of_ours_is_trusted(made, home, path, tmp_path):
    file = backup_of(path, tmp_path)
    with open(path, "r+b") as damaged:
        damaged.write(b"\0" * 8192)

    put_back(path, file)

    assert trust.allows(home, path)


def test_what_is_restored_over_a_strangers_database_is_not_trusted(made, home, path, tmp_path):
    """A clone ships backups, too."""
    file = backup_of(path, tmp_path)
    replace(path)

    assert put_back(path, file) == []
    assert not trust.allows(home, path)


def test_what_is_adopted_is_not_trusted_and_that_is_told(home, path):
    os.makedirs(os.path.dirname(path), mode=0o700)
    later.write(path)

    notes = use(path, lambda d: adopt(d, now_ms=NOW_MS, deadline=math.inf))

    assert not trust.allows(home, path)
    assert ["icctl trust" in note for note in notes] == [True]


def test_a_vacuum_and_a_backup_keep_the_file_and_so_the_trust(made, home, path, tmp_path):
    use(path, lambda d: store.vacuum(d.connection(), d.path, deadline=math.inf))
    backup_of(path, tmp_path)

    assert trust.allows(home, path)


@pytest.mark.parametrize("host", ["daemon", "direct"])
def test_init_trusts_what_it_makes_for_whoever_has_the_home_of_its_host(project, tmp_path, host):
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "INTERCORE_MODE": host}
    with running(env={"HOME": str(home)}) as daemon:
        done = icctl("init", cwd=project, env=env | {"INTERCORE_SOCKET": daemon.socket})

    assert (done.returncode, done.stderr) == (0, b"")
    assert trust.allows(str(home), str(project / ".clavain" / "intercore.db"))


@pytest.mark.parametrize("host", ["daemon", "direct"])
def test_init_without_a_usable_home_works_and_says_what_does_not(project, tmp_path, host):
    home = tmp_path / "home"
    home.mkdir()
    (home / ".local").touch()
    env = {"HOME": str(home), "INTERCORE_MODE": host}
    with running(env={"HOME": str(home)}) as daemon:
        done = icctl("init", cwd=project, env=env | {"INTERCORE_SOCKET": daemon.socket})

    assert done.returncode == 0
    assert done.stderr.startswith(b"icctl: init: warning: the database is not trusted and may not ")
    assert len(done.stderr.splitlines()) == 1
