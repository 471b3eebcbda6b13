"""`icctl export`, `icctl import`."""

import json

import pytest

from icd.app.invocation import Errand
from icd.db import migrate

ROWS = len(migrate.pending(0)) + 5  # of an empty database: with five counters


def test_what_was_exported_can_be_imported(stdout):
    stdout("state", "set", "k", "s", "--value=1")

    assert stdout("export", "file") == f"exported {ROWS + 1} rows\n"
    stdout("state", "delete", "k", "s")
    assert stdout("import", "file") == "imported 1 rows, skipped 0\n"
    assert stdout("state", "get", "k", "s") == "1\n"
    assert stdout("import", "file") == "imported 0 rows, skipped 1\n"


def test_as_json(stdout, project, database):
    file = {"path": database.path, "file": str(project / "file")}

    assert json.loads(stdout("export", "file", "--json")) == file | {"rows": ROWS}
    assert json.loads(stdout("import", "file", "--json")) == file | {"imported": 0, "skipped": 0}


@pytest.mark.parametrize("verb", ["export", "import"])
def test_files_are_handled_by_the_callers_own_process(invoke, verb):
    assert isinstance(invoke(verb, "file"), Errand)


@pytest.mark.parametrize("verb", ["export", "import"])
def test_an_empty_name_is_a_mistake(ic, verb):
    assert ic(verb, "").exit == 3


def test_a_line_that_is_wrong_is_named(ic, project):
    (project / "file").write_text("text\n")

    output = ic("import", "file")

    assert output.exit == 2
    assert output.stderr.startswith(f"icctl: import: {project / 'file'}:1: ".encode())
    assert output.stderr.endswith(b"nothing was imported\n")
