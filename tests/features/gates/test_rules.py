"""The rules of gates: those of everybody, and what a run may bring."""

import json

import msgspec
import pytest

from icd.errors import InvalidGates
from icd.features.gates import store as gates
from icd.features.gates.store import CHECKS, CHECKS_OF_A_RULE, DEFAULT, RULES, RULES_BYTES
from icd.features.runs import phases

ARTIFACT = {"check": "artifact_exists", "phase": "a"}
AGENTS = {"check": "agents_complete"}


def rule(*checks, start="a", to="b", **more):
    return {"from": start, "to": to, "checks": list(checks), **more}


def refusal(*rules):
    with pytest.raises(InvalidGates) as caught:
        gates.parse(json.dumps(rules))
    return caught.value.message


def test_the_default_rules_are_themselves_valid_for_the_default_chain():
    text = msgspec.json.encode(DEFAULT).decode()

    assert gates.parse(text) == text
    gates.check_against(text, phases.DEFAULT)


def test_every_check_but_that_of_the_budget_stands_in_a_default_rule():
    asked = {check.check for rule in DEFAULT for check in rule.checks}

    assert asked | {gates.BUDGET.check} == set(CHECKS)


def test_rules_are_stored_in_one_form_however_they_were_written():
    text = """
        [ {"to": "b", "checks": [{"phase": "a", "check": "artifact_exists"},
                                 {"check": "agents_complete", "phase": null}], "from": "a"} ]
    """

    assert gates.parse(text) == (
        '[{"from":"a","to":"b","checks":[{"check":"artifact_exists","phase":"a"},'
        '{"check":"agents_complete"}]}]'
    )


def test_no_rules_at_all_are_rules():
    assert gates.parse(" [] ") == "[]"


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "not JSON"),
        ("[", "not JSON"),
        ("{}", "not a JSON array"),
        ("null", "not a JSON array"),
        ("[" * 30_000, "nested too deeply"),
        ("1" * 5000, "not JSON"),
        ('["\udcff"]', "entry 1: contains a value that is not text"),
        (r'[{"from":"\ud800","to":"b","checks":[]}]', "entry 1: "),
        (r'[{"\ud800":"a"}]', "entry 1: "),
        (r'[{"\ud800":"a","\ud800":"b"}]', "appears twice"),
        ('[{"from":"a","from":"b"}]', "the field 'from' appears twice"),
    ],
)
def test_what_are_no_rules_is_refused_with_the_reason(text, reason):
    with pytest.raises(InvalidGates, match=reason):
        gates.parse(text)


@pytest.mark.parametrize(
    "entry, reason",
    [
        (7, "Expected `object`, got `int`"),
        ({"from": "a", "to": "b"}, "missing required field `checks`"),
        (rule(AGENTS, tier="hard"), "unknown field `tier`"),
        (rule(AGENTS | {"count": 2}), "unknown field `count`"),
        (rule({"phase": "a"}), "missing required field `check`"),
        (rule("agents_complete"), "Expected `object`, got `str`"),
        (rule({"check": "tests_green"}), "unknown check 'tests_green'; known: artifact_exists,"),
        (rule({"check": "artifact_exists"}), "artifact_exists needs a phase"),
        (rule(AGENTS | {"phase": "a"}), "agents_complete takes no phase"),
        (rule(ARTIFACT | {"phase": "a b"}), "invalid phase name 'a b'"),
        (rule(AGENTS, start=""), "invalid phase name ''"),
        (rule(AGENTS, to="b\n"), "invalid phase name 'b\\n'"),
        (rule(), "a → b has no checks"),
        (rule(ARTIFACT, AGENTS, ARTIFACT), "artifact_exists appears twice"),
        (rule(AGENTS, start="x", to="y"), "x → y appears twice"),
    ],
)
def test_a_wrong_entry_is_named_with_what_is_wrong(entry, reason):
    message = refusal(rule(AGENTS, start="x", to="y"), entry)

    assert message.startswith("gate rules: entry 2: ")
    assert reason in message


def test_rules_are_bounded_in_number_and_size():
    many = [rule(AGENTS, start=f"p{number}") for number in range(RULES + 1)]
    checks = [ARTIFACT | {"phase": f"p{number}"} for number in range(CHECKS_OF_A_RULE + 1)]

    assert gates.parse(json.dumps(many[:-1]))
    assert refusal(*many) == f"gate rules: more than {RULES} entries"
    assert gates.parse(json.dumps([rule(*checks[:-1])]))
    assert f"more than {CHECKS_OF_A_RULE} checks" in refusal(rule(*checks))
    assert gates.parse("[]" + " " * (RULES_BYTES - 2)) == "[]"
    for text in (" " * (RULES_BYTES - 1) + "[]", '"' + "é" * (RULES_BYTES // 2) + '"'):
        with pytest.raises(InvalidGates, match=f"more than {RULES_BYTES} bytes"):
            gates.parse(text)


def test_a_rule_that_the_run_would_never_meet_is_refused():
    chain = ["plan", "work", "done"]
    for start, to in [("plan", "done"), ("work", "plan"), ("brainstorm", "work")]:
        text = gates.parse(
            json.dumps([rule(AGENTS, start="plan", to="work"), rule(AGENTS, start=start, to=to)])
        )

        with pytest.raises(InvalidGates, match=f"entry 2: .* no transition {start} → {to}"):
            gates.check_against(text, chain)


def test_an_artifact_of_a_phase_that_does_not_exist_is_a_mistake():
    text = gates.parse(json.dumps([rule(ARTIFACT | {"phase": "paln"}, start="plan", to="work")]))

    with pytest.raises(InvalidGates, match="entry 1: paln is not a phase"):
        gates.check_against(text, ["plan", "work", "done"])


def test_rules_are_listed_as_a_run_meets_them():
    shuffled = DEFAULT[::-1]

    assert gates.met(shuffled, phases.DEFAULT) == list(DEFAULT)
    assert gates.met(shuffled, phases.DEFAULT, "review") == [DEFAULT[5]]
    assert gates.met(shuffled, phases.DEFAULT, "polish") == []
    assert gates.met(shuffled, ["review", "polish", "shipped"]) == [DEFAULT[5]]
