"""What a watcher of state does not know yet."""

import pytest

from icd.errors import TooManyRows
from icd.features.state import store as state
from icd.features.state import watch
from icd.values.processes import Writer

NOW = 1_800_000_000_000


@pytest.fixture
def put(conn):
    def row(scope_id, payload="1", *, key="k", ttl_ms=0, now_ms=NOW):
        return state.set(
            conn, key, scope_id, payload, ttl_ms=ttl_ms, writer=Writer(), now_ms=now_ms
        ).version

    return row


@pytest.fixture
def find(conn):
    def found(scope_id=None, known=None, *, now_ms=NOW):
        return watch.differences(conn, "k", scope_id, known or {}, now_ms=now_ms)

    return found


def test_somebody_who_knows_nothing_gets_every_row_of_the_key(put, find):
    put("a")
    put("b")
    put("a", key="other")

    found = find()

    assert [row.scope_id for row in found.rows] == ["a", "b"]
    assert (found.gone, found.more, found.expires_ms) == ([], False, None)


def test_a_row_at_the_known_version_is_no_difference(put, find):
    known = {"a": put("a"), "b": put("b")}
    put("b", "2")

    assert [row.payload for row in find(known=known).rows] == ["2"]
    assert find("a", known).rows == []
    assert [row.payload for row in find("b", known).rows] == ["2"]


def test_a_known_row_that_is_deleted_or_expired_is_gone(conn, put, find):
    known = {"a": put("a"), "b": put("b", ttl_ms=1000), "c": put("c")}
    state.delete(conn, "k", "a", now_ms=NOW)

    assert find(known=known, now_ms=NOW + 1000).gone == ["a", "b"]
    assert find("a", known).gone == ["a"]
    assert find("b", known, now_ms=NOW + 1000).gone == ["b"]
    assert find("b", known, now_ms=NOW + 999).gone == []


def test_what_was_never_there_is_not_gone(find):
    assert find("a").gone == []


def test_the_next_expiry_is_told(put, find):
    put("a", ttl_ms=5000)
    put("b", ttl_ms=3000)

    assert find().expires_ms == NOW + 3000
    assert find("a").expires_ms == NOW + 5000


def test_large_payloads_come_in_several_looks_and_none_is_left_out(put, find):
    big = '"' + "x" * (watch.WATCHED_BYTES // 2) + '"'
    for scope_id in "abcde":
        put(scope_id, big)

    known: dict[str, int] = {}
    looks = []
    more = True
    while more:
        found = find(known=known)
        looks.append([row.scope_id for row in found.rows])
        known |= {row.scope_id: row.version for row in found.rows}
        more = found.more

    assert looks == [["a", "b"], ["c", "d"], ["e"]]


def test_more_rows_than_can_be_compared_are_refused(put, find):
    for number in range(watch.WATCHED_ROWS + 1):
        put(f"s{number}")

    with pytest.raises(TooManyRows):
        find()
    assert len(find("s1").rows) == 1
