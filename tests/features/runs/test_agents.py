"""Agents of a run."""

import pytest

from icd.errors import AgentNotFound, RunNotFound
from icd.features.runs import store as runs
from tests.support import rows

NOW = rows.NOW * 1000 + 5_500


@pytest.fixture
def add(conn):
    def added(run_id="run00001", *, agent_type="claude", name=None, dispatch_id=None, now_ms=NOW):
        return runs.add_agent(
            conn,
            run_id,
            agent_type=agent_type,
            name=name,
            dispatch_id=dispatch_id,
            now_ms=now_ms,
        )

    return added


def test_an_agent_begins_active(conn, add):
    rows.run(conn)

    found = add(agent_type="codex", name="fixer", dispatch_id="d1")

    (agent,) = runs.agents_of(conn, "run00001")
    assert agent == runs.Agent(
        found, "run00001", "codex", "active", NOW // 1000, NOW // 1000, "fixer", "d1"
    )


def test_an_agent_needs_a_run(conn, add):
    with pytest.raises(RunNotFound, match="not found: nobody"):
        add("nobody")

    assert conn.execute("SELECT count(*) FROM run_agents").fetchone() == (0,)


def test_agents_are_listed_in_the_order_in_which_they_came(conn, add):
    rows.run(conn)
    rows.run(conn, "run00002")
    first, second = add(), add()
    add("run00002")
    third = add(now_ms=NOW + 1000)

    assert [agent.id for agent in runs.agents_of(conn, "run00001")] == [first, second, third]
    assert runs.agents_of(conn, "nobody") == []


def test_an_update_changes_the_status_and_the_time(conn, add):
    rows.run(conn)
    done, other = add(), add()

    runs.update_agent(conn, done, "failed", now_ms=NOW + 3000)

    found = {agent.id: agent for agent in runs.agents_of(conn, "run00001")}
    assert (found[done].status, found[done].updated_at) == ("failed", NOW // 1000 + 3)
    assert (found[other].status, found[other].updated_at) == ("active", NOW // 1000)


def test_an_unknown_agent_cannot_be_updated(conn):
    with pytest.raises(AgentNotFound, match="nobody"):
        runs.update_agent(conn, "nobody", "completed", now_ms=NOW)


def test_what_is_noted_about_an_agent_is_a_sign_of_life_of_its_run(conn, add):
    rows.run(conn)
    rows.run(conn, "run00002")

    agent = add()
    added_ms = runs.require(conn, "run00001").updated_ms
    runs.update_agent(conn, agent, "completed", now_ms=NOW + 1)

    assert added_ms == NOW
    assert runs.require(conn, "run00001").updated_ms == NOW + 1
    assert runs.require(conn, "run00002").updated_ms == rows.NOW * 1000


@pytest.mark.parametrize("status", ["completed", "cancelled", "failed", "abandoned"])
def test_a_run_that_has_ended_does_not_come_to_life_by_a_note_about_its_agents(conn, add, status):
    rows.run(conn, status=status)
    before = runs.require(conn, "run00001")

    runs.update_agent(conn, add(), "completed", now_ms=NOW + 1)

    assert runs.require(conn, "run00001") == before
