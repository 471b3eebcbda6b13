"""The cosine, compared with a reference that computes everything in float64, or exactly."""

import math
import operator
import struct
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from icd.features.discoveries.similarity import Best, Query, Rows, exact_sums
from tests.support.discovered import packed

# Near the edges of float32 as well; at least one is not zero.
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)
USUAL = st.floats(min_value=-4, max_value=4, width=32)


def vectors_of(numbers, dimension):
    row = st.lists(numbers, min_size=dimension, max_size=dimension).filter(any)
    return row.map(lambda row: packed(*row))


def best_of(vectors, query, limit, at_least=-1.0, block=7):
    """Offered in blocks, as they come from memory or from pages."""
    best = Best(Query(query), limit, at_least)
    dimension = len(query) // 4
    names = [f"d{i:04}" for i in range(len(vectors))]
    for start in range(0, len(vectors), block):
        rows = Rows(vectors[start : start + block], dimension)
        best.offer(rows.values, rows.norms, names[start : start + block])
    return best.found


def exact(one, other):
    """Every sum rounded once, whatever the order of its terms."""
    a = struct.unpack(f"<{len(one) // 4}f", one)
    b = struct.unpack(f"<{len(other) // 4}f", other)
    dot, left, right = (
        math.fsum(x * y for x, y in zip(p, q, strict=True)) for p, q in ((a, b), (a, a), (b, b))
    )
    return max(-1.0, min(1.0, dot / math.sqrt(left * right)))


def reference(vectors, query, limit, at_least=-1.0):
    found = sorted((-exact(vector, query), f"d{i:04}") for i, vector in enumerate(vectors))
    return [(name, -negated) for negated, name in found if -negated >= at_least][:limit]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_the_best_are_those_of_a_float64_reference_in_its_order(data):
    dimension = data.draw(st.integers(1, 8))
    pool = data.draw(st.lists(vectors_of(USUAL, dimension), min_size=1, max_size=12))
    vectors = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=40))  # many are equal
    query = data.draw(vectors_of(USUAL, dimension))
    limit = data.draw(st.integers(1, 10))

    assert best_of(vectors, query, limit) == reference(vectors, query, limit)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_whatever_is_finite_can_be_compared(data):
    dimension = data.draw(st.integers(1, 5))
    vectors = data.draw(st.lists(vectors_of(NUMBERS, dimension), min_size=1, max_size=10))
    query = data.draw(vectors_of(NUMBERS, dimension))

    found = best_of(vectors, query, len(vectors))

    assert [name for name, _ in sorted(found)] == [f"d{i:04}" for i in range(len(vectors))]
    for name, similarity in found:
        assert similarity == pytest.approx(exact(vectors[int(name[1:])], query), abs=1e-12)


def test_thousands_of_near_duplicates_are_ranked_as_exactly_as_strangers():
    rng = np.random.default_rng(5)
    centre = rng.standard_normal(256)
    near = (centre + 1e-6 * rng.standard_normal((3000, 256))).astype("<f4")
    vectors = [row.tobytes() for row in near]
    query = centre.astype("<f4").tobytes()

    assert best_of(vectors, query, 10, block=1000) == reference(vectors, query, 10)


def test_a_float32_product_alone_would_have_ranked_near_duplicates_differently():
    rng = np.random.default_rng(5)
    centre = rng.standard_normal(256)
    near = (centre + 1e-6 * rng.standard_normal((3000, 256))).astype("<f4")
    query = centre.astype("<f4")

    naive = (near @ query) / np.linalg.norm(near, axis=1)
    order = [f"d{i:04}" for i in np.argsort(-naive, kind="stable")[:10]]

    vectors = [row.tobytes() for row in near]
    assert order != [name for name, _ in reference(vectors, query.tobytes(), 10)]


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.25, 2.0**100, 2.0**-100])
def test_a_vector_and_its_multiple_by_a_power_of_two_are_the_same(factor):
    query = packed(0.1, -0.7, 0.3)
    row = struct.pack("<3f", *(factor * number for number in struct.unpack("<3f", query)))

    assert best_of([row], query, 1) == [("d0000", 1.0)]


@pytest.mark.parametrize(
    ("vector", "query"),
    [
        (packed(3.4e38, 3.4e38), packed(3.4e38, 3.4e38)),
        (packed(1e-45, 0.0), packed(1.0, 0.0)),
        (packed(1e-45, 1e-45), packed(1e-40, 1e-40)),
        (packed(3.4e38, -3.4e38), packed(1e-45, -1e-45)),
    ],
)
def test_the_largest_and_the_smallest_numbers_lose_nothing(vector, query):
    assert best_of([vector], query, 1) == [("d0000", 1.0)]


def test_a_similarity_at_the_limit_counts():
    vectors = [packed(1.0, 0.0), packed(3.0, 4.0), packed(0.0, 1.0)]

    found = best_of(vectors, packed(1.0, 0.0), 10, at_least=0.6)

    assert found == [("d0000", 1.0), ("d0001", float(Fraction(3, 5)))]


def test_what_is_no_number_is_never_found():
    broken = [packed(math.nan, 1.0), packed(math.inf, 1.0), packed(0.0, 0.0), packed(1.0, 1.0)]

    assert best_of(broken, packed(1.0, 1.0), 10) == [("d0003", 1.0)]


def test_equal_similarities_are_ordered_by_id():
    vectors = [packed(1.0, 2.0)] * 30

    found = best_of(vectors, packed(2.0, 1.0), 5)

    assert [name for name, _ in found] == ["d0000", "d0001", "d0002", "d0003", "d0004"]


def test_numpy_is_loaded_when_something_is_compared_with_one_thread_and_leaves_no_trace():
    code = """
import os, sys
os.environ["OMP_NUM_THREADS"] = "7"
from icd.features.discoveries import vectors
from icd.features.discoveries.similarity import Query
vectors.parse(b"\\0\\0\\x80\\x3f")
assert "numpy" not in sys.modules
Query(b"\\0\\0\\x80\\x3f")
assert "numpy" in sys.modules
assert os.environ["OMP_NUM_THREADS"] == "7"
assert "OPENBLAS_NUM_THREADS" not in os.environ
import numpy as np
(np.ones((2000, 2000), "f4") @ np.ones((2000, 2000), "f4")).sum()
print(len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PATH": "/usr/bin"}
    )

    assert done.stdout == b"1\n"


FACTORS = st.floats(-(2.0**40), 2.0**40, width=32)
TERMS = st.builds(operator.mul, FACTORS, FACTORS)


@given(
    st.integers(1, 40).flatmap(
        lambda width: st.lists(
            st.lists(TERMS, min_size=width, max_size=width), min_size=1, max_size=4
        )
    )
)
@example([[1.0, 2.0**-53, 2.0**-106]])  # a hair beyond the middle of two numbers
@example([[1.0, 2.0**-53, -(2.0**-106)]])
@example([[1.0, 2.0**-53]])
@example([[1.0, -(2.0**-54), -(2.0**-107)]])  # below a power of two, numbers are nearer
@example([[2.0**60, 1.0, -(2.0**60)], [0.0, 0.0, 0.0]])
def test_sums_are_rounded_once(rows: list[list[float]]) -> None:
    assert exact_sums(np.array(rows)) == [math.fsum(row) for row in rows]
