"""Giving space back."""

import math
import os
import sqlite3
import time
from contextlib import closing

import pytest

from icd.db import health, migrate, vacuum
from icd.errors import DeadlineExceeded, DiskFull, Locked, from_sqlite
from icd.features.state import store as state
from icd.values.processes import Writer


@pytest.fixture
def database(opened, project):
    """A database that was large once."""
    found = opened(project / ".clavain" / "intercore.db", create=True)
    conn = found.connection()
    conn.execute("BEGIN")
    for number in range(2000):
        scope, value = str(number), '"' + "x" * 1000 + '"'
        state.set(conn, "k", scope, value, writer=Writer(), now_ms=1)
    conn.execute("COMMIT")
    conn.execute("DELETE FROM state WHERE scope_id != '7'")
    return found


def test_the_file_becomes_as_small_as_what_it_holds(database, conn):
    before, after = vacuum.vacuum(conn, database.path, deadline=math.inf)

    assert before > 2_000_000
    assert after < 300_000  # of which every table and index has a page
    assert os.path.getsize(database.path) == after
    assert os.path.getsize(f"{database.path}-wal") == 0


def test_rows_and_marks_stay(database, conn):
    vacuum.vacuum(conn, database.path, deadline=math.inf)

    assert state.get(conn, "k", "7", now_ms=1) is not None
    assert migrate.is_current(conn)


def test_a_deadline_that_passes_changes_nothing(database, conn):
    for number in range(300):
        state.set(conn, "more", str(number), "1", writer=Writer(), now_ms=1)

    with pytest.raises(DeadlineExceeded, match="nothing was changed"):
        vacuum.vacuum(conn, database.path, deadline=time.monotonic())

    assert state.get(conn, "k", "7", now_ms=1) is not None
    (free,) = conn.execute("PRAGMA freelist_count").fetchone()
    assert free > 100


def test_a_program_that_reads_is_not_disturbed(database, conn):
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(sqlite3.OperationalError) as caught:
            vacuum.vacuum(conn, database.path, deadline=math.inf)

    assert isinstance(from_sqlite(caught.value), Locked)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="/proc has no free space to offer")
def test_a_disk_that_is_too_full_is_told_with_its_numbers(conn):
    with pytest.raises(DiskFull) as caught:
        vacuum.vacuum(conn, "/proc/x.db", deadline=math.inf)

    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    needed = 2 * pages * 4096 + health.FREE_BYTES_NEEDED
    assert caught.value.message == (f"disk too full to vacuum: 0 bytes available (need {needed})")
