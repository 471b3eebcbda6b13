"""Signals are records; they change a score only where somebody has asked for it."""

import msgspec
import pytest

from icd import config
from icd.errors import DiscoveryNotFound
from icd.features.discoveries import feedback
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import store as discoveries
from icd.features.events import store as events
from tests.support.submitted import NOW_MS, submit, told

LEARNING = msgspec.structs.replace(config.DEFAULTS, feedback_learning_rate=0.25)


def record(conn, name, signal="boost", settings=config.DEFAULTS):
    return feedback.record(
        conn, name, signal, data='{"k": 1}', actor="me", settings=settings, told=told()
    )


def test_signals_are_added_and_told(conn):
    name = submit(conn)

    record(conn, name)
    record(conn, name)

    rows = conn.execute("SELECT * FROM feedback_signals").fetchall()
    assert rows == [
        (1, name, "boost", '{"k": 1}', "me", NOW_MS // 1000),
        (2, name, "boost", '{"k": 1}', "me", NOW_MS // 1000),
    ]
    event = events.read(conn, since=2, limit=1)[0]
    assert (event.type, event.subject_id) == ("feedback.recorded", name)
    assert msgspec.json.decode(event.payload) == {"discovery_id": name, "signal_type": "boost"}


@pytest.mark.parametrize("signal", [*feedback.TOWARDS, "read"])
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
