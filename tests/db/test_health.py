"""Each way in which a database is not fit to be used."""

import math
import os
import sqlite3
import time
from contextlib import closing

import pytest

from icd import config
from icd.db import check, database, migrate
from icd.db.database import Database
from icd.errors import Corrupt, DiskFull, Unhealthy, from_sqlite
from icd.features.state import store as state
from icd.values.processes import Writer


@pytest.fixture
def path(opened, project):
    """A healthy database with many rows, closed."""
    path = project / ".clavain" / "intercore.db"
    database = opened(path, create=True)
    conn = database.connection()
    conn.execute("BEGIN")
    for number in range(500):
        state.set(conn, "k", str(number), '"' + "x" * 100 + '"', writer=Writer(), now_ms=1)
    conn.execute("COMMIT")
    database.close()
    return str(path)


@pytest.fixture
def plain(path):
    """A connection that leaves the database as it is."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        yield conn


def examine(conn, path, *, thorough=False):
    """What is wrong, as a caller would be told."""
    try:
        check.examine(conn, path, thorough=thorough)
    except sqlite3.Error as exc:
        return from_sqlite(exc)
    except (Corrupt, DiskFull, Unhealthy) as exc:
        return exc
    return None


@pytest.mark.parametrize("thorough", [False, True])
def test_a_healthy_database_is_healthy(opened, path, thorough):
    assert examine(opened(path).connection(), path, thorough=thorough) is None


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 1000", "PRAGMA application_id = 0"])
def test_another_schema_is_not_healthy(plain, path, statement):
    plain.execute(statement)

    found = examine(plain, path)

    assert isinstance(found, Unhealthy)
    assert f"not v{migrate.LATEST}" in found.message
    assert "icctl init" in found.hint


def test_a_database_without_a_write_ahead_log_is_not_healthy(plain, path):
    plain.execute("PRAGMA journal_mode = DELETE")

    found = examine(plain, path)

    assert isinstance(found, Unhealthy)
    assert found.message == "the journal mode is delete, not wal"
    assert found.hint


def test_a_damaged_page_is_found_by_reading_every_page(path):
    with closing(sqlite3.connect(path)) as conn:
        (size,) = conn.execute("PRAGMA page_size").fetchone()
        (root,) = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name='state'").fetchone()
    with open(path, "r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)

    with closing(sqlite3.connect(path)) as conn:
        at_a_glance = examine(conn, path)
        found = examine(conn, path, thorough=True)

    assert at_a_glance is None
    assert isinstance(found, Corrupt)
    assert "restore a backup" in found.hint


def test_a_row_that_breaks_the_rules_of_its_table_is_found_by_reading_every_page(plain, path):
    """Such a database answers every question, some of them wrongly."""
    plain.execute("PRAGMA writable_schema = ON")
    plain.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, 'writer_pid     INTEGER',"
        " 'writer_pid INTEGER NOT NULL') WHERE name = 'state'"
    )
    with closing(sqlite3.connect(path)) as conn:
        at_a_glance = examine(conn, path)
        found = examine(conn, path, thorough=True)

    assert at_a_glance is None
    assert isinstance(found, Corrupt)
    assert found.message == "the database is damaged: NULL value in state.writer_pid"


def test_a_database_without_our_tables_is_told_apart(plain, path):
    plain.execute("DROP TABLE migrations")

    with pytest.raises(sqlite3.OperationalError, match="no such table: migrations"):
        check.examine(plain, path, thorough=False)


def test_the_free_space_is_that_of_the_callers_disk(tmp_path):
    space = os.statvfs(tmp_path)

    free = check.free_bytes(str(tmp_path))

    assert abs(free - space.f_bavail * space.f_frsize) < 2**30
    assert free > check.FREE_BYTES_NEEDED


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="/proc has no free space to offer")
def test_a_full_disk_is_told_with_its_numbers(plain):
    found = examine(plain, "/proc/x.db")

    assert isinstance(found, DiskFull)
    assert found.message == "disk full: 0 bytes available (need 10485760)"


def test_damage_is_refused_if_it_is_found_in_time(path, spoil):
    spoil(path)

    with (
        closing(sqlite3.connect(path)) as conn,
        pytest.raises(Corrupt, match="is damaged"),
    ):
        check.refuse_damage(conn, deadline=math.inf)


def test_a_database_too_large_to_be_read_in_time_is_trusted(plain):
    plain.execute(
        "CREATE TABLE large AS WITH RECURSIVE n (i) AS"
        " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i FROM n"
    )

    check.refuse_damage(plain, deadline=0.0)

    assert plain.execute("SELECT count(*) FROM large").fetchone() == (100_000,)


def test_a_host_that_keeps_a_database_open_looks_at_all_of_it_first(path, spoil):
    spoil(path)
    careful = Database(path, config.DEFAULTS, careful=True)

    with pytest.raises(Corrupt), careful.hold(time.monotonic() + 5):
        careful.connection()

    assert not careful.is_open
    careful.lock.close()


def test_a_large_database_is_opened_without_reading_all_of_it(path, spoil, monkeypatch):
    spoil(path)
    monkeypatch.setattr(database, "CAREFUL_BYTES", 4096)
    careful = Database(path, config.DEFAULTS, careful=True)

    with careful.hold(time.monotonic() + 5):
        careful.connection()
        careful.close()

    careful.lock.close()
