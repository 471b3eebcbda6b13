"""The log: one sequence, written with what it describes, read in order."""

import msgspec
import pytest

from icd.errors import CursorBehind, InvalidName
from icd.features.events import store as events
from icd.features.events.store import Fact, Marks, Wanted
from icd.values.processes import Writer

NOW = 1_800_000_000_123
ME = Writer(41, "me", "trace", "span")


def append(conn, source="ci", kind="built", *, now_ms=NOW, actor=ME, **fields):
    return events.append(conn, Fact(source, kind, **fields), actor=actor, now_ms=now_ms)


def seqs(found):
    return [event.seq for event in found]


def test_an_event_is_shown_with_the_fields_of_the_original_first_and_in_its_order(conn):
    append(
        conn, run_id="r1", subject_id="b7", from_state="a", to_state="b", reason="why",
        payload='{"n": 1}', project_dir="/p", idempotency_key="k",
    )  # fmt: skip

    (event,) = events.read(conn, limit=10)

    shown = msgspec.json.encode(event).decode()
    assert shown.startswith(
        '{"id":1,"run_id":"r1","source":"ci","type":"built","from_state":"a","to_state":"b",'
        '"reason":"why","timestamp":"2027-01-15T08:00:00Z","seq":1,"at_ms":1800000000123,'
        '"subject_id":"b7","payload":{"n": 1},"session":"me","pid":41,"uid":'
    )
    assert shown.endswith(
        '"trace_id":"trace","span_id":"span","project_dir":"/p","idempotency_key":"k"}'
    )


def test_what_is_not_known_is_left_out_but_never_a_state(conn):
    append(conn, actor=Writer())

    (event,) = events.read(conn, limit=10)

    assert sorted(msgspec.to_builtins(event)) == [
        "at_ms", "from_state", "id", "run_id", "seq", "source", "timestamp", "to_state", "type", "uid",
    ]  # fmt: skip


def test_order_is_the_sequence_whatever_the_clock_does(conn):
    for step in (0, -3_600_000, 3_600_000, -1):
        append(conn, now_ms=NOW + step)

    pages = [events.read(conn, since=since, limit=1) for since in range(4)]

    assert [seqs(page) for page in pages] == [[1], [2], [3], [4]]


def test_a_number_does_not_come_back_after_everything_is_gone(conn):
    append(conn)
    append(conn)
    conn.execute("DELETE FROM events")

    assert append(conn) == 3
    assert (events.head(conn), events.oldest(conn)) == (3, 3)


def test_an_event_that_was_rolled_back_never_was(conn):
    conn.execute("BEGIN")
    append(conn)
    conn.execute("ROLLBACK")

    assert (events.read(conn, limit=9), events.head(conn)) == ([], 0)
    assert append(conn) == 1


def test_an_empty_log_has_no_head_and_expects_the_first(conn):
    assert (events.head(conn), events.oldest(conn), events.pruned_through(conn)) == (0, 1, 0)


def test_a_key_is_recorded_once_per_source(conn):
    first = append(conn, idempotency_key="k", payload="1")
    again = append(conn, idempotency_key="k", payload="2")
    elsewhere = append(conn, "deploy", idempotency_key="k")

    assert (first, again, elsewhere) == (1, 1, 2)
    assert [bytes(e.payload) for e in events.read(conn, limit=9, source="ci")] == [b"1"]


@pytest.mark.parametrize(
    "wanted, found",
    [
        ({}, [1, 2, 3, 4]),
        ({"since": 2}, [3, 4]),
        ({"since": 9}, []),
        ({"run_id": "r1"}, [1, 3]),
        ({"run_id": "r1", "since": 1}, [3]),
        ({"run_id": "none"}, []),
        ({"source": "phase"}, [1, 4]),
        ({"source": "phase", "run_id": "r1"}, [1]),
        ({"type": "b"}, [2, 3]),
        ({"type": "b", "source": "ci", "since": 2}, [3]),
        ({"limit": 2}, [1, 2]),
        ({"limit": 2, "since": 1, "type": "b"}, [2, 3]),
    ],
)
def test_what_was_asked_for_is_found_in_order(conn, wanted, found):
    append(conn, "phase", "a", run_id="r1")
    append(conn, "ci", "b")
    append(conn, "ci", "b", run_id="r1")
    append(conn, "phase", "a", run_id="r2")

    assert seqs(events.read(conn, **{"limit": 10, **wanted})) == found


def test_marks_leave_out_what_each_source_has_shown_and_nothing_else(conn):
    for source in ("phase", "dispatch", "phase", "discovery", "ci", "interspect"):
        append(conn, source)

    marks = Marks(phase=1, dispatch=2, discovery=9)
    found, more = events.page(conn, Wanted(limit=10, marks=marks))

    assert seqs(found) == [3, 5, 6]
    assert not more


def test_large_payloads_come_in_smaller_pages_but_all_of_them(conn):
    large = '"' + "x" * (events.BATCH_CHARACTERS // 2) + '"'
    for _ in range(5):
        append(conn, payload=large)

    found, since, pages = [], 0, 0
    while True:
        page, more = events.page(conn, Wanted(since=since, limit=100))
        found += seqs(page)
        pages += 1
        if not more:
            break
        since = found[-1]

    assert found == [1, 2, 3, 4, 5]
    assert pages == 3


def test_a_discovery_is_shown_where_others_show_their_run(conn):
    append(conn, "discovery", subject_id="d1", payload='{"score":1}')

    (event,) = events.read(conn, limit=1)

    assert (event.run_id, event.reason, event.subject_id) == ("d1", '{"score":1}', "d1")


def test_whoever_goes_on_behind_what_was_pruned_is_told_the_oldest(conn):
    for _ in range(3):
        append(conn)
    conn.execute("DELETE FROM events WHERE seq <= 2")
    conn.execute("UPDATE counters SET value = 2 WHERE name = 'events_pruned'")

    with pytest.raises(CursorBehind, match=r"events after 1 .* the oldest is 3") as behind:
        events.require_kept(conn, 1, hint="do this")

    assert (behind.value.data["oldest"], behind.value.hint) == (3, "do this")
    events.require_kept(conn, 2, hint="")


@pytest.mark.parametrize("source", ["", "Review", "1a", "a b", "a" * 65, "é", "a\n"])
def test_a_source_is_a_lower_case_word(source):
    with pytest.raises(InvalidName):
        events.check(Fact(source, "t"))


@pytest.mark.parametrize("source", ["a", "my-tool_2", "a" * 64])
def test_anybody_may_be_a_source(source):
    events.check(Fact(source, "t"))


@pytest.mark.parametrize(
    "fields",
    [{"type": ""}, {"type": "a\tb"}, {"run_id": "a\nb"}, {"to_state": "\0"}, {"idempotency_key": ""}],
)  # fmt: skip
def test_names_without_control_characters_only(fields):
    with pytest.raises(InvalidName):
        events.check(Fact(**{"source": "ci", "type": "t", **fields}))
