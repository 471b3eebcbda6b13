"""What is to be done in each phase of a run: noted, filled in, and never run by us."""

import json
import math
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from icd.errors import (
    ActionNotFound,
    DuplicateAction,
    InvalidName,
    InvalidPayload,
    ReplyTooLarge,
    RunNotFound,
)
from icd.features.runs import actions, create, transitions
from icd.features.runs import store as runs
from icd.features.runs.actions import Spec
from icd.values.processes import Writer

NOW = 1_800_000_000_123
CHAIN = ("plan", "work", "done")


def begin(conn, project="/p", *, given=None, now_ms=NOW):
    run = create.new(
        project_dir=project, goal="g", chain=CHAIN, actions=given, actor=Writer(), now_ms=now_ms
    )
    create.create(conn, run, takeover_after_ms=None, actor=Writer(), now_ms=now_ms)
    actions.add_all(conn, run.id, given, now_ms=now_ms)
    return run.id


def add(conn, run, phase="work", command="/work", args=None, *, now_ms=NOW, **told):
    return actions.add(conn, run, phase, Spec(command, **told), args, now_ms=now_ms)


def produce(conn, run, path, *, kind="plan", now_ms=NOW):
    return runs.add_artifact(
        conn, run, phase="plan", path=path, type=kind, content_hash=None, dispatch_id=None,
        now_ms=now_ms,
    )  # fmt: skip


def advance(conn, run):
    return transitions.advance(conn, run, actor=Writer(), now_ms=NOW)


def commands(conn, run, phase=None):
    return [each.command for each in actions.of_run(conn, run, phase)]


def filled(conn, run, args, phase="work"):
    add(conn, run, phase, args=args)
    (found,) = actions.resolved(conn, runs.require(conn, run), phase)
    return json.loads(bytes(found.args))


def test_actions_come_by_phase_priority_and_age(conn):
    run = begin(conn)
    for phase, command, priority in [
        ("work", "late", 5), ("work", "b", 0), ("plan", "x", 9), ("work", "a", 0), ("work", "c", -1),
    ]:  # fmt: skip
        add(conn, run, phase, command, priority=priority)

    assert commands(conn, run) == ["x", "c", "b", "a", "late"]
    assert commands(conn, run, "work") == ["c", "b", "a", "late"]
    assert commands(conn, run, "done") == []
    assert commands(conn, "ghost") == []


def test_a_command_stands_once_in_a_phase(conn):
    run = begin(conn)
    add(conn, run)
    add(conn, run, "plan")

    with pytest.raises(DuplicateAction, match="has '/work' in 'work' already"):
        add(conn, run, mode="both")
    with pytest.raises(RunNotFound):
        add(conn, "ghost")


def test_numbers_are_never_given_twice(conn):
    run = begin(conn)
    first = add(conn, run)
    actions.delete(conn, run, "work", "/work", now_ms=NOW)

    assert add(conn, run) == first + 1


def test_what_is_not_changed_stays(conn):
    run = begin(conn)
    add(conn, run, args='["a"]', mode="both", priority=3)

    changed = actions.update(
        conn, run, "work", "/work", args=None, mode=None, priority=7, now_ms=NOW + 2000
    )

    assert (bytes(changed.args), changed.mode, changed.priority) == (b'["a"]', "both", 7)
    assert (changed.created_at, changed.updated_at) == (NOW // 1000, NOW // 1000 + 2)
    assert actions.of_run(conn, run) == [changed]


@pytest.mark.parametrize("phase, command", [("plan", "/work"), ("work", "/other")])
def test_an_unknown_action_can_neither_be_changed_nor_deleted(conn, phase, command):
    run = begin(conn)
    add(conn, run)

    with pytest.raises(ActionNotFound):
        actions.delete(conn, run, phase, command, now_ms=NOW)
    with pytest.raises(ActionNotFound):
        actions.update(conn, run, phase, command, args=None, mode="x", priority=None, now_ms=NOW)


def test_each_change_is_a_sign_of_life_of_the_run(conn):
    run = begin(conn)
    steps = [
        lambda at: add(conn, run, now_ms=at),
        lambda at: actions.update(
            conn, run, "work", "/work", args="[]", mode=None, priority=None, now_ms=at
        ),
        lambda at: actions.delete(conn, run, "work", "/work", now_ms=at),
    ]
    for number, step in enumerate(steps, 1):
        step(NOW + number)
        assert runs.require(conn, run).updated_ms == NOW + number


# --- what an advance answers ---


def test_an_advance_answers_with_the_actions_of_the_phase_it_enters(conn):
    run = begin(conn)
    add(conn, run, "work", "/work", '["${run_id}"]')
    add(conn, run, "done", "/ship")

    into_work, into_done = advance(conn, run), advance(conn, run)

    assert [(a.command, bytes(a.args)) for a in into_work.actions] == [
        ("/work", f'["{run}"]'.encode())
    ]
    assert [(a.command, a.args) for a in into_done.actions] == [("/ship", UNSET)]


def test_an_advance_that_is_held_up_answers_with_none(conn):
    run = begin(conn)
    add(conn, run)
    transitions.configure(conn, run, auto_advance=False, actor=Writer(), now_ms=NOW)

    assert advance(conn, run).actions is UNSET


def test_what_is_stored_stays_as_it_was_written(conn):
    run = begin(conn)
    add(conn, run, args='["${run_id}"]')
    advance(conn, run)

    (found,) = actions.of_run(conn, run)
    assert bytes(found.args) == b'["${run_id}"]'


def test_arguments_that_would_fill_up_without_end_stay_as_they_are(conn):
    run = begin(conn, "/" + "p" * 3000)
    args = json.dumps(["${project_dir}" * 5000])

    assert filled(conn, run, args) == json.loads(args)
    assert filled(conn, run, '["${project_dir}"]', "done") == ["/" + "p" * 3000]


@pytest.mark.sqlite_only
def test_what_is_filled_in_counts_as_part_of_the_answer(conn):
    run = begin(conn, "/" + "p" * 3000)
    for number in range(20):
        add(conn, run, command=f"/c{number}", args=json.dumps(["${project_dir}" * 300]))
    conn.bounds.begin(math.inf, 1_000_000, time.monotonic)

    with pytest.raises(ReplyTooLarge):
        advance(conn, run)


def test_an_artifact_is_the_newest_active_one_of_its_type(conn):
    run, other = begin(conn), begin(conn)
    produce(conn, run, "old.md")
    produce(conn, run, "new.md", now_ms=NOW + 5000)
    produce(conn, run, "log.txt", kind="log", now_ms=NOW + 9000)
    produce(conn, other, "theirs.md", now_ms=NOW + 9000)
    gone = produce(conn, run, "gone.md", now_ms=NOW + 9000)
    conn.execute("UPDATE run_artifacts SET status = 'rolled_back' WHERE id = ?", (gone,))

    assert filled(conn, run, '["${artifact:plan}", "x-${artifact:log}"]') == ["new.md", "x-log.txt"]


def test_what_is_not_known_stays_as_it_was_written(conn):
    args = ["${artifact:none}", "${other}", "${artifact:}", "${run_id", "$run_id"]

    assert filled(conn, begin(conn), json.dumps(args)) == args


def test_a_value_is_not_looked_at_again(conn):
    run = begin(conn, project="/${run_id}")
    produce(conn, run, "${project_dir}")

    assert filled(conn, run, '["${artifact:plan}","${project_dir}"]') == [
        "${project_dir}",
        "/${run_id}",
    ]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=30),
    around=st.text(max_size=10).filter(lambda t: "$" not in t),
)
def test_no_value_can_leave_its_string(scratch, path, around):
    """The array has as many elements as it had, and each says what it is made of."""
    with scratch() as conn:
        run = begin(conn, project="/p")
        path = path.encode("utf-8", "replace").decode()
        produce(conn, run, path)
        args = [f"{around}${{artifact:plan}}{around}", {"k": "${artifact:plan}"}]

        assert filled(conn, run, json.dumps(args)) == [f"{around}{path}{around}", {"k": path}]


# --- what `run create` is given ---


def test_actions_of_a_new_run_are_those_of_its_object(conn):
    given = {
        "work": {"command": "/work", "args": '["a"]', "mode": "both", "priority": 2},
        "done": [{"command": "/ship", "args": ["b", 1]}, {"command": "/tell", "type": "hook"}],
    }

    found = actions.of_run(conn, begin(conn, given=json.dumps(given)))

    assert [(a.phase, a.command, a.mode, a.action_type) for a in found] == [
        ("done", "/ship", "interactive", "command"),
        ("done", "/tell", "interactive", "hook"),
        ("work", "/work", "both", "command"),
    ]
    assert [a.args is UNSET or json.loads(bytes(a.args)) for a in found] == [["b", 1], True, ["a"]]


@pytest.mark.parametrize("given", ["{}", '{"a":1}', '{"a":{"b":1}}', '{"a":[1]}', '{"a":1e999}'])
def test_what_has_no_command_is_no_action(conn, given):
    assert commands(conn, begin(conn, given=given)) == []


@pytest.mark.parametrize(
    "spec, error",
    [
        ({"command": 7}, InvalidPayload),
        ({"command": ""}, InvalidName),
        ({"command": "a\tb"}, InvalidName),
        ({"command": "c", "mode": ""}, InvalidName),
        ({"command": "c", "priority": "x"}, InvalidPayload),
        ({"command": "c", "args": "{}"}, InvalidPayload),
        ({"command": "c", "args": {"a": 1}}, InvalidPayload),
        ({"command": "c", "args": "["}, InvalidPayload),
    ],
)
def test_an_action_that_could_not_be_added_is_refused_before_anything_is_written(spec, error):
    with pytest.raises(error):
        actions.parse(json.dumps({"work": spec}))


# --- against a model ---

STEPS = st.tuples(
    st.sampled_from(["add", "update", "delete"]), st.sampled_from(["plan", "work"]),
    st.sampled_from(["a", "b"]), st.integers(-2, 2),
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=20))
def test_any_sequence_does_what_a_dictionary_does(scratch, steps):
    with scratch() as conn:
        run, model, number = begin(conn), {}, 0
        for what, phase, command, priority in steps:
            is_there = (phase, command) in model
            try:
                if what == "add":
                    add(conn, run, phase, command, priority=priority)
                elif what == "update":
                    actions.update(
                        conn, run, phase, command, args=None, mode=None, priority=priority,
                        now_ms=NOW,
                    )  # fmt: skip
                else:
                    actions.delete(conn, run, phase, command, now_ms=NOW)
                is_done = True
            except (DuplicateAction, ActionNotFound):
                is_done = False
            assert is_done == (is_there != (what == "add"))
            if is_done and what == "delete":
                del model[phase, command]
            elif is_done:
                number += what == "add"
                age = number if what == "add" else model[phase, command][1]
                model[phase, command] = priority, age
        wanted = sorted(model, key=lambda key: (key[0], *model[key]))

        assert [(a.phase, a.command) for a in actions.of_run(conn, run)] == wanted
