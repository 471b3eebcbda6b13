"""`icctl gate override`: past a closed gate, with a reason that is recorded."""

import json

import pytest

from icd.app.invocation import Output
from icd.features.events import store as events
from icd.features.runs import store as runs
from tests.support import rows

RUN = "run00001"


def test_an_override_goes_on_and_says_why(ic, conn):
    rows.run(conn, phase="review")

    output = ic("gate", "override", RUN, "--reason=reviewed by hand")

    assert output == Output(0, "review → polish (override: reviewed by hand)\n".encode())
    assert runs.require(conn, RUN).phase == "polish"


def test_an_override_is_recorded_as_a_hard_gate_that_failed(ic, conn):
    rows.run(conn, phase="review")

    ic("gate", "override", RUN, "--reason=because")

    (event,) = events.read(conn, limit=10, run_id=RUN)
    assert (event.source, event.type, event.from_state, event.to_state, event.reason) == (
        "phase",
        "override",
        "review",
        "polish",
        "because",
    )
    assert json.loads(bytes(event.payload)) == {"gate_result": "fail", "gate_tier": "hard"}


def test_an_override_goes_to_the_very_next_phase_though_it_is_skipped(ic, conn):
    rows.run(conn, phase="review")
    rows.skip(conn, RUN, "polish")

    output = ic("gate", "override", RUN, "--reason=r", "--json")

    assert output == Output(0, b'{"from_phase":"review","reason":"r","to_phase":"polish"}\n')


def test_an_override_needs_no_gate_that_is_closed(ic, conn):
    rows.run(conn, phase="polish")

    assert ic("gate", "override", RUN, "--reason=r").exit == 0


def test_an_override_to_the_last_phase_completes_the_run(ic, conn):
    rows.run(conn, phase="reflect")

    ic("gate", "override", RUN, "--reason=r")

    assert runs.require(conn, RUN).status == "completed"


def test_an_override_passes_rules_that_cannot_be_understood(ic, conn):
    rows.run(conn, gates="of tomorrow")

    checked = ic("gate", "check", RUN)
    overridden = ic("gate", "override", RUN, "--reason=r")

    assert (checked.exit, overridden.exit) == (2, 0)
    assert b"run run00001: gate rules: not JSON" in checked.stderr


@pytest.mark.parametrize(
    "columns", [{"status": "cancelled"}, {"status": "completed", "phase": "done"}]
)
def test_a_run_that_is_over_cannot_be_overridden(ic, conn, columns):
    rows.run(conn, **columns)

    outputs = [ic("gate", "override", run, "--reason=r") for run in (RUN, "nobody")]

    assert [output.exit for output in outputs] == [1, 1]
    assert conn.execute("SELECT count(*) FROM events").fetchone() == (0,)


def test_a_retried_override_goes_one_phase_only(ic, conn):
    rows.run(conn, phase="review")

    outputs = [ic("gate", "override", RUN, "--reason=r", request_id="r1") for _ in range(2)]

    assert outputs[0] == outputs[1]
    assert runs.require(conn, RUN).phase == "polish"
