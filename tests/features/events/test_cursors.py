"""Cursors: forward only, durable or for a day, and those of the original."""

import pytest

from icd.errors import NoSuchEvent
from icd.features.events import cursors
from icd.features.events import store as events
from icd.features.events.cursors import DAY_MS
from icd.features.events.store import Fact, Marks
from icd.features.state import store as state
from icd.values.processes import Writer

NOW = 1_800_000_000_000


@pytest.fixture
def log(conn):
    """Record events of these sources; `phase@r1` belongs to a run."""

    def record(*words):
        for word in words:
            source, _, run_id = word.partition("@")
            events.append(conn, Fact(source, "t", run_id), actor=Writer(), now_ms=NOW)

    return record


def find(conn, consumer="c", run_id="", *, now_ms=NOW):
    cursor = cursors.find(conn, consumer, run_id, now_ms=now_ms)
    return cursor and cursor.seq


def advance(conn, seq, consumer="c", run_id="", *, now_ms=NOW):
    return cursors.advance(conn, consumer, run_id, seq, now_ms=now_ms)


def old(conn, payload, scope="c", *, ttl_ms=0):
    state.set(conn, "cursor", scope, payload, ttl_ms=ttl_ms, writer=Writer(), now_ms=NOW)


def test_a_cursor_moves_forward_only(conn, log):
    log("ci", "ci", "ci")

    places = [advance(conn, seq).seq for seq in (2, 1, 3, 0)]

    assert places == [2, 2, 3, 3]
    assert find(conn) == 3


def test_set_moves_it_in_either_direction(conn, log):
    log("ci", "ci", "ci")
    advance(conn, 3)

    cursors.put(conn, "c", "", 1, now_ms=NOW)

    assert find(conn) == 1


@pytest.mark.parametrize("move", [cursors.advance, cursors.put])
def test_nobody_can_have_read_what_has_not_happened(conn, log, move):
    log("ci")

    with pytest.raises(NoSuchEvent, match="no event 2; the last event is 1"):
        move(conn, "c", "", 2, now_ms=NOW)

    assert find(conn) is None


def test_consumers_and_runs_have_cursors_of_their_own(conn, log):
    log("ci", "ci@r1", "ci@r1")

    advance(conn, 1)
    advance(conn, 2, "d")
    advance(conn, 3, run_id="r1")

    assert [find(conn), find(conn, "d"), find(conn, run_id="r1")] == [1, 2, 3]
    keys = [cursor.key for cursor in cursors.every(conn, now_ms=NOW)]
    assert keys == ["c", "c:r1", "d"]


# --- registering ----------------------------------------------------------------------------


def test_registering_never_moves_a_live_cursor(conn, log):
    log("ci", "ci")
    advance(conn, 2)

    places = [cursors.register(conn, "c", durable=d, now_ms=NOW).seq for d in (False, True, False)]

    assert places == [2, 2, 2]


def test_a_new_cursor_is_at_the_oldest_event(conn, log):
    log("ci", "ci", "ci")
    conn.execute("UPDATE counters SET value = 2 WHERE name = 'events_pruned'")

    assert cursors.register(conn, "c", durable=False, now_ms=NOW).seq == 2


def test_what_is_durable_stays_so_whoever_uses_it(conn, log):
    log("ci", "ci@r1")
    cursors.register(conn, "c", durable=True, now_ms=NOW)

    advance(conn, 1)
    cursors.register(conn, "c", durable=False, now_ms=NOW)
    cursors.put(conn, "c", "", 0, now_ms=NOW)
    advance(conn, 2, run_id="r1")

    later = NOW + 1000 * DAY_MS
    assert (find(conn, now_ms=later), find(conn, run_id="r1", now_ms=later)) == (0, 2)


def test_registering_for_ever_covers_the_runs_that_were_there(conn, log):
    log("ci@r1")
    advance(conn, 1, run_id="r1")

    cursors.register(conn, "c", durable=True, now_ms=NOW)

    assert find(conn, run_id="r1", now_ms=NOW + 2 * DAY_MS) == 1


def test_others_expire_a_day_after_they_were_used(conn, log):
    log("ci")
    advance(conn, 1)

    assert find(conn, now_ms=NOW + DAY_MS - 1) == 1
    assert not cursors.expired(conn, "c", "", now_ms=NOW + DAY_MS - 1)
    assert find(conn, now_ms=NOW + DAY_MS) is None
    assert cursors.expired(conn, "c", "", now_ms=NOW + DAY_MS)
    assert cursors.every(conn, now_ms=NOW + DAY_MS) == []


def test_one_that_has_expired_begins_anew_and_not_where_it_was(conn, log):
    log("ci", "ci", "ci")
    advance(conn, 3)

    assert advance(conn, 1, now_ms=NOW + DAY_MS).seq == 1
    assert cursors.register(conn, "d", durable=False, now_ms=NOW + DAY_MS).seq == 0


def test_reading_without_news_keeps_a_cursor_alive(conn, log):
    log("ci")
    advance(conn, 1)

    for day in range(1, 10):
        cursors.use(conn, "c", "", now_ms=NOW + day * DAY_MS * 3 // 4)

    assert find(conn, now_ms=NOW + 7 * DAY_MS) == 1


def test_cursors_of_long_ago_are_forgotten(conn, log):
    log("ci")
    advance(conn, 1, "old")

    advance(conn, 1, "new", now_ms=NOW + DAY_MS + cursors.FORGET_MS + 1)

    assert not cursors.expired(conn, "old", "", now_ms=NOW + 99 * DAY_MS)


# --- reset ----------------------------------------------------------------------------------


def test_reset_covers_the_runs_of_a_consumer(conn, log):
    log("ci@r1")
    advance(conn, 1)
    advance(conn, 1, run_id="r1")
    advance(conn, 1, "other")

    assert cursors.reset(conn, "c", now_ms=NOW) == 2
    assert (find(conn), find(conn, run_id="r1"), find(conn, "other")) == (None, None, 1)


def test_reset_of_one_run_leaves_the_others(conn, log):
    log("ci@r1")
    advance(conn, 1)
    advance(conn, 1, run_id="r1")

    assert cursors.reset(conn, "c:r1", now_ms=NOW) == 1
    assert (find(conn), find(conn, run_id="r1")) == (1, None)
    assert cursors.reset(conn, "c:r1", now_ms=NOW) == 0


@pytest.mark.parametrize(
    "key, found", [("c", ("c", "")), ("c:r1", ("c", "r1")), ("a:b", ("a:b", "")),
                   ("x:abcd1234", ("x", "abcd1234")), (":r", (":r", "")), ("z:r1", ("z:r1", "")),
                   ("team:notifier", ("team:notifier", ""))],
)  # fmt: skip
def test_a_word_names_a_consumer_or_one_of_its_runs(conn, log, key, found):
    log("ci@r1", "ci@abcd1234")
    advance(conn, 1, run_id="r1")
    advance(conn, 1, "a:b")

    assert cursors.locate(conn, key, now_ms=NOW) == found


# --- in the terms of the original -----------------------------------------------------------


def test_marks_are_the_last_ids_before_the_place(conn, log):
    log("phase", "dispatch", "phase", "ci", "discovery")
    cursor = cursors.put(conn, "c", "", 4, now_ms=NOW)

    assert cursors.marks(conn, cursor) == Marks(phase=3, dispatch=2)


@pytest.mark.parametrize(
    "marks, seq",
    [
        (Marks(), 0),
        (Marks(phase=1), 1),  # the dispatch of 2 is not known yet
        (Marks(phase=3, dispatch=2), 4),
        (Marks(phase=3, dispatch=2, discovery=5), 6),
        (Marks(phase=99, dispatch=99, discovery=99), 6),
        (Marks(phase=3, dispatch=2, discovery=5, interspect=1), 5),
    ],
)
def test_marks_become_a_place_from_which_nothing_is_missed(conn, log, marks, seq):
    log("phase", "dispatch", "phase", "ci", "discovery", "interspect")

    assert cursors.from_marks(conn, marks, "") == seq


def test_marks_of_a_run_are_about_its_own_events(conn, log):
    log("phase@r1", "phase@r2", "dispatch@r1", "discovery")

    assert cursors.from_marks(conn, Marks(phase=1), "r1") == 2
    assert cursors.from_marks(conn, Marks(phase=1, dispatch=3), "r1") == 4


def test_a_cursor_of_the_original_is_taken_over_at_its_first_use(conn, log):
    log("phase", "dispatch", "phase")
    old(conn, '{"phase":1,"dispatch":2,"interspect":0,"discovery":0}')
    old(conn, '{"phase":3,"dispatch":2}', "c:abcd1234", ttl_ms=DAY_MS)

    assert find(conn) == 2
    assert state.get(conn, "cursor", "c", now_ms=NOW) is None
    found = [(c.key, c.seq, c.expires_ms) for c in cursors.every(conn, now_ms=NOW)]
    assert found == [("c", 2, None), ("c:abcd1234", 3, NOW + DAY_MS)]
    assert state.scopes(conn, "cursor", now_ms=NOW) == []


@pytest.mark.parametrize("payload", ["null", "[]", '{"phase":"x"}', '{"phase":-1}', "{}"])
def test_what_is_no_cursor_is_one_that_has_read_nothing(conn, log, payload):
    log("phase")
    old(conn, payload)

    assert find(conn) == 0


def test_a_row_that_an_old_script_writes_later_does_not_move_a_cursor_back(conn, log):
    log("phase", "phase", "phase")
    advance(conn, 2)
    old(conn, '{"phase":1}')

    assert find(conn) == 2

    old(conn, '{"phase":3}')

    assert find(conn) == 3


def test_a_cursor_of_the_original_that_is_nested_too_deeply_counts_as_nothing(conn, log):
    log("phase", "ci")
    depth = 999  # as deep as SQLite takes for JSON
    old(conn, "[" * depth + "]" * depth)

    assert [cursor.seq for cursor in cursors.every(conn, now_ms=NOW)] == [0]


def test_reset_forgets_cursors_of_the_original_too(conn, log):
    old(conn, "{}")
    old(conn, "{}", "c:abcd1234")

    assert cursors.reset(conn, "c", now_ms=NOW) == 2
    assert cursors.every(conn, now_ms=NOW) == []


def test_those_who_are_furthest_behind_are_told_first(conn, log):
    log("ci", "ci", "ci")
    advance(conn, 3, "quick")
    advance(conn, 1, "slow", "r1")
    advance(conn, 2, "gone", now_ms=NOW - 2 * DAY_MS)

    assert cursors.lags(conn, limit=50, now_ms=NOW) == {"slow:r1": 2, "quick": 0}
    assert cursors.lags(conn, limit=1, now_ms=NOW) == {"slow:r1": 2}
