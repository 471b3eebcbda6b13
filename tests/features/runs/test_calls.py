"""agent.*, artifact.*, run.tokens, run.budget, run.snapshot: what callers of the API are told."""

import os

import msgspec
import pytest

from icd.app import registry
from icd.errors import AgentNotFound, InvalidName, RunNotFound
from tests.support import rows


@pytest.fixture
def run(conn):
    return rows.run(conn)


def test_an_agent_is_added_listed_and_updated(run, result):
    agent = result("agent.add", run_id=run, name="fixer").id

    updated = result("agent.update", agent_id=agent, status="completed")

    (found,) = result("agent.list", run_id=run)
    assert (found.id, found.agent_type, found.name) == (agent, "claude", "fixer")
    assert (updated.status, found.status) == ("completed", "completed")
    assert found.created_at_iso.startswith("2027-01-15T")


def test_a_retried_addition_adds_once(run, result):
    first = result("agent.add", run_id=run, request_id="r1")
    again = result("agent.add", run_id=run, request_id="r1")
    third = result("artifact.add", run_id=run, phase="p", path="f", request_id="r2")
    fourth = result("artifact.add", run_id=run, phase="p", path="f", request_id="r2")

    assert (first, third) == (again, fourth)
    assert len(result("agent.list", run_id=run)) == 1
    assert len(result("artifact.list", run_id=run)) == 1


def test_what_does_not_exist_is_an_expected_no(database, ask):
    errors = [
        ask("agent.add", run_id="nobody").error,
        ask("artifact.add", run_id="nobody", phase="p", path="f").error,
        ask("artifact.origins", run_id="nobody").error,
        ask("agent.update", agent_id="nobody", status="failed").error,
    ]

    assert [type(error) for error in errors] == [RunNotFound] * 3 + [AgentNotFound]
    assert {error.exit for error in errors} == {1}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("agent.add", {"name": "a\tb"}),
        ("agent.add", {"agent_type": ""}),
        ("agent.add", {"dispatch_id": "a\nb"}),
        ("artifact.add", {"phase": "", "path": "f"}),
        ("artifact.add", {"phase": "p", "path": "a\nb"}),
        ("artifact.add", {"phase": "p", "path": "f", "type": ""}),
        ("artifact.add", {"phase": "p", "path": "f" * 5000}),
    ],
)
def test_names_that_would_break_a_line_are_refused(call, method, params):
    with pytest.raises(InvalidName):
        call(method, run_id="run00001", **params)


@pytest.mark.parametrize("digest", ["", "sha256:", "md5:" + "0" * 64, f"sha256:{'0' * 64}\n"])
def test_a_digest_is_a_digest(digest):
    params = {"run_id": "r", "phase": "p", "path": "f", "content_hash": digest}

    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(params, registry.find("artifact.add").params)


def test_a_status_of_an_agent_is_one_of_three():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"agent_id": "a", "status": "gone"}, registry.find("agent.update").params)


def test_tokens_of_an_unknown_run_are_zeros(database, result):
    assert msgspec.to_builtins(result("run.tokens", run_id="nobody")) == {
        "run_id": "nobody",
        "input_tokens": 0,
        "output_tokens": 0,
        "cache_hits": 0,
        "total_tokens": 0,
    }


def test_no_budget_is_told_as_such(run, result):
    expected = {"budget": None, "message": "no budget set"}

    assert msgspec.to_builtins(result("run.budget", run_id=run)) == {"run_id": run, **expected}
    assert msgspec.to_builtins(result("run.budget", run_id="nobody")) == {
        "run_id": "nobody",
        **expected,
    }


def test_a_budget_is_told_with_everything_that_scripts_read(conn, result):
    rows.run(conn, token_budget=1000)

    assert msgspec.to_builtins(result("run.budget", run_id="run00001")) == {
        "run_id": "run00001",
        "budget": 1000,
        "used": 0,
        "usage_pct": 0,
        "warn_pct": 80,
        "warning": False,
        "exceeded": False,
    }


# --- run.snapshot: in one call what takes five otherwise -------------------------------------------


@pytest.fixture
def home(project):
    """The project's identity."""
    return os.path.realpath(project)


def test_a_snapshot_says_what_the_single_calls_say(conn, result):
    rows.run(conn, token_budget=10, phases='["a","b","c"]', phase="a", scope_id="bead-1")
    rows.dispatch(conn, "run00001", "pass")
    result("agent.add", run_id="run00001", name="n")
    result("artifact.add", run_id="run00001", phase="a", path="f")
    result("run.skip", run_id="run00001", phase="b", reason="small")

    found = result("run.snapshot", run_id="run00001")

    assert found.agents == result("agent.list", run_id="run00001")
    assert found.artifacts == result("artifact.list", run_id="run00001")
    assert found.tokens == result("run.tokens", run_id="run00001")
    assert found.budget == result("run.budget", run_id="run00001")
    assert found.run == result("run.status", run_id="run00001")
    assert found.events == result("run.events", run_id="run00001")
    assert found.dispatches == result("dispatch.list", run_id="run00001")
    assert (found.gate.from_phase, found.gate.to_phase, found.gate.result) == ("a", "c", "pass")
    assert len(found.events) == 1
    assert (found.dispatches[0].id, found.dispatches[0].verdict_status) == ("dispatch", "pass")


def test_fields_that_say_nothing_are_left_out(conn, result):
    rows.run(conn)

    found = msgspec.json.decode(msgspec.json.encode(result("run.snapshot", run_id="run00001")))

    left_out = {"phases", "completed_at", "scope_id", "token_budget", "budget_warn_pct", "metadata"}
    assert not left_out & found["run"].keys()
    assert found["cut"] == []


def test_the_current_run_is_found_from_anywhere_in_the_project(conn, result, home, project):
    rows.run(conn, project_dir=home)
    (project / "sub").mkdir()
    (project / "link").symlink_to("sub")

    for where in (home, f"{home}/sub", f"{home}/link", f"{home}/missing"):
        assert result("run.snapshot", project=where).run.id == "run00001"
    assert result("run.snapshot").run.id == "run00001"
    assert result("run.snapshot", cwd=f"{home}/sub", project="..").run.id == "run00001"
    assert result("run.snapshot", project="/") is None


def test_an_unknown_run_is_an_error_and_no_current_run_an_answer(database, ask, result):
    assert isinstance(ask("run.snapshot", run_id="nobody").error, RunNotFound)
    assert result("run.snapshot") is None
