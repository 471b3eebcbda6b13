"""A gate and the advance that meets it: what was asked before is what happens."""

import pytest

from icd.features.gates import store as gates
from icd.features.runs import store as runs
from icd.features.runs import transitions
from icd.values.processes import Writer
from tests.support import rows

NOW_MS = 1_800_000_000_000
RUN = "run00001"


def advance(conn, **options):
    return transitions.advance(conn, RUN, actor=Writer(pid=1), now_ms=NOW_MS, **options)


def asked(conn, priority=gates.DEFAULT_PRIORITY):
    run = runs.require(conn, RUN)
    return gates.evaluate(conn, run, transitions.next_phase(conn, run), priority=priority)


def test_an_advance_with_no_priority_is_not_checked_less_than_the_question_before_it(conn):
    rows.run(conn)

    before = asked(conn)
    found = advance(conn)

    assert (before.result, before.tier) == ("fail", "soft")
    assert (found.advanced, found.gate_result, found.gate_tier) == (True, "fail", "soft")


def test_a_skip_before_an_advance_does_not_lead_around_a_hard_gate(conn):
    rows.run(conn, phase="review")
    transitions.skip(conn, RUN, "polish", reason="r", actor=Writer(pid=1), now_ms=NOW_MS)

    found = advance(conn, priority=0)

    assert (found.advanced, found.event_type, found.to_phase) == (False, "block", "reflect")
    assert runs.require(conn, RUN).phase == "review"


@pytest.mark.parametrize("verdict, moves", [("pass", True), ("warn", True), ("fail", False)])
def test_an_important_run_is_not_moved_by_a_failing_verdict(conn, verdict, moves):
    rows.run(conn, phase="review", scope_id="bead-1")
    rows.dispatch(conn, RUN, verdict, scope_id=RUN)

    assert advance(conn, priority=1).advanced == moves


@pytest.mark.parametrize("priority", range(-1, 6))
@pytest.mark.parametrize("phase", ["brainstorm", "executing", "review", "polish", "reflect"])
def test_an_advance_does_what_the_question_before_it_says(conn, phase, priority):
    rows.run(conn, phase=phase)
    rows.skip(conn, RUN, "polish")
    rows.agent(conn, RUN, "g1")

    before = asked(conn, priority)
    found = advance(conn, priority=priority)

    assert (found.gate_result, found.gate_tier) == (before.result, before.tier)
    assert found.advanced == (before.result != "fail" or before.tier != "hard")
