"""Going back takes back what came of the phases since, and only that."""

import pytest

from icd.errors import PhaseRefused, RollbackRefused, RunNotFound, RunTaken
from icd.features.events import store as events
from icd.features.runs import create as rollbacks
from icd.features.runs import store as runs
from icd.features.runs import transitions
from icd.values.processes import Writer
from tests.conftest import NOW_MS

ME = Writer(7, "me")
LATER = NOW_MS + 5000
CHAIN = ("a", "b", "c", "d")


@pytest.fixture
def at(conn, create):
    """A run that has advanced to a phase."""

    def there(phase, **wanted):
        run = create(**{"chain": CHAIN} | wanted)
        for _ in CHAIN[: CHAIN.index(phase)]:
            transitions.advance(conn, run.id, actor=ME, now_ms=NOW_MS)
        return runs.require(conn, run.id)

    return there


@pytest.fixture
def back(conn):
    def gone(run, to_phase, reason=""):
        return rollbacks.rollback(conn, run.id, to_phase, reason=reason, actor=ME, now_ms=LATER)

    return gone


def artifact(conn, run, phase, status="active"):
    conn.execute(
        "INSERT INTO run_artifacts (id, run_id, phase, path, type, status, created_at) "
        "VALUES (?, ?, ?, 'f', 'file', ?, 0)",
        (f"{run.id}-{phase}-{status}", run.id, phase, status),
    )


def agent(conn, run, status):
    conn.execute(
        "INSERT INTO run_agents (id, run_id, agent_type, status, created_at, updated_at) "
        "VALUES (hex(randomblob(4)), ?, 'claude', ?, 0, 0)",
        (run.id, status),
    )


def dispatch(conn, dispatch_id, run_id, status):
    conn.execute(
        "INSERT INTO dispatches (id, run_id, agent_type, status, project_dir, turns, commands, "
        "messages, input_tokens, output_tokens, created_at, created_ms, version) "
        "VALUES (?, ?, 'codex', ?, '/p', 0, 0, 0, 0, 0, 0, 0, 1)",
        (dispatch_id, run_id, status),
    )


def test_a_run_goes_back_and_that_is_recorded(conn, at, back):
    run = at("c")

    done = back(run, "a", "wrong")

    assert (done.from_phase, done.to_phase, done.rolled_back_phases) == ("c", "a", ["b", "c"])
    found = runs.require(conn, run.id)
    assert (found.status, found.phase, found.updated_ms) == ("active", "a", LATER)
    event = events.read(conn, limit=9, run_id=run.id)[-1]
    assert (event.type, event.from_state, event.to_state) == ("rollback", "c", "a")
    assert (event.reason, event.session) == ("wrong", "me")


def test_a_completed_run_is_active_again(conn, at, back):
    run = at("d")

    back(run, "b")

    found = runs.require(conn, run.id)
    assert (found.status, found.phase, found.completed_at) == ("active", "b", None)


def test_artifacts_of_the_phases_since_are_marked_and_no_others(conn, at, back):
    run, other = at("c"), at("c")
    for phase in CHAIN:
        artifact(conn, run, phase)
    artifact(conn, run, "b", "rolled_back")
    artifact(conn, other, "b")

    done = back(run, "a")

    assert done.marked_artifacts == 2
    left = "SELECT phase FROM run_artifacts WHERE run_id = ? AND status = 'active' ORDER BY phase"
    assert [phase for (phase,) in conn.execute(left, (run.id,))] == ["a", "d"]
    assert [phase for (phase,) in conn.execute(left, (other.id,))] == ["b"]


@pytest.mark.sqlite_only
def test_all_active_agents_of_the_run_have_failed(conn, at, back):
    run, other = at("c"), at("c")
    for status in ("active", "active", "completed"):
        agent(conn, run, status)
    agent(conn, other, "active")

    done = back(run, "a")

    assert done.failed_agents == 2
    count = "SELECT status, count(*) FROM run_agents GROUP BY status ORDER BY status"
    assert conn.execute(count).fetchall() == [("active", 1), ("completed", 1), ("failed", 2)]


def test_dispatches_under_way_are_cancelled_with_an_event_each(conn, at, back):
    run, other = at("c"), at("c")
    for number, status in enumerate(("spawned", "running", "completed")):
        dispatch(conn, f"mine-{number}", run.id, status)
    dispatch(conn, "other", other.id, "running")

    done = back(run, "a")

    assert done.dispatches == ["mine-0", "mine-1"]
    rows = conn.execute("SELECT id, status FROM dispatches ORDER BY id").fetchall()
    assert rows == [
        ("mine-0", "cancelled"),
        ("mine-1", "cancelled"),
        ("mine-2", "completed"),
        ("other", "running"),
    ]
    told = events.read(conn, limit=99, run_id=run.id, source="dispatch")
    assert [(event.subject_id, event.to_state) for event in told] == [
        ("mine-0", "cancelled"),
        ("mine-1", "cancelled"),
    ]


def test_skips_of_the_phases_since_are_forgotten_and_those_ahead_are_not(conn, at, back):
    run = at("a")
    for phase in ("b", "c"):
        transitions.skip(conn, run.id, phase, reason="r", actor=ME, now_ms=NOW_MS)
    transitions.override(conn, run.id, "r", actor=ME, now_ms=NOW_MS)  # into b, though skipped

    done = back(run, "a")

    assert done.cleared_skips == ["b"]
    assert runs.skipped(conn, run.id) == {"c"}


@pytest.mark.parametrize("phase", ["b", "c", "d", "x"])
def test_only_what_lies_behind_can_be_gone_back_to(conn, at, back, phase):
    run = at("b")

    with pytest.raises(PhaseRefused) as refused:
        back(run, phase)

    assert refused.value.message == f'target phase "{phase}" is not behind current phase "b"'
    assert runs.require(conn, run.id) == run


@pytest.mark.parametrize("status", ["cancelled", "failed", "abandoned"])
def test_what_has_ended_otherwise_does_not_go_back(conn, at, back, status):
    run = at("b")
    conn.execute("UPDATE runs SET status = ?", (status,))

    with pytest.raises(RollbackRefused) as refused:
        back(run, "a")

    assert refused.value.exit == 2
    assert runs.require(conn, run.id).status == status


def test_a_completed_run_whose_scope_was_taken_since_stays_completed(conn, at, back, create):
    run = at("d", scope_id="b")
    holder = create(scope_id="b")

    with pytest.raises(RunTaken) as taken:
        back(run, "a")

    assert taken.value.facts["run_id"] == holder.id
    assert runs.require(conn, run.id) == run


@pytest.mark.sqlite_only
def test_a_plan_tells_what_would_happen_and_does_nothing(conn, at):
    run = at("c")
    artifact(conn, run, "c")
    before = "\n".join(conn.iterdump())

    planned = rollbacks.plan_rollback(conn, run.id, "a", now_ms=LATER)

    assert planned.rolled_back_phases == ["b", "c"]
    assert "\n".join(conn.iterdump()) == before


def test_a_run_that_does_not_exist_is_not_found(conn):
    with pytest.raises(RunNotFound):
        rollbacks.plan_rollback(conn, "nobody", "a", now_ms=LATER)
