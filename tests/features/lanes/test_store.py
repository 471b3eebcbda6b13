"""Lanes: who is in one, since when, and what it gets done."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.errors import LaneClosed, LaneExists, UnknownLane
from icd.features.events import retention
from icd.features.events import store as events
from icd.features.lanes import store as lanes
from icd.values.processes import Writer

NOW = 1_800_000_000_123
DAY = 86_400_000
ME = Writer(pid=41, session="s1")


def create(conn, name="kernel", *, now_ms=NOW, **told):
    known = {"lane_type": "standing", "description": "", "intent": "", "metadata": "{}"} | told
    return lanes.create(conn, name, actor=ME, now_ms=now_ms, **known)


def sync(conn, word, *beads, now_ms=NOW):
    return lanes.sync(conn, lanes.require(conn, word), beads, actor=ME, now_ms=now_ms)


def close(conn, word, *, now_ms=NOW):
    return lanes.close(conn, lanes.require(conn, word), actor=ME, now_ms=now_ms)


def update(conn, word, *, now_ms=NOW, **changes):
    return lanes.update(conn, lanes.require(conn, word), changes, actor=ME, now_ms=now_ms)


def members(conn, word):
    return lanes.members(conn, lanes.require(conn, word))


def rates(conn, *, days=7, now_ms=NOW):
    found = lanes.velocity(conn, days=days, now_ms=now_ms)
    return {each.name: (each.open_beads, each.closed, each.starvation) for each in found}


def test_a_lane_is_known_by_its_id_and_by_its_name(conn):
    made = create(conn)

    assert lanes.require(conn, made.id) == lanes.require(conn, "kernel")
    with pytest.raises(UnknownLane, match="there is no lane 'ghost'"):
        lanes.require(conn, "ghost")


def test_a_lane_that_is_named_as_another_is_called_is_found_after_it(conn):
    first = create(conn)
    create(conn, first.id + "x")

    assert lanes.require(conn, first.id).name == "kernel"


def test_no_two_lanes_have_one_name_even_if_one_is_closed(conn):
    create(conn)
    close(conn, "kernel")

    with pytest.raises(LaneExists, match="there is a lane 'kernel'"):
        create(conn)


def test_a_name_that_is_the_id_of_another_lane_is_taken(conn):
    """Else one word would mean two lanes."""
    made = create(conn)

    with pytest.raises(LaneExists):
        create(conn, made.id)


def test_a_sync_says_all_that_is_in_the_lane(conn):
    create(conn)

    first = sync(conn, "kernel", "B-2", "B-1", "B-2")
    second = sync(conn, "kernel", "B-3", "B-1", now_ms=NOW + 5000)

    assert (first.member_count, first.added, first.removed) == (2, ["B-2", "B-1"], [])
    assert (second.member_count, second.added, second.removed) == (2, ["B-3"], ["B-2"])
    assert members(conn, "kernel") == ["B-1", "B-3"]


def test_a_lane_may_become_empty(conn):
    create(conn)
    sync(conn, "kernel", "B-1")

    assert sync(conn, "kernel").removed == ["B-1"]
    assert members(conn, "kernel") == []


def test_one_issue_may_be_in_several_lanes(conn):
    for name in ("kernel", "launch"):
        create(conn, name)
        sync(conn, name, "B-1")

    sync(conn, "kernel")

    assert members(conn, "launch") == ["B-1"]


def test_what_left_a_lane_within_the_days_is_its_throughput(conn):
    create(conn)
    sync(conn, "kernel", "a", "b", "c", "d")
    sync(conn, "kernel", "b", "c", "d", now_ms=NOW + DAY)
    sync(conn, "kernel", "c", "d", now_ms=NOW + 9 * DAY)

    assert rates(conn, now_ms=NOW + 9 * DAY) == {"kernel": (2, 1, 6.0)}
    assert rates(conn, days=30, now_ms=NOW + 9 * DAY) == {"kernel": (2, 2, 3.0)}


def test_what_came_back_does_not_count_as_done(conn):
    create(conn)
    sync(conn, "kernel", "a")
    sync(conn, "kernel")
    sync(conn, "kernel", "a")

    assert rates(conn) == {"kernel": (1, 0, 30.0)}


def test_the_lane_that_starves_most_comes_first_and_closed_ones_do_not_count(conn):
    for name, count in (("few", 1), ("many", 5), ("none", 0), ("over", 9)):
        create(conn, name)
        sync(conn, name, *map(str, range(count)))
    close(conn, "over")

    assert list(rates(conn)) == ["many", "few", "none"]


def test_throughput_outlives_the_log(conn):
    create(conn)
    sync(conn, "kernel", "a", "b")
    sync(conn, "kernel", "b")
    retention.prune(conn, retention.Rule(None, 0), force=True, now_ms=NOW)

    assert lanes.happened(conn, lanes.require(conn, "kernel"), limit=9) == []
    assert rates(conn) == {"kernel": (1, 1, 3.0)}


def test_a_lane_is_closed_once_and_still_takes_changes(conn):
    create(conn)
    closed = close(conn, "kernel", now_ms=NOW + 1000)

    assert (closed.status, closed.closed_at) == ("closed", NOW // 1000 + 1)
    with pytest.raises(LaneClosed, match="the lane 'kernel' is closed"):
        close(conn, "kernel")
    assert sync(conn, "kernel", "a").member_count == 1
    assert update(conn, "kernel", intent="later").status == "closed"


def test_what_is_not_changed_stays(conn):
    create(conn, description="core", intent="go", metadata='{"a":1}')

    changed = update(conn, "kernel", intent="stop", now_ms=NOW + 9000)

    assert (changed.description, changed.intent, changed.metadata) == ("core", "stop", '{"a":1}')
    row = lanes.require(conn, "kernel")
    assert (row.created_at, row.updated_at) == (NOW // 1000, NOW // 1000 + 9)


def test_lists_are_by_name_and_by_status(conn):
    for name in ("b", "a", "c"):
        create(conn, name)
    close(conn, "b")

    assert [lane.name for lane in lanes.every(conn)] == ["a", "b", "c"]
    assert [lane.name for lane in lanes.every(conn, "active")] == ["a", "c"]
    assert lanes.every(conn, "archived") == []


def test_every_change_is_an_event_of_the_lane(conn):
    made = create(conn)
    create(conn, "other")
    sync(conn, "kernel", "a")
    update(conn, "kernel", metadata='{"paused":true}')
    close(conn, "kernel")

    found = lanes.happened(conn, lanes.require(conn, "kernel"), limit=9)

    assert [(each.event_type, json.loads(each.payload)) for each in found] == [
        ("created", {"name": "kernel", "lane_type": "standing"}),
        ("snapshot", {"count": 1, "added": ["a"], "removed": []}),
        ("updated", {"metadata": '{"paused":true}'}),
        ("closed", {}),
    ]
    assert {each.lane_id for each in found} == {made.id}
    log = events.read(conn, limit=9, source="lane")
    assert [event.session for event in log] == ["s1"] * 5
    assert [each.event_type for each in lanes.happened(conn, made_row(conn), limit=1)] == ["closed"]
    assert lanes.in_full(conn, made_row(conn)).event_count == 4


def made_row(conn):
    return lanes.require(conn, "kernel")


# --- against a model ---

NAMES = st.sampled_from(["a", "b"])
BEADS = st.lists(st.sampled_from("xyz"), max_size=4)
STEPS = st.tuples(
    st.sampled_from(["create", "sync", "sync", "close", "update"]), NAMES, BEADS, st.integers(0, 3)
)


class Model:
    """What is said of lanes, in a few lines of Python."""

    def __init__(self):
        self.lanes = {}  # is active, intent, members in order with their day, and who left when

    def play(self, what, name, beads, day):
        if what == "create":
            if name in self.lanes:
                return False
            self.lanes[name] = [True, "", {}, {}]
            return True
        if name not in self.lanes:
            return False
        lane = self.lanes[name]
        if what == "close":
            was, lane[0] = lane[0], False
            return was
        if what == "update":
            lane[1] = "".join(beads)
        if what == "sync":
            there, left = lane[2], lane[3]
            for bead in [bead for bead in there if bead not in beads]:
                del there[bead]
                left[bead] = day
            for bead in beads:
                there.setdefault(bead, day)
                left.pop(bead, None)
        return True

    def members(self, name):
        there = self.lanes[name][2]
        return sorted(there, key=lambda bead: (there[bead], bead))

    def rates(self, day):
        return {
            name: (len(there), sum(day - gone <= 2 for gone in left.values()))
            for name, (is_active, _, there, left) in self.lanes.items()
            if is_active
        }


def play(conn, what, name, beads, now_ms):
    try:
        if what == "create":
            create(conn, name, now_ms=now_ms)
        elif what == "sync":
            sync(conn, name, *beads, now_ms=now_ms)
        elif what == "close":
            close(conn, name, now_ms=now_ms)
        else:
            update(conn, name, intent="".join(beads), now_ms=now_ms)
    except (UnknownLane, LaneExists, LaneClosed):
        return False
    return True


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_any_sequence_does_what_the_model_does(scratch, steps):
    model, day = Model(), 0
    with scratch() as conn:
        for what, name, beads, later in steps:
            day += later
            now_ms = NOW + day * DAY
            assert play(conn, what, name, beads, now_ms) == model.play(what, name, beads, day)
            there = {lane.name: members(conn, lane.name) for lane in lanes.every(conn)}
            assert there == {known: model.members(known) for known in model.lanes}
            found = lanes.velocity(conn, days=2, now_ms=now_ms)
            assert {v.name: (v.open_beads, v.closed) for v in found} == model.rates(day)
        told = {lane.name: (lane.status == "active", lane.intent) for lane in lanes.every(conn)}

    assert told == {name: (lane[0], lane[1]) for name, lane in model.lanes.items()}
