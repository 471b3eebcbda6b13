"""Who gets a scope."""

import os

import pytest

from icd.errors import RunTaken
from icd.features.events import store as events
from icd.features.runs import create as claims
from icd.features.runs import store as runs
from icd.values.processes import Writer
from tests.conftest import NOW_MS

MINUTE = 60_000


def test_a_run_begins_in_the_first_phase_of_its_own_chain(create):
    run = create(chain=("plan", "work"))

    assert (run.status, run.phase, run.phases) == ("active", "plan", '["plan","work"]')


def test_a_run_is_stored_as_it_was_wanted(conn, create):
    run = create(
        scope_id="b",
        complexity=5,
        token_budget=9,
        budget_warn_pct=50,
        metadata="m",
        auto_spawn=True,
    )

    assert runs.require(conn, run.id) == run


def test_a_scope_is_taken_once_per_project(conn, create):
    run = create(scope_id="b")

    with pytest.raises(RunTaken) as taken:
        create(scope_id="b")
    others = [create(scope_id="c"), create(scope_id="b", project_dir="/q")]

    assert taken.value.facts["run_id"] == run.id
    assert taken.value.data["run_id"] == run.id
    assert runs.holder(conn, "/p", "b") == run
    assert len({run.id, *(other.id for other in others)}) == 3


def test_without_a_scope_there_is_no_limit(create):
    assert create().id != create().id


@pytest.mark.sqlite_only
def test_the_database_itself_refuses_a_second_holder(conn, create):
    """Should anybody ever forget to look."""
    run = create(scope_id="b")

    with pytest.raises(Exception, match="UNIQUE constraint failed"):
        conn.execute(
            "INSERT INTO runs SELECT 'other', project_dir, goal, status, phase, complexity, "
            "force_full, auto_advance, auto_spawn, scope_id, phases, gates, token_budget, "
            "budget_warn_pct, budget_told, metadata, actions, session, owner_pid, owner_start, "
            "owner_boot, owner_pidns, created_at, created_ms, updated_at, updated_ms, completed_at, "
            "max_agents, max_dispatches, budget_enforce "
            "FROM runs WHERE id = ?",
            (run.id,),
        )


@pytest.mark.parametrize(
    ("pid", "told"),
    [
        (os.getpid(), f"pid {os.getpid()} is alive, session s"),
        (2**22, f"pid {2**22} is gone, session s"),
        (None, "process unknown, session s"),
    ],
    ids=["alive", "gone", "unknown"],
)
def test_whoever_cannot_have_a_scope_is_told_who_has_it_for_how_long_and_if_it_lives(
    create, pid, told
):
    run = create(scope_id="b", actor=Writer(pid, "s"))

    with pytest.raises(RunTaken) as taken:
        create(scope_id="b", now_ms=NOW_MS + 12 * MINUTE)

    assert taken.value.message == (
        f"b is taken by run {run.id}, created 12m ago, in phase brainstorm, "
        f"last activity 12m ago, {told}"
    )
    assert taken.value.exit == 1


def test_a_silent_run_is_taken_over_at_the_very_moment_that_was_named(conn, create):
    old = create(scope_id="b")

    with pytest.raises(RunTaken):
        create(scope_id="b", takeover_after_ms=MINUTE, now_ms=NOW_MS + MINUTE - 1)
    new = create(scope_id="b", takeover_after_ms=MINUTE, now_ms=NOW_MS + MINUTE)

    assert runs.require(conn, old.id).status == "abandoned"
    assert runs.holder(conn, "/p", "b") == new


def test_a_sign_of_life_delays_a_takeover(conn, create):
    old = create(scope_id="b")
    runs.touch(conn, old.id, now_ms=NOW_MS + MINUTE)

    with pytest.raises(RunTaken):
        create(scope_id="b", takeover_after_ms=MINUTE, now_ms=NOW_MS + 2 * MINUTE - 1)

    assert runs.require(conn, old.id).status == "active"


def test_a_clock_that_went_back_takes_nothing_over(create):
    create(scope_id="b")

    with pytest.raises(RunTaken):
        create(scope_id="b", takeover_after_ms=1, now_ms=NOW_MS - MINUTE)


def test_whoever_waits_for_nothing_takes_over_whatever_the_clock_says(conn, create):
    old = create(scope_id="b")

    new = create(scope_id="b", takeover_after_ms=0, now_ms=NOW_MS - MINUTE)

    assert runs.require(conn, old.id).status == "abandoned"
    assert runs.holder(conn, new.project_dir, "b") == new


def test_a_takeover_is_recorded_with_its_reason_and_the_new_run(conn, create):
    old = create(scope_id="b")

    new = create(scope_id="b", takeover_after_ms=0, now_ms=NOW_MS + MINUTE)

    (event,) = events.read(conn, limit=10, run_id=old.id)
    assert (event.source, event.type, event.project_dir) == ("phase", "abandon", "/p")
    assert event.reason == f"idle for 60s; taken over by run {new.id}"
    assert bytes(event.payload) == b'{"taken_over_by":"%s"}' % new.id.encode()


def test_a_run_that_has_ended_frees_its_scope(conn, create):
    old = create(scope_id="b")
    conn.execute("UPDATE runs SET status = 'completed' WHERE id = ?", (old.id,))

    assert create(scope_id="b").id != old.id


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0s"),
        (999, "0s"),
        (119_999, "119s"),
        (120_000, "2m"),
        (7_200_000, "2h"),
        (3 * 86_400_000, "3d"),
    ],
)
def test_a_span_is_told_in_one_unit(ms, text):
    assert claims.span(ms) == text


def test_the_newest_active_run_is_the_current_one(conn, create):
    first = create()
    second = create(actor=Writer(1, "t"))
    create(project_dir="/q")

    assert runs.current(conn, "/p") == second
    assert runs.current(conn, "/p", session="s") == first
    assert runs.current(conn, "/p", session="nobody") is None
    assert runs.current(conn, "/r") is None


def test_runs_are_listed_newest_first_and_as_they_were_asked_for(conn, create):
    first = create(scope_id="b")
    second = create(project_dir="/q", now_ms=NOW_MS + 1)
    conn.execute("UPDATE runs SET status = 'failed' WHERE id = ?", (first.id,))
    third = create(scope_id="b", now_ms=NOW_MS + 1)

    def listed(**asked):
        return [run.id for run in runs.newest(conn, **{"limit": 10} | asked)]

    assert listed() == [third.id, second.id, first.id]
    assert listed(limit=1) == [third.id]
    assert listed(scope_id="b") == [third.id, first.id]
    assert listed(scope_id="b", status="failed") == [first.id]
    assert listed(project_dir="/q") == [second.id]
