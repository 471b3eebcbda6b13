"""Scored, promoted, dismissed, retired, commented on, and forgotten."""

import struct

import msgspec
import pytest
from msgspec import structs

from icd import config
from icd.errors import DiscoveryNotFound, DiscoveryRefused
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import store as discoveries
from icd.features.discoveries.store import ONE
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.values.processes import Writer
from tests.support.discovery_lines import DISCOVERY, EMBEDDING, FEEDBACK, NOW
from tests.support.lines import take
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

    with pytest.raises(DiscoveryRefused, match=f"^{name} is already promoted, to b-1$"):
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


# --- feedback: a record, which changes a score only where it is asked for -------------------------


LEARNING = msgspec.structs.replace(config.DEFAULTS, feedback_learning_rate=0.25)


def record(conn, name, signal="boost", settings=config.DEFAULTS, key=None):
    return reviews.feedback(
        conn, name, signal, data='{"k": 1}', actor="me", key=key, settings=settings, told=told()
    )


def test_a_signal_with_a_known_key_changes_nothing_however_often_it_is_given(conn):
    name, other = submit(conn), submit(conn, source_id="2")
    learning = structs.replace(config.DEFAULTS, feedback_learning_rate=0.5)

    first = record(conn, name, settings=learning, key="k")
    again = record(conn, name, settings=learning, key="k")
    elsewhere = record(conn, other, key="k")

    assert first.relevance == again.relevance > 0
    assert elsewhere.id == other
    (count,) = conn.execute("SELECT count(*) FROM feedback_signals").fetchone()
    told_of = [e for e in events.read(conn, limit=100) if e.type == "feedback.recorded"]
    assert (count, len(told_of)) == (2, 2)


def test_signals_are_added_and_told(conn):
    name = submit(conn)

    record(conn, name)
    record(conn, name)

    rows = conn.execute("SELECT * FROM feedback_signals").fetchall()
    assert rows == [
        (1, name, "boost", '{"k": 1}', "me", NOW_MS // 1000, None),
        (2, name, "boost", '{"k": 1}', "me", NOW_MS // 1000, None),
    ]
    event = events.read(conn, since=2, limit=1)[0]
    assert (event.type, event.subject_id) == ("feedback.recorded", name)
    assert msgspec.json.decode(event.payload) == {"discovery_id": name, "signal_type": "boost"}


@pytest.mark.parametrize("signal", [*reviews.TOWARDS, "read"])
def test_a_signal_alters_no_score_by_default(conn, signal):
    name = submit(conn)
    before = discoveries.require(conn, name)

    record(conn, name, signal)

    assert discoveries.require(conn, name) == before


@pytest.mark.parametrize(
    ("signal", "score"),
    [("promote", 0.7), ("boost", 0.7), ("dismiss", 0.45), ("penalize", 0.45), ("read", 0.6)],
)
def test_a_learning_rate_moves_the_score_that_part_of_the_way(conn, signal, score):
    name = submit(conn, score=0.6)

    found = record(conn, name, signal, LEARNING)

    assert found == discoveries.require(conn, name)
    assert (found.effective, found.status) == (round(score * 1_000_000), "new")


def test_what_was_learnt_is_told_with_its_signal(conn):
    name = submit(conn, score=0.6)

    record(conn, name, "boost", LEARNING)

    event = events.read(conn, since=2, limit=1)[0]
    assert (event.type, event.from_state, event.to_state) == ("discovery.scored", "new", "new")
    assert msgspec.json.decode(event.payload) == {
        "id": name, "new_score": 0.7, "old_score": 0.6, "signal": "boost", "tier": "medium",
    }  # fmt: skip


def test_nothing_is_learnt_about_what_is_decided(conn):
    name = submit(conn)
    reviews.dismiss(conn, name, told=told())

    assert record(conn, name, "boost", LEARNING).relevance == 700_000


def test_a_signal_about_nothing_is_refused(conn):
    with pytest.raises(DiscoveryNotFound):
        record(conn, "nobody")


# --- forgetting what was dismissed ----------------------------------------------------------------


@pytest.fixture
def add(conn):
    """Discoveries with all that belongs to one."""

    def added(**dismissed):
        for name, at_ms in dismissed.items():
            status = "scored" if at_ms is None else "dismissed"
            lines = (
                structs.replace(
                    DISCOVERY, id=name, source_id=name, status=status, dismissed_ms=at_ms
                ),
                structs.replace(EMBEDDING, discovery_id=name, vector=struct.pack("<3f", 1, 2, 3)),
                structs.replace(FEEDBACK, discovery_id=name),
            )
            assert all(take(conn, *lines, now_ms=NOW))

    return added


def ids(conn, column="id", table="discoveries"):
    return {value for (value,) in conn.execute(f"SELECT {column} FROM {table}")}


def counter(conn, name):
    (found,) = conn.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return found


def test_what_was_dismissed_by_then_goes_with_all_that_belongs_to_it(conn, add):
    add(old=NOW - 1, just=NOW, later=NOW + 1, never=None)

    assert reviews.prune(conn, before_ms=NOW) == 2

    assert ids(conn) == {"later", "never"}
    assert ids(conn, "discovery_id", "embeddings") == {"later", "never"}
    assert ids(conn, "discovery_id", "feedback_signals") == {"later", "never"}


def test_finding_7_the_log_keeps_what_happened_to_what_is_gone(conn, add):
    """With a foreign key from events, nothing that has any could be deleted."""
    add(old=NOW)
    fact = Fact("discovery", "discovery.dismissed", subject_id="old")
    events.append(conn, fact, actor=Writer(), now_ms=NOW)

    reviews.prune(conn, before_ms=NOW)

    assert ids(conn) == set()
    assert [event.subject_id for event in events.read(conn, limit=9)] == ["old"]


def test_deletions_are_counted_for_those_who_keep_discoveries_in_memory(conn, add):
    add(a=NOW, b=NOW, c=None)
    changes = counter(conn, "discoveries")

    reviews.prune(conn, before_ms=NOW)
    assert counter(conn, "discoveries_deleted") == 2
    assert counter(conn, "discoveries") > changes

    reviews.prune(conn, before_ms=NOW)
    assert counter(conn, "discoveries_deleted") == 2


def test_pieces_begin_with_the_oldest_and_end_where_the_whole_would(conn, add, monkeypatch):
    monkeypatch.setattr(reviews, "PRUNED_AT_ONCE", 2)
    add(c=NOW, a=NOW - 2, b=NOW - 1)

    assert reviews.oldest_ms(conn) == NOW - 2
    assert reviews.prune_some(conn, before_ms=NOW) == 2
    assert (ids(conn), reviews.oldest_ms(conn)) == ({"c"}, NOW)
    assert [reviews.prune_some(conn, before_ms=NOW) for _ in range(2)] == [1, 0]
    assert reviews.oldest_ms(conn) is None


def test_the_dimension_of_a_source_stays_known(conn, add):
    add(a=NOW)

    reviews.prune(conn, before_ms=NOW)

    assert conn.execute("SELECT * FROM embedding_sources").fetchall() == [("arxiv", 3)]
