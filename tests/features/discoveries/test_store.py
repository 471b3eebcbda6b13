"""Reading discoveries, and their log."""

import pytest

from icd import config
from icd.errors import DiscoveryNotFound
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import store as discoveries
from icd.features.discoveries.store import ONE, Wanted
from tests.support.submitted import NOW_MS, submit, told


def test_a_discovery_is_found_with_all_its_columns(conn):
    name = submit(
        conn, "a", score=0.25, summary="s", url="u", metadata='{"k": 1}', title="T", source="arxiv"
    )

    found = discoveries.require(conn, name)

    assert len(name) == 12
    assert (found.source, found.source_id, found.title) == ("arxiv", "a", "T")
    assert (found.summary, found.url, found.raw_metadata) == ("s", "u", '{"k": 1}')
    assert (found.relevance, found.decay, found.effective) == (250_000, ONE, 250_000)
    assert (found.status, found.discovered_at, found.discovered_ms) == (
        "new", NOW_MS // 1000, NOW_MS,
    )  # fmt: skip


def test_what_is_not_there_is_named(conn):
    assert discoveries.find(conn, "nobody") is None
    with pytest.raises(DiscoveryNotFound, match=r"^discovery not found: nobody$"):
        discoveries.require(conn, "nobody")


def test_lists_are_ordered_by_the_effective_score_then_by_id(conn):
    names = [submit(conn, str(i), score=score) for i, score in enumerate([0.2, 0.9, 0.2, 0.5])]
    conn.execute("UPDATE discoveries SET decay = 100000 WHERE id = ?", (names[1],))

    found = discoveries.listed(conn, Wanted(limit=100))

    assert [row.id for row in found] == [names[3], *sorted([names[0], names[2]]), names[1]]


def test_a_list_can_be_narrowed(conn):
    high, low = submit(conn, "1", score=0.9), submit(conn, "2", score=0.1)
    other = submit(conn, "3", source="other", score=0.5)
    reviews.dismiss(conn, low, told=told())

    def ids(**wanted):
        return [row.id for row in discoveries.listed(conn, Wanted(**{"limit": 9, **wanted}))]

    bounds = dict(
        zip(("low", "high"), discoveries.bounds_of("medium", config.DEFAULTS), strict=True)
    )
    assert ids(source="other") == [other]
    assert ids(status="dismissed") == [low]
    assert ids(only_open=True) == [high, other]
    assert ids(**bounds) == [other]
    assert ids(limit=1) == [high]
    assert ids(since=NOW_MS // 1000 + 1) == []


def test_every_change_takes_the_next_version(conn):
    first, second = submit(conn, "1"), submit(conn, "2")
    reviews.score(conn, first, 500_000, settings=config.DEFAULTS, told=told())
    reviews.promote(conn, first, "b", threshold=0, told=told())
    reviews.dismiss(conn, first, told=told())
    reviews.decay(conn, rate=1, floor=0, min_age_ms=0, every_ms=0, told=told(NOW_MS + 1))

    versions = {row.id: row.version for row in discoveries.listed(conn, Wanted(limit=9))}

    assert versions == {first: 5, second: 6}
    assert discoveries.bump(conn) == 7


def test_what_changes_nothing_takes_no_version(conn):
    name = submit(conn)
    reviews.promote(conn, name, "b", threshold=0, told=told())
    reviews.promote(conn, name, "b", threshold=0, told=told())
    reviews.dismiss(conn, name, told=told())
    reviews.dismiss(conn, name, told=told())
    reviews.retire(conn, "exa", 0, told=told())
    reviews.decay(conn, rate=1, floor=0, min_age_ms=0, every_ms=0, told=told(NOW_MS + 1))

    assert discoveries.bump(conn) == 4
