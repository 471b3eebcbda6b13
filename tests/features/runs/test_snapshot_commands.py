"""`icctl run snapshot`: all about a run, for people and for scripts."""

import json
import os

import pytest

from tests.support import rows


@pytest.fixture
def home(project):
    return os.path.realpath(project)


@pytest.fixture
def busy(conn, home):
    """A run with one of everything."""
    rows.run(
        conn, project_dir=home, phase="executing", goal="Fix it", scope_id="b-1", token_budget=100
    )
    rows.agent(conn, "run00001", "agent001")
    rows.artifact(conn, "run00001", "planned", "artif001", "rolled_back")
    rows.dispatch(conn, "run00001", "warn", "dispa001")
    conn.execute("UPDATE dispatches SET input_tokens = 80, output_tokens = 5, name = 'fixer'")
    rows.add(
        conn,
        "events",
        source="phase",
        type="advance",
        run_id="run00001",
        subject_id="",
        from_state="planned",
        to_state="executing",
        reason="",
        payload='{"gate_result":"pass","gate_tier":"soft"}',
        at=rows.NOW,
        at_ms=rows.NOW * 1000,
    )


def test_a_person_can_read_it(busy, stdout, home):
    assert stdout("run", "snapshot", "run00001").splitlines() == [
        "ID:         run00001",
        "Status:     active",
        "Phase:      executing",
        "Goal:       Fix it",
        f"Project:    {home}",
        "Scope:      b-1",
        "Created:    2027-01-15T08:00:00Z",
        "Updated:    2027-01-15T08:00:00Z",
        "Tokens:     85 (80 in, 5 out), 85.0% of 100: WARNING",
        "Gate:       executing → review: fail (tier: soft)",
        "  [FAIL] agents_complete (count: 1) — 1 agents still active",
        "Agents:     1",
        "  agent001  active  claude",
        "Artifacts:  1",
        "  artif001  planned  file  file  (rolled_back)",
        "Dispatches: 1",
        "  dispa001  completed  codex  fixer  verdict warn",
        "History:    1",
        "  2027-01-15T08:00:00Z  advance  planned → executing  gate pass",
    ]


def test_of_many_rows_a_person_sees_the_newest(conn, stdout):
    rows.run(conn, status="cancelled", goal="one\n\ttwo")
    for number in range(12):
        rows.artifact(conn, "run00001", "planned", f"artif{number:03}")

    lines = stdout("run", "snapshot", "run00001").splitlines()

    start = lines.index("Artifacts:  12, the newest 10:")
    assert lines[start + 1].split()[0] == "artif002"
    assert lines[-1].split()[0] == "artif011"
    assert "Goal:       one two" in lines
    assert not any(line.startswith(("Gate:", "Agents:", "Scope:")) for line in lines)


def test_a_script_gets_everything_with_the_originals_field_names(busy, stdout, home):
    found = json.loads(stdout("run", "snapshot", "run00001", "--json"))

    assert list(found) == [
        "agents", "artifacts", "budget", "cut", "dispatches", "events", "gate", "run", "tokens",
    ]  # fmt: skip
    assert found["run"] == {
        "auto_advance": True,
        "budget_warn_pct": 80,
        "complexity": 3,
        "created_at": rows.NOW,
        "created_at_iso": "2027-01-15T08:00:00Z",
        "force_full": False,
        "goal": "Fix it",
        "id": "run00001",
        "phase": "executing",
        "project_dir": home,
        "scope_id": "b-1",
        "status": "active",
        "token_budget": 100,
        "updated_at": rows.NOW,
        "updated_at_iso": "2027-01-15T08:00:00Z",
    }
    assert found["events"] == [
        {
            "created_at": rows.NOW,
            "created_at_iso": "2027-01-15T08:00:00Z",
            "event_type": "advance",
            "from_phase": "planned",
            "gate_result": "pass",
            "gate_tier": "soft",
            "id": 1,
            "run_id": "run00001",
            "to_phase": "executing",
        }
    ]
    assert found["budget"]["warning"] is True
    assert found["tokens"]["total_tokens"] == 85
    assert found["gate"]["evidence"]["conditions"][0]["check"] == "agents_complete"
    assert (found["dispatches"][0]["in_tokens"], found["dispatches"][0]["out_tokens"]) == (80, 5)


def test_the_current_run_is_that_of_the_project_from_any_directory(busy, stdout, project):
    (project / "sub").mkdir()

    by_id = stdout("run", "snapshot", "run00001")

    assert stdout("run", "snapshot", "--current") == by_id
    assert stdout("run", "snapshot", "--current", cwd=str(project / "sub")) == by_id
    assert stdout("run", "snapshot", "--current", "--project=.", cwd=str(project / "sub")) == by_id


def test_no_current_run_is_an_expected_no(database, ic):
    text = ic("run", "snapshot", "--current")
    found = ic("run", "snapshot", "--current", "--json")

    assert (text.exit, text.stdout, text.stderr) == (1, b"", b"")
    assert (found.exit, found.stdout) == (1, b'{"found":false}\n')


@pytest.mark.parametrize(
    ("argv", "exit_code", "told"),
    [
        (("nobody",), 1, b"icctl: run snapshot: not found: nobody; "),
        ((), 3, b"either RUN or --current"),
        (("run00001", "--current"), 3, b"either RUN or --current"),
        (("run00001", "--project=."), 3, b"--project requires --current"),
    ],
)
def test_what_is_refused_is_refused_with_a_reason(ic, argv, exit_code, told):
    output = ic("run", "snapshot", *argv)

    assert (output.exit, output.stdout) == (exit_code, b"")
    assert told in output.stderr


def test_a_gate_that_cannot_be_judged_says_why(conn, ic):
    rows.run(conn, phases='["brainstorm","done"]', gates="[7]")

    text = ic("run", "snapshot", "run00001").stdout.decode()
    found = json.loads(ic("run", "snapshot", "run00001", "--json").stdout)

    assert f"Gate:       unknown — {found['gate']['error']}\n" in text
    assert found["gate"]["result"] == "unknown"


def test_conditions_on_the_way_past_skipped_phases_name_their_transition(conn, stdout):
    rows.run(conn, phase="review")
    rows.skip(conn, "run00001", "polish")

    lines = stdout("run", "snapshot", "run00001").splitlines()

    assert "Gate:       review → reflect: fail (tier: soft)" in lines
    assert "  [FAIL] verdict_exists (review → polish) — no passing verdict found" in lines
