"""The database as a whole: rows and space."""

import math
import os
import sqlite3
import time
from contextlib import closing

import pytest

from icd.db import check, migrate
from icd.errors import DeadlineExceeded, DiskFull, Locked, from_sqlite
from icd.features.database import store
from icd.features.state import store as state
from icd.values.processes import Writer


@pytest.fixture
def large(database, conn):
    """A database that was large once."""
    conn.execute("BEGIN")
    for number in range(2000):
        scope, value = str(number), '"' + "x" * 1000 + '"'
        state.set(conn, "k", scope, value, writer=Writer(), now_ms=1)
    conn.execute("COMMIT")
    conn.execute("DELETE FROM state WHERE scope_id != '7'")
    return database


def test_the_file_becomes_as_small_as_what_it_holds(large, conn):
    before, after = store.vacuum(conn, large.path, deadline=math.inf)

    assert before > 2_000_000
    assert after < 300_000  # of which every table and index has a page
    assert os.path.getsize(large.path) == after
    assert os.path.getsize(f"{large.path}-wal") == 0


def test_rows_and_marks_stay(large, conn):
    store.vacuum(conn, large.path, deadline=math.inf)

    assert state.get(conn, "k", "7", now_ms=1) is not None
    assert migrate.is_current(conn)


def test_a_deadline_that_passes_changes_nothing(large, conn):
    for number in range(300):
        state.set(conn, "more", str(number), "1", writer=Writer(), now_ms=1)

    with pytest.raises(DeadlineExceeded, match="nothing was changed"):
        store.vacuum(conn, large.path, deadline=time.monotonic())

    assert state.get(conn, "k", "7", now_ms=1) is not None
    (free,) = conn.execute("PRAGMA freelist_count").fetchone()
    assert free > 100


def test_a_program_that_reads_is_not_disturbed(large, conn):
    with closing(sqlite3.connect(large.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(sqlite3.OperationalError) as caught:
            store.vacuum(conn, large.path, deadline=math.inf)

    assert isinstance(from_sqlite(caught.value), Locked)


@pytest.mark.sqlite_only
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="/proc has no free space to offer")
def test_a_disk_that_is_too_full_is_told_with_its_numbers(conn):
    with pytest.raises(DiskFull) as caught:
        store.vacuum(conn, "/proc/x.db", deadline=math.inf)

    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    needed = 2 * pages * 4096 + check.FREE_BYTES_NEEDED
    assert caught.value.message == (f"disk too full to vacuum: 0 bytes available (need {needed})")


# --- rows ---------------------------------------------------------------------------------------

# With which intercore keeps its own books.
OWN = {"migrations", "counters", "hook_positions"}


@pytest.mark.sqlite_only
def test_every_table_of_users_is_counted(conn):
    tables = conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()

    assert store.counts(conn).keys() == {name for (name,) in tables} - OWN - {"sqlite_sequence"}


def test_counts_are_those_of_the_tables(conn):
    conn.execute(
        "INSERT INTO requests (id, method, digest, effect, at_ms) VALUES ('a', 'm', 1, '1', 1)"
    )

    assert store.counts(conn) == {
        "state": 0, "sentinels": 0, "requests": 1, "events": 0, "cursors": 0, "runs": 0,
        "run_skips": 0, "run_agents": 0, "run_artifacts": 0, "run_actions": 0, "dispatches": 0, "leases": 0,
        "reservations": 0, "sessions": 0, "attributions": 0, "lanes": 0, "lane_members": 0,
        "discoveries": 0, "embeddings": 0, "embedding_sources": 0, "feedback_signals": 0,
        "interest_profile": 0,
    }  # fmt: skip
