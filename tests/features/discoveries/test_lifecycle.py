"""Scored, promoted, dismissed, retired."""

import msgspec
import pytest

from icd import config
from icd.errors import DiscoveryNotFound, DiscoveryRefused
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import store as discoveries
from icd.features.discoveries.tiers import ONE
from icd.features.events import store as events
from tests.support.submitted import DAY_MS, NOW_MS, submit, told

HALF = ONE // 2


def score(conn, name, relevance):
    return reviews.score(conn, name, relevance, settings=config.DEFAULTS, told=told())


def promote(conn, name, bead="b-1", *, threshold=HALF, forced_by=None):
    return reviews.promote(
        conn, name, bead, threshold=threshold, forced_by=forced_by, told=told(NOW_MS + 5000)
    )


def decay(conn, *, now_ms=NOW_MS + 2 * DAY_MS, rate=100_000, floor=50_000, **limits):
    limits = {"min_age_ms": DAY_MS, "every_ms": DAY_MS, **limits}
    return reviews.decay(conn, rate=rate, floor=floor, told=told(now_ms), **limits)


def last(conn):
    event = events.read(conn, since=events.head(conn) - 1, limit=1)[0]
    return event.type, event.from_state, event.to_state, msgspec.json.decode(event.payload)


def test_a_score_is_told_with_the_one_before(conn):
    name = submit(conn, score=0.7)

    found = score(conn, name, 290_000)

    assert (found.status, found.effective) == ("scored", 290_000)
    told_of = {"id": name, "new_score": 0.29, "old_score": 0.7, "tier": "discard"}
    assert last(conn) == ("discovery.scored", "new", "scored", told_of)


def test_a_new_score_starts_without_decay(conn):
    name = submit(conn, score=0.8)
    decay(conn)
    assert discoveries.require(conn, name).effective == 720_000

    found = score(conn, name, 600_000)

    assert (found.decay, found.effective) == (ONE, 600_000)
    assert last(conn)[3]["old_score"] == 0.72


def test_a_new_score_does_not_make_a_row_decay_twice_in_a_period(conn):
    name = submit(conn, score=0.8)
    decay(conn)
    score(conn, name, 600_000)

    assert decay(conn, now_ms=NOW_MS + 2 * DAY_MS + 1) == 0


@pytest.mark.parametrize("status", ["promoted", "dismissed"])
def test_what_is_decided_keeps_its_score(conn, status):
    name = submit(conn, score=0.7)
    promote(conn, name) if status == "promoted" else reviews.dismiss(conn, name, told=told())

    with pytest.raises(DiscoveryRefused, match=f'cannot score discovery in "{status}" status'):
        score(conn, name, 100_000)
    assert discoveries.require(conn, name).relevance == 700_000


def test_a_promotion_gives_a_bead_and_is_told(conn):
    name = submit(conn, score=0.5)

    assert promote(conn, name)

    found = discoveries.require(conn, name)
    assert (found.status, found.bead_id, found.promoted_at) == (
        "promoted", "b-1", NOW_MS // 1000 + 5,
    )  # fmt: skip
    told_of = {"bead_id": "b-1", "force": False, "id": name, "score": 0.5}
    assert last(conn) == ("discovery.promoted", "new", "promoted", told_of)


def test_a_promotion_needs_the_threshold_and_the_refusal_names_the_score(conn):
    name = submit(conn, score=0.29)

    with pytest.raises(DiscoveryRefused) as refused:
        promote(conn, name)

    assert refused.value.message == (
        "gate blocked: confidence below promotion threshold: "
        "confidence 0.29 below promotion threshold 0.50"
    )
    assert discoveries.require(conn, name).status == "new"


def test_a_score_just_below_the_threshold_does_not_look_like_it(conn):
    name = submit(conn, score=0.499999)

    with pytest.raises(DiscoveryRefused, match=r"confidence 0\.499999 below"):
        promote(conn, name)


def test_it_is_the_effective_score_that_is_promoted(conn):
    name = submit(conn, score=0.55)
    decay(conn)

    with pytest.raises(DiscoveryRefused, match=r"confidence 0\.49 below"):
        promote(conn, name)


def test_force_is_recorded_with_who_used_it(conn):
    name = submit(conn, score=0.1)

    assert promote(conn, name, forced_by="me")

    told_of = {"actor": "me", "bead_id": "b-1", "force": True, "id": name, "score": 0.1}
    assert last(conn)[3] == told_of


def test_the_same_bead_again_changes_nothing(conn):
    name = submit(conn, score=0.7)
    promote(conn, name)
    before = discoveries.require(conn, name), events.head(conn)

    assert not promote(conn, name)

    assert (discoveries.require(conn, name), events.head(conn)) == before


@pytest.mark.parametrize("forced_by", [None, "me"])
def test_another_bead_is_refused_and_the_one_that_has_it_is_named(conn, forced_by):
    name = submit(conn, score=0.7)
    promote(conn, name)

    with pytest.raises(DiscoveryRefused, match=f"^{name} is promoted already, to b-1$"):
        promote(conn, name, "b-2", forced_by=forced_by)
    assert discoveries.require(conn, name).bead_id == "b-1"


@pytest.mark.parametrize("forced_by", [None, "me"])
def test_what_was_dismissed_is_not_promoted(conn, forced_by):
    name = submit(conn, score=0.7)
    reviews.dismiss(conn, name, told=told())

    with pytest.raises(DiscoveryRefused, match="cannot promote dismissed discovery"):
        promote(conn, name, forced_by=forced_by)


def test_what_was_promoted_can_be_dismissed_once(conn):
    name = submit(conn, score=0.7)
    promote(conn, name)

    assert reviews.dismiss(conn, name, told=told())
    assert last(conn) == ("discovery.dismissed", "promoted", "dismissed", {"id": name})
    assert not reviews.dismiss(conn, name, told=told(NOW_MS + 9000))

    found = discoveries.require(conn, name)
    assert (found.reviewed_at, found.dismissed_ms) == (NOW_MS // 1000, NOW_MS)


@pytest.mark.parametrize(
    "act",
    [
        lambda conn: score(conn, "nobody", 1),
        lambda conn: promote(conn, "nobody"),
        lambda conn: reviews.dismiss(conn, "nobody", told=told()),
    ],
)
def test_nothing_is_done_to_what_is_not_there(conn, act):
    with pytest.raises(DiscoveryNotFound):
        act(conn)


def test_retiring_dismisses_what_a_source_has_open_since_then(conn):
    old = submit(conn, "old", now_ms=NOW_MS - 1000)
    new, promoted = submit(conn, "new"), submit(conn, "promoted")
    other = submit(conn, "other", source="other")
    promote(conn, promoted)

    assert reviews.candidates(conn, "exa", NOW_MS // 1000) == 1
    assert reviews.retire(conn, "exa", NOW_MS // 1000, told=told()) == 1

    statuses = {
        name: discoveries.require(conn, name).status for name in (old, new, promoted, other)
    }
    assert statuses == {old: "new", new: "dismissed", promoted: "promoted", other: "new"}
    told_of = {"id": new, "reason": "rollback", "source": "exa"}
    assert last(conn) == ("discovery.dismissed", "", "dismissed", told_of)


def test_a_decay_is_one_event_and_none_if_nothing_decayed(conn):
    submit(conn, "1")
    submit(conn, "2")

    assert decay(conn) == 2
    assert last(conn) == ("discovery.decayed", "", "", {"count": 2, "rate": 0.1})
    head = events.head(conn)
    assert decay(conn) == 0
    assert events.head(conn) == head


def test_only_what_is_older_than_the_least_age_decays(conn):
    name = submit(conn)

    assert decay(conn, now_ms=NOW_MS + DAY_MS) == 0
    assert decay(conn, now_ms=NOW_MS + DAY_MS + 1) == 1
    assert discoveries.require(conn, name).decay == 900_000


def test_what_was_promoted_or_dismissed_does_not_decay(conn):
    promote(conn, submit(conn, "1"))
    reviews.dismiss(conn, submit(conn, "2"), told=told())

    assert decay(conn) == 0


def test_a_rate_of_0_decays_nothing_and_one_of_1_leaves_the_floor(conn):
    name = submit(conn)

    assert decay(conn, rate=0) == 0
    assert decay(conn, rate=ONE) == 1
    assert discoveries.require(conn, name).decay == 50_000


@pytest.mark.parametrize(("step_ms", "count"), [(-1, 0), (1 - DAY_MS, 0), (-DAY_MS, 1)])
def test_a_clock_that_was_set_back_neither_decays_twice_nor_stops_it_for_long(conn, step_ms, count):
    submit(conn)
    decay(conn, now_ms=NOW_MS + 9 * DAY_MS)

    assert decay(conn, now_ms=NOW_MS + 9 * DAY_MS + step_ms) == count
