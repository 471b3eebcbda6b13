"""Tokens and budgets: a level that can be asked for at any time, and events that come once."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.features.events import store as events
from icd.features.runs import budget as budgets
from icd.features.runs import store as runs
from icd.features.runs.budget import Budget, Tokens
from icd.values.processes import Writer
from tests.support import rows

NOW = rows.NOW * 1000
ME = Writer(41, "session-a")


@pytest.fixture
def use(conn):
    """Have a dispatch report its tokens, as often as it likes: the last report counts."""

    def used(tokens_in, tokens_out=0, cache=None, *, dispatch="d1", run="run00001"):
        conn.execute("DELETE FROM dispatches WHERE id = ?", (dispatch,))
        rows.dispatch(conn, run, None, dispatch)
        conn.execute(
            "UPDATE dispatches SET input_tokens = ?, output_tokens = ?, cache_hits = ? WHERE id = ?",
            (tokens_in, tokens_out, cache, dispatch),
        )

    return used


@pytest.fixture
def check(conn):
    def checked(run_id="run00001"):
        return budgets.check(conn, run_id, actor=ME, now_ms=NOW)

    return checked


def told(conn):
    return [event.type for event in events.read(conn, limit=100, source="budget")]


def test_the_tokens_of_a_run_are_those_of_its_dispatches(conn, use):
    use(100, 20, 50, dispatch="d1")
    use(10, 2, dispatch="d2")
    use(7000, run="run00002", dispatch="d3")
    use(7000, run=None, dispatch="d4")

    assert budgets.tokens(conn, "run00001") == Tokens("run00001", 110, 22, 50, 132, 5000 / 160)


def test_a_dispatch_that_only_shares_the_scope_does_not_count(conn):
    rows.run(conn, scope_id="bead-1")
    rows.dispatch(conn, None, None, scope_id="run00001")
    conn.execute("UPDATE dispatches SET input_tokens = 5")

    assert budgets.tokens(conn, "run00001") == Tokens("run00001", 0, 0, 0, 0)


def test_sums_that_no_column_can_hold_stop_at_the_largest_number(conn, use, check):
    rows.run(conn, token_budget=100)
    for dispatch in ("d1", "d2", "d3"):
        use(2**62, 2**63 - 1, 2**40 + 1, dispatch=dispatch)

    found = budgets.tokens(conn, "run00001")

    sums = (found.input_tokens, found.output_tokens, found.cache_hits)
    assert sums == (2**63 - 1, 2**63 - 1, 3 * (2**40 + 1))
    assert found.total_tokens == 2**63 - 1
    assert check().exceeded
    assert told(conn) == ["exceeded"]


@pytest.mark.parametrize(
    ("tokens_in", "cache", "ratio"),
    [(0, 0, None), (0, 5, 0), (75, 25, 25), (100, 0, 0), (2, 1, 100 / 3)],
)
def test_the_share_of_the_cache_is_told_once_there_was_input(tokens_in, cache, ratio):
    assert budgets.cache_ratio(tokens_in, cache) == ratio


@pytest.mark.parametrize(
    ("used", "warning", "exceeded"),
    [
        (0, False, False),
        (799, False, False),
        (800, True, False),
        (999, True, False),
        (1000, False, True),
        (5000, False, True),
    ],
)
def test_a_budget_warns_at_its_threshold_and_is_exceeded_when_used_up(used, warning, exceeded):
    budget = Budget("run00001", 1000, used, 80)

    assert (budget.warning, budget.exceeded) == (warning, exceeded)


def test_whole_percents_are_whole_numbers():
    assert msgspec.json.encode(Budget("r", 1000, 5000, 80).usage_pct) == b"500"
    assert Budget("r", 3, 1, 80).usage_pct == 100 / 3


def test_exceeded_stays_exceeded_however_often_it_is_asked(conn, use, check):
    rows.run(conn, token_budget=1000)
    use(400, 600)

    answers = [check() for _ in range(3)]
    asked = [budgets.of_run(conn, runs.require(conn, "run00001")) for _ in range(3)]

    assert answers + asked == [Budget("run00001", 1000, 1000, 80)] * 6
    assert all(budget.exceeded for budget in answers)
    assert told(conn) == ["exceeded"]


def test_asking_does_not_use_the_event_up(conn, use, check):
    rows.run(conn, token_budget=1000)
    use(900)

    budgets.of_run(conn, runs.require(conn, "run00001"))
    before = told(conn)
    check()

    assert before == []
    assert told(conn) == ["warning"]


def test_an_event_tells_who_used_what(conn, use, check):
    rows.run(conn, token_budget=1000, budget_warn_pct=50)
    use(500)

    check()

    (event,) = events.read(conn, limit=10, source="budget", run_id="run00001")
    assert (event.type, event.to_state, event.subject_id) == ("warning", "warning", "run00001")
    assert event.reason == "500/1000 tokens"
    assert msgspec.json.decode(event.payload) == {"budget": 1000, "used": 500, "warn_pct": 50}
    assert (event.session, event.project_dir) == ("session-a", "/project")


def test_without_a_budget_there_is_nothing_to_check(conn, use, check):
    rows.run(conn)
    use(10**12)

    assert check() is None
    assert check("nobody") is None
    assert told(conn) == []


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
)
@given(reports=st.lists(st.integers(0, 300), max_size=12), warn_pct=st.integers(1, 99))
def test_whatever_is_reported_the_level_is_true_and_each_event_comes_once(
    scratch, use, reports, warn_pct
):
    with scratch() as conn:
        rows.run(conn, token_budget=100, budget_warn_pct=warn_pct)
        expected: list[str] = []
        for used in reports:
            use(used)

            found = budgets.check(conn, "run00001", actor=ME, now_ms=NOW)

            level = "exceeded" if used >= 100 else "warning" if used >= warn_pct else ""
            assert (found.exceeded, found.warning) == (level == "exceeded", level == "warning")
            if level and level not in expected and "exceeded" not in expected:
                expected.append(level)
            assert told(conn) == expected
