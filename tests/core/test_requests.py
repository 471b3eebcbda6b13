"""Effects kept under request ids: replayed, bound to one call, and kept long enough."""

import pytest

from icd.core import requests
from icd.core.requests import KEEP_MS, MAX_DEADLINE_MS, PRUNED_PER_WRITE
from icd.errors import RequestMismatch

NOW = 1_800_000_000_000


def record(conn, request_id="r1", *, now_ms=NOW):
    requests.record(conn, request_id, method="state.set", digest=7, effect="{}", now_ms=now_ms)


def find(conn, request_id="r1", *, method="state.set", digest=7):
    return requests.find(conn, request_id, method=method, digest=digest)


def known(conn):
    return [id_ for (id_,) in conn.execute("SELECT id FROM requests ORDER BY id")]


def test_an_unknown_id_has_no_effect(conn):
    assert find(conn) is None


def test_the_effect_of_a_known_id_is_found(conn):
    record(conn)

    assert find(conn) == "{}"


@pytest.mark.parametrize("other", [{"method": "state.incr"}, {"digest": 8}])
def test_an_id_that_stood_for_another_call_is_a_mismatch(conn, other):
    record(conn)

    with pytest.raises(RequestMismatch):
        find(conn, **other)


def test_an_id_outlives_ten_of_the_longest_deadlines():
    assert KEEP_MS >= 10 * MAX_DEADLINE_MS


def test_recording_forgets_only_ids_older_than_they_must_be_kept(conn):
    record(conn, "old", now_ms=NOW - KEEP_MS - 1)
    record(conn, "just kept", now_ms=NOW - KEEP_MS)

    record(conn, "new", now_ms=NOW)

    assert known(conn) == ["just kept", "new"]


def test_recording_forgets_a_few_of_the_oldest_only(conn):
    for number in range(PRUNED_PER_WRITE + 2):
        record(conn, f"old{number}", now_ms=NOW - KEEP_MS - 100 + number)

    record(conn, "new", now_ms=NOW)

    assert known(conn) == ["new", f"old{PRUNED_PER_WRITE}", f"old{PRUNED_PER_WRITE + 1}"]


def test_a_prune_is_bounded_and_counts(conn):
    for number in range(5):
        record(conn, f"r{number}", now_ms=NOW + number)
    late = NOW + KEEP_MS + 10

    counts = [requests.prune(conn, limit=3, now_ms=late) for _ in range(3)]

    assert counts == [3, 2, 0]


def test_a_prune_keeps_ids_younger_than_they_must_be_kept(conn):
    record(conn)

    assert requests.prune(conn, limit=100, now_ms=NOW + KEEP_MS) == 0
    assert find(conn) == "{}"
