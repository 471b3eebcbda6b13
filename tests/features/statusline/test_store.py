"""What a statusline shows, whatever other people's payloads look like."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.features.coordination import globs
from icd.features.coordination import store as coordination
from icd.features.coordination.records import Wish
from icd.features.state import store as state
from icd.features.statusline import store as statusline
from icd.features.statusline.store import (
    Bead,
    Budget,
    Coordination,
    Lane,
    Pressure,
    Run,
    Statusline,
)
from icd.values.processes import Writer
from tests.support import rows

NOW = 1_800_000_000_000


@pytest.fixture
def put(conn):
    def row(key, scope, value, *, age=0, session=None, **options):
        payload = value if isinstance(value, str) else json.dumps(value)
        writer = Writer(1, session)
        state.set(conn, key, scope, payload, writer=writer, now_ms=NOW - age * 1000, **options)

    return row


@pytest.fixture
def read(conn):
    def line(session="s1", *, agent=None, project_dir="/project", alive=(), now_ms=NOW):
        return statusline.read(
            conn,
            session,
            agent=agent,
            project=lambda: project_dir,
            is_alive=lambda pid: pid in alive,
            now_ms=now_ms,
        )

    return line


def test_of_an_unknown_session_nothing_is_known(read):
    assert read() == Statusline(session="s1")


def test_everything_of_a_session_is_read_at_once(put, read):
    put("bead", "s1", {"id": "ic-1", "phase": "executing", "reason": "r", "ts": 1}, age=90)
    put("lane", "s1", {"lane": "core"}, age=1)
    put("pressure", "s1", {"level": "yellow", "pressure": 0.45, "est_tokens": 900})
    put("budget", "s1", {"pct_consumed": 37, "total_tokens": 1000, "session_id": "s1"})
    put("coordination", "p-a", {"text": "2 files", "icon": "*", "priority": 3})
    put("bead", "other", {"id": "not mine"})

    line = read()

    assert line.bead == Bead("ic-1", "executing", "r", 90)
    assert line.lane == Lane("core", 1)
    assert line.pressure == Pressure("yellow", 0.45, 900, 0)
    assert line.budget == Budget(37, 1000, 0)
    assert line.coordination == Coordination("2 files", "*", 3, 1, 0)
    assert line.run is None


def test_reservations_of_the_session_are_counted_while_they_stand(conn, read):
    for number, ttl_ms in enumerate((None, 60_000, 1_000)):
        wish = Wish("s1", ".", globs.parse(f"src/{number}"), ttl_ms=ttl_ms)
        coordination.reserve(conn, wish, actor=Writer(1, "s1"), now_ms=NOW - 1_000)

    assert read().reservations == 2
    assert msgspec.json.decode(msgspec.json.encode(read("s2"))).get("reservations") is None


def test_what_has_expired_is_not_shown(put, read):
    put("bead", "s1", {"id": "x"}, ttl_ms=1000)

    assert read(now_ms=NOW + 999).bead
    assert read(now_ms=NOW + 1000).bead is None


def test_a_clock_that_was_set_back_makes_nothing_younger_than_new(put, read):
    put("bead", "s1", {"id": "x"}, age=-50)

    assert read().bead.age == 0


def test_without_a_session_only_the_project_is_shown(put, read):
    put("bead", "", {"id": "of nobody"})
    put("coordination", "p-a", {"text": "t"})

    line = read("")

    assert line.bead is None
    assert line.coordination.text == "t"


# --- dispatches ---


def test_the_pid_of_a_payload_says_whose_liveness_counts(put, read):
    put("dispatch", "s1", {"name": "n", "activity": "go", "pid": 77, "turns": 3, "workdir": "/w"})

    assert read(alive={77}).dispatch.alive is True
    assert read().dispatch.alive is False
    assert read().dispatch.turns == 3


def test_else_a_scope_that_is_a_number_is_the_pid(put, read):
    put("dispatch", "4711", {"name": "n"})

    line = read("4711", alive={4711})

    assert (line.dispatch.pid, line.dispatch.alive) == (4711, True)


def test_without_any_pid_nobody_can_tell(put, read):
    put("dispatch", "s1", {"name": "n", "pid": "x"})

    assert (read().dispatch.pid, read().dispatch.alive) == (None, None)


def test_a_dispatch_under_its_pid_is_shown_while_its_process_lives(put, read):
    put("dispatch", "100", {"name": "older"}, age=9)
    put("dispatch", "200", {"name": "newer"})
    put("dispatch", "300", {"name": "newest, and gone"})

    assert read(alive={100, 200}).dispatch.name == "newer"
    assert read(alive={100}).dispatch.name == "older"
    assert read().dispatch is None


def test_the_dispatch_of_another_session_is_not_shown(put, read):
    put("dispatch", "100", {"name": "theirs"}, session="other")
    put("dispatch", "200", {"name": "mine"}, age=5, session="s1")

    assert read(alive={100, 200}).dispatch.name == "mine"


def test_a_session_whose_name_starts_with_a_digit_is_not_taken_for_a_pid(put, read):
    put("dispatch", "3f2a-other", {"name": "theirs", "pid": 100})

    assert read(alive={3, 100}).dispatch is None


def test_the_sessions_own_dispatch_goes_first_unless_it_is_gone(put, read):
    put("dispatch", "s1", {"name": "own", "pid": 1})
    put("dispatch", "200", {"name": "other"})

    assert read(alive={1, 200}).dispatch.name == "own"
    assert read(alive={200}).dispatch.name == "other"
    assert read().dispatch.name == "own"


# --- coordination ---


def test_the_most_urgent_signal_is_shown_and_of_these_the_newest(put, read):
    put("coordination", "p-a", {"text": "urgent", "priority": 5})
    put("coordination", "p-b", {"text": "urgent, too", "priority": 5})
    put("coordination", "p-c", {"text": "idle", "priority": 0})

    assert read().coordination.text == "urgent, too"
    assert read().coordination.count == 3


def test_an_agent_sees_its_own_signal_and_how_many_there_are(put, read):
    put("coordination", "p-a", {"text": "of a", "priority": 0})
    put("coordination", "p-bba", {"text": "of bba", "priority": 5})

    assert read(agent="a").coordination == Coordination("of a", None, 0, 2, 0)
    assert read(agent="p-a").coordination.text == "of a"
    assert read(agent="nobody").coordination == Coordination(None, None, None, 2, None)


# --- payloads of other people ---


@pytest.mark.parametrize(
    "value",
    ["null", "[]", "true", "[1,2]", "{}", '{"id":{"a":1},"lane":[],"name":null}', "1" * 5000,
     '"' + "x" * 70_000 + '"', "not json", "[" * 5000],
)  # fmt: skip
def test_a_payload_that_says_nothing_is_empty_and_no_error(put, read, value):
    for key in ("dispatch", "bead", "lane", "pressure", "budget", "coordination"):
        put(key, "s1", value)

    line = read()

    assert (line.bead.id, line.lane.name, line.dispatch.name) == (None, None, None)
    assert (line.pressure.level, line.budget.pct_consumed) == (None, None)
    assert line.coordination.text is None


def test_a_lone_string_or_number_stands_for_the_name(put, read):
    put("lane", "s1", '"core"')
    put("bead", "s1", "12")

    assert (read().lane.name, read().bead.id) == ("core", "12")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\nb\tc\u001b[31m\x9b", "a b c [31m"),
        ("  x  ", "x"),
        ("\n", None),
        ("", None),
        ("\ud800", "?"),
        ("x" * 500, "x" * 200),
        (7, "7"),
        (1.5, "1.5"),
        (True, None),
        (2**63, None),
        (float("inf"), None),
    ],
)
def test_a_text_is_short_and_on_one_line(put, read, value, shown):
    put("bead", "s1", {"id": value})

    assert read().bead.id == shown


def test_the_run_of_the_session_is_shown_rather_than_a_newer_one_of_the_project(conn, read):
    rows.run(conn, "mine0001", session="s1", phase="review", goal="Fix it", created_ms=NOW - 9)
    rows.run(conn, "mine0002", session="s1", status="completed", created_ms=NOW - 8)
    rows.run(conn, "other001", session="s2", created_ms=NOW - 7)
    rows.run(conn, "nobodys1", created_ms=NOW - 6)
    rows.run(conn, "elsewher", session="s1", project_dir="/other", created_ms=NOW - 5)

    assert read("s1", now_ms=NOW + 2000).run == Run("mine0001", "review", "Fix it", 2)
    assert read("s3").run.id == "nobodys1"
    assert read("").run.id == "nobodys1"
    assert read("s1", project_dir="/other").run.id == "elsewher"
    assert read("s1", project_dir="/nowhere").run is None


def test_a_run_that_has_ended_is_not_shown(conn, read):
    rows.run(conn, session="s1", status="abandoned")

    assert read().run is None


def test_a_goal_of_many_lines_is_one_short_line(conn, read):
    rows.run(conn, goal="first\nsecond\t" + "x" * 100_000)

    assert read().run.goal == "first second " + "x" * 187


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["id", "name", "pid", "text", "priority", "lane", "level", "x"]), inner
    ),
)  # fmt: skip


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
)
@given(json_values)
def test_no_payload_makes_it_fail(scratch, value):
    with scratch() as conn:
        for key in ("dispatch", "bead", "lane", "pressure", "budget", "coordination"):
            payload = json.dumps(value)
            state.set(conn, key, "s1", payload, writer=Writer(), now_ms=NOW)

        line = statusline.read(
            conn, "s1", agent=None, project=lambda: "/p", is_alive=lambda _: True, now_ms=NOW
        )

        assert line.session == "s1"
