"""Which gates were right, as far as what followed tells."""

import json
import time

import pytest

from icd.db.connection import transaction
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.gates import signals
from icd.features.runs import create, transitions
from icd.values.processes import Writer
from tests.support import rows

NOW_MS = 1_800_000_000_000
RUN = "run00001"
TOLD = {"actor": Writer(pid=1), "now_ms": NOW_MS}


def told(conn, since=0):
    return [(s.signal_type, s.check_type, s.category) for s in signals.since(conn, since).signals]


def test_a_gate_that_blocks_and_stands_is_right(conn):
    rows.run(conn)
    transitions.advance(conn, RUN, priority=0, **TOLD)

    (found,) = signals.since(conn, 0).signals

    assert (found.signal_type, found.check_type, found.run_id) == ("tp", "artifact_exists", RUN)
    assert (found.from_phase, found.to_phase) == ("brainstorm", "brainstorm-reviewed")
    assert (found.created_at, found.category) == (NOW_MS // 1000, None)


@pytest.mark.sqlite_only
def test_overrides_look_at_the_blocks_before_them_only(conn):
    """A log of many blocks, and of overrides that are about none of them, is read as fast."""
    evidence = json.dumps({"conditions": [{"check": f"c{n}", "result": "fail"} for n in range(32)]})
    payload = '{"gate_result":"fail"}'
    with transaction(conn):
        for number in range(4000):
            kind, phase = ("block", "a") if number % 2 else ("override", "x")
            fact = Fact(
                "phase", kind, run_id=RUN, from_state=phase, to_state="b",
                reason=evidence if number % 2 else "", payload=payload,
            )  # fmt: skip
            events.append(conn, fact, **TOLD)
    began = time.process_time()

    found = signals.since(conn, 0)

    assert [len([s for s in found.signals if s.signal_type == kind]) for kind in ("tp", "fp")] == [
        64_000,
        2000,
    ]
    assert time.process_time() - began < 2


def test_a_failed_check_that_held_nobody_up_is_wrong(conn):
    rows.run(conn)
    transitions.advance(conn, RUN, priority=3, **TOLD)

    assert told(conn) == [("fp", "artifact_exists", None)]


def test_a_check_that_passed_is_right_until_the_run_comes_back_from_beyond_it(conn):
    rows.run(conn)
    rows.artifact(conn, RUN, "brainstorm", "a1")
    transitions.advance(conn, RUN, priority=0, **TOLD)

    before = told(conn)
    create.rollback(conn, RUN, "brainstorm", reason="r", **TOLD)

    assert before == [("tn", "artifact_exists", None)]
    assert told(conn) == [("fn", "artifact_exists", None)]


def test_a_rollback_to_later_phases_leaves_earlier_gates_right(conn):
    rows.run(conn)
    for phase in ("brainstorm", "brainstorm-reviewed"):
        rows.artifact(conn, RUN, phase, phase)
        transitions.advance(conn, RUN, priority=0, **TOLD)
    create.rollback(conn, RUN, "brainstorm-reviewed", reason="r", **TOLD)

    assert told(conn) == [("tn", "artifact_exists", None), ("fn", "artifact_exists", None)]


@pytest.mark.parametrize(
    "category, shown",
    [("justified", "justified"), ("expedient", "expedient"), (None, "uncategorized")],
)
def test_a_block_that_is_overridden_counts_once_as_wrong(conn, category, shown):
    rows.run(conn)
    transitions.advance(conn, RUN, priority=0, **TOLD)
    transitions.advance(conn, RUN, priority=0, **TOLD)
    transitions.override(conn, RUN, "r", category=category, **TOLD)

    assert told(conn) == [("fp", "artifact_exists", shown)]


def test_an_override_of_a_gate_that_never_blocked_names_no_check(conn):
    rows.run(conn)
    transitions.override(conn, RUN, "r", **TOLD)

    assert told(conn) == [("fp", "", "uncategorized")]


def test_an_override_of_another_run_leaves_a_block_alone(conn):
    rows.run(conn)
    rows.run(conn, "run00002")
    transitions.advance(conn, RUN, priority=0, **TOLD)
    transitions.override(conn, "run00002", "r", **TOLD)

    assert told(conn) == [("tp", "artifact_exists", None), ("fp", "", "uncategorized")]


def test_checks_of_a_run_that_passes_over_phases_are_told_with_their_own_transitions(conn):
    rows.run(conn, phase="review")
    rows.skip(conn, RUN, "polish")
    transitions.advance(conn, RUN, priority=0, **TOLD)

    (found,) = signals.since(conn, 0).signals

    assert (found.from_phase, found.to_phase) == ("review", "polish")


def test_the_cursor_reads_on_and_says_nothing_twice(conn):
    rows.run(conn)
    transitions.advance(conn, RUN, priority=0, **TOLD)
    first = signals.since(conn, 0)
    again = signals.since(conn, first.cursor)
    transitions.advance(conn, RUN, priority=0, **TOLD)

    assert (again.signals, again.cursor) == ([], first.cursor)
    assert told(conn, first.cursor) == [("tp", "artifact_exists", None)]


def test_an_advance_without_gates_says_nothing(conn):
    rows.run(conn)
    transitions.advance(conn, RUN, disable_gates=True, **TOLD)

    assert told(conn) == []


@pytest.mark.parametrize(
    "reason, payload, expected",
    [
        ('{"override_category":"justified","reason":"r"}', None, [("fp", "", "justified")]),
        ("{", None, [("fp", "", "uncategorized")]),
        ('{"override_category":7}', "[7]", [("fp", "", "uncategorized")]),
        ("[" * 5000, '"x"', [("fp", "", "uncategorized")]),
    ],
)
def test_overrides_of_the_original_and_of_strangers_are_understood_as_far_as_they_go(
    conn, reason, payload, expected
):
    fact = Fact(
        "phase", "override", RUN, from_state="a", to_state="b", reason=reason, payload=payload
    )
    events.append(conn, fact, **TOLD)

    assert told(conn) == expected


@pytest.mark.parametrize(
    "reason",
    ["", "{", '{"conditions":7}', '{"conditions":[7,{"check":7}]}', '{"conditions":' + "[" * 5000],
)
def test_evidence_that_cannot_be_read_names_no_check(conn, reason):
    said = json.dumps({"gate_result": "pass"})
    fact = Fact("phase", "advance", RUN, from_state="a", to_state="b", reason=reason, payload=said)
    events.append(conn, fact, **TOLD)

    assert told(conn) == [("tn", "", None)]


# --- the commands ---


def test_a_script_reads_one_object_with_and_without_json(stdout, conn):
    rows.run(conn)
    stdout("gate", "override", RUN, "--reason=r", "--expedient")

    plain, as_json = stdout("gate", "signals"), stdout("gate", "signals", "--json")

    assert plain == as_json
    found = json.loads(plain)
    assert (found["cursor"], found["signals"][0]["category"]) == (1, "expedient")


def test_a_calibration_is_read_from_the_file_of_the_caller(ic, conn, project):
    rows.run(conn)
    key = "artifact_exists:brainstorm→brainstorm-reviewed"
    content = json.dumps(
        {"created_at": 1e12, "tiers": {key: {"tier": "hard", "fpr": 0.1}}}
    ).encode()

    given = {"files": {"c.json": content}}
    blocked = ic("run", "advance", RUN, "--calibration-file=c.json", **given)
    checked = ic("gate", "check", RUN, "--calibration-file=c.json", "--json", **given)
    wrong = ic("run", "advance", RUN, "--calibration-file=c.json", files={"c.json": b"[]"})

    assert (blocked.exit, blocked.stdout) == (1, b"brainstorm (blocked: block)\n")
    assert (checked.exit, json.loads(checked.stdout)["tier"]) == (1, "hard")
    assert (wrong.exit, b"c.json: it is not a calibration" in wrong.stderr) == (2, True)
