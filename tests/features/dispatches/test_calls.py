"""dispatch.*, as a host runs it."""

import pytest

from icd.errors import AgentTaken, DispatchNotFound, DispatchOver, InvalidName, RunNotFound
from icd.features.dispatches import calls
from icd.features.dispatches.poll import LOST, Seen
from icd.features.dispatches.store import End
from icd.features.events import store as events
from tests.support.call_fixtures import NOW_MS

RUN = """
INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full, auto_advance,
                  auto_spawn, scope_id, token_budget, budget_warn_pct, budget_told, created_at,
                  created_ms, updated_at, updated_ms)
VALUES ('run00001', '/p', 'g', 'active', 'planned', 3, 0, 1, 0, 'bead-1', 100, 80, 0, 0, 0, 0, 0)
"""


@pytest.fixture
def create(result):
    def made(**given):
        return result("dispatch.create", **{"project_dir": "/p", **given})

    return made


@pytest.fixture
def run(database):
    database.connection().execute(RUN)
    return "run00001"


def test_a_dispatch_is_created_started_recorded_and_shown(result, create):
    made = create(name="reviewer", sandbox="read-only", timeout_ms=60_000)
    started = result("dispatch.started", id=made.id, pid=42, pid_start=7, runner_pid=41, boot="b")
    end = End(id=made.id, status="completed", exit_code=0, input_tokens=12, ended_ms=NOW_MS)
    recorded = result("dispatch.record", end=end)

    assert (made.status, started.status) == ("spawned", "running")
    assert (recorded.recorded, recorded.dispatch.status) == (True, "completed")
    assert result("dispatch.get", id=made.id) == recorded.dispatch
    assert recorded.dispatch.input_tokens == 12
    assert recorded.dispatch.completed_at_iso == "2027-01-15T08:00:00Z"
    assert (made.agent_type, made.session) == ("codex", "session-a")
    assert started.agent.start == 7
    assert started.runner.boot == "b"


def test_an_end_can_be_recorded_again_and_again(result, create):
    made = create()
    first = result("dispatch.record", end=End(id=made.id, status="failed", exit_code=3))

    again = result("dispatch.record", end=End(id=made.id, status="completed", exit_code=0))

    assert not again.recorded
    assert again.dispatch == first.dispatch


def test_a_creation_that_is_asked_for_twice_happens_once(result, create):
    first = create(request_id="0" * 24)

    second = create(request_id="0" * 24)

    assert second == first
    assert len(result("dispatch.list")) == 1


def test_an_agent_that_is_taken_leaves_no_dispatch_behind(ask, result, create, database, run):
    database.connection().execute(
        "INSERT INTO run_agents (id, run_id, agent_type, status, created_at, updated_at) "
        "VALUES ('agent001', 'run00001', 'codex', 'active', 0, 0)"
    )
    first = create(run_id=run, agent_id="agent001")

    second = ask("dispatch.create", project_dir="/p", run_id=run, agent_id="agent001")

    assert isinstance(second.error, AgentTaken)
    assert [found.id for found in result("dispatch.list")] == [first.id]
    assert events.head(database.connection()) == 1


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"project_dir": "relative"}, InvalidName),
        ({"project_dir": ""}, InvalidName),
        ({"agent_type": ""}, InvalidName),
        ({"name": "a\tb"}, InvalidName),
        ({"scope_id": "a\nb"}, InvalidName),
        ({"run_id": "nobody"}, RunNotFound),
    ],
)
def test_what_cannot_be_shown_in_a_line_is_refused(create, given, kind):
    with pytest.raises(kind):
        create(**given)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("dispatch.get", {}),
        ("dispatch.poll", {}),
        ("dispatch.watch", {}),
        ("dispatch.tokens", {}),
        ("dispatch.cancel", {}),
        ("dispatch.started", {"pid": 1}),
    ],
)
def test_who_is_unknown_is_not_found(ask, method, params):
    assert isinstance(ask(method, id="nobody", **params).error, DispatchNotFound)


def test_who_cancels_what_is_over_is_told_so(ask, create, result):
    made = create()
    cancelled = result("dispatch.cancel", id=made.id, reason="rollback")

    assert (cancelled.status, cancelled.error_message) == ("cancelled", "rollback")
    assert isinstance(ask("dispatch.cancel", id=made.id).error, DispatchOver)


def test_a_long_list_is_cut_and_says_so_unless_its_length_was_chosen(ask, create, monkeypatch):
    monkeypatch.setattr(calls, "LIMIT", 2)
    for _ in range(3):
        create()

    cut, chosen = ask("dispatch.list"), ask("dispatch.list", limit=2)

    assert (len(cut.result), len(chosen.result)) == (2, 2)
    assert cut.warnings == ["only the newest 2 are shown; see --limit"]
    assert chosen.warnings == []


def test_a_watcher_is_told_of_each_change_once(result, create):
    made = create()
    first = result("dispatch.watch", id=made.id)
    same = result("dispatch.watch", id=made.id, version=first.following.version)
    result("dispatch.cancel", id=made.id)
    last = result("dispatch.watch", id=made.id, version=first.following.version)

    assert [first.is_empty, same.is_empty, last.is_empty] == [False, True, False]
    assert (first.news.status, last.news.status) == ("spawned", "cancelled")


def test_what_was_seen_is_judged_in_one_transaction_with_its_event(result, create, database):
    made = create()
    running = result("dispatch.started", id=made.id, pid=42)

    seen = Seen(version=running.version, runner="dead", agent="dead")
    found = result("dispatch.poll", id=made.id, seen=seen)

    assert (found.status, found.error_message) == ("failed", LOST)
    assert events.read(database.connection(), limit=9)[-1].to_state == "failed"


def test_who_polls_without_having_looked_changes_nothing(result, create):
    made = create()

    assert result("dispatch.poll", id=made.id) == made


@pytest.mark.parametrize(
    ("used", "told"),
    [
        (79, calls.Spent("updated")),
        (80, calls.Spent("updated", used=80, budget=100, warn_pct=80)),
        (100, calls.Spent("updated", used=100, budget=100, warn_pct=80, exceeded=True)),
    ],
)
def test_a_budget_that_runs_out_is_told_each_time(result, create, run, used, told):
    made = create(scope_id="bead-1")

    first = result("dispatch.tokens", id=made.id, input_tokens=used)
    second = result("dispatch.tokens", id=made.id, input_tokens=used)

    assert first == second == told


def test_what_an_end_has_used_counts_for_the_budget(result, create, run, database):
    made = create(run_id=run)

    result("dispatch.record", end=End(id=made.id, status="completed", output_tokens=100))

    found = events.read(database.connection(), limit=9, source="budget")
    assert [event.type for event in found] == ["exceeded"]


def test_prune_forgets_what_is_old_enough(result, create, still):
    made = create()
    result("dispatch.cancel", id=made.id)
    still.wall_ms += 1000

    assert result("dispatch.prune", older_than_ms=1001).pruned == 0
    assert result("dispatch.prune", older_than_ms=1000).pruned == 1
