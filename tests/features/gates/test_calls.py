"""gate.*: verdicts and rules as the API tells them."""

import msgspec
import pytest

from icd.app import registry
from icd.errors import RunNotFound, RunOver, Usage
from icd.features.gates.store import DEFAULT
from tests.support import rows

RUN = "run00001"


def test_a_check_tells_where_the_run_would_go_and_why_it_may_not(conn, result):
    rows.run(conn, phase="review")

    found = result("gate.check", run_id=RUN)

    assert msgspec.to_builtins(found) == {
        "evidence": {
            "conditions": [
                {
                    "check": "verdict_exists",
                    "result": "fail",
                    "detail": "no passing verdict found",
                }
            ]
        },
        "from_phase": "review",
        "result": "fail",
        "run_id": RUN,
        "tier": "soft",
        "to_phase": "polish",
    }


def test_a_check_without_evidence_has_none(conn, result):
    rows.run(conn, phase="polish")

    found = result("gate.check", run_id=RUN, priority=0)

    assert (found.result, found.tier, found.evidence) == ("pass", "hard", None)
    assert "evidence" not in msgspec.to_builtins(found)


def test_a_check_changes_nothing(conn, result):
    rows.run(conn)
    before = conn.execute("SELECT * FROM runs").fetchall()

    result("gate.check", run_id=RUN, priority=0)

    assert conn.execute("SELECT * FROM runs").fetchall() == before
    assert conn.execute("SELECT count(*) FROM events").fetchone() == (0,)
    assert not registry.find("gate.check").writes


def test_a_check_goes_over_skipped_phases_and_their_gates(conn, result):
    rows.run(conn, phase="review")
    rows.skip(conn, RUN, "polish")

    found = result("gate.check", run_id=RUN, priority=0)

    assert (found.to_phase, found.result, found.tier) == ("reflect", "fail", "hard")


def test_a_run_that_is_not_there_and_one_that_is_over_are_told_apart(conn, ask):
    rows.run(conn, status="cancelled")

    assert isinstance(ask("gate.check", run_id="nobody").error, RunNotFound)
    assert isinstance(ask("gate.check", run_id=RUN).error, RunOver)
    assert isinstance(ask("gate.rules", run_id="nobody").error, RunNotFound)


def test_the_rules_of_a_run_are_its_own_or_those_of_everybody(conn, result):
    own = '[{"from":"b","to":"c","checks":[{"check":"agents_complete"}]}]'
    rows.run(conn)
    rows.run(conn, "run00002", phase="a", phases='["a","b","c"]', gates=own)
    rows.run(conn, "run00003", phase="a", phases='["a","b","c"]')

    assert result("gate.rules", run_id=RUN) == list(DEFAULT)
    assert msgspec.json.encode(result("gate.rules", run_id="run00002")).decode() == own
    assert result("gate.rules", run_id="run00002", phase="a") == []
    assert result("gate.rules", run_id="run00003") == []


@pytest.mark.parametrize("reason", ["", " \t"])
def test_an_override_needs_a_reason(call, reason):
    with pytest.raises(Usage, match="needs a reason"):
        call("gate.override", run_id=RUN, reason=reason)
