"""Gates: what opens one, what does not, and that no way leads around it."""

import json

import pytest

from icd.errors import PhaseRefused, RunOver, UnreadableGates
from icd.features.gates import store as gates
from icd.features.gates.store import DEFAULT_PRIORITY, Verdict
from icd.features.runs import store as runs
from icd.features.runs import transitions
from tests.support import rows

HARD, SOFT, NONE = 0, 3, 4
RUN = "run00001"


@pytest.fixture
def verdict(conn):
    """What a gate says about the run."""

    def found(to_phase, *, priority=HARD, **options):
        run = runs.require(conn, RUN)
        return gates.evaluate(conn, run, to_phase, priority=priority, **options)

    return found


def results(verdict):
    return [(condition.check, condition.result) for condition in verdict.evidence]


# --- tiers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "priority, tier", [(-1, "hard"), (0, "hard"), (1, "hard"), (2, "soft"), (3, "soft")]
)
def test_the_priority_of_the_work_decides_how_much_a_gate_weighs(conn, verdict, priority, tier):
    rows.run(conn)

    found = verdict("brainstorm-reviewed", priority=priority)

    assert (found.result, found.tier) == ("fail", tier)


@pytest.mark.parametrize("priority", [4, 5, 1000])
def test_unimportant_work_is_not_checked(conn, verdict, priority):
    rows.run(conn)

    assert verdict("brainstorm-reviewed", priority=priority) == Verdict("none", "none", [])


def test_disabled_gates_check_nothing_even_for_important_work(conn, verdict):
    rows.run(conn)

    found = verdict("brainstorm-reviewed", priority=HARD, disabled=True)

    assert found == Verdict("none", "none", [])


def test_gates_are_not_off_by_default(conn, verdict):
    """An advance that checked less than the question before it would make the question a lie."""
    rows.run(conn)

    found = verdict("brainstorm-reviewed", priority=DEFAULT_PRIORITY)

    assert (DEFAULT_PRIORITY, found.result, found.tier) == (3, "fail", "soft")


# --- checks -----------------------------------------------------------------------------------


def test_a_phase_without_artifacts_keeps_the_gate_closed(conn, verdict):
    rows.run(conn, phase="planned")
    rows.artifact(conn, RUN, "brainstorm", "a1")

    found = verdict("executing")

    assert found.result == "fail"
    assert json.loads(found.evidence_json()) == {
        "conditions": [
            {
                "check": "artifact_exists",
                "phase": "planned",
                "result": "fail",
                "count": 0,
                "detail": 'no artifacts found for phase "planned"',
            }
        ]
    }


def test_evidence_has_its_fields_in_the_order_of_the_original(conn, verdict):
    rows.run(conn)
    rows.artifact(conn, RUN, "brainstorm", "a1")

    text = verdict("brainstorm-reviewed").evidence_json()

    assert text == (
        '{"conditions":[{"check":"artifact_exists","phase":"brainstorm","result":"pass","count":1}]}'
    )


def test_artifacts_that_were_rolled_back_do_not_count(conn, verdict):
    rows.run(conn)
    rows.artifact(conn, RUN, "brainstorm", "a1", status="rolled_back")

    assert verdict("brainstorm-reviewed").result == "fail"


def test_artifacts_and_agents_of_another_run_do_not_count(conn, verdict):
    rows.run(conn, phase="brainstorm")
    rows.run(conn, "run00002")
    rows.artifact(conn, "run00002", "brainstorm", "a1")
    rows.agent(conn, "run00002", "g1")

    assert verdict("brainstorm-reviewed").result == "fail"
    conn.execute("UPDATE runs SET phase = 'executing' WHERE id = ?", (RUN,))
    assert verdict("review").result == "pass"


def test_agents_that_are_still_active_are_counted(conn, verdict):
    rows.run(conn, phase="executing")
    for number, status in enumerate(["active", "active", "completed", "failed"]):
        rows.agent(conn, RUN, f"g{number}", status)

    (condition,) = verdict("review").evidence

    assert (condition.result, condition.count) == ("fail", 2)
    assert condition.detail == "2 agents still active"


def test_agents_that_have_ended_open_the_gate(conn, verdict):
    rows.run(conn, phase="executing")
    rows.agent(conn, RUN, "g1", "completed")

    (condition,) = verdict("review").evidence

    assert (condition.result, condition.count, condition.detail) == ("pass", 0, None)


@pytest.mark.parametrize("status", ["pass", "warn"])
def test_a_verdict_of_pass_or_warn_opens_the_gate(conn, verdict, status):
    rows.run(conn, phase="review")
    rows.dispatch(conn, RUN, status)

    assert verdict("polish").result == "pass"


@pytest.mark.parametrize("status", ["fail", "reject", "error", "unknown", "PASS ", "", None])
def test_a_failing_verdict_does_not_open_the_verdict_gate(conn, verdict, status):
    rows.run(conn, phase="review")
    rows.dispatch(conn, RUN, status)

    found = verdict("polish")

    assert found.result == "fail"
    assert found.evidence_json() == (
        '{"conditions":[{"check":"verdict_exists","result":"fail",'
        '"detail":"no passing verdict found"}]}'
    )


@pytest.mark.parametrize("scope_id", [None, RUN, "bead-1", "anything"])
def test_a_dispatch_of_the_run_counts_whatever_its_scope_says(conn, verdict, scope_id):
    rows.run(conn, phase="review", scope_id="bead-1")
    rows.dispatch(conn, RUN, "pass", scope_id=scope_id)

    assert verdict("polish").result == "pass"


@pytest.mark.parametrize("scope_id", [RUN, "bead-1"])
def test_a_dispatch_of_another_run_does_not_count_though_its_scope_is_the_same(
    conn, verdict, scope_id
):
    rows.run(conn, phase="review", scope_id="bead-1")
    rows.dispatch(conn, "run00002", "pass", scope_id=scope_id)
    rows.dispatch(conn, None, "pass", "dispatc2", scope_id=scope_id)

    assert verdict("polish").result == "fail"


def test_a_transition_without_a_rule_passes_without_evidence(conn, verdict):
    rows.run(conn, phase="polish")

    found = verdict("reflect")

    assert (found, found.evidence_json()) == (Verdict("pass", "hard", []), None)


# --- ways -------------------------------------------------------------------------------------


def test_skipping_a_phase_does_not_drop_a_hard_gate(conn, verdict):
    rows.run(conn, phase="review")

    found = verdict("reflect")  # over polish

    assert (found.result, found.tier) == ("fail", "hard")
    (condition,) = found.evidence
    assert (condition.check, condition.from_phase, condition.to_phase) == (
        "verdict_exists",
        "review",
        "polish",
    )


def test_every_transition_that_is_passed_over_is_checked_in_order(conn, verdict):
    rows.run(conn, phase="planned")
    rows.artifact(conn, RUN, "planned", "a1")
    rows.agent(conn, RUN, "g1")
    rows.dispatch(conn, RUN, "pass")

    found = verdict("done")

    assert results(found) == [
        ("artifact_exists", "pass"),
        ("agents_complete", "fail"),
        ("verdict_exists", "pass"),
        ("artifact_exists", "fail"),
    ]
    assert found.result == "fail"


def test_a_phase_that_is_not_ahead_is_never_taken_for_an_open_gate(conn, verdict):
    rows.run(conn, phase="review")

    for behind in ("planned", "review"):
        with pytest.raises(PhaseRefused, match="is not ahead of review"):
            verdict(behind)


def test_the_default_rules_hold_for_a_custom_chain_where_the_names_match(conn, verdict):
    rows.run(conn, phase="review", phases='["review","polish","shipped"]')

    assert verdict("polish").result == "fail"
    assert results(verdict("shipped")) == [("verdict_exists", "fail")]


def test_a_runs_own_rules_replace_the_default_ones(conn, verdict):
    own = '[{"from":"polish","to":"reflect","checks":[{"check":"agents_complete"}]}]'
    rows.run(conn, gates=own)
    rows.agent(conn, RUN, "g1")

    assert verdict("brainstorm-reviewed") == Verdict("pass", "hard", [])
    assert results(verdict("done")) == [("agents_complete", "fail")]


def test_rules_that_cannot_be_understood_open_no_gate(conn, verdict):
    rows.run(conn, gates='[{"from":"a","to":"b","checks":[{"check":"of_tomorrow"}]}]')

    with pytest.raises(
        UnreadableGates, match=r"run00001: gate rules: .*unknown check 'of_tomorrow'"
    ):
        verdict("brainstorm-reviewed")
    assert verdict("brainstorm-reviewed", disabled=True).result == "none"


# --- where an advance would go ------------------------------------------------------------------


def test_the_next_phase_is_the_first_one_that_is_not_skipped(conn):
    rows.run(conn, phase="review")
    rows.skip(conn, RUN, "polish")
    rows.run(conn, "run00002")
    rows.skip(conn, "run00002", "reflect")

    assert transitions.next_phase(conn, runs.require(conn, RUN)) == "reflect"


@pytest.mark.parametrize("status", ["completed", "cancelled", "failed", "abandoned"])
def test_a_run_that_is_over_goes_nowhere(conn, status):
    rows.run(conn, status=status)

    with pytest.raises(RunOver, match=f"terminal status .{status}."):
        transitions.next_phase(conn, runs.require(conn, RUN))


def test_there_is_nothing_after_the_last_phase(conn):
    rows.run(conn, phase="done")

    with pytest.raises(RunOver, match="terminal phase"):
        transitions.next_phase(conn, runs.require(conn, RUN))
