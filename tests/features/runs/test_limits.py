"""How many agents and dispatches a run, or a project, may have; and the metadata that is merged."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from icd.errors import InvalidPayload, LimitReached, RunOver
from icd.features.dispatches import store as dispatches
from icd.features.events import store as events
from icd.features.runs import store as runs
from icd.features.runs import transitions
from icd.features.state import store as state
from icd.values.processes import Writer
from tests.support import rows
from tests.support.processes import Daemon, icctl

NOW_MS = 1_800_000_000_000
RUN = "run00001"
WRITER = Writer(pid=1)


def add_agent(conn, run_id=RUN):
    return runs.add_agent(
        conn, run_id, agent_type="codex", name=None, dispatch_id=None, now_ms=NOW_MS
    )


def spawn(conn, run_id=RUN, **given):
    given = {"agent_type": "codex", "project_dir": "/p"} | given
    return dispatches.create(conn, run_id=run_id, actor=WRITER, now_ms=NOW_MS, **given).id


def keep(conn, name, value):
    key = state.KERNEL + name
    state.set(conn, key, state.KERNEL_SCOPE, value, writer=WRITER, now_ms=NOW_MS)


# --- agents ---


def test_a_run_gets_as_many_agents_as_it_may_have_and_the_next_one_is_told(conn):
    rows.run(conn, max_agents=2)
    first = add_agent(conn)
    add_agent(conn)

    with pytest.raises(LimitReached) as refused:
        add_agent(conn)

    assert refused.value.message == f"run {RUN} has 2 of at most 2 active agents"
    assert (refused.value.exit, refused.value.facts) == (1, {"limit": 2})
    runs.update_agent(conn, first, "completed", now_ms=NOW_MS)
    assert add_agent(conn)


def test_a_limit_of_one_run_is_none_of_another(conn):
    rows.run(conn, max_agents=1)
    rows.run(conn, "run00002")
    add_agent(conn)

    assert [add_agent(conn, "run00002") for _ in range(3)]


# --- dispatches ---


@pytest.mark.parametrize("column", ["max_dispatches", "max_agents"])
def test_a_run_gets_as_many_dispatches_as_it_may_have_alive(conn, column):
    rows.run(conn, **{column: 1})
    first = spawn(conn)

    with pytest.raises(LimitReached, match="has 1 of at most 1 dispatches alive"):
        spawn(conn)

    dispatches.cancel(conn, first, reason="r", actor=WRITER, now_ms=NOW_MS)
    assert spawn(conn)


def test_the_smaller_limit_counts(conn):
    rows.run(conn, max_dispatches=5, max_agents=1)
    spawn(conn)

    with pytest.raises(LimitReached):
        spawn(conn)


def test_a_dispatch_that_is_given_its_run_by_scope_is_limited_all_the_same(conn):
    rows.run(conn, scope_id="bead-1", max_dispatches=1)
    spawn(conn)

    with pytest.raises(LimitReached):
        spawn(conn, None, scope_id="bead-1")


def test_all_runs_together_get_what_the_project_may_have(conn):
    rows.run(conn)
    keep(conn, "global_max_dispatches", "2")
    spawn(conn)
    spawn(conn, None)

    with pytest.raises(LimitReached, match="the project has 2 of at most 2 dispatches alive"):
        spawn(conn)


def test_a_dispatch_starts_others_as_deep_as_the_project_may(conn):
    keep(conn, "max_spawn_depth", "1")
    root = spawn(conn, None)
    child = spawn(conn, None, parent_id=root)

    with pytest.raises(LimitReached, match=f"dispatch {child} has 1 of at most 1 dispatches above"):
        spawn(conn, None, parent_id=child)
    assert spawn(conn, None, parent_id=root)


def test_dispatches_that_are_each_others_parents_come_to_an_end(conn):
    keep(conn, "max_spawn_depth", "3")
    one = spawn(conn, None)
    other = spawn(conn, None, parent_id=one)
    conn.execute("UPDATE dispatches SET parent_id = ? WHERE id = ?", (other, one))

    with pytest.raises(LimitReached):
        spawn(conn, None, parent_id=one)


@pytest.mark.parametrize("value", ["0", '"2"', "{}", "-1", "1.5", "null"])
def test_what_is_no_number_or_zero_limits_nothing(conn, value):
    keep(conn, "global_max_dispatches", value)
    keep(conn, "max_spawn_depth", value)

    assert spawn(conn, None, parent_id=spawn(conn, None))


# --- settings ---


def configure(conn, **wanted):
    transitions.configure(conn, RUN, actor=WRITER, now_ms=NOW_MS, **wanted)
    return runs.require(conn, RUN)


def test_limits_are_changed_and_taken_away(conn):
    rows.run(conn, max_agents=1)

    changed = configure(conn, max_dispatches=7)
    gone = configure(conn, max_agents=0)

    assert (changed.max_agents, changed.max_dispatches) == (1, 7)
    assert (gone.max_agents, gone.max_dispatches) == (None, 7)


@pytest.mark.parametrize(
    "there, given, merged",
    [
        (None, '{"a":1}', {"a": 1}),
        ('{"a":1,"b":2}', '{"b":3,"c":4}', {"a": 1, "b": 3, "c": 4}),
        (
            '{"a":{"x":1,"y":{"z":1}}}',
            '{"a":{"y":{"w":2}}}',
            {"a": {"x": 1, "y": {"z": 1, "w": 2}}},
        ),
        ('{"a":{"x":1}}', '{"a":[1]}', {"a": [1]}),
        ('{"a":[1]}', '{"a":{"x":1}}', {"a": {"x": 1}}),
        ('{"a":1}', '{"a":null}', {"a": None}),
        ('{"a":1}', "{}", {"a": 1}),
    ],
)
def test_metadata_is_merged_member_by_member(conn, there, given, merged):
    rows.run(conn, metadata=there)

    assert json.loads(configure(conn, merge=given).metadata) == merged


def test_numbers_of_the_metadata_stay_as_they_were_written(conn):
    rows.run(conn, metadata='{"a":{"n":1.10}}')

    found = configure(conn, merge='{"a":{"m":123456789012345678901234567890}}')

    assert found.metadata == '{"a":{"n":1.10,"m":123456789012345678901234567890}}'


@pytest.mark.parametrize("there", ["free text", "[1]", "7", '{"a":', '{"a":' + "[" * 5000])
def test_metadata_that_is_no_object_is_left_alone(conn, there):
    rows.run(conn, metadata=there)

    with pytest.raises(InvalidPayload, match="is not a JSON object"):
        configure(conn, merge='{"a":1}')

    assert runs.require(conn, RUN).metadata == there


def test_the_event_says_what_was_set_but_not_the_metadata(conn):
    rows.run(conn)
    configure(conn, merge='{"a":"long"}', max_agents=2)

    (event,) = events.read(conn, limit=10, run_id=RUN)

    assert event.reason == "max_agents=2, metadata=true"


def test_a_run_that_is_over_keeps_its_metadata(conn):
    rows.run(conn, status="completed")

    with pytest.raises(RunOver):
        configure(conn, merge='{"a":1}')


# --- the commands ---


def test_a_run_is_created_as_the_reviews_write_it(ic, stdout):
    made = ic("run", "create", "--project=.", "--bead=iv-xyz", "--session=A")
    second = ic("run", "create", "--project=.", "--bead=iv-xyz", "--session=B")
    listed = stdout("run", "list", "--project=.", "--bead=iv-xyz", "--status=active")
    stdout("run", "abandon", made.stdout.decode().strip())
    third = ic("run", "create", "--project=.", "--bead=iv-xyz", "--session=B")

    assert (made.exit, second.exit, third.exit) == (0, 1, 0)
    assert listed.endswith("\tactive\tbrainstorm\tiv-xyz\n")


def test_a_run_without_goal_and_scope_is_a_mistake(ic):
    output = ic("run", "create", "--project=.")

    assert (output.exit, output.stdout) == (3, b"")
    assert b"missing --goal" in output.stderr


def test_gates_and_limits_are_stored_with_the_run(stdout):
    rules = '{"a→b":[{"check":"agents_complete","phase":"a","tier":"hard"}]}'
    run = stdout(
        "run", "create", "--goal=g", '--phases=["a","b"]', "--gates-file=g.json", "--max-agents=2",
        "--max-dispatches=3", "--budget-enforce", files={"g.json": rules.encode()},
    ).strip()  # fmt: skip

    found = json.loads(stdout("run", "status", run, "--json"))
    shown = stdout("gate", "rules", "--run", run)

    assert (found["max_agents"], found["max_dispatches"], found["budget_enforce"]) == (2, 3, True)
    assert found["gates"][0]["checks"] == [{"check": "agents_complete", "tier": "hard"}]
    assert shown == "a → b\tagents_complete [hard]\na → b\tbudget_not_exceeded [hard]\n"


def test_metadata_to_merge_is_judged_like_any_other(ic, conn):
    rows.run(conn)

    assert ic("run", "set", RUN, "--metadata-merge=[1]").exit == 2
    assert ic("run", "set", RUN, '--metadata-merge={"token":"ghp_' + "a1" * 18 + '"}').exit == 2
    assert ic("run", "set", RUN, "--metadata-merge=@m", files={"m": b'{"a":1}'}).exit == 0
    assert runs.require(conn, RUN).metadata == '{"a":1}'


def test_of_callers_at_once_no_more_are_let_in_than_there_is_room_for(
    initialized: Path, shared_daemon: Daemon
) -> None:
    """Some through the daemon, some without one: the transaction decides."""
    served = {"INTERCORE_SOCKET": shared_daemon.socket}
    alone = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}
    made = icctl("run", "create", "--goal=g", "--max-agents=3", cwd=initialized, env=served)
    run = made.stdout.decode().strip()

    def add(number: int) -> int:
        env = alone if number % 5 == 0 else served
        return icctl("run", "agent", "add", run, cwd=initialized, env=env).returncode

    with ThreadPoolExecutor(10) as crowd:
        answers = sorted(crowd.map(add, range(10)))

    assert answers == [0] * 3 + [1] * 7
