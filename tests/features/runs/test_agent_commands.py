"""`icctl run agent`: the words and exit codes that scripts rely on."""

import json

import pytest

from tests.support import rows


@pytest.fixture(autouse=True)
def run(conn):
    return rows.run(conn)


def test_an_added_agent_is_answered_by_its_id(stdout, conn):
    text = stdout("run", "agent", "add", "run00001")
    found = json.loads(stdout("run", "agent", "add", "run00001", "--json"))

    ids = [row[0] for row in conn.execute("SELECT id FROM run_agents ORDER BY rowid")]
    assert [text, found] == [f"{ids[0]}\n", {"id": ids[1]}]
    assert len(ids[0]) == 8


def test_agents_are_listed_in_columns(stdout):
    one = stdout("run", "agent", "add", "run00001", "--type=codex", "--name", "fixer").strip()
    two = stdout("run", "agent", "add", "run00001", "--dispatch-id=d1").strip()

    assert stdout("run", "agent", "list", "run00001") == (
        f"{one}\tcodex\tactive\tfixer\n{two}\tclaude\tactive\t\n"
    )


def test_an_agent_as_json_has_the_originals_fields_and_a_readable_time(stdout):
    agent = stdout("run", "agent", "add", "run00001", "--dispatch-id=d1").strip()

    (found,) = json.loads(stdout("run", "agent", "list", "run00001", "--json"))

    assert found == {
        "agent_type": "claude",
        "created_at": 1_800_000_000,
        "created_at_iso": "2027-01-15T08:00:00Z",
        "dispatch_id": "d1",
        "id": agent,
        "run_id": "run00001",
        "status": "active",
        "updated_at": 1_800_000_000,
        "updated_at_iso": "2027-01-15T08:00:00Z",
    }
    assert list(found) == sorted(found)


def test_an_unknown_run_has_no_agents(stdout):
    assert stdout("run", "agent", "list", "nobody") == ""
    assert stdout("run", "agent", "list", "nobody", "--json") == "[]\n"


@pytest.mark.parametrize("status", ["active", "completed", "failed"])
def test_an_agent_is_updated(stdout, status):
    agent = stdout("run", "agent", "add", "run00001").strip()

    assert stdout("run", "agent", "update", agent, f"--status={status}") == "updated\n"
    assert stdout("run", "agent", "list", "run00001").split("\t")[2] == status


@pytest.mark.parametrize(
    ("argv", "exit_code", "told"),
    [
        (("add", "nobody"), 1, b"icctl: run agent add: not found: nobody; "),
        (("update", "nobody", "--status=failed"), 1, b"agent not found: nobody; "),
        (("update", "nobody", "--status=gone"), 3, b"gone"),
        (("update", "nobody"), 3, b"--status"),
        (("add",), 3, b"RUN"),
        (("add", "run00001", "--bogus"), 3, b"--bogus"),
        (("add", "run00001", "--name=a\tb"), 2, b"control characters"),
        ((), 3, b"missing subcommand (add, list, update)"),
    ],
)
def test_what_is_refused_is_refused_with_a_reason(ic, argv, exit_code, told):
    output = ic("run", "agent", *argv)

    assert (output.exit, output.stdout) == (exit_code, b"")
    assert told in output.stderr
