"""Whatever the chain, the rules and what is recorded: going far is going step by step."""

from itertools import pairwise

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.features.gates import store as gates
from icd.features.gates.store import Check, Rule
from icd.features.runs import store as runs
from tests.support import rows

RUN = "run00001"
NAMES = st.lists(
    st.sampled_from(["plan", "work", "review", "polish", "reflect", "done", "x", "y"]),
    min_size=2,
    max_size=7,
    unique=True,
)


@st.composite
def situations(draw):
    """A chain, its rules (None: those of everybody), two places in it, and what is recorded."""
    chain = draw(NAMES)
    checks = st.one_of(
        st.builds(Check, st.just("artifact_exists"), st.sampled_from(chain)),
        st.sampled_from([Check("agents_complete"), Check("verdict_exists")]),
    )
    some = st.lists(checks, max_size=3, unique=True)
    drawn = [(step, draw(some)) for step in pairwise(chain)]
    rules = [Rule(*step, tuple(checks)) for step, checks in drawn if checks]
    start = draw(st.integers(0, len(chain) - 2))
    return {
        "chain": chain,
        "rules": draw(st.sampled_from([rules, None])),
        "way": chain[start : draw(st.integers(start + 2, len(chain)))],
        "artifacts": draw(st.sets(st.sampled_from(chain))),
        "agents": draw(st.integers(0, 2)),
        "verdict": draw(st.sampled_from([None, "pass", "warn", "fail"])),
        "priority": draw(st.integers(-1, 5)),
    }


def record(conn, found):
    rules = found["rules"]
    own = None if rules is None else gates.parse(msgspec.json.encode(rules).decode())
    chain = msgspec.json.encode(found["chain"]).decode()
    rows.run(conn, RUN, phase=found["way"][0], phases=chain, gates=own)
    for number, phase in enumerate(found["artifacts"]):
        rows.artifact(conn, RUN, phase, f"a{number}")
    for number in range(found["agents"]):
        rows.agent(conn, RUN, f"g{number}")
    rows.dispatch(conn, RUN, found["verdict"])


def judged(conn, phase, to_phase, priority):
    run = msgspec.structs.replace(runs.require(conn, RUN), phase=phase)
    return gates.evaluate(conn, run, to_phase, priority=priority)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(situations())
def test_passing_over_phases_is_never_easier_than_going_through_each(scratch, found):
    way, priority = found["way"], found["priority"]
    with scratch() as conn:
        record(conn, found)

        at_once = judged(conn, way[0], way[-1], priority)
        one_by_one = [judged(conn, *step, priority) for step in pairwise(way)]

    refused = any(verdict.result == "fail" for verdict in one_by_one)
    assert (at_once.result == "fail") == refused
    assert {verdict.tier for verdict in one_by_one} == {at_once.tier}
    assert [(c.check, c.phase, c.result, c.detail) for c in at_once.evidence] == [
        (c.check, c.phase, c.result, c.detail) for each in one_by_one for c in each.evidence
    ]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(situations())
def test_a_hard_gate_that_is_closed_now_is_closed_from_further_back(scratch, found):
    way = found["way"]
    with scratch() as conn:
        record(conn, found)

        near = judged(conn, way[-2], way[-1], 0)
        far = judged(conn, way[0], way[-1], 0)

    assert far.result == "fail" or near.result == "pass"
