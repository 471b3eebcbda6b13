"""`icctl state watch` and `icctl wait`: what is shown, what is asked next, and when it is over."""

import json
import time

import pytest

from icd.app.call import Answer
from icd.app.dispatch import run_batch
from icd.app.invocation import Ask, Output
from icd.app.planner import advance, resume
from icd.errors import Corrupt, Locked
from icd.features.events import store as events
from icd.values.processes import Writer

WAIT = ("wait", "--state", "k", "s")


@pytest.fixture
def look(database, clock):
    """Carry out one step of a command that goes on: what it shows, and the next step."""

    def step(planned):
        assert isinstance(planned, Ask), planned
        (answer,) = run_batch(database, [planned.call], clock=clock)
        output, following = advance(planned, answer)
        return output.stdout.decode(), following

    return step


@pytest.fixture
def put(ic):
    def row(scope="s", value="1", *flags):
        assert ic("state", "set", "k", scope, "--value", value, *flags).exit == 0

    return row


@pytest.fixture
def record(database, conn, clock):
    def event(kind, *, source="mine", run_id=""):
        fact = events.Fact(source=source, type=kind, run_id=run_id)
        return events.append(conn, fact, actor=Writer(), now_ms=clock.now_ms())

    return event


# --- state watch ---


def test_the_payload_is_a_line_and_an_empty_line_means_that_there_is_none(invoke, look, ic, put):
    first, planned = look(invoke("state", "watch", "k", "s"))
    put("s", '{"a":\n1}')
    second, planned = look(planned)
    third, planned = look(planned)
    ic("state", "delete", "k", "s")
    fourth, _ = look(planned)

    assert [first, second, third, fourth] == ["\n", '{"a": 1}\n', "", "\n"]


def test_without_a_scope_each_line_names_it(invoke, look, ic, put):
    put("a", "1")
    first, planned = look(invoke("state", "watch", "k"))
    put("b", "2")
    ic("state", "delete", "k", "a")
    second, planned = look(planned)

    assert (first, second) == ("a\t1\n", "b\t2\na\t\n")
    assert look(planned)[0] == ""


def test_nothing_is_shown_of_a_key_without_rows(invoke, look):
    assert look(invoke("state", "watch", "k"))[0] == ""


def test_as_json_version_0_means_that_there_is_none(invoke, look, ic, put):
    first, planned = look(invoke("state", "watch", "k", "s", "--json"))
    put("s", '{"b":1}')
    second, _ = look(planned)

    assert json.loads(first) == {"key": "k", "scope_id": "s", "version": 0}
    assert second == ic("state", "get", "k", "s", "--json").stdout.decode()


def test_it_goes_on_where_another_host_left_off(invoke, look, put):
    put("a", "1")
    _, planned = look(invoke("state", "watch", "k"))
    place = planned.place
    put("b", "2")

    again = resume(invoke("state", "watch", "k"), place)

    assert look(again)[0] == "b\t2\n"


def test_somebody_who_watches_is_not_asked_for_every_second(invoke, look, put):
    _, forever = look(invoke("state", "watch", "k", "s"))
    put("s", "1", "--ttl=5s")
    _, expiring = look(forever)

    assert (forever.patience, expiring.patience) == (None, 5.0)


def test_an_error_ends_it(invoke):
    output, following = advance(
        invoke("state", "watch", "k"), Answer(error=Corrupt("damaged", hint="mend it"))
    )

    assert (output.exit, following) == (2, None)
    assert output.stderr == b"icctl: state watch: damaged; mend it\n"


# --- wait ---


def test_a_row_that_is_there_is_printed_at_once(invoke, look, put):
    put("s", '{"a":1}')

    assert look(invoke(*WAIT)) == ('{"a":1}\n', None)


def test_a_row_that_is_not_there_is_waited_for(invoke, look, put):
    shown, planned = look(invoke(*WAIT))
    put()

    assert shown == ""
    assert look(planned) == ("1\n", None)


def test_since_a_version_only_what_is_later_counts(invoke, look, put):
    put("s", "1")
    put("s", "2")
    assert look(invoke(*WAIT, "--since=1")) == ("2\n", None)
    shown, planned = look(invoke(*WAIT, "--since=2"))
    put("s", "3")

    assert shown == ""
    assert look(planned) == ("3\n", None)


def test_an_event_counts_from_now_on_and_is_printed_as_tail_shows_it(invoke, look, record):
    record("done")
    shown, planned = look(invoke("wait", "--event=done"))
    record("other")
    again, planned = look(planned)
    record("done", run_id="r1")
    line, following = look(planned)

    assert (shown, again, following) == ("", "", None)
    event = json.loads(line)
    assert (event["seq"], event["run_id"], event["type"]) == (3, "r1", "done")
    assert list(event)[:6] == ["id", "run_id", "source", "type", "from_state", "to_state"]


def test_since_a_sequence_number_earlier_events_count_too(invoke, look, record):
    record("done")
    record("done")

    line, following = look(invoke("wait", "--event=done", "--since=1"))

    assert (json.loads(line)["seq"], following) == (2, None)


def test_source_and_run_narrow_it_down(invoke, look, record):
    _, planned = look(invoke("wait", "--event=done", "--source=mine", "--run=r1"))
    record("done", source="other", run_id="r1")
    record("done", run_id="r2")
    shown, planned = look(planned)
    record("done", run_id="r1")

    assert shown == ""
    assert json.loads(look(planned)[0])["seq"] == 3


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--event=x", "--state", "k", "s"),
        ("--state", "k"),
        ("--state", "k", "s", "--run=r"),
        ("--state", "k", "s", "--source=r"),
        ("--event=x", "--since=-1"),
        ("x",),
    ],
)
def test_it_must_be_said_what_is_waited_for(invoke, words):
    output = invoke("wait", *words)

    assert isinstance(output, Output)
    assert (output.exit, output.stdout) == (3, b"")


def test_when_the_time_is_up_the_exit_is_1_and_nothing_is_said(invoke, database, clock):
    planned = invoke(*WAIT, "--timeout=1ms")
    planned.call.deadline = time.monotonic() + 60
    while time.monotonic() < planned.ends_at:
        pass
    (answer,) = run_batch(database, [planned.call], clock=clock)

    output, following = advance(planned, answer)

    assert (output.exit, output.stdout, output.stderr, following) == (1, b"", b"", None)


def test_the_end_of_its_time_does_not_move_when_another_host_goes_on(invoke, look):
    _, planned = look(invoke(*WAIT, "--timeout=60s"))

    again = resume(invoke(*WAIT, "--timeout=60s"), planned.place)

    assert again.ends_at == planned.ends_at


def test_an_event_between_two_hosts_is_not_missed(invoke, look, record):
    _, planned = look(invoke("wait", "--event=done"))
    record("done")

    again = resume(invoke("wait", "--event=done"), planned.place)

    assert json.loads(look(again)[0])["seq"] == 1


def test_a_database_that_is_held_is_waited_for_until_the_time_is_up(invoke, look):
    _, waiting = look(invoke(*WAIT))
    held = Answer(error=Locked("held"))

    again, following = advance(waiting, held)
    waiting.ends_at = time.monotonic()
    over, end = advance(waiting, held)

    assert (again.exit, following.patience) == (0, 0.05)
    assert (over.exit, end) == (2, None)
