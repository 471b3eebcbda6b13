"""Schemas: once, whole or not at all; what is newer or foreign stays untouched."""

import hashlib
import os
import sqlite3
import time
from contextlib import closing

import pytest

from icd import __version__, config
from icd.db import migrate
from icd.db.connection import connect, set_up
from icd.errors import IcError, NoDatabase, NotOurs, SchemaTooNew, UntrustedDatabase
from tests.data import original

ALL = len(migrate.pending(0))
NOW_MS = 1_800_000_000_500

INIT = """
import sys, time
from icd import config
from icd.db.database import Database
database = Database(sys.argv[1], config.DEFAULTS)
print("ready", flush=True)
sys.stdin.read()
with database.hold(time.monotonic() + 30, create=True):
    conn = database.connection(create=True)
    print(conn.execute("SELECT count(*) FROM migrations").fetchone()[0], flush=True)
    database.close()
"""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "x.db")


@pytest.fixture
def empty(path):
    """A connection to a new, empty database."""
    open(path, "w").close()
    with closing(connect(path)) as conn:
        yield conn


def tables(conn):
    return {name for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type='table'")}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def backups(path, tmp_path):
    return sorted(tmp_path.glob("x.db.backup-*"))


def future(path, *, journal_mode="wal", program="9.9.9"):
    """A database as a later intercore would have written it."""
    open(path, "w").close()
    with closing(connect(path)) as conn:
        migrate.migrate(conn, path, keep=5, now_ms=NOW_MS)
        number = migrate.LATEST + 7
        if program:
            conn.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, program, 0))
        else:
            conn.execute("DROP TABLE migrations")
        conn.execute(f"PRAGMA user_version = {number}")
        conn.execute(f"PRAGMA journal_mode = {journal_mode}")


# --- a new database -------------------------------------------------------------------------


def test_an_empty_database_gets_the_schema_and_our_mark(empty, path):
    migrate.migrate(empty, path, keep=5, now_ms=NOW_MS)

    assert migrate.is_current(empty)
    assert migrate.version(empty) == migrate.LATEST
    assert {"state", "sentinels", "requests", "counters", "migrations"} <= tables(empty)


def test_a_migration_records_which_program_did_it_and_when(empty, path):
    migrate.migrate(empty, path, keep=5, now_ms=NOW_MS)

    assert empty.execute("SELECT version, program, applied_at FROM migrations").fetchall() == [
        (number, __version__, NOW_MS // 1000) for number, _ in migrate.pending(0)
    ]


def test_a_new_database_is_not_backed_up(empty, path, tmp_path):
    migrate.migrate(empty, path, keep=5, now_ms=NOW_MS)

    assert backups(path, tmp_path) == []


def test_an_empty_database_may_be_filled_only_when_asked(empty, path):
    migrate.refuse_foreign(empty, path, create=True)

    with pytest.raises(NoDatabase, match="is empty"):
        migrate.refuse_foreign(empty, path, create=False)


def test_all_our_tables_are_strict(empty, path):
    migrate.migrate(empty, path, keep=5, now_ms=NOW_MS)

    loose = [name for _, name, *_, strict in empty.execute("PRAGMA table_list") if not strict]
    assert [name for name in loose if not name.startswith("sqlite_")] == []


def test_a_database_that_is_current_is_left_alone(empty, path):
    migrate.migrate(empty, path, keep=5, now_ms=NOW_MS)

    migrate.migrate(empty, path, keep=5, now_ms=NOW_MS + 1000)

    assert empty.execute("SELECT count(*) FROM migrations").fetchone() == (ALL,)
    assert migrate.is_current(empty)


@pytest.mark.parametrize("number", [1, migrate.LATEST - 1, migrate.LATEST])
def test_a_database_of_ours_is_ours_to_upgrade(empty, path, number):
    migrate.migrate(empty, path, keep=5, now_ms=NOW_MS)
    empty.execute(f"PRAGMA user_version = {number}")

    migrate.refuse_foreign(empty, path, create=False)

    assert migrate.is_current(empty) == (number == migrate.LATEST)


def test_opening_a_current_database_again_makes_no_backup(opened, path, tmp_path):
    opened(path, create=True)
    opened(path, create=True)

    assert backups(path, tmp_path) == []


def test_ten_processes_may_create_one_database_at_once(start, project):
    path = project / ".clavain" / "intercore.db"
    processes = [start(INIT, path) for _ in range(10)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 10

    for process in processes:
        process.stdin.close()
    answers = [process.stdout.readline() for process in processes]
    statuses = [process.wait(30) for process in processes]

    assert statuses == [0] * 10
    assert answers == [f"{ALL}\n"] * 10
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM migrations").fetchone() == (ALL,)
    assert list(path.parent.glob("*.backup-*")) == []


def test_ten_processes_may_upgrade_one_database_at_once(start, project):
    path = project / ".clavain" / "intercore.db"
    path.parent.mkdir()
    original.write(str(path), 9)
    processes = [start(INIT, path) for _ in range(10)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 10

    for process in processes:
        process.stdin.close()
    statuses = [process.wait(30) for process in processes]

    assert statuses == [0] * 10
    assert len(list(path.parent.glob("*.backup-*"))) == 1
    with closing(sqlite3.connect(path)) as conn:
        found = conn.execute("SELECT count(*) FROM state").fetchone()
    assert found == (len(original.STATE),)


# --- newer and foreign ones -----------------------------------------------------------------


def test_a_newer_database_is_refused_and_names_who_wrote_it(path):
    future(path)

    with closing(connect(path)) as conn, pytest.raises(SchemaTooNew) as refused:
        migrate.refuse_foreign(conn, path, create=True)

    told = refused.value.message
    assert f"schema v{migrate.LATEST + 7}" in told
    assert f"this intercore {__version__}" in told
    assert "it was written by intercore 9.9.9" in told


def test_a_newer_database_that_names_nobody_is_refused_all_the_same(path):
    future(path, program=None)

    with closing(connect(path)) as conn, pytest.raises(SchemaTooNew) as refused:
        migrate.refuse_foreign(conn, path, create=True)

    assert refused.value.message.endswith("of a later version")


@pytest.mark.parametrize("create", [False, True])
def test_a_newer_database_stays_untouched(opened, path, tmp_path, create):
    future(path)
    before = digest(path)

    with pytest.raises(SchemaTooNew):
        opened(path, create=create)

    assert digest(path) == before
    assert backups(path, tmp_path) == []


def test_a_newer_database_that_was_restored_from_a_backup_stays_untouched(opened, path):
    """Our backups are in DELETE mode."""
    future(path, journal_mode="delete")
    before = digest(path)

    with pytest.raises(SchemaTooNew):
        opened(path)

    assert digest(path) == before


FOREIGN = {
    "somebody's tables": ["CREATE TABLE bookmarks (url)"],
    "somebody's tables with a version": ["CREATE TABLE t (x)", "PRAGMA user_version = 3"],
    "somebody's mark": ["PRAGMA application_id = 7"],
    "somebody's mark on our names": [
        "CREATE TABLE state (x)",
        "CREATE TABLE sentinels (x)",
        "PRAGMA user_version = 9",
        "PRAGMA application_id = 7",
    ],
    "half of the original": ["CREATE TABLE state (x)", "PRAGMA user_version = 9"],
}


@pytest.mark.parametrize("statements", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("create", [False, True])
def test_a_database_of_another_program_is_refused_and_stays_untouched(
    opened, path, tmp_path, statements, create
):
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        for statement in statements:
            conn.execute(statement)
    before = digest(path)

    with pytest.raises(NotOurs, match="belongs to another program"):
        opened(path, create=create)

    assert digest(path) == before
    assert backups(path, tmp_path) == []


def test_a_database_of_another_program_keeps_its_journal_mode(opened, path):
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("CREATE TABLE bookmarks (url)")
    before = digest(path)

    with pytest.raises(NotOurs):
        opened(path)

    assert digest(path) == before


def test_reading_an_empty_file_leaves_it_empty(opened, path):
    open(path, "w").close()

    with pytest.raises(NoDatabase):
        opened(path)

    assert digest(path) == hashlib.sha256(b"").hexdigest()


def test_a_file_that_is_no_database_is_refused_and_stays_untouched(opened, path):
    with open(path, "wb") as file:
        file.write(b"precious notes, not a database\n" * 200)
    before = digest(path)

    with pytest.raises(sqlite3.DatabaseError):
        opened(path, create=True)

    assert digest(path) == before


# --- failure in the middle ------------------------------------------------------------------


def test_a_migration_that_fails_half_way_leaves_the_old_schema(path):
    """The name that one of the last statements needs is taken."""
    original.write(path, 9)
    with closing(connect(path)) as conn:
        conn.execute("CREATE TABLE requests (mine)")
        schema = conn.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()

        with pytest.raises(UntrustedDatabase, match="requests already exists"):
            migrate.migrate(conn, path, keep=5, now_ms=NOW_MS)

        after = conn.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
        assert after == schema
        assert migrate.version(conn) == 9
        assert not conn.in_transaction
        rows = conn.execute("SELECT * FROM state ORDER BY key, scope_id").fetchall()
    assert rows == original.STATE


def test_a_disk_that_fills_up_half_way_leaves_the_old_schema(path):
    original.write(path, 9)
    with closing(connect(path)) as conn:
        (pages,) = conn.execute("PRAGMA page_count").fetchone()
        conn.execute(f"PRAGMA max_page_count = {pages}")

        with pytest.raises(sqlite3.OperationalError, match="full"):
            migrate.migrate(conn, path, keep=5, now_ms=NOW_MS)

        assert not conn.in_transaction
        assert migrate.version(conn) == 9
        assert conn.execute("SELECT count(*) FROM state").fetchone() == (len(original.STATE),)


def test_a_migration_that_failed_can_be_tried_again(path):
    original.write(path, 9)
    with closing(connect(path)) as conn:
        conn.execute("CREATE TABLE counters (mine)")
        with pytest.raises(UntrustedDatabase):
            migrate.migrate(conn, path, keep=5, now_ms=NOW_MS)
        conn.execute("DROP TABLE counters")

        migrate.migrate(conn, path, keep=5, now_ms=NOW_MS)

        assert migrate.is_current(conn)


@pytest.mark.parametrize(("one", "other"), [("shelves", "books"), ("lanes", "lane_members")])
def test_tables_that_are_not_ours_may_refer_to_each_other(path, one, other):
    original.write(path, 9)
    with closing(connect(path)) as conn:
        conn.execute(f"CREATE TABLE {one} (id TEXT PRIMARY KEY)")
        conn.execute(f"CREATE TABLE {other} (id TEXT REFERENCES {one} (id))")
        conn.execute(f"INSERT INTO {one} VALUES ('a')")
        conn.execute(f"INSERT INTO {other} VALUES ('a')")
        set_up(conn, config.DEFAULTS)

        migrate.migrate(conn, path, keep=5, now_ms=NOW_MS)

        assert migrate.is_current(conn)


def test_a_database_that_fails_to_migrate_is_closed_again(opened, path):
    original.write(path, 9)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("CREATE TABLE counters (mine)")

    with pytest.raises(UntrustedDatabase):
        opened(path)

    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as conn:
        conn.execute("PRAGMA locking_mode = EXCLUSIVE")
        conn.execute("BEGIN EXCLUSIVE")


# --- the files of the migrations ------------------------------------------------------------


def test_migrations_are_numbered_upward_and_end_at_the_latest():
    files = sorted(name for name in os.listdir(migrate.DIRECTORY) if name.endswith(".sql"))

    numbers = [number for number, _ in migrate.pending(0)]

    assert numbers == sorted(set(numbers))
    assert numbers[-1] == migrate.LATEST
    assert len(numbers) == len(files)


def test_nothing_is_pending_after_the_latest():
    assert migrate.pending(migrate.LATEST) == []


def test_a_file_is_split_into_whole_statements(tmp_path):
    file = tmp_path / "1.sql"
    file.write_text(
        "-- a comment; with a semicolon\nCREATE TABLE a (x TEXT DEFAULT ';');\n"
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  DELETE FROM a;\n  DELETE FROM a;\nEND;\n"
    )

    statements = migrate.statements(str(file))

    assert [statement.split("\n")[-1] for statement in statements] == [
        "CREATE TABLE a (x TEXT DEFAULT ';');",
        "END;",
    ]


@pytest.mark.parametrize("number, file", migrate.pending(0))
def test_nothing_of_a_migration_is_left_out(number, file):
    with open(file, encoding="utf-8") as text:
        whole = text.read().split()

    assert " ".join(migrate.statements(file)).split() == whole


def test_refusing_is_a_named_error(path):
    future(path)
    with closing(connect(path)) as conn, pytest.raises(IcError) as refused:
        migrate.refuse_foreign(conn, path, create=False)

    assert (refused.value.name, refused.value.exit) == ("schema_too_new", 2)


@pytest.mark.timeout(60, method="thread")
def test_waiting_for_a_database_that_is_being_upgraded_counts_against_the_deadline(opened, path):
    first = opened(path, create=True)

    with first.hold(time.monotonic() + 5):
        began = time.monotonic()
        second = type(first)(path, config.DEFAULTS)
        with pytest.raises(IcError) as refused, second.hold(began + 0.05):
            pass
        second.lock.close()

    assert refused.value.name == "locked"
