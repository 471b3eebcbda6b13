"""Pruning the log: a beginning of it, and nothing that a durable cursor needs."""

import pytest

from icd.features.events import cursors, retention
from icd.features.events import store as events
from icd.features.events.retention import Rule
from icd.features.events.store import Fact
from icd.values.processes import Writer

NOW = 1_800_000_000_000


def record(conn, *times):
    for at_ms in times:
        events.append(conn, Fact("ci", "t"), actor=Writer(), now_ms=at_ms)


def left(conn):
    return [event.seq for event in events.read(conn, limit=10_000)]


def prune(conn, before_ms=None, keep=None, *, force=False):
    return retention.prune(conn, Rule(before_ms, keep), force=force, now_ms=NOW)


@pytest.mark.parametrize(
    "rule, kept",
    [
        ((None, None), [1, 2, 3, 4]),
        ((NOW + 2, None), [3, 4]),
        ((NOW, None), [1, 2, 3, 4]),
        ((NOW + 99, None), []),
        ((None, 1), [4]),
        ((None, 0), []),
        ((None, 4), [1, 2, 3, 4]),
        ((None, 99), [1, 2, 3, 4]),
        ((NOW + 1, 1), [4]),
        ((NOW + 3, 3), [4]),
    ],
)
def test_age_and_number_each_let_go_of_a_beginning(conn, rule, kept):
    record(conn, NOW, NOW + 1, NOW + 2, NOW + 3)

    done = prune(conn, *rule)

    assert left(conn) == kept
    assert (done.pruned, done.held) == (4 - len(kept), 0)
    assert done.through == events.pruned_through(conn) == 4 - len(kept)


def test_a_clock_that_was_ahead_keeps_what_follows_and_one_behind_goes_along(conn):
    record(conn, NOW, NOW - 5000, NOW + 5000, NOW + 1)

    prune(conn, NOW + 2)

    assert left(conn) == [3, 4]


def test_a_durable_cursor_keeps_what_it_has_not_read(conn):
    record(conn, NOW, NOW, NOW, NOW)
    cursors.register(conn, "c", durable=True, now_ms=NOW)
    cursors.advance(conn, "c", "", 3, now_ms=NOW)
    cursors.register(conn, "short", durable=False, now_ms=NOW)

    done = prune(conn, keep=0)

    assert left(conn) == [4]
    assert (done.pruned, done.held) == (3, 1)


def test_a_durable_cursor_of_one_run_counts_as_well(conn):
    record(conn, NOW, NOW)
    cursors.register(conn, "c", durable=True, now_ms=NOW)
    cursors.advance(conn, "c", "", 2, now_ms=NOW)
    cursors.advance(conn, "c", "r1", 1, now_ms=NOW)

    prune(conn, keep=0)

    assert left(conn) == [2]


def test_force_goes_past_it(conn):
    record(conn, NOW, NOW)
    cursors.register(conn, "c", durable=True, now_ms=NOW)

    assert prune(conn, keep=1, force=True).pruned == 1
    assert left(conn) == [2]


def test_pieces_end_where_the_whole_would(conn, monkeypatch):
    monkeypatch.setattr(retention, "PRUNED_AT_ONCE", 2)
    record(conn, *[NOW] * 5)

    gone = [retention.prune_some(conn, Rule(keep=1), now_ms=NOW) for _ in range(4)]

    assert gone == [2, 2, 0, 0]
    assert left(conn) == [5]
    assert events.pruned_through(conn) == 4


def test_numbers_that_were_never_given_do_not_count(conn):
    record(conn, NOW)
    events.go_on_after(conn, 1000)
    record(conn, NOW, NOW)

    prune(conn, keep=3)
    assert left(conn) == [1, 1001, 1002]

    prune(conn, keep=2)
    assert left(conn) == [1001, 1002]
