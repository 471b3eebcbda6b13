"""`icctl init`, `icctl health`, `icctl version`."""

import json
import os
import pwd
from pathlib import Path

import pytest

from icd import __version__
from icd.app.invocation import Ask, Errand, Output, Terminal
from icd.app.planner import run_errand
from icd.db import migrate
from icd.errors import Corrupt, NoDatabase, SchemaTooNew
from tests.data import later
from tests.support.databases import ABSENT
from tests.support.processes import icctl

SCHEMA = f"v{migrate.LATEST}"


def test_init_tells_the_path_as_one_would_type_it(stdout):
    assert stdout("init") == f"initialized .clavain/intercore.db (schema {SCHEMA})\n"


def test_init_tells_the_whole_path_from_elsewhere(stdout, project, database):
    (project / "sub").mkdir()

    told = stdout("init", cwd=str(project / "sub"))

    assert told == f"initialized {database.path} (schema {SCHEMA})\n"


def test_a_person_is_told_that_there_is_a_database_already_and_whose(stdout, project, database):
    (project / "sub").mkdir()
    terminal = Terminal()

    here = stdout("init", terminal=terminal)
    below = stdout("init", cwd=str(project / "sub"), terminal=terminal)

    assert here == f"already initialized .clavain/intercore.db (schema {SCHEMA})\n"
    assert below.endswith(f"\nthis directory uses the database of {project}\n")


def test_a_daemon_looks_at_no_file_of_a_person_who_types_init(invoke, tmp_path):
    """Its loop would hang with a file system that hangs."""
    missing = str(tmp_path / "missing")

    assert isinstance(invoke("init", cwd=missing, terminal=Terminal()), Errand)
    assert isinstance(invoke("init", cwd="/", env={"HOME": missing}), Errand)
    assert isinstance(invoke("init", cwd=missing), Ask)


def test_init_refuses_the_root_and_the_users_home_unless_it_is_forced(invoke, tmp_path):
    home = pwd.getpwuid(os.geteuid()).pw_dir

    for place in ("/", home):
        if not Path(place, ".clavain").exists():
            errand = invoke("init", cwd=place, env={"HOME": home})
            refused = run_errand(errand, lambda call: pytest.fail(f"{call.method.name} was called"))
            assert (refused.exit, refused.stdout) == (3, b"")
            assert refused.stderr.startswith(f"icctl: init: {place} is ".encode())
            assert invoke("init", "--force", cwd=place, env={"HOME": home}).method == "db.init"
    # A sandbox may call any directory its home.
    assert invoke("init", cwd=str(tmp_path), env={"HOME": str(tmp_path)}).method == "db.init"


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


# --- `icctl db …` ---------------------------------------------------------------------------------


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
    assert told.startswith(f"icctl: db check: {database.path} is damaged; ")
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


# --- What `icctl init --adopt` prints -------------------------------------------------------------


DIRECT = {"INTERCORE_MODE": "direct"}


def test_it_prints_what_was_taken_what_was_left_and_where_the_old_file_is(project: Path) -> None:
    (project / ".clavain").mkdir()
    later.write(str(project / ".clavain" / "intercore.db"))

    done = icctl("init", "--adopt", cwd=project, env=DIRECT)

    assert done.returncode == 0, done.stderr
    first, kept, *lines = done.stdout.decode().splitlines()
    untrusted = b"icctl: init: warning: the database is not trusted and may not start programs; "
    assert (done.returncode, done.stderr) == (0, untrusted + b"trust it with 'icctl trust'\n")
    assert first.startswith("adopted .clavain/intercore.db (schema v12 of the original, now v")
    assert (project / kept.removeprefix("kept ")).exists()
    assert "took 5 rows of state" in lines
    assert lines[-5:] == [
        "left the table lanes: 2 rows",
        'left the table odd "name: 0 rows',
        "left the column runs.tenant: 1 row",
        "left the column state.nobody: 0 rows",
        "left 1 row of run_artifacts",
    ]


def test_a_program_reads_the_same(project: Path) -> None:
    (project / ".clavain").mkdir()
    later.write(str(project / ".clavain" / "intercore.db"))

    found = json.loads(icctl("init", "--adopt", "--json", cwd=project, env=DIRECT).stdout)

    left = {(one["kind"], one["table"], one["column"], one["rows"]) for one in found["left"]}
    assert (found["original"], found["still_open"]) == (later.SCHEMA, [])
    assert found["taken"] == later.TAKEN
    assert left == set(later.LEFT)
