"""Rows of the original's later tables, after `init --adopt`: in ours, or told to be left."""

import json
import math
import os
import time
from functools import partial

import pytest

from icd import config
from icd.db import check
from icd.db.database import Database
from icd.db.original.adopt import adopt
from icd.features.coordination import adoption, globs, lookup
from icd.features.events import store as events
from icd.features.lanes import store as lanes
from icd.features.runs import actions
from icd.features.sessions import store as sessions
from tests.data import newest
from tests.data.original import NOW_S

NOW_MS = NOW_S * 1000


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """What was said, the connection, and the project."""
    project = os.path.realpath(tmp_path_factory.mktemp("adopted"))
    os.makedirs(f"{project}/.clavain")
    os.makedirs(f"{project}/.git")
    os.makedirs(f"{project}/sub")
    path = f"{project}/.clavain/intercore.db"
    newest.write(path, project)
    database = Database(path, config.DEFAULTS)
    with database.hold(time.monotonic() + 60):
        bring = partial(adoption.bring, path=path, now_ms=NOW_MS)
        said = adopt(database, bring=bring, now_ms=NOW_MS, deadline=math.inf)
        yield said, database.connection(), project
        database.close()
    database.lock.close()


def test_what_is_taken_and_what_is_left_is_told(taken):
    said, conn, _ = taken

    assert {table: said.taken[table] for table in newest.TAKEN} == newest.TAKEN
    told = {(left.kind, left.table, left.column, left.rows) for left in said.left}
    assert told >= newest.LEFT
    assert not any(left.table in newest.TAKEN for left in said.left if left.kind == "table")
    assert check.findings(conn, deadline=math.inf) == []


def test_reservations_that_stand_go_on_standing_under_their_ids(taken):
    _, conn, _ = taken

    found = {lock.id: lock for lock in lookup.every(conn)}

    assert {
        id_: (lock.owner, lock.scope, lock.pattern, lock.exclusive, lock.expires_at)
        for id_, lock in found.items()
    } == {
        "lock0001": ("ada", ".", "src/*.py", 1, None),
        "lock0002": ("ben", ".", "docs/a.md", 0, newest.FAR),
        "lock0003": ("ada", "jobs", "nightly", 1, None),
    }
    glob = globs.parse("src/a.py")
    (blocker,) = lookup.blockers(conn, ".", glob, but="cy", now_ms=NOW_MS)
    assert blocker.id == "lock0001"


def test_sessions_and_what_their_attributions_come_to(taken):
    _, conn, project = taken

    found = sessions.newest(
        conn, project_dir=project, session_id=None, since=0, active_only=False, limit=9
    )

    assert sorted((s.session_id, s.id, s.agent_type, s.cache_read_tokens) for s in found) == [
        ("s1", 1, "codex", 8),
        ("s2", 2, "claude-code", 0),
    ]
    told = sessions.current(conn, "s1", project)
    assert (told.bead_id, told.run_id, told.phase) == ("b2", "r2", None)
    assert [e.value for e in events.read(conn, limit=9, source="session")] == [
        {"bead_id": "b1", "run_id": "r1", "phase": "plan"},
        {"phase": "work"},
        {"bead_id": "b2", "run_id": "r2"},
    ]


def test_a_session_that_starts_later_gets_a_new_number(taken):
    _, conn, project = taken
    conn.execute("SAVEPOINT s")

    started = sessions.start(
        conn, "s9", project, agent_type="", model=None, metadata=None,
        actor=events.Writer(), now_ms=NOW_MS,
    )  # fmt: skip

    assert started.id == 3
    conn.execute("ROLLBACK TO s")


def test_lanes_keep_members_metadata_and_history(taken):
    _, conn, _ = taken

    kernel = lanes.in_full(conn, lanes.require(conn, "kernel"))

    assert (kernel.id, kernel.members, kernel.intent) == ("lane0001", ["B-1", "B-2"], "go")
    assert json.loads(kernel.metadata) == {"paused": True}
    assert [lane.name for lane in lanes.every(conn)] == ["kernel", "launch"]
    assert [
        (e.event_type, e.payload)
        for e in lanes.happened(conn, lanes.require(conn, "kernel"), limit=9)
    ] == [("created", "{}"), ("snapshot", '{"count":2}')]


def test_actions_keep_their_order_and_their_arguments(taken):
    _, conn, _ = taken

    found = actions.of_run(conn, "r1")

    assert [(a.phase, a.command, a.mode, a.priority) for a in found] == [
        ("b", "/first", "interactive", 1),
        ("b", "/work", "both", 2),
    ]
    assert bytes(found[1].args) == b'["${artifact:plan}"]'


def test_events_of_the_later_logs_have_their_ids_and_what_they_said(taken):
    _, conn, _ = taken

    def only(source):
        (found,) = events.read(conn, limit=9, source=source)
        return found

    review = only("review")
    assert (review.id, review.type, review.subject_id, review.run_id, review.session) == (
        1, "execution_defect", "f1", "r1", "s1",
    )  # fmt: skip
    assert review.value == {
        "finding_id": "f1", "agents": {"a": "high"}, "resolution": "kept",
        "chosen_severity": "high", "impact": "gate",
    }  # fmt: skip
    acquired = only("coordination")
    assert (acquired.type, acquired.subject_id, acquired.value["owner"]) == (
        "acquired", "lock0001", "ada",
    )  # fmt: skip
    assert only("intent").value["idempotency_key"] == "k1"
    assert only("agency").value["stage"] == "plan"
