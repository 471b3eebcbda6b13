"""`icctl db …`"""

import json

import pytest

from icd.app.invocation import Errand
from icd.db import migrate
from tests.support.databases import ABSENT
from tests.support.processes import icctl


def test_a_sound_database_is_ok(stdout):
    assert stdout("db", "check") == "ok\n"


def test_check_looks_itself_whatever_the_daemon_says(invoke):
    assert isinstance(invoke("db", "check"), Errand)


def test_findings_are_lines_and_the_way_out_is_told(ic, conn, database):
    conn.execute("DROP INDEX state_by_scope")
    conn.execute("DROP INDEX state_by_expiry")

    output = ic("db", "check")

    assert output.exit == 2
    assert output.stdout == (
        b"the index state_by_expiry is missing\nthe index state_by_scope is missing\n"
    )
    told = output.stderr.decode()
    assert told.startswith(f"icctl: db check: {database.path} is not sound; ")
    assert "icctl restore FILE" in told


def test_findings_as_json_exit_with_2_as_well(ic, conn, database):
    conn.execute("DROP INDEX state_by_scope")

    output = ic("db", "check", "--json")

    assert output.exit == 2
    assert json.loads(output.stdout) == {
        "path": database.path,
        "schema": migrate.LATEST,
        "ok": False,
        "findings": ["the index state_by_scope is missing"],
    }


@pytest.fixture
def spacious(conn, database):
    """The database, which was larger once."""
    conn.execute("INSERT INTO requests VALUES ('r', 'm', 1, ?, 1)", ("x" * 100_000,))
    conn.execute("DELETE FROM requests")
    return database


@pytest.mark.usefixtures("spacious")
def test_vacuum_tells_the_bytes(stdout):
    before, after = (int(word) for word in stdout("db", "vacuum").split() if word.isdigit())

    assert before > after > 0


def test_vacuum_as_json(stdout, spacious):
    found = json.loads(stdout("db", "vacuum", "--json"))

    assert found["path"] == spacious.path
    assert found["bytes_before"] > found["bytes_after"] > 0


@pytest.mark.parametrize(
    "content", [b"this is a text, not a database" * 1000, b"SQLite format 3\0" + b"\xff" * 9000]
)
def test_a_file_that_cannot_be_opened_is_not_told_to_be_checked(project, content):
    database = project / ".clavain" / "intercore.db"
    database.parent.mkdir()
    database.write_bytes(content)

    done = icctl("db", "check", cwd=project, env=ABSENT)

    assert done.returncode == 2
    assert b"icctl restore FILE" in done.stderr
    assert b"run 'icctl db check'" not in done.stderr
