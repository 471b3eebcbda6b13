"""Embeddings: judged, stored with one dimension a source, and compared within it."""

import math

import numpy as np
import pytest

from icd.errors import DimensionMismatch, InvalidVector
from icd.features.discoveries import similarity, vectors
from icd.features.discoveries.vectors import Batch
from tests.support.discovered import discover, packed


@pytest.mark.parametrize(
    "data",
    [packed(1.0), packed(-0.5, 0.0), packed(1e-45), packed(3.4e38, 1.0), packed(*[1.0] * 16_384)],
)
def test_finite_float32_are_an_embedding_as_they_are(data):
    assert vectors.parse(data) == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes"),
        (b"abc", "3 bytes"),
        (packed(1.0) + b"x", "5 bytes"),
        (packed(1.0, math.nan), "not finite"),
        (packed(1.0, math.inf), "not finite"),
        (packed(-math.inf), "not finite"),
        (packed(0.0, -0.0), "zero"),
        (packed(*[1.0] * 16_385), "16385 numbers"),
    ],
)
def test_anything_else_is_refused_with_the_reason(data, why):
    with pytest.raises(InvalidVector, match=why):
        vectors.parse(data)


def test_the_first_embedding_of_a_source_fixes_its_dimension(conn):
    discover(conn, "d1", packed(1.0, 2.0))

    with pytest.raises(DimensionMismatch, match="has 3 numbers, but source 's' has 2"):
        vectors.check_dimension(conn, "s", packed(1.0, 2.0, 3.0))
    with pytest.raises(DimensionMismatch):
        vectors.store(conn, "d1", "s", packed(1.0))
    vectors.check_dimension(conn, "another", packed(1.0, 2.0, 3.0))
    assert vectors.dimension(conn, "s") == 2
    assert vectors.dimension(conn, "another") is None


def test_the_nearest_is_of_the_same_source_and_reaches_the_threshold(conn):
    discover(conn, "far", packed(0.0, 1.0))
    discover(conn, "near", packed(3.0, 4.0), status="dismissed")
    discover(conn, "foreign", packed(1.0, 0.0), source="other")

    assert vectors.nearest(conn, "s", packed(1.0, 0.0), threshold=0.6) == "near"
    assert vectors.nearest(conn, "s", packed(1.0, 0.0), threshold=0.61) is None
    assert vectors.nearest(conn, "empty", packed(1.0, 0.0), threshold=0.0) is None
    with pytest.raises(DimensionMismatch):
        vectors.nearest(conn, "s", packed(1.0), threshold=0.5)


def test_of_equally_near_ones_the_first_id_is_the_nearest(conn):
    for name in ("c", "a", "b"):
        discover(conn, name, packed(1.0, 1.0))

    assert vectors.nearest(conn, "s", packed(2.0, 2.0), threshold=1.0) == "a"


def test_the_nearest_is_found_beyond_the_first_page(conn, monkeypatch):
    monkeypatch.setattr(similarity, "PAGE_BYTES", 16)
    for i in range(20):
        discover(conn, f"d{i:02}", packed(1.0, i))

    assert vectors.nearest(conn, "s", packed(1.0, 13.0), threshold=1.0) == "d13"


def test_a_batch_knows_what_was_there_and_what_it_added(conn):
    discover(conn, "old", packed(1.0, 0.0))
    discover(conn, "new")
    batch = Batch(conn)

    before = batch.nearest("s", packed(0.0, 2.0), threshold=0.9)
    batch.add("new", "s", packed(0.0, 1.0))

    assert before is None
    assert batch.nearest("s", packed(2.0, 0.0), threshold=0.9) == "old"
    assert batch.nearest("s", packed(0.0, 2.0), threshold=0.9) == "new"
    assert vectors.nearest(conn, "s", packed(0.0, 2.0), threshold=0.9) == "new"


def test_a_batch_finds_what_was_added_before_its_first_question(conn):
    discover(conn, "new")
    batch = Batch(conn)
    batch.add("new", "s", packed(0.0, 1.0))

    assert batch.nearest("s", packed(0.0, 2.0), threshold=1.0) == "new"


@pytest.mark.parametrize("limit", [0, 40, 1 << 20])
def test_a_batch_agrees_with_one_question_at_a_time_also_when_the_source_is_too_large(
    conn, monkeypatch, limit
):
    monkeypatch.setattr(vectors, "BATCH_BYTES", limit)
    rows = np.random.default_rng(3).integers(-2, 3, (60, 4)).astype("<f4") + np.float32(0.5)
    batch = Batch(conn)

    for i, row in enumerate(rows):
        found = batch.nearest("s", row.tobytes(), threshold=0.8)
        assert found == vectors.nearest(conn, "s", row.tobytes(), threshold=0.8)
        discover(conn, f"d{i:02}")
        batch.add(f"d{i:02}", "s", row.tobytes())


def test_a_batch_refuses_another_dimension(conn):
    discover(conn, "old", packed(1.0, 0.0))
    discover(conn, "new")

    with pytest.raises(DimensionMismatch):
        Batch(conn).add("new", "s", packed(1.0))
