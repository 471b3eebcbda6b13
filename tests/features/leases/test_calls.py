"""lease.*: what a retried call is told, and what is refused before anything is done."""

import pytest
from msgspec import to_builtins

from icd.errors import InvalidName, InvalidTtl, LeaseHeld, RequestMismatch
from icd.features.leases.store import MAX_TTL_MS

CLAIM = {"name": "sprint", "scope_id": "b", "owner": "alice", "ttl_ms": 60_000}


def test_acquire_answers_with_everything_that_is_known(result):
    held = result("lease.acquire", **CLAIM)

    assert to_builtins(held) == {
        "name": "sprint",
        "scope_id": "b",
        "owner": "alice",
        "token": 1,
        "ttl_ms": 60_000,
        "acquired_at": 1_800_000_000,
        "acquired_at_iso": "2027-01-15T08:00:00Z",
        "renewed_at": 1_800_000_000,
        "renewed_at_iso": "2027-01-15T08:00:00Z",
        "expires_at": 1_800_000_061,
        "expires_at_iso": "2027-01-15T08:01:01Z",
        "expires_ms": 1_800_000_060_123,
        "writer_pid": 41,
        "writer_session": "session-a",
        "change": "acquired",
    }


def test_a_retried_acquire_is_told_the_same_token_though_it_expired_meanwhile(result, still):
    first = result("lease.acquire", **CLAIM, request_id="r1")
    still.wall_ms += 60_000
    result("lease.acquire", **CLAIM | {"owner": "bob"})

    again = result("lease.acquire", **CLAIM, request_id="r1")

    assert again == first
    assert [held.token for held in result("lease.list")] == [2]


def test_a_retried_release_does_not_release_what_was_acquired_since(result):
    who = {"name": "sprint", "scope_id": "b", "owner": "alice"}
    result("lease.acquire", **CLAIM)
    assert result("lease.release", **who, request_id="r1").released
    result("lease.acquire", **CLAIM)

    assert result("lease.release", **who, request_id="r1").released
    assert [held.token for held in result("lease.list")] == [2]


def test_a_request_id_of_another_claim_is_refused(ask, result):
    result("lease.acquire", **CLAIM, request_id="r1")

    answer = ask("lease.acquire", **CLAIM | {"scope_id": "c"}, request_id="r1")

    assert isinstance(answer.error, RequestMismatch)


def test_one_batch_has_one_winner_and_neighbours_are_unharmed(batch, call):
    owners = ["alice", "bob", "carol"]

    answers = batch(*(call("lease.acquire", **CLAIM | {"owner": owner}) for owner in owners))

    assert answers[0].result.owner == "alice"
    assert [type(answer.error) for answer in answers[1:]] == [LeaseHeld, LeaseHeld]


def test_a_refused_call_leaves_no_event(batch, call, result):
    batch(*(call("lease.acquire", **CLAIM | {"owner": owner}) for owner in ("alice", "bob")))

    told = result("events.tail", source="lease").events

    assert [event.type for event in told] == ["acquired"]
    assert told[0].session == "session-a"


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"name": ""}, InvalidName),
        ({"scope_id": "a\tb"}, InvalidName),
        ({"owner": ""}, InvalidName),
        ({"owner": "a\nb"}, InvalidName),
        ({"ttl_ms": 0}, InvalidTtl),
        ({"ttl_ms": -1}, InvalidTtl),
        ({"ttl_ms": MAX_TTL_MS + 1}, InvalidTtl),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_done(call, wrong, kind):
    with pytest.raises(kind):
        call("lease.acquire", **CLAIM | wrong)


def test_the_longest_lease_can_be_had(result):
    assert result("lease.acquire", **CLAIM | {"ttl_ms": MAX_TTL_MS}).ttl_ms == MAX_TTL_MS


@pytest.mark.parametrize(
    ("shared", "words"),
    [({"scope_id": ""}, "empty"), ({"scope_id": "unknown"}, "unknown"), ({"owner": "unknown"}, "")],
)
def test_a_claim_that_strangers_may_share_is_warned_of(ask, shared, words):
    answer = ask("lease.acquire", **CLAIM | shared)

    assert answer.error is None
    (warning,) = answer.warnings
    assert words in warning
