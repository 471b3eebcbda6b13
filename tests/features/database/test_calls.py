"""db.*: the database itself."""

import msgspec
import pytest

from icd import __version__, config
from icd.app.dispatch import run_batch
from icd.db import migrate
from icd.db.database import Database
from icd.errors import Unhealthy


def test_init_tells_where_and_which_schema(result, database):
    found = result("db.init")

    assert msgspec.to_builtins(found) == {"path": database.path, "schema": migrate.LATEST}


@pytest.mark.parametrize("thorough", [False, True])
def test_a_healthy_database_says_so(result, database, thorough):
    found = result("db.health", thorough=thorough)

    assert msgspec.to_builtins(found) == {
        "healthy": True,
        "path": database.path,
        "schema": migrate.LATEST,
    }


def test_a_database_that_lost_its_mark_while_it_is_open_is_not_healthy(ask, conn):
    conn.execute("PRAGMA user_version = 1000")

    assert isinstance(ask("db.health").error, Unhealthy)


def test_the_schema_and_the_program_are_told(result, database):
    found = result("db.schema")

    assert msgspec.to_builtins(found) == {
        "path": database.path,
        "schema": migrate.LATEST,
        "program": __version__,
    }


def test_init_creates_what_is_not_there(call, still, project):
    path = project / "new" / "x.db"
    database = Database(str(path), config.DEFAULTS)

    (answer,) = run_batch(database, [call("db.init")], clock=still)

    assert answer.result.path == str(path)
    assert path.exists()
    database.close()
    database.lock.close()


def test_a_sound_database_has_no_findings(result, database):
    assert msgspec.to_builtins(result("db.check")) == {
        "path": database.path,
        "schema": migrate.LATEST,
        "ok": True,
        "findings": [],
    }


def test_findings_are_an_answer_and_the_database_is_opened_anew(result, conn, database):
    conn.execute("DROP INDEX state_by_scope")

    found = result("db.check")

    assert (found.ok, found.findings) == (False, ["the index state_by_scope is missing"])
    assert not database.is_open


def test_vacuum_tells_the_bytes_before_and_after(result, conn, database):
    for number in range(300):
        result("state.set", key="k", scope_id=str(number), payload=f'"{"x" * 1000}"')
    conn.execute("DELETE FROM state")

    found = result("db.vacuum")

    assert found.path == database.path
    assert found.bytes_before > 300_000 > found.bytes_after
