"""Everything about a run at one moment."""

import re
import tracemalloc

import pytest

from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.runs import budget as budgets
from icd.features.runs import history as histories
from icd.features.runs import store as runs
from icd.features.runs.budget import Budget, Tokens
from icd.features.runs.verbs import snapshot as snapshots
from icd.features.statusline import store as statusline
from icd.values.processes import Writer
from tests.support import rows

NOW = rows.NOW * 1000


@pytest.fixture
def happen(conn):
    def appended(kind="advance", *, run_id="run00001", source="phase", **more):
        fact = Fact(source, kind, run_id=run_id, **more)
        return events.append(conn, fact, actor=Writer(), now_ms=NOW)

    return appended


def read(conn):
    return snapshots.read(conn, runs.require(conn, "run00001"))


def test_everything_of_a_run_is_in_it_and_nothing_of_another(conn, happen):
    for run_id in ("run00001", "run00002"):
        rows.run(conn, run_id, phase="executing", token_budget=100)
        rows.agent(conn, run_id, f"agent-{run_id}")
        rows.artifact(conn, run_id, "planned", f"artifact-{run_id}")
        rows.dispatch(conn, run_id, "pass", f"dispatch-{run_id}")
        happen(run_id=run_id, from_state="planned", to_state="executing")
    conn.execute("UPDATE dispatches SET input_tokens = 90, output_tokens = 5, cache_hits = 7")

    found = read(conn)

    assert found.run.id == "run00001"
    assert [agent.id for agent in found.agents] == ["agent-run00001"]
    assert [artifact.id for artifact in found.artifacts] == ["artifact-run00001"]
    assert [dispatch.id for dispatch in found.dispatches] == ["dispatch-run00001"]
    assert [(move.from_phase, move.to_phase) for move in found.events] == [("planned", "executing")]
    assert found.tokens == Tokens("run00001", 90, 5, 7, 95, 700 / 97)
    assert found.budget == Budget("run00001", 100, 95, 80)
    assert found.gate is not None
    assert (found.gate.to_phase, found.gate.result) == ("review", "fail")
    assert found.cut == []


def test_the_history_is_that_of_the_phase_in_order_with_its_gates(conn, happen):
    rows.run(conn)
    happen("block", payload='{"gate_result":"fail","gate_tier":"hard"}', reason="why")
    happen("status_change", source="dispatch")
    happen("advance", payload='{"gate_result":7}')
    happen("advance", payload="[1]")

    found = read(conn).events

    assert [(move.event_type, move.gate_result, move.gate_tier) for move in found] == [
        ("block", "fail", "hard"),
        ("advance", None, None),
        ("advance", None, None),
    ]
    assert found[0].reason == "why"


def test_the_gate_is_that_of_the_way_past_skipped_phases(conn):
    rows.run(conn, phase="review")
    rows.skip(conn, "run00001", "polish")

    gate = read(conn).gate

    assert (gate.to_phase, gate.result, gate.tier) == ("reflect", "fail", "soft")
    assert b'"verdict_exists"' in bytes(gate.evidence)


@pytest.mark.parametrize(
    "columns",
    [{"status": "cancelled"}, {"phase": "done"}, {"status": "completed", "phase": "done"}],
)
def test_a_run_that_goes_nowhere_has_no_gate(conn, columns):
    rows.run(conn, **columns)

    assert read(conn).gate is None


def test_of_very_much_the_newest_is_shown_and_that_there_is_more(conn, happen, monkeypatch):
    monkeypatch.setattr(snapshots, "MOST", 2)
    rows.run(conn)
    for number in range(3):
        happen(reason=str(number))
        rows.agent(conn, "run00001", f"agent{number}")
        rows.artifact(conn, "run00001", "planned", f"artifact{number}")
        rows.dispatch(conn, "run00001", None, f"dispatch{number}")

    found = read(conn)

    assert [move.reason for move in found.events] == ["1", "2"]
    assert [agent.id for agent in found.agents] == ["agent1", "agent2"]
    assert [artifact.id for artifact in found.artifacts] == ["artifact1", "artifact2"]
    assert [dispatch.id for dispatch in found.dispatches] == ["dispatch1", "dispatch2"]
    assert found.cut == ["events", "agents", "artifacts", "dispatches"]


def test_what_is_not_shown_takes_no_memory(conn, monkeypatch):
    monkeypatch.setattr(snapshots, "MOST", 2)
    rows.run(conn)
    for number in range(2000):
        rows.agent(conn, "run00001", f"agent{number}")
        rows.artifact(conn, "run00001", "planned", f"artifact{number}")
    read(conn)  # what is loaded and kept once
    tracemalloc.start()
    try:
        found = read(conn)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert [agent.id for agent in found.agents] == ["agent1998", "agent1999"]
    assert peak < 100_000  # all of them take a million


def test_rules_that_cannot_be_read_keep_nobody_from_seeing_the_rest(conn):
    rows.run(conn, phases='["brainstorm","done"]', gates="[7]")
    rows.agent(conn, "run00001", "agent001")

    found = read(conn)

    assert (found.gate.result, found.gate.tier, found.gate.to_phase) == ("unknown", "none", "done")
    assert found.gate.error
    assert [agent.id for agent in found.agents] == ["agent001"]


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("statement", "index"),
    [
        (runs._AGENTS, "run_agents_by_run (run_id=?)"),
        (runs._UPDATE_AGENT, "sqlite_autoindex_run_agents_1 (id=?)"),
        (runs._ARTIFACTS, "run_artifacts_by_phase (run_id=?)"),
        (runs._ORIGINS, "run_artifacts_by_phase (run_id=?)"),
        (budgets._TOKENS, "dispatches_by_run (run_id=?)"),
        (histories._FROM_THE_END, "events_by_run (run_id=?)"),
        (statusline._RUN, "runs_by_project (project_dir=?)"),
    ],
)
def test_what_belongs_to_a_run_is_found_by_an_index(conn, statement, index):
    numbers = [int(number) for number in re.findall(r"\?(\d)", statement)]
    values = [None] * (max(numbers) if numbers else statement.count("?"))

    steps = [row[-1] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}", values)]

    assert index in steps[0]
    assert not any(step.startswith("SCAN") for step in steps)
