"""What is inside a database."""

import os
import sqlite3
import time
from contextlib import closing

import pytest

from icd.admin.doctor import context
from icd.admin.doctor.project import contents
from icd.db import migrate
from icd.db.database import CAREFUL_BYTES
from icd.db.lock import FileLock, poll
from icd.errors import NotOurs, SchemaTooNew
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.values.processes import Writer
from tests.conftest import NOW_MS
from tests.data import original

HOUR_MS = 3_600_000


@pytest.fixture
def closed(database):
    """The path of a database that nobody has open: the doctor is a process of its own."""
    with database.hold(time.monotonic() + 5):
        database.close()
    return database.path


@pytest.fixture
def judged(scene, closed, told):
    return lambda **facts: told(contents(scene(**facts), closed))


def change(path: str, statement: str) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute(statement)
        conn.commit()


def test_a_sound_database_is_fine(judged):
    assert judged() == []


def test_nothing_is_made_beside_it(judged, closed):
    os.unlink(f"{closed}.lock")
    before = sorted(os.listdir(os.path.dirname(closed)))

    assert judged() == []

    assert sorted(os.listdir(os.path.dirname(closed))) == before


def test_rows_from_the_future_are_told_with_the_latest(judged, database, closed):
    with database.hold(time.monotonic() + 5):
        conn, later = database.connection(), NOW_MS + HOUR_MS
        state.set(conn, "k", "s", "1", writer=Writer(), now_ms=later)
        sentinels.check(conn, "n", "s", interval_s=60, now_ms=later)
        database.close()

    ((check, severity, message),) = judged()

    assert (check, severity) == ("times", "warning")
    assert message == (
        "the clock was set back: 2 rows are from the future, up to 2027-01-15T09:00:00Z"
    )


def test_a_correction_of_some_seconds_is_nobodys_business(judged, database, closed):
    with database.hold(time.monotonic() + 5):
        conn = database.connection()
        state.set(conn, "k", "s", "1", writer=Writer(), now_ms=NOW_MS + 5000)
        database.close()

    assert judged() == []


def test_an_older_schema_is_worth_a_note(judged, closed, tmp_path):
    older = str(tmp_path / "older.db")
    ((_, first), *_) = migrate.pending(0)
    for statement in migrate.statements(first):
        change(older, statement)
    change(older, f"PRAGMA application_id = {migrate.APPLICATION_ID}")
    change(older, f"PRAGMA user_version = {migrate.FIRST}")
    os.replace(older, closed)

    ((check, severity, message),) = judged()

    assert (check, severity) == ("schema", "note")
    assert message == f"the schema is v{migrate.FIRST}; the next use makes it v{migrate.LATEST}"


def test_a_database_of_the_original_is_worth_a_note(scene, tmp_path, told):
    path = str(tmp_path / "intercore.db")
    original.write(path, 9)

    ((check, severity, _),) = told(contents(scene(), path))

    assert (check, severity) == ("schema", "note")


def test_a_newer_schema_is_refused_with_its_writer(judged, closed):
    change(closed, "INSERT INTO migrations VALUES (9999, '99.0', 0)")
    change(closed, "PRAGMA user_version = 9999")

    with pytest.raises(SchemaTooNew, match=r"written by intercore 99\.0"):
        judged()


def test_another_programs_database_is_refused(judged, closed):
    change(closed, "PRAGMA application_id = 7")

    with pytest.raises(NotOurs):
        judged()


def test_a_damaged_page_is_an_error_that_names_the_way_out(scene, closed):
    with closing(sqlite3.connect(closed)) as conn:
        (page,) = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'state'").fetchone()
    with open(closed, "r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)

    found = [finding for finding in contents(scene(), closed) if finding.severity != "ok"]

    assert [(f.check, f.severity) for f in found] == [("integrity", "error")]
    assert "icctl restore FILE" in found[0].hint


def test_a_lock_that_is_held_for_long_is_told_with_its_holder(judged, closed):
    held = FileLock(f"{closed}.lock", poll)
    held.acquire(time.monotonic() + 5)
    try:
        ((check, severity, message),) = judged()
    finally:
        held.close()

    me = context.find_process(os.getpid())
    assert (check, severity) == ("lock", "warning")
    assert message == f"{me} has held {closed}.lock for more than 1 s"


def test_a_large_database_is_left_to_a_command_with_more_time(judged, closed):
    os.truncate(closed, CAREFUL_BYTES + 4096)

    ((check, severity, message),) = judged()

    assert (check, severity) == ("integrity", "note")
    assert message.endswith("bytes, too large to read now")
