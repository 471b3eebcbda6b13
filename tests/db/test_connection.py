"""A connection is set up the same way wherever it is opened."""

import os
import sqlite3
from contextlib import closing

import pytest

from icd import config
from icd.db import connection


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.db"
    path.touch()
    return str(path)


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
def test_every_connection_has_the_same_pragmas(path, name, value):
    with closing(connection.connect(path, config.DEFAULTS)) as conn:
        assert pragma(conn, name) == value


def test_full_durability_waits_for_the_disk(path):
    with closing(connection.connect(path, config.Settings(durability="full"))) as conn:
        assert pragma(conn, "synchronous") == 2


def test_a_transaction_begins_only_when_it_is_told_to(path):
    with closing(connection.connect(path, config.DEFAULTS)) as conn:
        conn.execute("CREATE TABLE t (x)")
        conn.execute("INSERT INTO t VALUES (1)")

        assert not conn.in_transaction


def test_a_file_is_never_created(tmp_path):
    path = tmp_path / "absent.db"

    with pytest.raises(sqlite3.OperationalError):
        connection.connect(str(path), config.DEFAULTS)

    assert not path.exists()


@pytest.mark.parametrize("name", ["a b.db", "50%.db", "what?.db", "a#b.db", "%20.db", "é&x=y.db"])
def test_any_file_name_is_that_file(tmp_path, name):
    path = tmp_path / name
    path.touch()

    with closing(connection.connect(str(path), config.DEFAULTS)) as conn:
        conn.execute("CREATE TABLE t (x)")

    assert path.stat().st_size > 0


def test_what_is_not_a_database_is_refused_and_left_alone(path):
    with open(path, "wb") as file:
        file.write(b"not a database, " * 100)

    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        connection.connect(path, config.DEFAULTS)

    assert os.path.getsize(path) == 1600


def test_the_journal_mode_is_read_as_text(path):
    with closing(sqlite3.connect(path)) as conn:
        assert connection.journal_mode(conn) == "delete"


def test_the_sqlite_here_is_new_enough():
    assert sqlite3.sqlite_version_info >= connection.MINIMUM
