"""Looking after a database that nobody uses: rarely, cheaply, and noticing what counts."""

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from icd.app.write_cache import Recent
from icd.config import Settings
from icd.db.database import Database
from icd.errors import Corrupt, DamagedRow, LogLost
from icd.features.database.store import COUNTED
from icd.features.discoveries import lifecycle as dismissals
from icd.features.state import store as state
from icd.server import limits
from icd.server.stores import maintenance as upkeep
from icd.server.stores.maintenance import Maintenance, Turns, rest
from icd.values.processes import Writer
from tests.conftest import NOW_MS, FakeClock
from tests.support.discovery_lines import DISCOVERY
from tests.support.lines import take


@pytest.fixture
def recent() -> Recent:
    return Recent()


@pytest.fixture
def kept(database: Database, clock: FakeClock, recent: Recent) -> Maintenance:
    return Maintenance(database, clock, recent)


@pytest.fixture
def statements(conn: sqlite3.Connection) -> list[str]:
    found: list[str] = []
    conn.set_trace_callback(found.append)
    return found


def write(conn: sqlite3.Connection, scope: str, *, ttl_ms: int = 0, now_ms: int = NOW_MS):
    return state.set(conn, "k", scope, "1", ttl_ms=ttl_ms, writer=Writer(), now_ms=now_ms)


def elsewhere(database: Database, sql: str) -> None:
    """What another program does to the file."""
    other = sqlite3.connect(database.path)
    with other:
        other.execute(sql)
    other.close()


def replace_by_an_older_copy(conn: sqlite3.Connection, database: Database, tmp_path: Path) -> None:
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    shutil.copyfile(database.path, tmp_path / "older.db")
    write(conn, "lost")
    (tmp_path / "older.db").rename(database.path)


def opens(database: Database) -> bool:
    with database.hold(time.monotonic() + 5):
        try:
            database.connection()
        except LogLost:
            return False
        database.close()
        return True


def test_a_loss_that_a_look_finds_is_told_though_its_note_is_removed(
    kept: Maintenance, conn, database: Database, tmp_path: Path
) -> None:
    """As `git clean` does, which removes the lock file with the log."""
    replace_by_an_older_copy(conn, database, tmp_path)

    assert kept.look(close=False) is None

    Path(database.path + ".lock").unlink()
    assert [opens(database), opens(database)] == [False, True]


def test_a_loss_that_a_look_finds_is_told_once_whoever_hears_of_it(
    kept: Maintenance, conn, database: Database, tmp_path: Path
) -> None:
    replace_by_an_older_copy(conn, database, tmp_path)

    assert kept.look(close=False) is None

    other = Database(database.path, database.settings)
    assert [opens(other), opens(database)] == [False, True]
    other.lock.close()


def test_a_database_that_was_gone_during_a_look_is_not_taken_for_what_it_was(
    kept: Maintenance, conn, database: Database, tmp_path: Path
) -> None:
    """An older copy is put in its place before a caller could see that it is gone."""
    copy = tmp_path / "older.db"
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    shutil.copyfile(database.path, copy)
    write(conn, "lost")
    Path(database.path).unlink()

    assert kept.look(close=False) is None

    shutil.copyfile(copy, database.path)
    told = Database(database.path, database.settings)
    with told.hold(time.monotonic() + 5), pytest.raises(LogLost):
        told.connection()
    with told.hold(time.monotonic() + 5):
        told.connection()  # once
        told.close()
    told.lock.close()


def test_what_no_file_can_tell_the_host_tells_once(
    kept: Maintenance, conn, database: Database, tmp_path: Path
) -> None:
    copy = tmp_path / "older.db"
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    shutil.copyfile(database.path, copy)
    write(conn, "lost")
    for name in (database.path, f"{database.path}.lock"):
        Path(name).unlink()

    assert kept.look(close=False) is None

    shutil.copyfile(copy, database.path)
    with database.hold(time.monotonic() + 5), pytest.raises(LogLost):
        database.connection()
    with database.hold(time.monotonic() + 5):
        database.connection()


def test_a_look_tells_sizes_and_rows(kept: Maintenance, conn, database: Database) -> None:
    assert kept.facts is None
    write(conn, "a")
    write(conn, "b")

    kept.look(close=False)

    assert kept.facts is not None
    assert kept.facts.rows == {
        "state": 2, "sentinels": 0, "requests": 0, "events": 0, "cursors": 0,
        "runs": 0, "run_skips": 0, "run_agents": 0, "run_artifacts": 0, "dispatches": 0,
        "leases": 0, "reservations": 0, "sessions": 0, "attributions": 0,
        "lanes": 0, "lane_members": 0, "run_actions": 0,
        "discoveries": 0, "embeddings": 0, "embedding_sources": 0,
        "feedback_signals": 0, "interest_profile": 0,
    }  # fmt: skip
    assert kept.facts.size_bytes == Path(database.path).stat().st_size
    assert kept.facts.wal_bytes == 0
    assert kept.facts.at_ms == NOW_MS


def test_rows_are_counted_again_only_after_a_write(
    kept: Maintenance, conn, database, statements
) -> None:
    def counted() -> int:
        found = sum("count(1)" in statement for statement in statements)
        statements.clear()
        return found

    kept.look(close=False)
    assert counted() == len(COUNTED)
    kept.used = True  # somebody read
    kept.look(close=False)
    assert counted() == 0
    elsewhere(database, "INSERT INTO counters (name, value) VALUES ('x', 1)")
    kept.look(close=False)
    assert counted() == len(COUNTED)


def test_rows_of_a_large_file_are_not_counted(kept: Maintenance, monkeypatch) -> None:
    monkeypatch.setattr(upkeep, "COUNTED_BYTES", 1000)

    kept.look(close=False)

    assert kept.facts is not None
    assert kept.facts.rows == {}


def test_a_look_at_a_database_at_rest_neither_writes_nor_checkpoints(
    kept: Maintenance, statements: list[str]
) -> None:
    kept.look(close=False)
    statements.clear()

    kept.look(close=False)

    assert statements == ["PRAGMA data_version"]


def test_a_row_that_expires_is_waited_for_and_pruned(
    kept: Maintenance, conn, clock: FakeClock
) -> None:
    write(conn, "goes", ttl_ms=1500)
    write(conn, "stays")

    assert kept.look(close=False) == 1.5
    clock.wall_ms += 1500
    assert kept.look(close=False) is None

    assert conn.execute("SELECT scope_id FROM state").fetchall() == [("stays",)]


def dismiss(conn: sqlite3.Connection, number: int, at_ms: int) -> None:
    name = f"d{number}"
    line = structs.replace(
        DISCOVERY, id=name, source_id=name, status="dismissed", dismissed_ms=at_ms
    )
    assert take(conn, line, now_ms=at_ms) == [True]


def left(conn: sqlite3.Connection) -> list[str]:
    return [name for (name,) in conn.execute("SELECT id FROM discoveries ORDER BY id")]


DAYS = Settings(discoveries_keep_days=30)


@pytest.fixture
def forgetful(conn, database: Database, clock: FakeClock, recent: Recent) -> Iterator[Maintenance]:
    """Of the same file, with another setting."""
    other = Database(database.path, DAYS)
    yield Maintenance(other, clock, recent)
    other.close()
    other.lock.close()


def test_dismissed_discoveries_stay_unless_it_is_set_otherwise(
    kept: Maintenance, conn, clock
) -> None:
    dismiss(conn, 1, NOW_MS)
    clock.wall_ms += 1000 * upkeep.DAY_MS

    assert kept.look(close=False) is None

    assert left(conn) == ["d1"]


def test_dismissed_discoveries_are_waited_for_and_forgotten_in_time(
    forgetful: Maintenance, conn, clock: FakeClock
) -> None:
    dismiss(conn, 1, NOW_MS)
    dismiss(conn, 2, NOW_MS + 1000)

    assert forgetful.look(close=False) == 30 * 86_400
    clock.wall_ms += 30 * upkeep.DAY_MS - 1
    forgetful.look(close=False)
    assert left(conn) == ["d1", "d2"]
    clock.wall_ms += 1
    assert forgetful.look(close=False) == 1.0
    assert left(conn) == ["d2"]
    clock.wall_ms += 1000
    assert forgetful.look(close=False) is None
    assert left(conn) == []


def test_many_dismissed_discoveries_are_forgotten_in_pieces(
    forgetful: Maintenance, conn, clock: FakeClock, monkeypatch
) -> None:
    monkeypatch.setattr(dismissals, "PRUNED_AT_ONCE", 2)
    for number in range(3):
        dismiss(conn, number, NOW_MS)
    clock.wall_ms += 31 * upkeep.DAY_MS

    assert forgetful.look(close=True) == 0.0
    assert left(conn) == ["d2"]
    assert forgetful.look(close=True) is None
    assert left(conn) == []


def test_what_others_wrote_is_noticed_and_what_is_remembered_dropped(
    kept: Maintenance, conn, database: Database, recent: Recent
) -> None:
    """Else a write that repeats an older one would be skipped, over somebody's newer one."""
    kept.look(close=False)
    recent.remember(write(conn, "a"), Writer(1), at=0.0)
    foreign = database.foreign
    elsewhere(database, "UPDATE state SET payload = '2'")

    kept.look(close=False)

    assert database.foreign == foreign + 1
    assert recent.unchanged("k", "a", "1", Writer(1), window=60, at=1.0) is None


def test_a_database_is_closed_only_after_everything_was_pruned(
    kept: Maintenance, conn, clock: FakeClock, database: Database
) -> None:
    conn.execute("BEGIN")
    for number in range(state.PRUNED_AT_ONCE + 1):
        write(conn, f"s{number}", ttl_ms=1)
    conn.execute("COMMIT")
    clock.wall_ms += 1

    assert kept.look(close=True) == 0.0
    assert database.is_open
    kept.look(close=True)

    assert not database.is_open
    assert not Path(f"{database.path}-wal").exists()


def test_a_deleted_database_is_closed(kept: Maintenance, database: Database) -> None:
    Path(database.path).unlink()

    assert kept.look(close=False) is None

    assert not database.is_open


# --- how often ---

USUAL = Settings()


def looks(settings: Settings, *, seconds: float) -> list[float]:
    """The moments at which a database is looked at that nobody uses after the moment 0."""
    found = [settings.idle_seconds]
    while found[-1] < seconds:
        now = found[-1]
        found.append(now + rest(settings, now=1000.5 + now, idle=now, due=None))
    return found


def test_a_database_at_rest_is_looked_at_once_a_minute() -> None:
    moments = looks(Settings(close_idle_seconds=31_536_000), seconds=3600)

    recently = [moment for moment in moments if moment < limits.REST_SECONDS]
    assert len(recently) <= limits.REST_SECONDS / limits.LOOK_SECONDS + 1
    assert len(moments) - len(recently) <= 3600 / limits.REST_SECONDS + 1


def test_databases_at_rest_are_looked_at_in_the_same_moment() -> None:
    ends = {now + rest(USUAL, now=now, idle=100.0, due=None) for now in (1.0, 17.5, 59.0)}

    assert ends == {60.0}


@pytest.mark.parametrize(
    ("idle", "due", "expected"),
    [
        (0.0, None, 5.0),
        (0.0, 3.0, 3.0),
        (0.0, 0.0, USUAL.idle_seconds),
        (597.0, None, 3.0),
        (600.0, None, 60.0),  # somebody needs it
    ],
)
def test_a_rest_ends_when_there_is_something_to_do(idle, due, expected) -> None:
    assert rest(USUAL, now=0.0, idle=idle, due=due) == pytest.approx(expected)


def test_looking_does_not_wait_long_for_somebody_elses_lock(kept: Maintenance, database) -> None:
    other = Database(database.path, USUAL)
    with other.hold(time.monotonic() + 5):
        assert kept.look(close=True) is None

    other.lock.close()
    assert database.is_open


def test_what_is_wrong_with_a_row_is_told_as_such(kept: Maintenance, database: Database) -> None:
    elsewhere(database, "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 'x')")

    with pytest.raises(DamagedRow, match="seq is TEXT"):
        kept.look(close=False)

    assert database.is_open


def test_a_damaged_file_is_told_as_such_and_closed(
    kept: Maintenance, conn, database: Database
) -> None:
    """Whoever asks next opens it with all the care."""
    roots = conn.execute("SELECT rootpage FROM sqlite_schema").fetchall()
    (size,) = conn.execute("PRAGMA page_size").fetchone()
    database.close()
    with open(database.path, "r+b") as file:
        for (root,) in roots:
            file.seek((root - 1) * size)
            file.write(b"\xff" * size)

    with pytest.raises(Corrupt):
        kept.look(close=False)

    assert not database.is_open


# --- turns ---


@pytest.mark.anyio
async def test_looks_that_are_due_together_take_one_pass_of_the_loop_each() -> None:
    turns, passes, looked = Turns(), [0], []

    def count() -> None:
        passes[0] += 1
        asyncio.get_running_loop().call_soon(count)

    async def look(number: int) -> None:
        await turns.take()
        looked.append((passes[0], number))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(look, number)
        count()

    assert [number for _, number in looked] == list(range(50))
    assert len({when for when, _ in looked}) == 50


@pytest.mark.anyio
async def test_whoever_does_not_want_its_turn_any_more_holds_up_nobody() -> None:
    turns = Turns()
    first, second, third = (turns.take() for _ in range(3))
    second.set_result(True)

    assert not await first
    assert not await third
    assert not await turns.take()
