"""state.watch and events.watch: one look after the other."""

import msgspec
import pytest

from icd.errors import CursorAhead, CursorBehind, InvalidName, TooManyRows
from icd.features.events import store as events
from icd.features.events import watch as watches


@pytest.fixture
def follow(result):
    """One look at the log, as the numbers of the events and what to ask next."""

    def look(**params):
        found = result(watches.WATCH, **params)
        return [event.seq for event in found.news.events], found

    return look


def fact(kind="t", **other):
    return {"source": "mine", "type": kind, "payload": '{"n":1}'} | other


# --- state ---


def test_each_look_brings_what_the_one_before_did_not(result):
    result("state.set", key="k", scope_id="s", payload="1")

    first = result("state.watch", key="k")
    second = result("state.watch", key="k", known=first.following.known)
    result("state.delete", key="k", scope_id="s")
    third = result("state.watch", key="k", known=second.following.known)

    assert [row.scope_id for row in first.news.rows] == ["s"]
    assert (first.is_empty, second.is_empty, third.is_empty) == (False, True, False)
    assert (third.news.gone, third.following.known) == (["s"], {})


def test_a_row_with_a_time_to_live_is_looked_at_again_when_it_is_over(result):
    result("state.set", key="k", scope_id="s", payload="1", ttl_ms=1500)

    assert result("state.watch", key="k", scope_id="s").patience_ms == 1500
    assert result("state.watch", key="k", scope_id="other").patience_ms is None


def test_names_are_judged_before_anything_is_watched(result):
    with pytest.raises(InvalidName):
        result("state.watch", key="No Key")
    with pytest.raises(InvalidName):
        result("state.watch", key="k", scope_id="a\tb")
    with pytest.raises(TooManyRows):
        result("state.watch", key="k", known={str(n): n for n in range(1001)})
    with pytest.raises(InvalidName):
        result(watches.WATCH, source="No Source")
    with pytest.raises(InvalidName):
        result(watches.WATCH, type="")


# --- events ---


def test_without_a_position_only_what_comes_from_now_on_is_followed(result, follow):
    result("events.record", **fact())

    seqs, look = follow()
    result("events.record", **fact())
    later, _ = follow(since=look.following.since)

    assert (seqs, look.news.seq, look.is_empty) == ([], 1, True)
    assert later == [2]


def test_a_long_log_comes_in_pages(result, follow):
    for _ in range(watches.EVENTS_AT_ONCE + 1):
        result("events.record", **fact())

    first, look = follow(since=0)
    second, last = follow(since=look.following.since)

    assert (len(first), look.patience_ms) == (watches.EVENTS_AT_ONCE, 0)
    assert (second, last.patience_ms) == ([watches.EVENTS_AT_ONCE + 1], None)


def test_what_nobody_looked_for_is_not_looked_at_again(result, follow):
    for kind in ("a", "b", "a", "b", "b"):
        result("events.record", **fact(kind))

    seqs, look = follow(since=0, type="a")

    assert (seqs, look.following.since) == ([1, 3], 5)


def test_a_position_that_was_pruned_is_told_with_the_oldest(result, follow):
    for _ in range(5):
        result("events.record", **fact())
    result("events.prune", keep=2)

    with pytest.raises(CursorBehind) as told:
        follow(since=1)

    assert told.value.data["oldest"] == 4


def test_a_position_that_the_log_never_reached_belongs_to_another_log(result, follow):
    result("events.record", **fact())

    with pytest.raises(CursorAhead):
        follow(since=2)


@pytest.mark.parametrize(
    "wanted",
    [
        {"run_id": "r1"},
        {"run_id": "d1"},
        {"source": "mine"},
        {"type": "b"},
        {"run_id": "r1", "type": "a"},
        {},
    ],
)
def test_what_matches_is_what_the_log_would_show(result, conn, wanted):
    for source in ("mine", "discovery"):
        for kind in ("a", "b"):
            for run_id in ("", "r1", "r2"):
                names = {"source": source, "run_id": run_id, "subject_id": "d1"}
                result("events.record", **(fact(kind) | names))

    asked = watches.Watch(**wanted)
    shown = events.read(conn, limit=100, **wanted)
    every = events.read(conn, limit=100)

    assert [event for event in every if watches.matches(asked, event)] == shown
    assert len(every) == 12


def test_the_news_are_json_that_names_the_position(result, follow):
    result("events.record", **fact())

    _, look = follow(since=0)

    shown = msgspec.json.decode(msgspec.json.encode(look.news))
    assert shown["seq"] == 1
    assert list(shown["events"][0])[:5] == ["id", "run_id", "source", "type", "from_state"]
