"""Runs, agents, artifacts and dispatches of the original program, in our tables."""

import os
import sqlite3
import subprocess
import time
from contextlib import closing

import msgspec
import pytest

from icd import procfs
from icd.db import migrate
from icd.features.database import export as dumps
from icd.features.runs import phases
from icd.features.runs import store as runs
from icd.values import processes
from tests.data import original
from tests.db.conftest import copied
from tests.support.lines import Dispatch, Run, RunAgent, RunArtifact, RunSkip

SCHEMAS = range(3, 10)
NOW_S = original.NOW_S
OURS = (Run, RunSkip, RunAgent, RunArtifact, Dispatch)
HOSTILE = {
    "null": None, "empty": "", "bytes": b"\xff\x00", "an id": b"r1", "negative": -1, "zero": 0,
    "large": 2**62, "largest": -(2**63), "real": 1.5, "text": "text", "json": "[1]",
    "control": "a\tb\0c", "long": "x" * 9999,
}  # fmt: skip


@pytest.fixture
def path(project):
    (project / ".clavain").mkdir()
    return str(project / ".clavain" / "intercore.db")


@pytest.fixture
def brought(opened, path):
    """Open a database of the original that holds these rows: (table, columns with values)."""

    def connection(*rows, schema=9, stamped=None):
        with closing(original.create(path, schema, stamped=stamped, rows=False)) as theirs:
            for table, values in rows:
                insert(theirs, table, values)
        return opened(path).connection()

    return connection


def insert(conn, table, values):
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    conn.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))


def run(run_id="r1", **values):
    return "runs", {"id": run_id, "project_dir": "/p", "goal": "g", "created_at": NOW_S} | values


def dispatch(dispatch_id="d1", **values):
    given = {"id": dispatch_id, "project_dir": "/p", "created_at": NOW_S, "status": "completed"}
    return "dispatches", given | values


def column(conn, table, name):
    return [value for (value,) in conn.execute(f"SELECT {name} FROM {table} ORDER BY id")]


def whole(conn, table="dispatches"):
    found = conn.execute(f"SELECT * FROM {table}")
    names = [description[0] for description in found.description]
    return [dict(zip(names, row, strict=True)) for row in found]


def is_sound(conn):
    assert migrate.is_current(conn)
    assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
    assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    left = "SELECT name FROM sqlite_schema WHERE name LIKE '%original%' OR name LIKE 'idx_%run%'"
    assert conn.execute(left).fetchall() == []
    return True


# --- every schema ---------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("stamped", [None, 9])
def test_what_every_schema_has_is_brought_over(opened, path, schema, stamped):
    """Stamped v9: the original's upgrade from v2 to v4 did not make the columns that are new."""
    original.write(path, schema, stamped=stamped)

    conn = opened(path).connection()

    assert is_sound(conn)
    found = runs.require(conn, "r1")
    assert (found.goal, found.status, found.phase) == ("ship it", "active", "brainstorm")
    assert (found.complexity, found.auto_advance, found.budget_warn_pct) == (3, True, 80)
    assert (found.phases, found.token_budget, found.gates) == (None, None, None)
    assert column(conn, "dispatches", "prompt_file") == ["prompt.md"]
    assert column(conn, "run_agents", "name") == (["reviewer"] if schema > 3 else [])
    assert column(conn, "run_artifacts", "path") == (["plan.md"] if schema > 3 else [])


@pytest.mark.parametrize("stamped", [None, 9])
def test_dispatches_came_before_runs(opened, path, stamped):
    original.write(path, 2, stamped=stamped)

    conn = opened(path).connection()

    assert is_sound(conn)
    assert column(conn, "dispatches", "id") == ["d1"]


@pytest.mark.parametrize("version", [1001, 1002, 1003])
def test_a_database_that_we_took_over_before_there_were_runs_gets_them(opened, path, version):
    original.write(path, 9)
    original.take_over_long_ago(path, version)

    conn = opened(path).connection()

    assert is_sound(conn)
    assert runs.require(conn, "r1").goal == "ship it"
    assert column(conn, "run_artifacts", "id") == ["f1"]
    assert column(conn, "dispatches", "id") == ["d1"]
    assert column(conn, "discoveries", "id") == ["x1"]


def test_a_database_without_any_run_gets_empty_tables(opened, path):
    original.write(path, 1, rows=False)
    original.take_over_long_ago(path, 1003)

    conn = opened(path).connection()

    assert is_sound(conn)
    assert column(conn, "runs", "id") == []


# --- runs -----------------------------------------------------------------------------------


def test_a_run_keeps_all_that_the_original_knew(brought, project):
    conn = brought(
        run(
            goal="ship", status="completed", phase="b", complexity=5, force_full=1, auto_advance=0,
            scope_id="bead", phases='["a", "b"]', token_budget=1000, budget_warn_pct=50,
            metadata="anything", updated_at=NOW_S + 5, completed_at=NOW_S + 4,
        )
    )  # fmt: skip

    assert whole(conn, "runs") == [{
        "id": "r1", "project_dir": "/p", "goal": "ship", "status": "completed", "phase": "b",
        "complexity": 5, "force_full": 1, "auto_advance": 0, "auto_spawn": 0, "scope_id": "bead",
        "phases": '["a", "b"]', "gates": None, "token_budget": 1000, "budget_warn_pct": 50,
        "budget_told": 0, "metadata": "anything", "actions": None, "session": None,
        "owner_pid": None, "owner_start": None, "owner_boot": None, "owner_pidns": None,
        "created_at": NOW_S, "created_ms": NOW_S * 1000, "updated_at": NOW_S + 5,
        "updated_ms": (NOW_S + 5) * 1000, "completed_at": NOW_S + 4,
        "max_agents": None, "max_dispatches": None, "budget_enforce": 0,
    }]  # fmt: skip


@pytest.mark.parametrize("given", [".", "", "src", "src/../src"])
def test_a_project_is_told_by_its_real_path(brought, project, given):
    (project / "src").mkdir()

    conn = brought(run(project_dir=given), run("r2", project_dir=str(project)))

    assert set(column(conn, "runs", "project_dir")) == {os.path.realpath(project)}


def test_of_several_active_runs_with_one_scope_the_newest_stays(brought, project):
    """The original compared directories as they were spelled."""
    conn = brought(
        run("old", scope_id="bead", project_dir="."),
        run("new", scope_id="bead", project_dir=str(project), created_at=NOW_S + 1),
        run("older", scope_id="bead", project_dir=f"{project}/", created_at=NOW_S - 1),
        run("done", scope_id="bead", project_dir=".", status="completed", created_at=NOW_S + 2),
        run("other", scope_id="bead", project_dir="/elsewhere"),
        run("free", scope_id=None, project_dir="."),
        run("freer", scope_id="", project_dir="."),
    )

    assert is_sound(conn)
    found = dict(conn.execute("SELECT id, status FROM runs"))
    assert found == {
        "old": "abandoned", "older": "abandoned", "new": "active", "done": "completed",
        "other": "active", "free": "active", "freer": "active",
    }  # fmt: skip
    ended = conn.execute("SELECT id FROM runs WHERE completed_at IS NOT NULL ORDER BY id")
    assert ended.fetchall() == [("old",), ("older",)]


def test_of_two_runs_of_one_second_the_later_row_is_the_newer_one(brought):
    conn = brought(run("b", scope_id="bead"), run("a", scope_id="bead"))

    assert runs.meant(conn, "bead").id == "a"
    assert column(conn, "runs", "status") == ["active", "abandoned"]


def chain_of(*names):
    return msgspec.json.encode(names).decode()


LONGEST = chain_of(*(f"{n:0{phases.NAME_CHARACTERS}}" for n in range(phases.MOST)))


@pytest.mark.parametrize(
    "chain",
    [
        "", "{", "[]", '["a"]', '["a", "a"]', '["a", 1]', '["a", "b c"]', '{"a": "b"}',
        "[" * 99_999, chain_of("a", "b" * (phases.NAME_CHARACTERS + 1)),
        chain_of(*map(str, range(phases.MOST + 1))),
    ],
)  # fmt: skip
def test_a_chain_that_no_run_could_have_been_created_with_is_the_default_one(brought, chain):
    conn = brought(run(phases=chain))

    assert runs.require(conn, "r1").phases is None


def test_the_longest_chain_that_a_run_can_have_is_taken_over(brought):
    conn = brought(run(phases=LONGEST))

    assert len(phases.chain(runs.require(conn, "r1"))) == phases.MOST


@pytest.mark.parametrize(
    "phases_of_it", [{"phase": "done"}, {"phase": "b", "phases": '["a", "b"]'}]
)
def test_a_run_that_only_failed_to_say_that_it_is_completed_is(brought, phases_of_it):
    conn = brought(run(status="active", scope_id="bead", updated_at=NOW_S + 7, **phases_of_it))

    found = runs.require(conn, "r1")
    assert (found.status, found.completed_at) == ("completed", NOW_S + 7)


def test_a_status_that_we_do_not_know_is_a_failure(brought):
    conn = brought(run(status="paused", scope_id="b"), dispatch(status="lost"))

    assert column(conn, "runs", "status") + column(conn, "dispatches", "status") == ["failed"] * 2


def test_phases_that_were_skipped_stay_skipped(brought):
    skip = {"run_id": "r1", "from_phase": "a", "event_type": "skip", "created_at": NOW_S}

    conn = brought(
        run(),
        ("phase_events", skip | {"to_phase": "polish", "reason": "actor=me: small"}),
        ("phase_events", skip | {"to_phase": "polish", "reason": "again"}),
        ("phase_events", skip | {"to_phase": "review", "event_type": "advance"}),
        ("phase_events", skip | {"to_phase": ""}),
    )

    assert conn.execute("SELECT run_id, phase, reason, created_at FROM run_skips").fetchall() == [
        ("r1", "polish", "actor=me: small", NOW_S)
    ]


def test_skips_are_known_although_our_log_was_pruned(opened, path):
    with closing(original.create(path, 9)) as theirs:
        theirs.execute(
            "INSERT INTO phase_events (run_id, from_phase, to_phase, event_type)"
            " VALUES ('r1', 'a', 'polish', 'skip')"
        )
    original.take_over_long_ago(path, 1003)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("DELETE FROM events")

    conn = opened(path).connection()

    assert conn.execute("SELECT phase FROM run_skips").fetchall() == [("polish",)]


# --- agents and artifacts -------------------------------------------------------------------


def test_agents_keep_all_that_the_original_knew(brought):
    conn = brought(
        run(),
        ("run_agents", {
            "id": "a1", "run_id": "r1", "agent_type": "codex", "name": "n", "status": "completed",
            "dispatch_id": "d", "created_at": 1, "updated_at": 2,
        }),
        ("run_agents", {"id": "a2", "run_id": "r1", "status": "odd", "created_at": 1}),
    )  # fmt: skip

    assert conn.execute("SELECT * FROM run_agents").fetchmany(1) == [
        ("a1", "r1", "codex", "n", "completed", "d", 1, 2)
    ]
    assert column(conn, "run_agents", "status") == ["completed", "failed"]


def test_artifacts_keep_all_that_the_original_knew(brought):
    conn = brought(
        run(),
        ("run_artifacts", {
            "id": "f1", "run_id": "r1", "phase": "p", "path": "x y.md", "type": "plan",
            "content_hash": "sha256:0", "dispatch_id": "d", "status": "rolled_back",
            "created_at": 1,
        }),
    )  # fmt: skip

    assert conn.execute("SELECT * FROM run_artifacts").fetchall() == [
        ("f1", "r1", "p", "x y.md", "plan", "sha256:0", "d", "rolled_back", 1)
    ]


def test_what_belongs_to_no_run_is_left_out(brought):
    conn = brought(
        run(),
        ("run_agents", {"id": "a1", "run_id": "gone"}),
        ("run_artifacts", {"id": "f1", "run_id": "gone", "phase": "p", "path": "x"}),
        (
            "phase_events",
            {"run_id": "no", "from_phase": "a", "to_phase": "b", "event_type": "skip"},
        ),
    )

    assert is_sound(conn)
    assert column(conn, "run_agents", "id") + column(conn, "run_artifacts", "id") == []
    assert conn.execute("SELECT * FROM run_skips").fetchall() == []


# --- dispatches -----------------------------------------------------------------------------


def test_a_dispatch_keeps_all_that_the_original_knew(brought):
    told = {
        "agent_type": "claude", "prompt_file": "p.md", "prompt_hash": "0f", "output_file": "o",
        "verdict_file": "o.verdict", "pid": 7, "exit_code": -1, "name": "n", "model": "m",
        "sandbox": "s", "turns": 1, "commands": 2, "messages": 3, "input_tokens": 4,
        "output_tokens": 5, "cache_hits": 0, "started_at": NOW_S + 1, "completed_at": NOW_S + 2,
        "verdict_status": "pass", "verdict_summary": "fine", "error_message": "e",
        "parent_id": "d0", "status": "failed", "created_at": NOW_S,
    }  # fmt: skip

    (found,) = whole(brought(dispatch(**told, scope_id="s", timeout_sec=60, project_dir="src/..")))

    assert {name: found[name] for name in told} == told
    assert (found["scope_id"], found["timeout_ms"], found["version"]) == ("s", 60_000, 1)
    assert (found["created_ms"], found["run_id"], found["pid_start"]) == (NOW_S * 1000, None, None)
    assert os.path.isabs(found["project_dir"])


def test_a_dispatch_belongs_to_the_run_that_its_scope_names(brought):
    conn = brought(
        run("r1", scope_id="bead", status="active"),
        run("r2", scope_id="bead", status="completed", created_at=NOW_S + 9),
        run("r3", scope_id="old", status="failed"),
        run("r4", scope_id="old", status="cancelled", created_at=NOW_S + 9),
        run("r5", scope_id="r1"),
        dispatch("by-id", scope_id="r1"),
        dispatch("by-scope", scope_id="bead"),
        dispatch("by-age", scope_id="old"),
        dispatch("by-nothing", scope_id="unheard of"),
        dispatch("free"),
    )

    assert dict(conn.execute("SELECT id, run_id FROM dispatches")) == {
        "by-id": "r1", "by-scope": "r1", "by-age": "r4", "by-nothing": None, "free": None,
    }  # fmt: skip


@pytest.fixture
def agent():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("status", ["spawned", "running"])
def test_a_dispatch_whose_process_is_there_goes_on(brought, agent, status):
    conn = brought(dispatch(status=status, pid=agent.pid, created_at=int(time.time())))

    (found,) = whole(conn)
    process = processes.Process(found["pid"], found["pid_start"], found["boot"], found["pidns"])
    assert found["status"] == status
    assert process == processes.identify(agent.pid)
    assert processes.liveness(process) == "alive"


def test_a_dispatch_whose_process_has_ended_has_failed(brought):
    done = subprocess.Popen(["true"])
    done.wait()

    conn = brought(dispatch(status="running", pid=done.pid, created_at=int(time.time())))

    (found,) = whole(conn)
    assert (found["status"], found["exit_code"]) == ("failed", None)
    assert found["error_message"] == "its process was gone when the database was taken over"
    assert found["completed_at"] >= found["created_at"]


def test_a_dispatch_whose_process_is_a_zombie_has_failed(brought):
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody took note

    conn = brought(dispatch(status="running", pid=child.pid, created_at=int(time.time())))

    assert column(conn, "dispatches", "status") == ["failed"]

    child.wait()


@pytest.mark.parametrize("pid", [None, 0, -1, 2**40, "text"])
def test_a_dispatch_without_a_process_has_failed(brought, pid):
    conn = brought(dispatch(status="spawned", pid=pid, created_at=int(time.time())))

    assert column(conn, "dispatches", "status") == ["failed"]


def test_a_process_that_got_the_number_later_is_not_taken_for_the_agent(brought, agent):
    yesterday = int(time.time()) - 86_400

    conn = brought(dispatch(status="running", pid=agent.pid, created_at=yesterday))

    assert column(conn, "dispatches", "status") == ["failed"]


# --- content that the original would not have written ---------------------------------------

COLUMNS = {
    "runs": [
        "project_dir", "goal", "status", "phase", "complexity", "force_full", "auto_advance",
        "scope_id", "phases", "token_budget", "budget_warn_pct", "metadata", "created_at",
        "updated_at", "completed_at",
    ],
    "run_agents": ["run_id", "agent_type", "name", "status", "dispatch_id", "created_at"],
    "run_artifacts": ["phase", "path", "type", "content_hash", "status", "created_at"],
    "phase_events": ["run_id", "to_phase", "reason", "created_at"],
    "dispatches": [
        "agent_type", "status", "project_dir", "prompt_file", "pid", "exit_code", "name",
        "timeout_sec", "turns", "input_tokens", "cache_hits", "created_at", "started_at",
        "completed_at", "verdict_status", "error_message", "scope_id", "parent_id",
    ],
}  # fmt: skip


def fill(conn, value):
    """A row per column that holds it, beside all that is well."""
    needed = {
        "runs": {"project_dir": "/p", "goal": "g"},
        "run_agents": {"run_id": "r1"},
        "run_artifacts": {"run_id": "r1", "phase": "p", "path": "f"},
        "phase_events": {"run_id": "r1", "from_phase": "a", "to_phase": "b", "event_type": "skip"},
        "dispatches": {"project_dir": "/p"},
    }
    insert(
        conn,
        "phase_events",
        {"run_id": "r1", "from_phase": "a", "to_phase": "c", "event_type": "skip"},
    )
    for table, columns in COLUMNS.items():
        for number, name in enumerate(columns):
            values = needed[table] | {"id": f"x{number}"} | {name: value}
            if table == "phase_events":
                values["id"] = 100 + number
            try:
                insert(conn, table, values)
            except sqlite3.IntegrityError:
                assert value is None  # the original's tables refuse some of these


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_no_content_stops_the_upgrade_and_all_of_it_can_be_exported_and_imported(
    opened, path, value
):
    with closing(original.create(path, 9)) as theirs:
        fill(theirs, value)

    conn = opened(path).connection()
    lines = [line for line in dumps.export(conn) if isinstance(line, OURS)]
    again = copied(lines, now_ms=NOW_S * 1000)

    assert is_sound(conn)
    assert {type(line) for line in again} == set(OURS)
    assert again == lines


@pytest.mark.parametrize("table", ["runs", "run_agents", "run_artifacts", "dispatches"])
def test_ids_that_are_missing_or_the_same_for_us_do_not_stop_the_upgrade(opened, path, table):
    values = {
        "runs": {"project_dir": "/p", "goal": "g"},
        "run_agents": {"run_id": "r1"},
        "run_artifacts": {"run_id": "r1", "phase": "p", "path": "f"},
        "dispatches": {"project_dir": "/p"},
    }[table]
    with closing(original.create(path, 9)) as theirs:
        for number, name in enumerate(
            [None, None, "", "twin", b"twin", b"\xfe", b"\xff", 7, "a\tb"]
        ):
            insert(theirs, table, values | {"id": name, "created_at": number})

    conn = opened(path).connection()

    assert is_sound(conn)
    found = dict(conn.execute(f"SELECT id, created_at FROM {table} WHERE created_at < 9"))
    assert found == {"twin": 4, "\ufffd": 6, "7": 7, "a\ufffdb": 8}


def test_the_boot_is_known():
    """Else no process of the original could be told from another one."""
    assert procfs.booted_at() <= time.time()
