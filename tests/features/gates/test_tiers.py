"""How much a check weighs: its own tier, an enforced budget, a calibration; and rules as a map."""

import json

import msgspec
import pytest

from icd.errors import InvalidGates
from icd.features.gates import store as gates
from icd.features.gates.store import Calibrated, Calibration
from icd.features.runs import store as runs
from icd.features.runs import transitions
from icd.values.processes import Writer
from tests.support import rows

NOW_MS = 1_800_000_000_000
RUN = "run00001"
CHAIN = '["a","b","c"]'
AGENTS = {"check": "agents_complete"}
ARTIFACT = {"check": "artifact_exists", "phase": "a"}


def rules(*checks):
    return gates.parse(json.dumps([{"from": "a", "to": "b", "checks": checks}]))


def asked(conn, priority=3, **options):
    run = runs.require(conn, RUN)
    verdict = gates.evaluate(conn, run, "b", priority=priority, **options)
    return verdict.result, verdict.tier, [(c.check, c.result, c.tier) for c in verdict.evidence]


def advance(conn, **options):
    return transitions.advance(conn, RUN, actor=Writer(pid=1), now_ms=NOW_MS, **options)


# --- rules as newer scripts write them ---


def test_a_map_of_transitions_is_read_as_the_list_that_it_means():
    written = {
        "a→b": [ARTIFACT | {"tier": "hard"}, AGENTS | {"phase": "a", "tier": ""}],
        " b → c ": [{"check": "artifact_exists"}],
        "c→d": [],
    }

    assert json.loads(gates.parse(json.dumps(written))) == [
        {"from": "a", "to": "b", "checks": [ARTIFACT | {"tier": "hard"}, AGENTS]},
        {"from": "b", "to": "c", "checks": [{"check": "artifact_exists", "phase": "b"}]},
    ]


def test_a_map_that_asks_for_nothing_replaces_the_default_rules(conn):
    rows.run(conn, phase="brainstorm", gates=gates.parse('{"brainstorm→brainstorm-reviewed":[]}'))

    assert gates.rules_of(runs.require(conn, RUN)) == ()


@pytest.mark.parametrize(
    "text, reason",
    [
        ("{}", "object with transitions"),
        ('{"a":[]}', "the key 'a' is not FROM→TO"),
        ('{"→b":[]}', "is not FROM→TO"),
        ('{"a→b→c":[{"check":"agents_complete"}]}', "invalid phase name 'b→c'"),
        ('{"a→b":{}}', "Expected `array`"),
        ('{"a→b":[7]}', "Expected `object`"),
        ('{"a→b":[{"check":"x"}]}', "unknown check 'x'"),
        ('{"a→b":[{"check":"agents_complete","tier":"firm"}]}', "Invalid enum value 'firm'"),
        ('{"a→b":[],"a→b":[]}', "appears twice"),
        ('{"a→b":[{"check":"agents_complete"}]," a→b":[{"check":"agents_complete"}]}', "twice"),
    ],
)
def test_a_map_that_means_nothing_is_refused_with_the_reason(text, reason):
    with pytest.raises(InvalidGates, match=reason):
        gates.parse(text)


# --- a tier of its own ---


@pytest.mark.parametrize("priority", [0, 3, 4, 99])
def test_a_hard_check_blocks_whatever_the_priority_is(conn, priority):
    rows.run(conn, phase="a", phases=CHAIN, gates=rules(ARTIFACT | {"tier": "hard"}))

    found = advance(conn, priority=priority)

    assert (found.event_type, found.gate_tier) == ("block", "hard")


def test_a_soft_check_is_told_of_unimportant_work_and_the_others_are_spared(conn):
    rows.run(conn, phase="a", phases=CHAIN, gates=rules(ARTIFACT | {"tier": "soft"}, AGENTS))

    assert asked(conn, 4) == ("fail", "soft", [("artifact_exists", "fail", "soft")])
    assert advance(conn, priority=4).advanced


def test_a_soft_check_of_important_work_is_as_hard_as_that(conn):
    rows.run(conn, phase="a", phases=CHAIN, gates=rules(ARTIFACT | {"tier": "soft"}))

    assert asked(conn, 0) == ("fail", "hard", [("artifact_exists", "fail", None)])


def test_a_hard_check_that_passes_makes_no_other_one_block(conn):
    rows.run(conn, phase="a", phases=CHAIN, gates=rules(ARTIFACT, AGENTS | {"tier": "hard"}))

    result, tier, _ = asked(conn, 3)

    assert (result, tier) == ("fail", "soft")
    assert advance(conn, priority=3).advanced


def test_no_check_is_asked_where_gates_are_disabled(conn):
    rows.run(conn, phase="a", phases=CHAIN, gates=rules(ARTIFACT | {"tier": "hard"}))

    assert asked(conn, disabled=True) == ("none", "none", [])


# --- an enforced budget ---


def used_up(conn, tokens):
    rows.dispatch(conn, RUN, "pass")
    conn.execute("UPDATE dispatches SET input_tokens = ?", (tokens,))


@pytest.mark.parametrize(
    "used, event", [(9, "advance"), (10, "block"), (11, "block")], ids=["left", "all", "more"]
)
def test_an_enforced_budget_closes_every_gate_once_it_is_used_up(conn, used, event):
    rows.run(conn, phase="a", phases=CHAIN, token_budget=10, budget_enforce=1)
    used_up(conn, used)

    assert advance(conn, priority=9).event_type == event


def test_a_budget_that_is_not_enforced_closes_none(conn):
    rows.run(conn, phase="a", phases=CHAIN, token_budget=10)
    used_up(conn, 11)

    assert advance(conn, priority=0).advanced


def test_an_enforced_budget_stands_beside_the_rules_of_a_run_and_is_shown_with_them(conn):
    soft = {"check": gates.BUDGET.check}
    rows.run(conn, phase="a", phases=CHAIN, gates=rules(AGENTS, soft), budget_enforce=1)

    found = gates.rules_of(runs.require(conn, RUN))

    assert [(r.from_phase, r.to_phase, [c.check for c in r.checks]) for r in found] == [
        ("a", "b", ["agents_complete", "budget_not_exceeded"]),
        ("b", "c", ["budget_not_exceeded"]),
    ]


def test_a_rule_may_ask_for_the_budget_by_itself(conn):
    rows.run(
        conn, phase="a", phases=CHAIN, token_budget=1, gates=rules({"check": gates.BUDGET.check})
    )
    used_up(conn, 1)

    assert asked(conn) == ("fail", "soft", [("budget_not_exceeded", "fail", None)])


# --- a calibration ---

KEY = "artifact_exists:brainstorm→brainstorm-reviewed"


def calibrated(tier="hard", *, locked=False, created_at=NOW_MS / 1000):
    return Calibration(created_at, {KEY: Calibrated(tier, locked)})


def raised(calibration, now_ms=NOW_MS):
    warnings = []
    text = msgspec.json.encode(calibration)
    return gates.raised(text, warnings, now_ms=now_ms), warnings


def test_a_calibration_makes_a_default_rule_hard(conn):
    rows.run(conn)
    keys, _ = raised(calibrated())

    found = advance(conn, priority=3, raised=keys)

    assert (found.event_type, found.gate_tier) == ("block", "hard")


@pytest.mark.parametrize("calibration", [calibrated("soft"), calibrated(locked=True), None])
def test_what_a_calibration_does_not_make_hard_stays_as_it_is(conn, calibration):
    rows.run(conn)
    keys, warnings = raised(calibration)

    assert advance(conn, priority=3, raised=keys).advanced
    assert warnings == []


def test_a_calibration_makes_nothing_easier(conn):
    rows.run(conn)
    keys, _ = raised(calibrated("soft"))

    assert advance(conn, priority=0, raised=keys).event_type == "block"


def test_a_calibration_leaves_the_rules_of_a_run_alone(conn):
    text = gates.parse('{"brainstorm→brainstorm-reviewed":[{"check":"artifact_exists"}]}')
    rows.run(conn, gates=text)
    keys, _ = raised(calibrated())

    assert advance(conn, priority=3, raised=keys).advanced


def test_a_calibration_counts_for_a_day_and_then_it_is_told(conn):
    day_ms = 24 * 3600 * 1000

    assert raised(calibrated(), NOW_MS + day_ms) == ({KEY}, [])
    assert raised(calibrated(), NOW_MS + day_ms + 1) == (
        set(),
        ["the calibration is older than 24 h and was ignored"],
    )
