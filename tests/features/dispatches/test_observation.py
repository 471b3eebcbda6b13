"""What follows from what was seen of a dispatch."""

import pytest

from icd.features.dispatches import observation as sightings
from icd.features.dispatches import store as dispatches
from icd.features.dispatches import usage
from icd.features.dispatches.observation import (
    HOPE,
    LOST,
    NEVER_STARTED,
    START_MS,
    UNSEEN,
    Progress,
    Seen,
)
from icd.features.dispatches.store import End, New
from icd.features.events import store as events
from icd.values.processes import Process, Writer

NOW_MS = 1_800_000_000_123
ME = Writer(pid=41)


@pytest.fixture
def spawned(conn):
    new = New(agent_type="codex", project_dir="/p", runner=Process(4241, 76))
    return dispatches.create(conn, new, actor=ME, now_ms=NOW_MS)


@pytest.fixture
def running(conn, spawned):
    agent, runner = Process(4242, 77), Process(4241, 76)
    return dispatches.start(conn, spawned.id, agent=agent, runner=runner, actor=ME, now_ms=NOW_MS)


@pytest.fixture
def observe(conn):
    def observed(found, now_ms=NOW_MS + 1000, **seen):
        what = Seen(**{"version": found.version, **seen})
        return sightings.observe(conn, found.id, what, actor=ME, now_ms=now_ms)

    return observed


@pytest.mark.parametrize("agent", ["alive", "dead", "unknown"])
@pytest.mark.parametrize("runner", HOPE)
def test_as_long_as_a_runner_may_live_nothing_follows(observe, running, runner, agent):
    end = End(id=running.id, status="completed")

    assert observe(running, runner=runner, agent=agent, end=end) == running


@pytest.mark.parametrize("agent", ["alive", "dead", "unknown"])
@pytest.mark.parametrize("runner", [None, "dead"])
def test_what_a_dead_runner_left_is_taken_over(observe, running, runner, agent):
    end = End(id=running.id, status="timeout", exit_code=137, ended_ms=NOW_MS + 1)

    found = observe(running, runner=runner, agent=agent, end=end)

    assert (found.status, found.exit_code) == ("timeout", 137)


def test_what_is_left_of_another_dispatch_is_not_taken_over(observe, running):
    end = End(id="another0", status="completed", exit_code=0)

    found = observe(running, runner="dead", agent="dead", end=end)

    assert (found.status, found.exit_code) == ("failed", UNSEEN)


@pytest.mark.parametrize("agent", HOPE)
@pytest.mark.parametrize("runner", [None, "dead"])
def test_an_agent_without_a_runner_goes_on(observe, running, runner, agent):
    assert observe(running, runner=runner, agent=agent) == running


@pytest.mark.parametrize("runner", [None, "dead"])
def test_what_nobody_saw_end_has_failed_and_says_so(conn, observe, running, runner):
    found = observe(running, runner=runner, agent="dead")

    assert (found.status, found.exit_code, found.error_message) == ("failed", UNSEEN, LOST)
    last = events.read(conn, limit=10, source="dispatch")[-1]
    assert (last.from_state, last.to_state, last.reason) == ("running", "failed", LOST)


@pytest.mark.parametrize("runner", [None, "dead"])
def test_a_start_is_waited_for_but_not_for_ever(observe, spawned, runner):
    early = observe(spawned, NOW_MS + START_MS - 1, runner=runner)
    late = observe(spawned, NOW_MS + START_MS, runner=runner)

    assert early.status == "spawned"
    assert (late.status, late.exit_code) == ("failed", UNSEEN)
    assert late.error_message == NEVER_STARTED


def test_what_was_seen_of_an_older_version_decides_nothing(conn, observe, spawned, running):
    found = observe(spawned, NOW_MS + START_MS, runner="dead")

    assert found == running


def test_what_has_ended_is_left_alone(conn, observe, running):
    end = End(id=running.id, status="completed", exit_code=0)
    ended, _ = dispatches.end(conn, end, actor=ME, now_ms=NOW_MS)

    assert observe(ended, runner="dead", agent="dead") == ended


def test_what_a_living_agent_counts_is_noted_and_is_no_event(conn, observe, running):
    before = events.head(conn)

    found = observe(running, runner="alive", agent="alive", progress=Progress(3, 5, 8))
    again = observe(found, runner="alive", agent="alive", progress=Progress(3, 5, 8))

    assert (found.turns, found.commands, found.messages) == (3, 5, 8)
    assert found.version == running.version + 1
    assert again == found
    assert events.head(conn) == before


@pytest.mark.parametrize(
    ("seen", "is_news"),
    [
        ({"runner": "alive", "agent": "dead"}, False),
        ({"runner": "unknown", "agent": "unknown"}, False),
        ({"runner": "dead", "agent": "alive"}, False),
        ({"runner": "dead", "agent": "dead"}, True),
        ({"runner": None, "agent": None}, True),
        ({"runner": "dead", "agent": "alive", "end": End(id="x", status="failed")}, True),
        ({"runner": "alive", "agent": "alive", "progress": Progress(1)}, True),
    ],
)
def test_only_news_are_worth_a_write(seen, is_news):
    assert Seen(version=1, **seen).is_news is is_news


def test_everything_that_has_not_ended_is_looked_at(conn, spawned):
    over = dispatches.create(
        conn, New(agent_type="codex", project_dir="/p"), actor=ME, now_ms=NOW_MS
    )
    dispatches.cancel(conn, over.id, reason="", actor=ME, now_ms=NOW_MS)

    (found,) = sightings.live(conn)

    assert (found.id, found.version) == (spawned.id, spawned.version)
    assert (found.runner, found.agent) == (Process(4241, 76), None)


def test_tokens_are_set_and_what_is_not_given_stays(conn, spawned):
    usage.set_tokens(conn, spawned.id, input_tokens=10, output_tokens=5, now_ms=NOW_MS)

    found = usage.set_tokens(conn, spawned.id, input_tokens=7, cache_hits=0, now_ms=NOW_MS)

    assert (found.input_tokens, found.output_tokens, found.cache_hits) == (7, 5, 0)
