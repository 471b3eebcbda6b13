"""backup.*: copies of the database, and the way back."""

import os

import pytest

from icd import config
from icd.app import registry
from icd.app.dispatch import run_batch
from icd.db import migrate
from icd.db.database import Database
from icd.errors import BadPath, NoDatabase

ROW = {"key": "k", "scope_id": "s"}


@pytest.fixture
def file(result, tmp_path):
    """A backup with the row at 1, which is at 2 by now."""
    result("state.set", **ROW, payload="1")
    made = result("backup.write", file=str(tmp_path / "file"))
    result("state.set", **ROW, payload="2")
    return made.file


def test_a_backup_lies_beside_the_database(result, database):
    made = result("backup.create")

    assert made.path == database.path
    assert made.file == f"{database.path}.backup-20270115-080000"
    assert made.bytes == os.path.getsize(made.file)


def test_the_settings_say_how_many_stay(call, still, project, database):
    few = Database(database.path, config.Settings(backups_kept=2))
    for _ in range(4):
        (answer,) = run_batch(few, [call("backup.create")], clock=still, close=True)
        assert answer.error is None
        still.wall_ms += 1000

    assert len([name for name in os.listdir(project / ".clavain") if ".backup-" in name]) == 2
    few.lock.close()


def test_a_backup_goes_where_the_caller_says(result, tmp_path):
    made = result("backup.write", file=str(tmp_path / "mine"))

    assert made.file == str(tmp_path / "mine")
    assert made.bytes == os.path.getsize(made.file)


def test_what_was_restored_is_used_at_once(result, file, database):
    restored = result("backup.restore", file=file)

    assert restored.path == database.path
    assert restored.schema == migrate.LATEST
    assert restored.kept == f"{database.path}.backup-20270115-080000"
    assert bytes(result("state.get", **ROW).payload) == b"1"


def test_what_the_daemon_remembers_of_the_old_file_is_forgotten(ask, file, recent):
    """Else a debounced write would be skipped, though its row is not there any more."""
    ask("state.set", recent=recent, **ROW, payload="2", debounce_ms=60_000)

    ask("backup.restore", recent=recent, file=file)
    ask("state.set", recent=recent, **ROW, payload="2", debounce_ms=60_000)

    assert bytes(ask("state.get", recent=recent, **ROW).result.payload) == b"2"


@pytest.mark.parametrize("name", ["backup.write", "backup.restore"])
@pytest.mark.parametrize("file", ["", "relative", "/with\0nul"])
def test_a_file_is_named_absolutely(call, name, file):
    with pytest.raises(BadPath, match="absolute"):
        call(name, file=file)


@pytest.mark.parametrize("name", ["backup.write", "backup.restore"])
def test_files_that_a_caller_names_are_for_its_own_process(name):
    assert registry.find(name).runs.local


def test_a_backup_of_what_is_not_there_is_refused(call, still, project):
    database = Database(str(project / ".clavain" / "intercore.db"), config.DEFAULTS)

    (answer,) = run_batch(database, [call("backup.create")], clock=still)

    assert isinstance(answer.error, NoDatabase)
