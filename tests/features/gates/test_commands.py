"""`icctl gate …`: what is printed, and the exit codes that scripts rely on."""

import json

import pytest

from icd.app.invocation import Output
from icd.features.gates import store as gates
from tests.support import rows

RUN = "run00001"


def test_a_failed_check_says_what_is_missing_and_exits_with_1(ic, conn):
    rows.run(conn, phase="planned")

    output = ic("gate", "check", RUN)

    assert output.exit == 1
    assert output.stdout.decode() == (
        "planned → executing: fail (tier: soft)\n"
        '  [FAIL] artifact_exists (count: 0) — no artifacts found for phase "planned"\n'
    )
    assert output.stderr == b""


def test_a_passed_check_exits_with_0(ic, conn):
    rows.run(conn, phase="planned")
    rows.artifact(conn, RUN, "planned", "a1")

    output = ic("gate", "check", RUN, "--priority=0")

    assert output.exit == 0
    assert output.stdout.decode() == (
        "planned → executing: pass (tier: hard)\n  [PASS] artifact_exists (count: 1)\n"
    )


def test_a_verdict_has_no_count(ic, conn):
    rows.run(conn, phase="review")

    assert ic("gate", "check", RUN).stdout.decode() == (
        "review → polish: fail (tier: soft)\n  [FAIL] verdict_exists — no passing verdict found\n"
    )


def test_what_is_not_checked_is_no_failure(ic, conn):
    rows.run(conn)

    assert ic("gate", "check", RUN, "--priority=4") == Output(
        0, "brainstorm → brainstorm-reviewed: none (tier: none)\n".encode()
    )


def test_a_skip_does_not_lead_around_a_hard_gate(ic, conn):
    rows.run(conn, phase="review")
    rows.skip(conn, RUN, "polish")

    output = ic("gate", "check", RUN, "--priority=0")

    assert output.exit == 1
    assert output.stdout.decode() == (
        "review → reflect: fail (tier: hard)\n"
        "  [FAIL] verdict_exists (review → polish) — no passing verdict found\n"
    )


def test_the_json_of_a_check_is_that_of_the_original(ic, conn):
    rows.run(conn)

    output = ic("gate", "check", RUN, "--json")

    assert output.exit == 1
    assert output.stdout.decode() == (
        '{"evidence":{"conditions":[{"check":"artifact_exists","phase":"brainstorm",'
        '"result":"fail","count":0,"detail":"no artifacts found for phase \\"brainstorm\\""}]},'
        '"from_phase":"brainstorm","result":"fail","run_id":"run00001","tier":"soft",'
        '"to_phase":"brainstorm-reviewed"}\n'
    )


def test_the_json_of_a_check_without_evidence_has_sorted_fields(ic, conn):
    rows.run(conn, phase="polish")

    found = json.loads(ic("gate", "check", RUN, "--json").stdout)

    assert list(found) == ["from_phase", "result", "run_id", "tier", "to_phase"]


def test_a_check_asks_with_the_priority_that_an_advance_has(invoke):
    planned = invoke("gate", "check", RUN)

    assert planned.call.params.priority == gates.DEFAULT_PRIORITY


@pytest.mark.parametrize("status", ["completed", "cancelled", "failed", "abandoned"])
def test_a_check_of_a_run_that_is_over_or_unknown_exits_with_1(ic, conn, status):
    rows.run(conn, status=status)

    assert [ic("gate", "check", run).exit for run in (RUN, "nobody")] == [1, 1]


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["check", RUN, "extra"],
        ["check", RUN, "--priority=high"],
        ["check", RUN, "--bogus"],
        ["override", RUN],
        ["override", RUN, "--reason="],
        ["override", "--reason=r"],
        ["rules", "extra"],
        ["bogus"],
        [],
    ],
)
def test_mistakes_exit_with_3(ic, conn, words):
    rows.run(conn)

    output = ic("gate", *words)

    assert (output.exit, output.stdout) == (3, b"")


def test_the_default_rules_need_no_database(invoke):
    output = invoke("gate", "rules", cwd="/")

    assert output.stdout.decode().splitlines() == [
        "brainstorm → brainstorm-reviewed\tartifact_exists (phase: brainstorm)",
        "brainstorm-reviewed → strategized\tartifact_exists (phase: brainstorm-reviewed)",
        "strategized → planned\tartifact_exists (phase: strategized)",
        "planned → executing\tartifact_exists (phase: planned)",
        "executing → review\tagents_complete",
        "review → polish\tverdict_exists",
        "reflect → done\tartifact_exists (phase: reflect)",
    ]


@pytest.mark.parametrize(
    "phase, line, found",
    [
        (
            "planned",
            "planned → executing\tartifact_exists (phase: planned)\n",
            (
                '[{"checks":[{"check":"artifact_exists","phase":"planned"}],'
                '"from":"planned","to":"executing"}]\n'
            ),
        ),
        ("polish", "", "[]\n"),
        ("nowhere", "", "[]\n"),
    ],
)
def test_rules_can_be_those_of_one_phase(ic, phase, line, found):
    assert ic("gate", "rules", f"--phase={phase}") == Output(0, line.encode())
    assert ic("gate", "rules", f"--phase={phase}", "--json") == Output(0, found.encode())


def test_rules_as_json_can_be_given_to_a_run(stdout):
    text = stdout("gate", "rules", "--json")

    assert json.loads(gates.parse(text)) == json.loads(text)


def test_the_rules_of_a_run_are_shown_with_all_their_checks(ic, conn):
    own = (
        '[{"from":"polish","to":"reflect","checks":[{"check":"agents_complete"},'
        '{"check":"artifact_exists","phase":"polish"}]}]'
    )
    rows.run(conn, gates=own)

    output = ic("gate", "rules", f"--run={RUN}")

    assert output.stdout.decode() == (
        "polish → reflect\tagents_complete\npolish → reflect\tartifact_exists (phase: polish)\n"
    )
    assert ic("gate", "rules", "--run=nobody").exit == 1
