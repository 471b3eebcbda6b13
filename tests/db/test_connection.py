"""A connection is set up the same way wherever it is opened."""

import math
import os
import sqlite3
import time
import weakref
from contextlib import closing

import pytest

from icd import config
from icd.db import connection
from icd.errors import Corrupt, DeadlineExceeded


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.db"
    path.touch()
    return str(path)


@pytest.fixture
def conn(path):
    """A connection to an empty file, not set up yet."""
    with closing(connection.connect(path)) as conn:
        yield conn


def pragma(conn, name):
    return conn.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.mark.parametrize(
    "name, value",
    [
        ("busy_timeout", connection.BUSY_TIMEOUT_MS),
        ("trusted_schema", 0),
        ("foreign_keys", 1),
        ("journal_mode", "wal"),
        ("synchronous", 1),
        ("mmap_size", 0),
    ],
)
def test_every_connection_is_set_up_with_the_same_pragmas(conn, name, value):
    connection.set_up(conn, config.DEFAULTS)

    assert pragma(conn, name) == value


def test_full_durability_waits_for_the_disk(conn):
    connection.set_up(conn, config.Settings(durability="full"))

    assert pragma(conn, "synchronous") == 2


def test_before_it_is_set_up_a_connection_changes_nothing(conn, path):
    conn.execute("SELECT * FROM sqlite_schema").fetchall()

    assert os.path.getsize(path) == 0
    assert pragma(conn, "busy_timeout") == connection.BUSY_TIMEOUT_MS


def test_a_transaction_begins_only_when_it_is_told_to(conn):
    conn.execute("CREATE TABLE t (x)")
    conn.execute("INSERT INTO t VALUES (1)")

    assert not conn.in_transaction


def test_a_file_is_never_created(tmp_path):
    path = tmp_path / "absent.db"

    with pytest.raises(sqlite3.OperationalError):
        connection.connect(str(path))

    assert not path.exists()


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?.db", "a#b.db", "%20.db", "é&x=y.db"])
def test_any_file_name_is_that_file(tmp_path, name):
    path = tmp_path / name
    path.touch()

    with closing(connection.connect(str(path))) as conn:
        conn.execute("CREATE TABLE t (x)")

    assert path.stat().st_size > 0


def test_the_journal_mode_is_read_as_text(conn):
    assert connection.journal_mode(conn) == "delete"


def test_the_sqlite_here_is_new_enough():
    assert sqlite3.sqlite_version_info >= connection.MINIMUM


FOREVER = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def test_a_statement_is_stopped_at_the_deadline(conn):
    with (
        pytest.raises(DeadlineExceeded),
        connection.until(conn, time.monotonic() + 0.02),
    ):
        conn.execute(FOREVER).fetchone()


def test_other_errors_stay_what_they_are_and_the_deadline_ends_with_the_block(conn):
    with pytest.raises(sqlite3.OperationalError), connection.until(conn, math.inf):
        conn.execute("SELECT * FROM nothing")
    with connection.until(conn, time.monotonic() + 60), connection.until(conn, math.inf):
        pass
    with pytest.raises(DeadlineExceeded), connection.until(conn, time.monotonic()):
        pytest.fail("the deadline has passed")

    counted = conn.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
        " SELECT max(i) FROM n"
    ).fetchone()

    assert counted == (100_000,)


def spoil(path, at, content):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


SCHEMA_FORMAT = 44  # where the header of a file has it


@pytest.mark.parametrize("opening", [connection.connect, connection.connect_to_read])
@pytest.mark.parametrize("damage", ["a word that is no text", "an unknown format"])
def test_a_schema_that_sqlite_cannot_read_is_damage(path, opening, damage):
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE things (x)")
    if damage == "an unknown format":
        spoil(path, SCHEMA_FORMAT, b"\0\0\0\x63")
    else:
        with open(path, "rb") as file:
            at = file.read().index(b"CREATE TABLE things")
        spoil(path, at, b"CREATE \xffABLE")

    with pytest.raises(Corrupt, match="the database file is damaged"):
        opening(path)


def test_what_is_opened_to_be_read_cannot_be_written(path):
    with (
        closing(connection.connect_to_read(path)) as conn,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        conn.execute("CREATE TABLE t (x)")


def test_a_connection_may_be_closed_twice_and_is_freed_at_once(path):
    found = connection.connect(path)
    seen = weakref.ref(found)

    found.close()
    found.close()
    del found

    assert seen() is None
