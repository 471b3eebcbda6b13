"""`icctl init`, `icctl health`, `icctl version`."""

import json

import pytest

from icd import __version__
from icd.app.invocation import Output
from icd.db import migrate
from icd.errors import Corrupt, NoDatabase, SchemaTooNew

SCHEMA = f"v{migrate.LATEST}"


def test_init_tells_the_path_as_one_would_type_it(stdout):
    assert stdout("init") == f"initialized .clavain/intercore.db (schema {SCHEMA})\n"


def test_init_tells_the_whole_path_from_elsewhere(stdout, project, database):
    (project / "sub").mkdir()

    told = stdout("init", cwd=str(project / "sub"))

    assert told == f"initialized {database.path} (schema {SCHEMA})\n"


def test_init_as_json_tells_the_whole_path(stdout, database):
    found = json.loads(stdout("init", "--json"))

    assert found == {"path": database.path, "schema": migrate.LATEST}


@pytest.mark.parametrize("more", [[], ["--check"]])
def test_a_healthy_database_is_ok(stdout, more):
    assert stdout("health", *more) == "ok\n"


def test_health_as_json(stdout, database):
    assert json.loads(stdout("health", "--json")) == {
        "healthy": True,
        "path": database.path,
        "schema": migrate.LATEST,
    }


def test_a_database_that_is_not_healthy_exits_with_2(shown):
    output = shown("health", error=Corrupt("the database file is damaged"))

    assert (output.exit, output.stdout) == (2, b"")
    assert output.stderr.startswith(b"icctl: health: the database file is damaged; ")


@pytest.mark.parametrize("more", [[], ["extra", "words"]])
def test_version_tells_program_and_schema(stdout, more):
    assert stdout("version", *more) == f"icctl {__version__}\nschema: {SCHEMA}\n"


def test_version_tells_the_name_that_it_was_called_by(stdout):
    assert stdout("version", program="ic").startswith(f"ic {__version__}\n")


@pytest.mark.parametrize(
    "error, told",
    [
        (NoDatabase("no database at x"), "unknown (no database)"),
        (SchemaTooNew("x has schema v9999"), "unknown (x has schema v9999)"),
    ],
)
def test_version_always_exits_with_0(shown, error, told):
    output = shown("version", error=error)

    assert output == Output(0, f"icctl {__version__}\nschema: {told}\n".encode())


def test_version_as_json(stdout, shown):
    there = json.loads(stdout("version", "--json"))
    absent = json.loads(shown("version", "--json", error=NoDatabase("no")).stdout)

    assert there == {"program": "icctl", "version": __version__, "schema": migrate.LATEST}
    assert absent == {"program": "icctl", "version": __version__, "schema": None}
