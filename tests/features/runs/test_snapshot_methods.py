"""run.snapshot: in one call what takes five otherwise."""

import os

import msgspec
import pytest

from icd.errors import RunNotFound
from tests.support import rows


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
