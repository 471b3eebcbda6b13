"""What a thorough look finds."""

import math
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from icd.db import check, migrate
from icd.errors import DeadlineExceeded
from icd.features.state import store as state
from icd.values.processes import Writer
from tests.data import original
from tests.support.breakages import preloaded
from tests.support.processes import CLEAN

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(opened, project):
    """A sound database with some rows, closed."""
    path = str(project / ".clavain" / "intercore.db")
    database = opened(path, create=True)
    for number in range(50):
        scope = str(number)
        state.set(database.connection(), "k", scope, "1", writer=Writer(), now_ms=1)
    database.close()
    return path


@pytest.fixture
def plain(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        yield conn


def findings(conn):
    return check.findings(conn, deadline=math.inf)


def test_a_sound_database_has_no_findings(plain):
    assert findings(plain) == []


@pytest.mark.parametrize("number", range(1, 10))
def test_a_database_taken_over_from_the_original_has_no_findings(number, opened, project):
    path = str(project / "old.db")
    original.write(path, number)

    assert findings(opened(path).connection()) == []


def test_a_damaged_page_is_found_and_the_rest_is_looked_at(path, spoil):
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("DROP INDEX requests_by_age")
    spoil(path)

    with closing(sqlite3.connect(path)) as conn:
        found = findings(conn)

    assert any("malformed" in line or "Page" in line or "page" in line for line in found[:-1])
    assert found[-1] == "the index requests_by_age is missing"


def test_a_page_beyond_the_end_of_the_file_is_found(path):
    with open(path, "r+b") as file:
        file.truncate(8192)

    with closing(sqlite3.connect(path)) as conn:
        assert findings(conn)
        assert check.damage(conn, deadline=math.inf)


def test_a_row_whose_parent_is_gone_is_found_but_is_no_damage(plain):
    plain.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    plain.execute("CREATE TABLE child (id INTEGER REFERENCES parent (id))")
    plain.execute("INSERT INTO child VALUES (1)")

    assert findings(plain) == ["a row of child refers to a row of parent that is gone"]
    assert check.damage(plain, deadline=math.inf) == []


@pytest.mark.parametrize(
    "statement, told",
    [
        ("DROP TABLE sentinels", "the table sentinels is missing"),
        ("DROP INDEX state_by_scope", "the index state_by_scope is missing"),
        (
            "ALTER TABLE state ADD COLUMN mine TEXT",
            "the table state differs from intercore's schema",
        ),
        ("PRAGMA user_version = 1000", f"the schema is v1000, not v{migrate.LATEST}"),
    ],
)
def test_a_schema_that_somebody_changed_is_found(plain, statement, told):
    plain.execute(statement)

    assert told in findings(plain)


def test_a_table_that_somebody_added_is_left_alone(plain):
    plain.execute("CREATE TABLE mine (x)")

    assert findings(plain) == []


def test_a_deadline_ends_the_look(plain):
    plain.execute("CREATE TABLE large AS SELECT * FROM state")
    for _ in range(12):
        plain.execute("INSERT INTO large SELECT * FROM large")

    with pytest.raises(DeadlineExceeded, match="nothing was changed"):
        check.findings(plain, deadline=time.monotonic())

    assert findings(plain) == []  # and later ones are not ended


# Looks at a database of which the disk gives nothing more once it is open.
LOOK = """
import math, os, sys
from icd.db import check
from icd.db.connection import connect
from icd.errors import IcError
path, switch = sys.argv[1:]
conn = connect(path)
conn.execute("SELECT count(*) FROM migrations").fetchone()
with open(switch, "w") as file:
    file.write(os.path.dirname(path))
try:
    check.refuse_damage(conn, deadline=math.inf)
except IcError as exc:
    print(exc.name, exc.message)
"""


def test_a_disk_that_cannot_be_read_is_not_taken_for_damage(path):
    """SQLite's check lists it as such: people were told to restore a backup."""
    with preloaded() as (world, switches):
        done = subprocess.run(
            [sys.executable, "-c", LOOK, path, switches / "failing"],
            env={**CLEAN, **world.env}, cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip

    assert done.stdout.startswith("io_error the disk reported an error: ")
