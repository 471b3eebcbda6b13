"""Taking over databases of the original that are newer than those we know."""

import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from icd import config
from icd.db import check, migrate, permissions
from icd.db.connection import connect
from icd.db.database import Database
from icd.db.original.adopt import adopt
from icd.errors import Corrupt, DeadlineExceeded, Locked, NoDatabase, NotOurs, SchemaTooNew
from icd.features.events import cursors
from icd.features.gates import store as gates
from icd.features.runs import store as runs
from icd.features.state import store as state
from tests.data import later, original
from tests.db.conftest import PATIENCE, ROOT

NOW_MS = original.NOW_S * 1000
STAMP = "20270115-080000"


@pytest.fixture
def path(project):
    (project / ".clavain").mkdir()
    return str(project / ".clavain" / "intercore.db")


@pytest.fixture
def database(path):
    found = Database(path, config.DEFAULTS)
    yield found
    found.close()
    found.lock.close()


def take_over(database, *, deadline=math.inf):
    with database.hold(time.monotonic() + PATIENCE):
        return adopt(database, now_ms=NOW_MS, deadline=deadline)


RULES = (
    '{"brainstorm→brainstorm-reviewed":[{"check":"agents_complete","tier":"hard"}],'
    '"review→polish":[]}'
)
TWICE = (
    '{"a→b":[{"check":"agents_complete","phase":"b"},{"check":"artifact_exists"},'
    '{"check":"artifact_exists","phase":"a"},{"check":"agents_complete"}]}'
)
# More than gate rules may be, though none of them is.
LONG = json.dumps(
    {
        f"{'a' * 90}{step}→b": [
            {"check": "artifact_exists", "phase": f"{'p' * 90}{number}"} for number in range(8)
        ]
        for step in range(100)
    }
)


@pytest.mark.parametrize(
    "rules, taken",
    [
        (
            RULES,
            (
                '[{"from":"brainstorm","to":"brainstorm-reviewed",'
                '"checks":[{"check":"agents_complete","tier":"hard"}]}]'
            ),
        ),
        ('{"review→polish":[]}', "[]"),
        ("", None),
        (None, None),
        ("{", None),
        ('{"a→b":[{"check":"odd"}]}', None),
        (
            TWICE,
            (
                '[{"from":"a","to":"b","checks":[{"check":"agents_complete"},'
                '{"check":"artifact_exists","phase":"a"}]}]'
            ),
        ),
        (LONG, None),
    ],
)
def test_limits_and_gates_of_runs_come_along(database, path, rules, taken):
    later.write(path)
    with closing(sqlite3.connect(path)) as conn, conn:
        for column in ("max_agents", "max_dispatches", "budget_enforce"):
            conn.execute(f"ALTER TABLE runs ADD COLUMN {column} INTEGER DEFAULT 0")
        conn.execute("ALTER TABLE runs ADD COLUMN gate_rules TEXT")
        conn.execute("UPDATE runs SET max_agents = 3, budget_enforce = 1, gate_rules = ?", (rules,))

    found = take_over(database)

    assert not {left.column for left in found.left if left.table == "runs"} - {"tenant"}
    columns = "max_agents, max_dispatches, budget_enforce, gates"
    rows = database.connection().execute(f"SELECT {columns} FROM runs").fetchall()
    assert rows == [(3, None, 1, taken)] * 2
    for (run_id,) in database.connection().execute("SELECT id FROM runs").fetchall():
        assert gates.rules_of(runs.require(database.connection(), run_id)) is not None


def names(path):
    directory, name = os.path.split(path)
    return {n.removeprefix(name) for n in os.listdir(directory)} - {".lock", ""}


def dump(path):
    with closing(sqlite3.connect(path)) as conn:
        return list(conn.iterdump())


def is_ours(path):
    with closing(connect(path)) as conn:
        return migrate.is_current(conn)


# --- what becomes of it ---------------------------------------------------------------------


def test_what_is_known_is_taken_over_and_what_is_not_is_told(database, path):
    later.write(path)

    found = take_over(database)

    assert found.schema == later.SCHEMA
    assert found.taken == later.TAKEN
    told = {(left.kind, left.table, left.column, left.rows) for left in found.left}
    assert told == set(later.LEFT)


def test_ours_is_sound_and_has_nothing_of_the_original_left(database, path):
    later.write(path)

    take_over(database)

    assert check.findings(database.connection(), deadline=math.inf) == []
    tables = """SELECT count(*) FROM sqlite_schema WHERE name IN ('odd "name', 'told', 'latest')"""
    assert database.connection().execute(tables).fetchone() == (0,)
    assert database.connection().execute("PRAGMA freelist_count").fetchone() == (0,)


def test_rows_are_those_of_the_original(database, path):
    later.write(path)

    take_over(database)

    conn = database.connection()
    assert state.get(conn, "turns", "s1", now_ms=NOW_MS).payload == "41"
    assert conn.execute("SELECT goal FROM runs WHERE id = 'r2'").fetchone() == ("more",)
    (sandbox,) = conn.execute("SELECT sandbox FROM dispatches").fetchone()
    assert sandbox is None  # the column was gone


def test_events_keep_their_ids_and_cursors_go_on_after_what_they_have_seen(database, path):
    later.write(path)

    take_over(database)

    conn = database.connection()
    log = conn.execute("SELECT source, source_id FROM events WHERE run_id = 'r1' ORDER BY seq")
    assert log.fetchall() == [("phase", 1), ("phase", 40), ("phase", 41)]
    cursor = cursors.find(conn, "reader", "", now_ms=NOW_MS)
    unseen = conn.execute("SELECT source, source_id FROM events WHERE seq > ?", (cursor.seq,))
    assert unseen.fetchall() == [("phase", 41)]
    assert cursor.expires_ms is None


def test_the_old_file_is_kept_with_all_that_was_in_its_log(database, path):
    with closing(later.create(path)):
        before = dump(path)
        for end in ("", "-wal"):
            shutil.copy(path + end, f"{path}.killed{end}")
    os.replace(f"{path}.killed", path)  # as a program that was killed leaves it
    os.replace(f"{path}.killed-wal", f"{path}-wal")

    found = take_over(database)

    assert found.kept == f"{path}.original-{STAMP}"
    assert dump(found.kept) == before
    database.close()
    assert names(path) == {f".original-{STAMP}"}


def test_one_in_another_journal_mode_is_taken_over_too(database, path):
    later.write(path)
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA journal_mode = DELETE")

    take_over(database)

    assert is_ours(path)


def test_where_files_have_one_name_only_the_old_one_is_copied(database, path, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(1, "Operation not permitted")

    later.write(path)
    before = dump(path)
    monkeypatch.setattr(os, "link", refuse)

    found = take_over(database)

    assert dump(found.kept) == before
    assert is_ours(path)


def test_a_name_that_is_taken_is_left_alone(database, path):
    later.write(path)
    taken = f"{path}.original-{STAMP}"
    with open(taken, "w", encoding="ascii") as file:
        file.write("mine")

    found = take_over(database)

    assert found.kept == f"{taken}-1"
    with open(taken, encoding="ascii") as file:
        assert file.read() == "mine"


def test_ours_is_private(database, path, mode, open_umask):
    later.write(path)

    take_over(database)

    assert mode(path) == 0o600


def test_again_there_is_nothing_to_do(database, path):
    later.write(path)
    take_over(database)
    database.connection()
    before = dump(path)

    assert take_over(database) is None

    assert dump(path) == before


@pytest.mark.parametrize("schema", [1, 9])
def test_one_that_is_upgraded_in_place_anyway_is_left_to_that(database, path, schema):
    original.write(path, schema)

    assert take_over(database) is None

    assert names(path) == set()


def test_a_table_without_what_makes_it_one_is_left_behind(database, path):
    with closing(later.create(path)) as conn:
        conn.execute("ALTER TABLE feedback_signals RENAME COLUMN discovery_id TO subject")

    found = take_over(database)

    assert "feedback_signals" not in found.taken
    told = [left.kind for left in found.left if left.table == "feedback_signals"]
    assert told == ["table"]


def test_rows_without_what_they_must_say_are_left_behind(database, path):
    with closing(later.create(path)) as conn:
        conn.execute("DROP TRIGGER told")
        conn.execute("CREATE TABLE loose (key, scope_id, payload, updated_at, expires_at)")
        conn.execute("INSERT INTO loose VALUES ('k', 's', '1', NULL, NULL), ('k', 't', NULL, 1, 1)")
        conn.execute("DROP TABLE state")
        conn.execute("ALTER TABLE loose RENAME TO state")

    found = take_over(database)

    assert found.taken["state"] == 1
    assert ("rows", "state", 1) in {(left.kind, left.table, left.rows) for left in found.left}


def test_a_table_of_a_module_that_we_lack_cannot_be_counted(database, path):
    with closing(later.create(path)) as conn:
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute(
            "INSERT INTO sqlite_schema VALUES ('table', 'odd', 'odd', 0,"
            " 'CREATE VIRTUAL TABLE odd USING nobody_has_it(x)')"
        )

    found = take_over(database)

    assert [left.rows for left in found.left if left.table == "odd"] == [None]


# --- refusals -------------------------------------------------------------------------------

_HOLDERS = {
    "reads": "conn.execute('BEGIN'); conn.execute('SELECT * FROM state').fetchone()",
    "writes": "conn.execute('BEGIN IMMEDIATE')",
    "has it open": "conn.execute('SELECT * FROM state').fetchall()",
    "has it open without a lock": (
        "conn.close(); import os; fd = os.open(sys.argv[1], os.O_RDONLY)"
    ),
}
_HOLD = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
{}
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("what", _HOLDERS)
def test_while_somebody_uses_it_it_is_refused_and_nothing_changes(database, path, start, what):
    later.write(path)
    before = dump(path)
    holder = start(_HOLD.format(_HOLDERS[what]), path)
    assert holder.stdout.readline() == "ready\n"
    there = os.stat(path).st_ino

    with pytest.raises(Locked, match=rf"in use: process {holder.pid} \(") as refused:
        take_over(database)

    assert "icctl init --adopt" in refused.value.hint
    assert os.stat(path).st_ino == there
    assert names(path) <= {"-wal", "-shm"}
    holder.communicate()
    assert dump(path) == before
    assert take_over(database).taken == later.TAKEN


def test_whoever_comes_meanwhile_cannot_write_to_the_old_file(database, path, start):
    """It opens the file when ours is being built, and waits for the lock."""
    later.write(path)
    program = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], timeout=0.1, isolation_level=None)
print("ready", flush=True)
sys.stdin.readline()
try:
    conn.execute("INSERT INTO state (key, scope_id, payload) VALUES ('late', 's', '1')")
except sqlite3.OperationalError as exc:
    print(exc)
"""
    latecomer = None

    def come(event, args):
        nonlocal latecomer
        if event == "os.link" and str(args[0]) == path and latecomer is None:
            latecomer = start(program, path)
            latecomer.stdout.readline()
            latecomer.stdin.write("\n")
            latecomer.stdin.flush()

    _audit(come)

    found = take_over(database)

    assert latecomer is not None
    assert latecomer.stdout.readline() == "database is locked\n"
    assert found.still_open == []
    assert not any("'late'" in line for line in dump(found.kept))


def test_whoever_stays_beyond_the_deadline_is_told(database, path, start):
    """What it writes from now on enters the old file."""
    later.write(path)
    program = _HOLD.format("conn.close(); import os; fd = os.open(sys.argv[1], os.O_RDONLY)")
    holders = []

    def come(event, args):
        if event == "os.link" and str(args[0]) == path and not holders:
            holders.append(start(program, path))
            holders[0].stdout.readline()

    _audit(come)

    found = take_over(database, deadline=time.monotonic() + 3)

    assert found.still_open == [holders[0].pid]
    assert is_ours(path)


_heard = []


def _tell(event, args):
    _heard[0](event, args)


def _audit(hear):
    """Hooks stay for ever: there is one, and it tells the last test that wants to know."""
    if not _heard:
        sys.addaudithook(_tell)
    _heard[:] = [hear]


@pytest.fixture(autouse=True)
def deaf():
    yield
    if _heard:
        _heard[:] = [lambda _event, _args: None]


def test_there_must_be_a_database(database):
    with pytest.raises(NoDatabase):
        take_over(database)


def test_a_damaged_one_is_refused(database, path, spoil):
    later.write(path)
    spoil(path)

    with pytest.raises(Corrupt):
        take_over(database)

    assert names(path) == set()


def test_one_that_cannot_be_done_in_time_is_left_as_it_is(database, path):
    later.write(path)
    with closing(sqlite3.connect(path)) as conn:
        rows = [(f"k{number}",) for number in range(20_000)]
        conn.executemany("INSERT INTO state (key, scope_id, payload) VALUES (?, 's', '1')", rows)
        conn.commit()
    before = dump(path)

    with pytest.raises(DeadlineExceeded):
        take_over(database, deadline=time.monotonic())

    assert names(path) == set()
    assert dump(path) == before


def test_other_programs_and_later_ones_of_ours_are_refused_as_ever(database, path):
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE theirs (x)")
        conn.execute("PRAGMA user_version = 12")
    assert take_over(database) is None  # not ours to judge: whoever opens it does

    with database.hold(time.monotonic() + PATIENCE), pytest.raises(NotOurs):
        database.connection()


def test_the_refusal_of_a_later_one_names_the_command(database, path):
    later.write(path)

    with database.hold(time.monotonic() + PATIENCE), pytest.raises(SchemaTooNew) as refused:
        database.connection()

    assert "run 'icctl init --adopt'" in refused.value.hint
    assert permissions.obstacle(path) is None


# --- kills ----------------------------------------------------------------------------------

# Kills itself at the N-th moment at which it touches a file of the database, before it does.
_KILLED = """
import os, signal, sys, time
from icd import config
from icd.db.original.adopt import adopt
from icd.db.database import Database

path, left = sys.argv[1], int(sys.argv[2])

def count(event, args):
    global left
    told = {"os.link", "os.rename", "os.remove", "os.chown", "open", "sqlite3.connect"}
    if event in told and path in str(args[0]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
database = Database(path, config.DEFAULTS)
with database.hold(time.monotonic() + 30):
    adopt(database, now_ms=%d, deadline=time.monotonic() + 60)
print("done")
"""


def killed_at(path, moment):
    return subprocess.run(
        [sys.executable, "-c", _KILLED % NOW_MS, path, str(moment)],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
    )  # fmt: skip


@pytest.mark.timeout(240)
def test_killed_at_any_moment_either_the_old_one_or_ours_is_there_complete(path, tmp_path):
    later.write(path)
    before, whole = dump(path), (tmp_path / "whole").absolute()
    os.rename(path, whole)
    outcomes, moment = [], 0
    while "done" not in outcomes:
        moment += 1
        for name in names(path) | {""}:
            if os.path.lexists(path + name):
                os.unlink(path + name)
        whole_copy(whole, path)

        ended = killed_at(path, moment)

        assert ended.returncode in {0, -signal.SIGKILL}, ended.stderr
        outcome = "done" if ended.returncode == 0 else "ours" if is_ours(path) else "theirs"
        outcomes.append(outcome)
        if outcome == "theirs":
            assert dump(path) == before
        assert_complete(path, before)

    assert outcomes.count("theirs") >= 8
    assert outcomes[-2:] == ["ours", "done"]


def whole_copy(source, path):
    with closing(sqlite3.connect(source)) as conn, closing(sqlite3.connect(path)) as copy:
        conn.backup(copy)
    with closing(sqlite3.connect(path)) as copy:
        copy.execute("PRAGMA journal_mode = WAL")


def assert_complete(path, before):
    """Whoever tries again finds it done, or does it; there is one old file, and nothing else."""
    database = Database(path, config.DEFAULTS)
    try:
        take_over(database)
        conn = database.connection()
        assert check.findings(conn, deadline=math.inf) == []
        assert conn.execute("SELECT count(*) FROM state").fetchone() == (later.TAKEN["state"],)
        assert conn.execute("SELECT count(*) FROM events").fetchone() == (6,)
    finally:
        database.close()
        database.lock.close()
    assert names(path) == {f".original-{STAMP}"}
    assert dump(f"{path}.original-{STAMP}") == before
