"""A run that brings rules of its own: given once, at its creation, and judged there."""

import json

import pytest

CHAIN = '--phases=["plan","work","done"]'
RULES = (
    '[{"from":"plan","to":"work","checks":[{"check":"artifact_exists","phase":"plan"}]},'
    ' {"from":"work","to":"done","checks":[{"check":"agents_complete"}]}]'
)


def test_rules_from_a_file_hold_for_the_run(ic, stdout):
    created = ic(
        "run", "create", "--goal=g", CHAIN, "--gates=@g.json", files={"g.json": RULES.encode()}
    )
    run = created.stdout.decode().strip()

    assert created.exit == 0
    assert json.loads(stdout("gate", "rules", f"--run={run}", "--json")) == json.loads(RULES)
    assert ic("gate", "check", run, "--priority=0").stdout.decode() == (
        "plan → work: fail (tier: hard)\n"
        '  [FAIL] artifact_exists (count: 0) — no artifacts found for phase "plan"\n'
    )
    assert ic("run", "advance", run, "--priority=0").exit == 1


def test_what_the_rules_command_prints_is_accepted_for_the_default_chain(ic, stdout):
    rules = stdout("gate", "rules", "--json")

    created = ic("run", "create", "--goal=g", f"--gates={rules}")

    assert created.exit == 0
    run = created.stdout.decode().strip()
    assert stdout("gate", "rules", f"--run={run}", "--json") == rules


def test_a_run_without_any_rules_meets_no_gate(ic, stdout):
    run = stdout("run", "create", "--goal=g", "--gates=[]").strip()

    assert stdout("gate", "rules", f"--run={run}") == ""
    assert ic("gate", "check", run, "--priority=0").exit == 0


@pytest.mark.parametrize(
    "rules, reason",
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('[{"from":"plan","to":"work","checks":[{"check":"lunch"}]}]', "entry 1: unknown check"),
        ('[{"from":"plan","to":"done","checks":[{"check":"agents_complete"}]}]', "plan → done"),
        ('[{"from":"review","to":"polish","checks":[{"check":"agents_complete"}]}]', "entry 1"),
    ],
)
def test_wrong_rules_create_no_run(ic, conn, rules, reason):
    output = ic("run", "create", "--goal=g", CHAIN, f"--gates={rules}")

    assert (output.exit, output.stdout) == (3, b"")
    assert reason in output.stderr.decode()
    assert conn.execute("SELECT count(*) FROM runs").fetchone() == (0,)
