"""Which discoveries come first, and why."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as some

from icd.features.discoveries import rank as ranking
from icd.features.discoveries import vectors
from icd.features.discoveries.profile import Profile

MILLION = 1_000_000


def millionths(score):
    return round(score * MILLION)


def vector(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


@pytest.fixture
def add(conn):
    """Store a discovery."""

    def added(name, *, score=0, decay=MILLION, status="new", embedding=None, **columns):
        given = {"source": "s", "title": "", "summary": ""} | columns
        conn.execute(
            """
            INSERT INTO discoveries (id, source, source_id, title, summary, url, raw_metadata,
                                     relevance, decay, status, discovered_at, discovered_ms,
                                     version)
            VALUES (?, ?, ?, ?, ?, 'u', '{}', ?, ?, ?, 7, 7000, 1)
            """,
            (name, given["source"], name, given["title"], given["summary"], score, decay, status),
        )
        if embedding is not None:
            vectors.store(conn, name, given["source"], embedding)

    return added


@pytest.fixture
def rank(conn):
    """The ids in their order, with their ranks."""

    def found(keywords="{}", sources="{}", topic=None, *, limit=100, **wanted):
        profile = Profile(1, topic, keywords, sources, 1)
        items = ranking.rank(conn, profile, limit=limit, **wanted).items
        return [(item.id, millionths(item.rank_score)) for item in items]

    return found


@pytest.fixture
def why(conn):
    """The only discovery, with its reasons."""

    def found(keywords="{}", sources="{}", topic=None):
        (item,) = ranking.rank(conn, Profile(1, topic, keywords, sources, 1), limit=9).items
        return item

    return found


# --- order ----------------------------------------------------------------------------------


def test_without_a_profile_the_effective_score_decides_and_then_the_id(add, rank):
    add("c", score=500_000)
    add("b", score=500_000)
    add("a", score=800_000, decay=500_000)

    assert rank() == [("b", 500_000), ("c", 500_000), ("a", 400_000)]


def test_what_is_of_interest_comes_first_although_it_has_no_score(add, rank):
    add("plain", score=900_000)
    add("mine", title="SQLite internals")
    add("not mine", title="blockchain", score=MILLION)

    found = rank('{"sqlite": 1, "blockchain": -2}')

    assert found == [("mine", MILLION), ("plain", 900_000), ("not mine", -MILLION)]


def test_the_rank_is_the_sum_of_its_reasons(add, why):
    add(
        "a", score=600_000, decay=500_000, title="A rust paper", summary="about SQLite",
        source="arxiv", embedding=vector(1, 1),
    )  # fmt: skip

    item = why('{"rust": 0.5, "sqlite": -0.2, "go": 9}', '{"arxiv": 0.3}', vector(2, 0))

    assert (item.relevance_score, item.source_weight, item.similarity) == (0.3, 0.3, 0.707107)
    assert item.keywords == {"rust": 0.5, "sqlite": -0.2}
    assert item.rank_score == (300_000 + 500_000 - 200_000 + 300_000 + 707_107) / MILLION


def test_a_limit_keeps_the_best(add, rank):
    for number in range(9):
        add(f"d{number}", score=number, title="x" if number == 2 else "")

    assert rank('{"x": 1}', limit=2) == [("d2", 1_000_002), ("d8", 8)]


def test_only_those_with_the_highest_scores_are_compared_and_that_is_told(add, conn, monkeypatch):
    monkeypatch.setattr(ranking, "CANDIDATES", 3)
    for number in range(4):
        add(f"d{number}", score=number, title="rust")
    profile = Profile(1, None, '{"rust": 1}', "{}", 1)

    everything = ranking.rank(conn, profile, limit=9)
    assert ([item.id for item in everything.items], everything.is_cut) == (["d3", "d2", "d1"], True)

    conn.execute("DELETE FROM discoveries WHERE id = 'd0'")
    assert not ranking.rank(conn, profile, limit=9).is_cut


# --- filters --------------------------------------------------------------------------------


def test_those_on_which_somebody_has_decided_are_left_out_unless_asked_for(add, rank):
    for status in ("new", "scored", "proposed", "promoted", "dismissed"):
        add(status, status=status)

    assert rank() == [("new", 0), ("proposed", 0), ("scored", 0)]
    assert rank(status="dismissed") == [("dismissed", 0)]
    assert rank(status="promoted") == [("promoted", 0)]
    assert rank(status="new") == [("new", 0)]


def test_a_source_can_be_asked_for(add, rank):
    add("a", source="x")
    add("b", source="y", status="dismissed")
    add("c", source="y")

    assert rank(source="y") == [("c", 0)]
    assert rank(source="y", status="dismissed") == [("b", 0)]
    assert rank(source="z") == []


# --- keywords -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keyword, is_found",
    [
        ("rust", True),
        ("RUST", True),
        ("trust", False),
        ("rus", False),
        ("c++", True),
        ("c", False),
        ("vector database", True),
        ("vector-database", True),
        ("database vector", False),
        ("database fast", False),
        ("fast\u00e9", False),
        ("node.js", True),
        ("ÉTÉ", True),
    ],
)
def test_a_keyword_is_found_word_by_word(add, why, keyword, is_found):
    add("a", title="Rust: a Vector\tdatabase", summary="Fast, in C++, for node.js, l'été")

    assert (keyword in why(f'{{"{keyword}": 1}}').keywords) == is_found


def test_a_keyword_counts_once_however_often_it_occurs(add, why):
    add("a", title="rust rust rust", summary="rust")

    assert why('{"rust": 1}').rank_score == 1


def test_keywords_that_begin_alike_are_all_found_in_order(add, why):
    add("a", title="vector database engine")

    hits = why('{"vector database": 1, "vector": 2, "vector engine": 4, "engine": 8}').keywords

    assert list(hits.items()) == [("engine", 8), ("vector", 2), ("vector database", 1)]


def test_a_very_long_summary_is_read_at_its_beginning(add, why):
    add("a", summary="x " * (ranking.TEXT_CHARACTERS // 2) + "rust")

    assert why('{"rust": 1, "x": 1}').keywords == {"x": 1}


# --- the topic ------------------------------------------------------------------------------


def test_a_topic_of_another_dimension_or_no_embedding_says_nothing(add, conn):
    add("same", source="a", embedding=vector(1, 0))
    add("other", source="b", embedding=vector(1, 0, 0))
    add("none", source="a")

    items = ranking.rank(conn, Profile(1, vector(0, 1), "{}", "{}", 1), limit=9).items

    assert {item.id: item.similarity for item in items} == {"same": 0, "other": None, "none": None}


@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e38])
def test_similarity_does_not_depend_on_the_length_of_vectors(add, why, scale):
    add("a", embedding=vector(scale, scale))

    assert why(topic=vector(1e-38, 0)).similarity == 0.707107


numbers = some.floats(width=32, allow_nan=False, allow_infinity=False)
pairs = some.lists(some.tuples(numbers, numbers), min_size=1, max_size=40)


@given(pairs)
def test_similarity_is_the_cosine_to_a_millionth(values):
    one, other = (vector(*side) for side in zip(*values, strict=True))
    norms = [math.hypot(*struct.unpack(f"<{len(v) // 4}f", v)) for v in (one, other)]
    if not all(norms):
        return

    found = ranking._similarities(one, {"a": other})["a"]

    exact = math.fsum(x * y for x, y in values) / norms[0] / norms[1]
    assert -MILLION <= found <= MILLION
    assert abs(found - exact * MILLION) <= 0.500001
