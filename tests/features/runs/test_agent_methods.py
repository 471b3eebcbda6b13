"""agent.*, artifact.*, run.tokens, run.budget: what callers of the API are told."""

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
