"""`icctl backup`, `icctl restore`."""

import json

import pytest

from icd.app.invocation import Ask, Errand
from icd.db import migrate

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
    assert b"mine exists already; name a file that does not exist yet\n" in output.stderr
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
    assert b"is a name that belongs to the database itself" in output.stderr
    assert file.exists() == (verb == "restore")
