"""backup.*: copies of the database, and the way back."""

import json
import os

import pytest

from icd import config
from icd.app import registry
from icd.app.dispatch import run_batch
from icd.app.invocation import Ask, Errand
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


# --- `icctl backup`, `icctl restore` --------------------------------------------------------------


STAMP = "20270115-080000"


@pytest.fixture
def one(stdout):
    stdout("state", "set", "k", "s", "--value=1")


def test_a_backup_without_a_name_is_told_as_one_would_type_it(stdout, one):
    assert stdout("backup") == f".clavain/intercore.db.backup-{STAMP}\n"


def test_a_backup_as_json(stdout, database):
    found = json.loads(stdout("backup", "--json"))

    assert found.pop("bytes") > 0
    assert found == {"path": database.path, "file": f"{database.path}.backup-{STAMP}"}


def test_a_file_is_looked_for_in_the_callers_directory(stdout, project):
    (project / "sub").mkdir()

    told = stdout("backup", "../mine", cwd=str(project / "sub"))

    assert told == "../mine\n"
    assert (project / "mine").exists()


def test_a_file_is_written_by_the_callers_own_process(invoke):
    assert isinstance(invoke("backup", "mine"), Errand)
    assert isinstance(invoke("restore", "mine"), Errand)
    assert isinstance(invoke("backup"), Ask)


def test_a_file_that_exists_is_left_alone(ic, project):
    (project / "mine").write_text("precious")

    output = ic("backup", "mine")

    assert (output.exit, output.stdout) == (2, b"")
    assert b"mine already exists; choose a file that does not exist yet\n" in output.stderr
    assert (project / "mine").read_text() == "precious"


def test_restore_tells_what_it_kept(stdout, one):
    stdout("backup", "mine")
    stdout("state", "set", "k", "s", "--value=2")

    told = stdout("restore", "mine")

    assert told == (
        f"restored .clavain/intercore.db (schema v{migrate.LATEST})\n"
        f"kept .clavain/intercore.db.backup-{STAMP}\n"
    )
    assert stdout("state", "get", "k", "s") == "1\n"


def test_restore_as_json(stdout, one, database):
    stdout("backup", "mine")

    assert json.loads(stdout("restore", "mine", "--json")) == {
        "path": database.path,
        "schema": migrate.LATEST,
        "kept": f"{database.path}.backup-{STAMP}",
    }


def test_restore_where_nothing_is_left_keeps_nothing(stdout, one, project, database):
    stdout("backup", "mine")
    database.close()
    (project / ".clavain" / "intercore.db").unlink()

    assert (
        stdout("restore", "mine") == f"restored .clavain/intercore.db (schema v{migrate.LATEST})\n"
    )


def test_what_is_no_backup_is_refused(ic, project):
    (project / "text").write_text("no database" * 1000)

    output = ic("restore", "text")

    assert output.exit == 2
    assert output.stderr.endswith(b"nothing was changed\n")


@pytest.mark.parametrize("verb", ["backup", "restore"])
def test_an_empty_name_is_a_mistake(ic, verb):
    output = ic(verb, "")

    assert (output.exit, output.stderr) == (3, f"icctl: {verb}: FILE is empty\n".encode())


@pytest.mark.parametrize("end", ["-journal", ".restore", ".unfinished", ".restore-journal"])
@pytest.mark.parametrize("verb", ["backup", "export", "restore"])
def test_the_names_that_the_database_uses_itself_are_nobody_elses(ic, stdout, project, verb, end):
    """SQLite removes a `-journal` that it finds, and a restore removes what another left behind."""
    file = project / ".clavain" / f"intercore.db{end}"
    if verb == "restore":
        stdout("backup", "mine")
        file.write_bytes((project / "mine").read_bytes())

    output = ic(verb, f".clavain/../.clavain/{file.name}")

    assert output.exit == 2
    assert b"is a reserved name of the database" in output.stderr
    assert file.exists() == (verb == "restore")
