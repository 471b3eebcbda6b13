"""Searches: what competes, in which order, and how memory keeps up with the database."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd import config
from icd.errors import DeadlineExceeded, DimensionMismatch, DiscoveryNotFound, NoEmbedding
from icd.features.discoveries import search as searches
from icd.features.discoveries import similarity, vectors
from icd.features.discoveries import store as discoveries
from icd.features.discoveries.search import Search
from icd.features.discoveries.vectors import Index, Mark, Scan
from tests.support.discovered import delete, discover, packed, set_status

EAST = packed(1.0, 0.0)


def never():
    """No deadline."""


def fill(keeper, conn):
    """Give it all pages there are; how many it took."""
    for count in range(1, 1000):
        page = searches.page(conn, keeper.mark)
        keeper.take(page)
        if page.is_last and keeper.mark == page.mark:
            return count
    raise AssertionError


def ways(conn, wanted):
    """The same search from the database, from memory, and page by page."""
    asked = searches.question(conn, wanted, config.DEFAULTS)
    scanned = searches.scan(conn, asked, never)
    index, scan = Index(), Scan(asked)
    fill(index, conn)
    fill(scan, conn)
    return scanned, index.best(asked, never), scan.best(asked, never)


def found(conn, **wanted):
    """The ids; all ways must agree on them, and on the similarities."""
    wanted = Search(**({"embedding": EAST} | wanted))
    one, two, three = ways(conn, wanted)
    assert one == two == three
    return [name for name, _ in one]


@pytest.fixture
def several(conn):
    """From east to north, of all statuses and tiers."""
    discover(conn, "new", packed(1.0, 0.0), score=0.9)
    discover(conn, "scored", packed(0.9, 0.1), status="scored", score=0.8)
    discover(conn, "promoted", packed(0.8, 0.2), status="promoted", score=0.799999)
    discover(conn, "dismissed", packed(0.7, 0.3), status="dismissed", score=0.5)
    discover(conn, "low", packed(0.6, 0.4), score=0.3)
    discover(conn, "other", packed(0.5, 0.5), source="t", score=0.299999)
    discover(conn, "opposite", packed(-1.0, 0.0), score=0.0)
    discover(conn, "mute")
    return conn


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["new", "scored", "promoted", "low", "other", "opposite"]),
        ({"limit": 2}, ["new", "scored"]),
        ({"include_dismissed": True, "limit": 4}, ["new", "scored", "promoted", "dismissed"]),
        ({"status": "dismissed"}, ["dismissed"]),
        ({"status": "scored"}, ["scored"]),
        ({"status": "new", "limit": 2}, ["new", "low"]),
        ({"source": "t"}, ["other"]),
        ({"source": "nobody's"}, []),
        ({"tier": "high"}, ["new", "scored"]),
        ({"tier": "medium"}, ["promoted"]),
        ({"tier": "medium", "include_dismissed": True}, ["promoted", "dismissed"]),
        ({"tier": "low"}, ["low"]),
        ({"tier": "discard"}, ["other", "opposite"]),
        ({"min_score": 0.8}, ["new", "scored", "promoted", "low"]),
        ({"min_score": 1.0}, ["new"]),
        ({"embedding": None, "like": "scored", "limit": 2}, ["new", "promoted"]),
        ({"embedding": None, "like": "dismissed", "tier": "high"}, ["scored", "new"]),
    ],
)
def test_filters_come_before_ranking(several, filters, names):
    assert found(several, **filters) == names


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_all_ways_to_search_agree(scratch, data):
    pool = [packed(1.0, i) for i in range(4)]
    rows = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(pool),
                st.sampled_from(["new", "dismissed", "scored"]),
                st.sampled_from([0.1, 0.4, 0.9]),
            ),
            max_size=15,
        )
    )
    wanted = Search(
        embedding=data.draw(st.sampled_from(pool)),
        tier=data.draw(st.sampled_from([None, "high", "low"])),
        status=data.draw(st.sampled_from([None, "new", "dismissed"])),
        min_score=data.draw(st.sampled_from([-1.0, 0.9, 1.0])),
        limit=data.draw(st.integers(1, 5)),
    )
    with scratch() as conn:
        for i, (vector, status, score) in enumerate(rows):
            discover(conn, f"d{i:02}", vector, status=status, score=score)

        one, two, three = ways(conn, wanted)

    assert one == two == three


def test_a_source_of_another_dimension_is_named(several):
    discover(several, "long", packed(1.0, 2.0, 3.0), source="u")

    asked = searches.question(several, Search(embedding=EAST), config.DEFAULTS)

    assert (asked.sources, asked.others) == (["s", "t"], ["u"])
    with pytest.raises(DimensionMismatch, match="has 2 numbers, but source 'u' has 3"):
        searches.question(several, Search(embedding=EAST, source="u"), config.DEFAULTS)
    with pytest.raises(DimensionMismatch, match=r"has dimension 1, but the sources have 2, 3"):
        searches.question(several, Search(embedding=packed(1.0)), config.DEFAULTS)


def test_without_any_embedding_nothing_is_found(conn):
    assert found(conn) == []


def test_only_a_discovery_with_an_embedding_can_be_resembled(several):
    with pytest.raises(DiscoveryNotFound, match="discovery not found: nobody"):
        searches.question(several, Search(like="nobody"), config.DEFAULTS)
    with pytest.raises(NoEmbedding, match="mute has no embedding"):
        searches.question(several, Search(like="mute"), config.DEFAULTS)


def test_finding_6_a_deadline_ends_a_search_without_a_result(several):
    def over():
        raise DeadlineExceeded("over")

    asked = searches.question(several, Search(embedding=EAST), config.DEFAULTS)
    index = Index()
    fill(index, several)

    with pytest.raises(DeadlineExceeded):
        searches.scan(several, asked, over)
    with pytest.raises(DeadlineExceeded):
        index.best(asked, over)


@pytest.fixture
def short_pages(monkeypatch):
    monkeypatch.setattr(searches, "PAGE_ROWS", 2)


@pytest.mark.usefixtures("short_pages")
def test_pages_are_bounded_by_rows_and_by_bytes(several, monkeypatch):
    by_rows = fill(Index(), several)
    monkeypatch.setattr(searches, "PAGE_ROWS", 1000)
    monkeypatch.setattr(searches, "PAGE_BYTES", 8)

    by_bytes = fill(Index(), several)

    assert (by_rows, by_bytes) == (5, 8)


def test_a_page_of_rows_that_changed_in_one_go_goes_on_within_them(conn, monkeypatch):
    monkeypatch.setattr(searches, "PAGE_ROWS", 3)
    for i in range(10):
        discover(conn, f"d{i}", packed(1.0, i))
    conn.execute("UPDATE discoveries SET version = 10")  # as a decay does

    assert len(found(conn, limit=20)) == 10


def test_an_index_learns_what_changed_and_reads_nothing_else(several):
    index = Index()
    fill(index, several)

    set_status(several, "new", "dismissed")
    discover(several, "newest", packed(1.0, 0.01))
    page = searches.page(several, index.mark)
    index.take(page)

    assert [row.id for row in page.rows] == ["new", "newest"]
    asked = searches.question(several, Search(embedding=EAST, limit=2), config.DEFAULTS)
    assert [name for name, _ in index.best(asked, never)] == ["newest", "scored"]


def test_an_index_reads_everything_anew_after_a_deletion(several):
    index = Index()
    fill(index, several)

    delete(several, "new")
    fill(index, several)

    asked = searches.question(several, Search(embedding=EAST, limit=1), config.DEFAULTS)
    assert [name for name, _ in index.best(asked, never)] == ["scored"]


def test_an_index_reads_everything_anew_when_the_counter_went_back(several):
    page = searches.page(several, Mark(version=10_000, id="x"))

    assert page.anew
    assert len(page.rows) == 8


def test_an_embedding_that_is_replaced_is_compared_as_it_is_now(several):
    index = Index()
    fill(index, several)
    several.execute("UPDATE embeddings SET vector = ? WHERE discovery_id = 'new'", (packed(0, 1),))
    set_status(several, "new", "scored")

    fill(index, several)

    asked = searches.question(several, Search(embedding=packed(0.0, 1.0), limit=1), config.DEFAULTS)
    assert index.best(asked, never) == [("new", 1.0)]


def test_an_index_grows_beyond_one_block(conn, monkeypatch):
    monkeypatch.setattr("icd.features.discoveries.vectors.BLOCK_BYTES", 16)
    for i in range(9):
        discover(conn, f"d{i}", packed(1.0, i))
    set_status(conn, "d0", "dismissed")

    assert found(conn, limit=3) == ["d1", "d2", "d3"]
    assert found(conn, embedding=None, like="d5", limit=2) == ["d6", "d4"]


@pytest.mark.usefixtures("short_pages")
def test_a_scan_hears_of_rows_that_change_while_it_goes_on(several):
    asked = searches.question(several, Search(embedding=EAST, limit=2), config.DEFAULTS)
    scan = Scan(asked)
    scan.take(searches.page(several, scan.mark))

    set_status(several, "new", "dismissed")
    fill(scan, several)

    assert [name for name, _ in scan.best(asked, never)] == ["scored", "promoted"]


@pytest.mark.usefixtures("short_pages")
def test_a_scan_begins_anew_when_too_many_of_its_best_dropped_out(several, monkeypatch):
    monkeypatch.setattr(vectors, "SPARE", 0)
    asked = searches.question(several, Search(embedding=EAST, limit=1), config.DEFAULTS)
    scan = Scan(asked)
    scan.take(searches.page(several, scan.mark))  # new, and scored, which is turned away

    set_status(several, "new", "dismissed")
    fill(scan, several)

    assert [name for name, _ in scan.best(asked, never)] == ["scored"]


def test_the_size_of_an_index_is_that_of_its_vectors_and_a_little_more(conn):
    index = Index()
    for i in range(10):
        discover(conn, f"d{i}", packed(*[1.0] * 100))

    fill(index, conn)

    assert 10 * 400 <= index.size <= 10 * 800


@pytest.mark.parametrize("high", [0.8, 0.4], ids=["in order", "out of order"])
@pytest.mark.parametrize("weight", [0, 299_999_999_999, 300_000_000_000, 600_000_000_000, 10**12])
def test_a_tier_lets_pass_what_is_called_so(weight, high):
    here = config.Settings(tier_high=high)
    sieves = {
        tier: searches.sieve(Search(embedding=EAST, tier=tier), here) for tier in discoveries.TIERS
    }

    (name,) = [tier for tier, sieve in sieves.items() if sieve.low <= weight < sieve.high]

    assert name == discoveries.tier_of(weight // discoveries.ONE, here)


def test_rows_are_fetched_unless_one_is_gone_or_has_changed(several):
    asked = searches.question(several, Search(embedding=EAST), config.DEFAULTS)
    best = [("new", 0.5), ("low", 0.4)]

    rows = searches.fetch(several, asked, best, version=5)

    shown = [(row.id, row.similarity, row.title) for row in rows]
    assert shown == [("new", 0.5, "About new"), ("low", 0.4, "About low")]
    assert searches.fetch(several, asked, best, version=4) is None
    assert searches.fetch(several, asked, [*best, ("gone", 0.3)]) is None


def test_finding_6_the_memory_of_a_direct_search_does_not_grow_with_what_is_searched(
    conn, monkeypatch
):
    monkeypatch.setattr(similarity, "PAGE_BYTES", 16 * 1024)
    rows = np.random.default_rng(4).standard_normal((3000, 256)).astype("<f4")
    conn.execute("BEGIN")
    for i, row in enumerate(rows):
        discover(conn, f"d{i:04}", row.tobytes())
    conn.execute("COMMIT")
    asked = searches.question(conn, Search(embedding=rows[77].tobytes()), config.DEFAULTS)

    tracemalloc.start()
    try:
        best = searches.scan(conn, asked, never)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert best[0][0] == "d0077"
    assert peak < rows.nbytes / 4
