"""What a database must look like before it is used."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from icd import config
from icd.app.line_files import LINE_BYTES
from icd.db import migrate, schema
from icd.db.connection import connect, set_up
from icd.db.database import Database
from icd.errors import BadPath, UntrustedDatabase
from tests.torture.repositories.clone import template
from tests.torture.repositories.journals import header, trailer

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of ours, closed, and with nothing beside it."""
    found = tmp_path / ".clavain" / "intercore.db"
    database = Database(str(found), config.DEFAULTS)
    with database.hold(time.monotonic() + 5, create=True):
        database.connection(create=True)
        database.close()
    database.lock.close()
    return found


def use(path: Path) -> sqlite3.Connection:
    database = Database(str(path), config.DEFAULTS)
    with database.hold(time.monotonic() + 5):
        try:
            return database.connection()
        finally:
            database.close()


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        for statement in statements:
            conn.execute(statement)


def rewrite(path: Path, name: str, old: str, new: str) -> None:
    """Another text for an object, as only somebody who means it writes it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA writable_schema = ON")
        (text,) = conn.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
        assert old in text
        conn.execute(
            "UPDATE sqlite_schema SET sql = ? WHERE name = ?", (text.replace(old, new), name)
        )


def test_the_digest_is_that_of_the_migrations() -> None:
    assert schema.digest(schema.expected(migrate.LATEST)) == schema.DIGEST


def test_a_vacuum_changes_nothing_about_it(path: Path) -> None:
    change(path, "VACUUM")

    use(path)


ENDLESS = """
CREATE VIEW sentinels AS
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i AS name FROM n
"""
STRANGE = {
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON state BEGIN DELETE FROM state; END"],
    "a view": ["CREATE VIEW v AS SELECT 1"],
    "a view in place of a table": [
        "DROP TABLE sentinels",
        ENDLESS,
    ],
    "a table": ["CREATE TABLE notes (x)"],
    "a virtual table": ["CREATE VIRTUAL TABLE f USING fts5 (x)"],
    "an index": ["CREATE UNIQUE INDEX i ON state (payload)"],
    "an index of an expression": ["CREATE INDEX i ON state (length(payload))"],
    "statistics": ["ANALYZE"],
    "a column": ["ALTER TABLE state ADD COLUMN x TEXT"],
    "a generated column": ["ALTER TABLE state ADD COLUMN x INTEGER AS (length(payload))"],
    "a missing index": ["DROP INDEX state_by_scope"],
    "a missing table": ["DROP TABLE cursors"],
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_our_migrations_do_not_make_is_refused_and_left_as_it_is(
    name: str, path: Path
) -> None:
    change(path, *STRANGE[name])
    before = path.read_bytes()

    with pytest.raises(UntrustedDatabase, match="does not have intercore's schema") as told:
        use(path)

    assert told.value.exit == 2
    assert "nothing was changed" in told.value.hint
    assert path.read_bytes() == before


def test_another_text_for_a_table_of_ours_is_refused(path: Path) -> None:
    """A check that refuses every row, in a table that looks like ours otherwise."""
    rewrite(path, "state", "payload        TEXT    NOT NULL", "payload TEXT NOT NULL CHECK (0)")

    with pytest.raises(UntrustedDatabase, match="table 'state'"):
        use(path)


@pytest.mark.parametrize("version", [1001, 1002, 1003, 1004])
def test_a_trigger_in_an_old_database_is_refused_before_the_upgrade(
    version: int, path: Path
) -> None:
    path.write_bytes(template(f"ours-{version}"))
    change(path, STRANGE["a trigger"][0])

    with pytest.raises(UntrustedDatabase, match="trigger 't'"):
        use(path)

    assert not list(path.parent.glob("*.backup-*"))


@pytest.mark.parametrize("version", [0, -1, 7, 1001, 1002, 1003, 1004])
def test_a_version_that_does_not_fit_the_tables_is_refused_before_the_upgrade(
    version: int, path: Path
) -> None:
    change(path, f"PRAGMA user_version = {version}")

    with pytest.raises(UntrustedDatabase, match=r"version|table|index"):
        use(path)

    assert not list(path.parent.glob("*.backup-*"))


def test_tables_of_the_original_that_no_version_of_it_had_end_the_upgrade(path: Path) -> None:
    path.write_bytes(template("original-9"))
    change(path, "DROP TABLE phase_events", "CREATE TABLE phase_events (x)")

    with pytest.raises(UntrustedDatabase, match="no such column"):
        use(path)

    with closing(sqlite3.connect(path)) as conn:
        assert migrate.version(conn) == 9


def test_a_schema_that_changes_while_it_is_open_is_judged_again(path: Path) -> None:
    database = Database(str(path), config.DEFAULTS)
    with database.hold(time.monotonic() + 5):
        database.connection()

    change(path, STRANGE["a trigger"][0])
    with database.hold(time.monotonic() + 5), pytest.raises(UntrustedDatabase):
        database.connection()
    database.lock.close()


# --- journals -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["relative", "absolute"])
def test_a_journal_that_names_a_file_of_the_user_is_not_played_back(
    way: str, path: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    change(path, "PRAGMA journal_mode = DELETE")
    name = str(precious) if way == "absolute" else "../precious.txt"
    journal = path.with_name("intercore.db-journal")
    journal.write_bytes(header(path.stat().st_size // PAGE) + trailer(name.encode()))

    with pytest.raises(UntrustedDatabase, match="is a journal, which intercore never creates"):
        use(path)

    assert precious.read_text() == "mine"
    assert journal.exists()


def test_an_empty_journal_is_in_nobodys_way(path: Path) -> None:
    path.with_name("intercore.db-journal").touch()

    use(path)


def test_a_new_database_never_has_a_journal(tmp_path: Path) -> None:
    """Not for a moment: one that is left by a crash would be refused."""
    found = tmp_path / "intercore.db"
    found.touch()
    seen = []
    with closing(connect(str(found))) as conn:
        conn.set_trace_callback(lambda _: seen.append(journal_of(found).exists()))
        set_up(conn, config.DEFAULTS)
        migrate.migrate(conn, str(found), keep=1, now_ms=0)

    assert len(seen) > 10
    assert not any(seen)
    assert not journal_of(found).exists()


def journal_of(path: Path) -> Path:
    return path.with_name(path.name + "-journal")


def test_a_file_of_ours_has_little_room_for_surprises(path: Path) -> None:
    conn = connect(str(path))
    with closing(conn):
        assert conn.execute("PRAGMA cell_size_check").fetchone() == (1,)
        assert conn.execute("PRAGMA trusted_schema").fetchone() == (0,)
        assert conn.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) == LINE_BYTES
        with pytest.raises(sqlite3.DataError, match="too big"):
            conn.execute("SELECT length(zeroblob(10000000))").fetchone()


# --- second names ---------------------------------------------------------------------------


def test_a_database_that_is_a_hard_link_is_refused_and_the_other_file_left_alone(
    path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    path.rename(other)
    path.hardlink_to(other)
    before = other.read_bytes()

    with pytest.raises(BadPath, match="has another name elsewhere"):
        use(path)

    assert other.read_bytes() == before


def test_the_second_name_of_a_restore_that_was_killed_is_no_obstacle(path: Path) -> None:
    path.with_name("intercore.db.damaged-20260101-000000").hardlink_to(path)

    use(path)


def test_a_lock_that_is_a_hard_link_is_refused_and_nothing_written_to_it(
    path: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    lock = path.with_name("intercore.db.lock")
    lock.unlink()
    lock.hardlink_to(mine)

    with pytest.raises(BadPath, match="has another name"):
        use(path)

    assert mine.read_text() == "mine"


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_companion_that_is_a_hard_link_is_refused_and_the_other_file_left_alone(
    end: str, path: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.bin"
    mine.write_bytes(b"x" * 100_000)
    path.with_name(path.name + end).hardlink_to(mine)

    with pytest.raises(BadPath, match="has another name elsewhere"):
        use(path)

    assert mine.read_bytes() == b"x" * 100_000


def test_a_huge_schema_is_refused_before_it_fills_the_memory(path: Path) -> None:
    change(
        path,
        "PRAGMA writable_schema = ON",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
        " INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql)"
        " SELECT 'table', 't' || i, 't' || i, 2, 'CREATE TABLE t' || i || ' (x)' FROM n",
    )

    with pytest.raises(UntrustedDatabase, match="its schema is huge"):
        use(path)
