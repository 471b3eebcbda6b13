"""Known, similar, or new: decided where it is stored."""

import random
import struct

import msgspec
import pytest

from icd.errors import DimensionMismatch
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import store as discoveries
from icd.features.discoveries import vectors
from icd.features.discoveries.store import Wanted
from icd.features.discoveries.vectors import Batch
from icd.features.events import store as events
from tests.support.submitted import submit, told, vector, verdict

NEAR = vector(1.0, 0.0, 0.01)


def log(conn):
    found = events.read(conn, limit=100, source="discovery")
    return [(event.type, event.subject_id, msgspec.json.decode(event.payload)) for event in found]


def test_a_new_discovery_is_told_in_the_log(conn):
    name = submit(conn, score=0.85)

    assert log(conn) == [
        (
            "discovery.submitted",
            name,
            {"id": name, "score": 0.85, "source": "exa", "tier": "high", "title": "A title"},
        )
    ]


def test_the_same_id_of_the_same_source_is_a_duplicate_and_changes_nothing(conn):
    name = submit(conn, "1", embedding=NEAR)
    reviews.dismiss(conn, name, told=told())
    before = discoveries.require(conn, name), events.head(conn)

    again = verdict(conn, "1", title="Another", score=1.0, embedding=NEAR, threshold=0.9)

    assert (again.id, again.verdict) == (name, "duplicate")
    assert (discoveries.require(conn, name), events.head(conn)) == before


def test_another_source_may_use_the_same_id(conn):
    assert submit(conn, "1") != submit(conn, "1", source="other")


@pytest.mark.parametrize("keeps", [False, True])
def test_what_resembles_a_discovery_of_its_source_is_that_one(conn, keeps):
    among = Batch(conn, keeps=keeps)
    name = submit(conn, "1", embedding=vector(1.0, 0.0, 0.0), among=among)
    submit(conn, "2", embedding=vector(0.0, 1.0, 0.0), among=among)

    similar = verdict(conn, "3", embedding=NEAR, threshold=0.9, among=among)

    assert (similar.id, similar.verdict) == (name, "deduped")
    assert len(discoveries.listed(conn, Wanted(limit=9))) == 2
    assert log(conn)[-1] == (
        "discovery.deduped",
        name,
        {"existing_id": name, "new_source_id": "3", "source": "exa"},
    )


def test_what_was_dismissed_is_still_known(conn):
    name = submit(conn, "1", embedding=NEAR)
    reviews.dismiss(conn, name, told=told())

    assert verdict(conn, "2", embedding=NEAR, threshold=0.9).id == name


@pytest.mark.parametrize(
    "given",
    [
        {"threshold": 0.9, "source": "other", "embedding": NEAR},
        {"threshold": 0.0, "embedding": NEAR},
        {"threshold": 0.9, "embedding": vector(0.0, 1.0, 0.0)},
        {"threshold": 0.9},
    ],
    ids=["another source", "no threshold", "not similar", "no embedding"],
)
def test_everything_else_is_new(conn, given):
    submit(conn, "1", embedding=vector(1.0, 0.0, 0.0))

    assert verdict(conn, "2", **given).verdict == "new"


def test_an_embedding_of_another_dimension_is_refused(conn):
    submit(conn, "1", embedding=NEAR)

    with pytest.raises(DimensionMismatch):
        verdict(conn, "2", embedding=vector(1.0), threshold=0.5)


@pytest.mark.parametrize("threshold", [0.2, 0.9, 0.999])
def test_many_that_are_looked_for_ahead_get_the_verdicts_of_one_by_one(
    scratch, monkeypatch, threshold
):
    monkeypatch.setattr(vectors, "BLOCK_BYTES", 16 * 12)  # sixteen rows, so that there are many
    chance = random.Random(1)
    given = [vector(*(chance.uniform(-1, 1) for _ in range(3))) for _ in range(200)]
    given += [vector(*(1e-30 * n for n in struct.unpack("<3f", one))) for one in given[::7]]
    chance.shuffle(given)

    def verdicts(conn, among, expect):
        names = {}
        for start in range(0, len(given), 30):
            chunk = given[start : start + 30]
            expect("exa", chunk, threshold=threshold)
            for i, one in enumerate(chunk, start):
                found = verdict(conn, str(i), embedding=one, threshold=threshold, among=among)
                yield found.verdict, names.setdefault(found.id, i)

    with scratch() as conn:
        one_by_one = list(verdicts(conn, Batch(conn, keeps=False), lambda *_, **__: None))
    with scratch() as conn:
        batch = Batch(conn)
        ahead = list(verdicts(conn, batch, batch.expect))

    assert ahead == one_by_one
    assert {kind for kind, _ in ahead} == {"new", "deduped"}
