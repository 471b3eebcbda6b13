"""Claims with a lease: one holder, growing tokens, and deadlines that no clock brings forward."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.errors import LeaseHeld, LeaseLost
from icd.features.events import store as events
from icd.features.leases import store as leases
from icd.features.leases.store import about
from icd.values.processes import Writer

NOW = 1_800_000_000_123
TTL = 60_000
ME = Writer(pid=41, session="session-a")


@pytest.fixture
def acquire(conn):
    def acquired(owner, *, scope="b", ttl_ms=TTL, now_ms=NOW):
        lease = leases.acquire(conn, "sprint", scope, owner, ttl_ms=ttl_ms, actor=ME, now_ms=now_ms)
        return lease, lease.change

    return acquired


@pytest.fixture
def renew(conn):
    def renewed(owner, *, now_ms=NOW, **asked):
        return leases.renew(conn, "sprint", "b", owner, actor=ME, now_ms=now_ms, **asked)

    return renewed


@pytest.fixture
def release(conn):
    def released(owner, *, now_ms=NOW, **asked):
        return leases.release(conn, "sprint", "b", owner, actor=ME, now_ms=now_ms, **asked)

    return released


@pytest.fixture
def log(conn):
    """What was recorded: type and payload of each event."""

    def told():
        found = events.read(conn, limit=1000, source="lease")
        assert {event.subject_id for event in found} <= {"sprint/b"}
        return [(event.type, json.loads(bytes(event.payload))) for event in found]

    return told


# --- acquire --------------------------------------------------------------------------------


def test_a_free_lease_is_acquired_until_its_deadline(acquire):
    lease, change = acquire("alice")

    assert change == "acquired"
    assert (lease.owner, lease.token, lease.expires_ms) == ("alice", 1, NOW + TTL)
    assert (lease.acquired_at, lease.expires_at) == (1_800_000_000, 1_800_000_061)
    assert (lease.session, lease.pid) == ("session-a", 41)


def test_a_held_lease_is_refused_with_owner_time_left_and_token(acquire):
    acquire("alice")

    with pytest.raises(LeaseHeld) as refused:
        acquire("bob", now_ms=NOW + 1000)

    assert refused.value.message == "sprint b is held by alice for another 59s (token 1)"
    assert refused.value.data | {"owner": "alice", "token": 1, "left_ms": 59_000} == (
        refused.value.data
    )


def test_the_holder_extends_it_and_keeps_its_token(acquire):
    acquire("alice")

    lease, change = acquire("alice", now_ms=NOW + 1000)

    assert change == "renewed"
    assert (lease.token, lease.expires_ms) == (1, NOW + 1000 + TTL)
    assert (lease.acquired_at, lease.renewed_at) == (1_800_000_000, 1_800_000_001)


def test_nobody_takes_over_a_millisecond_before_the_deadline(acquire):
    acquire("alice")

    with pytest.raises(LeaseHeld, match=r"for another 1ms \(token 1\)"):
        acquire("bob", now_ms=NOW + TTL - 1)


def test_an_expired_lease_is_taken_over_with_a_greater_token(acquire):
    acquire("alice")

    lease, change = acquire("bob", now_ms=NOW + TTL)

    assert (change, lease.owner, lease.token) == ("taken_over", "bob", 2)


def test_a_holder_that_was_late_gets_a_new_token(acquire):
    acquire("alice")

    lease, change = acquire("alice", now_ms=NOW + TTL)

    assert (change, lease.token) == ("acquired", 2)


def test_scopes_do_not_concern_each_other_but_share_the_tokens(acquire):
    tokens = [acquire(owner, scope=scope)[0].token for owner, scope in [("a", "b"), ("c", "d")]]

    assert tokens == [1, 2]


# --- renew ----------------------------------------------------------------------------------


def test_the_holder_renews_for_as_long_as_it_acquired(acquire, renew):
    acquire("alice")

    lease = renew("alice", now_ms=NOW + 1000)

    assert (lease.token, lease.expires_ms) == (1, NOW + 1000 + TTL)


def test_a_renewal_for_another_time_counts_for_the_next_one_too(acquire, renew):
    acquire("alice")
    renew("alice", ttl_ms=2 * TTL)

    assert renew("alice", now_ms=NOW + 5).expires_ms == NOW + 5 + 2 * TTL


def test_a_renewal_never_moves_the_deadline_to_an_earlier_moment(acquire, renew):
    acquire("alice")

    assert renew("alice", ttl_ms=1).expires_ms == NOW + TTL


@pytest.mark.parametrize(
    ("owner", "asked", "sentence"),
    [
        ("bob", {}, r"sprint b \(token 1\) is held by alice"),
        ("alice", {"token": 7}, r"sprint b \(token 1\) is held by alice"),
        ("alice", {"now_ms": NOW + TTL}, r"sprint b \(token 1\) expired 0ms ago"),
        ("bob", {"now_ms": NOW + TTL}, r"sprint b \(token 1\) was last held by alice"),
    ],
)
def test_who_does_not_hold_it_cannot_renew_it(acquire, renew, owner, asked, sentence):
    acquire("alice")

    with pytest.raises(LeaseLost, match=f"^{sentence}$"):
        renew(owner, **asked)


def test_a_lease_that_never_was_cannot_be_renewed(renew):
    with pytest.raises(LeaseLost, match="sprint b has never been held"):
        renew("alice")


def test_a_released_lease_cannot_be_renewed(acquire, release, renew):
    acquire("alice")
    release("alice")

    with pytest.raises(LeaseLost, match=r"sprint b \(token 1\) was released"):
        renew("alice")


def test_whoever_was_overtaken_is_told_by_whom(acquire, renew):
    acquire("alice")
    acquire("bob", now_ms=NOW + TTL)

    with pytest.raises(LeaseLost, match=r"\(token 2\) is held by bob"):
        renew("alice", now_ms=NOW + TTL + 1)


def test_a_token_tells_two_workers_of_one_owner_apart(acquire, renew):
    acquire("alice")
    acquire("alice", now_ms=NOW + TTL)

    with pytest.raises(LeaseLost):
        renew("alice", token=1, now_ms=NOW + TTL)
    assert renew("alice", token=2, now_ms=NOW + TTL).token == 2


# --- release --------------------------------------------------------------------------------


def test_a_released_lease_is_free_at_once(acquire, release):
    acquire("alice")

    assert release("alice", token=1)
    assert acquire("bob")[0].token == 2


def test_releasing_what_nobody_holds_is_as_well(acquire, release):
    assert not release("alice")
    acquire("alice")
    assert not release("alice", now_ms=NOW + TTL)
    assert not release("alice", token=1, now_ms=NOW + TTL)
    assert not release("bob", now_ms=NOW + TTL)


@pytest.mark.parametrize(("owner", "asked"), [("bob", {}), ("alice", {"token": 2})])
def test_what_another_holds_is_not_released(conn, acquire, release, owner, asked):
    acquire("alice")

    with pytest.raises(LeaseLost):
        release(owner, **asked)

    assert [lease.owner for lease in leases.held(conn, now_ms=NOW)] == ["alice"]


def test_a_token_of_a_lease_that_never_was_is_lost(release):
    with pytest.raises(LeaseLost):
        release("alice", token=1)


# --- list, events, words --------------------------------------------------------------------


def test_only_what_is_held_is_listed(conn, acquire, release):
    acquire("alice")
    acquire("bob", scope="a", ttl_ms=1)
    acquire("carol", scope="c")
    release("alice")

    def owners(now_ms=NOW, **asked):
        return [lease.owner for lease in leases.held(conn, now_ms=now_ms, **asked)]

    assert owners() == ["bob", "carol"]
    assert owners(NOW + 1) == ["carol"]
    assert owners(name="sprint", scope_id="a") == ["bob"]
    assert owners(name="deploy") == []


def test_every_change_is_an_event_with_owner_and_token(acquire, renew, release, log):
    acquire("alice")
    renew("alice")
    acquire("alice")
    acquire("bob", now_ms=NOW + TTL)
    release("bob", now_ms=NOW + TTL)
    acquire("carol", now_ms=NOW + TTL)

    alice = {"owner": "alice", "token": 1, "expires_ms": NOW + TTL}
    later = NOW + 2 * TTL
    assert log() == [
        ("acquired", alice),
        ("renewed", alice),
        ("renewed", alice),
        (
            "taken_over",
            {
                "owner": "bob",
                "token": 2,
                "expires_ms": later,
                "previous_owner": "alice",
                "previous_token": 1,
            },
        ),
        ("released", {"owner": "bob", "token": 2}),
        ("acquired", {"owner": "carol", "token": 3, "expires_ms": later}),
    ]


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(0, "0ms"), (2000, "2000ms"), (2001, "3s"), (120_001, "3m"), (86_400_000, "24h"),
     (172_800_001, "3d")],
)  # fmt: skip
def test_durations_are_rounded_up_and_short(milliseconds, words):
    assert about(milliseconds) == words


# --- any interleaving, against a model ------------------------------------------------------

OWNERS = st.sampled_from(["alice", "bob", "carol"])
SCOPES = st.sampled_from(["a", "b"])
TTLS = st.integers(1, 5)
TOKENS = st.none() | st.integers(1, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("acquire"), SCOPES, OWNERS, TTLS),
    st.tuples(st.just("renew"), SCOPES, OWNERS, st.none() | TTLS, TOKENS),
    st.tuples(st.just("release"), SCOPES, OWNERS, TOKENS),
    st.tuples(st.just("clock"), st.integers(-6, 6)),
)


class Model:
    """Per scope: [owner, token, ttl, deadline], and the deadline promised to each token."""

    def __init__(self):
        self.now = NOW
        self.last_token = 0
        self.claims = {}
        self.told = []

    def holder(self, scope):
        claim = self.claims.get(scope)
        return claim[0] if claim and claim[3] > self.now else None

    def acquire(self, scope, owner, ttl):
        if self.holder(scope) not in (None, owner):
            return LeaseHeld
        if self.holder(scope) == owner:
            return self._extend(scope, ttl)
        before = self.claims.get(scope)
        self.last_token += 1
        self.claims[scope] = [owner, self.last_token, ttl, self.now + ttl]
        over = before is not None and before[3] > 0 and before[0] != owner
        self.told.append("taken_over" if over else "acquired")
        return self.last_token

    def renew(self, scope, owner, ttl, token):
        if self.holder(scope) != owner or token not in (None, self.claims[scope][1]):
            return LeaseLost
        return self._extend(scope, ttl or self.claims[scope][2])

    def release(self, scope, owner, token):
        claim = self.claims.get(scope)
        if token is not None and (claim is None or claim[1] != token):
            return LeaseLost
        if self.holder(scope) is None:
            return False
        if self.holder(scope) != owner:
            return LeaseLost
        claim[3] = 0
        self.told.append("released")
        return True

    def _extend(self, scope, ttl):
        claim = self.claims[scope]
        claim[2:] = [ttl, max(claim[3], self.now + ttl)]
        self.told.append("renewed")
        return claim[1]


def play(model, conn, what, scope, owner, *words):
    """What really happened: a token, a truth value, or the kind of refusal."""
    known = {"actor": ME, "now_ms": model.now}
    try:
        if what == "acquire":
            found = leases.acquire(conn, "sprint", scope, owner, ttl_ms=words[0], **known)
            return found.token
        if what == "renew":
            ttl_ms, token = words
            return leases.renew(
                conn, "sprint", scope, owner, ttl_ms=ttl_ms, token=token, **known
            ).token
        return leases.release(conn, "sprint", scope, owner, token=words[0], **known)
    except (LeaseHeld, LeaseLost) as exc:
        return type(exc)


@settings(
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operations=st.lists(OPERATIONS, max_size=60))
def test_any_interleaving_does_what_the_model_does(scratch, operations):
    with scratch() as conn:
        model = Model()
        for what, *words in operations:
            if what == "clock":
                model.now += words[0]
            else:
                assert play(model, conn, what, *words) == getattr(model, what)(*words)

            found = leases.held(conn, now_ms=model.now)
            assert {lease.scope_id: (lease.owner, lease.token) for lease in found} == {
                scope: tuple(model.claims[scope][:2])
                for scope in model.claims
                if model.holder(scope)
            }
        told = events.read(conn, limit=1000, source="lease")
        assert [event.type for event in told] == model.told
        given_away = [
            json.loads(bytes(event.payload))["token"]
            for event in told
            if event.type in ("acquired", "taken_over")
        ]
        assert given_away == list(range(1, model.last_token + 1))


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.integers(-10 * TTL, 0), max_size=20), ttl_ms=st.integers(1, TTL))
def test_a_clock_that_steps_back_neither_ends_nor_shortens_a_lease(scratch, steps, ttl_ms):
    with scratch() as conn:
        now, deadline = NOW, 0
        for step in [0, *steps]:
            now += step
            lease = leases.acquire(
                conn, "sprint", "b", "alice", ttl_ms=ttl_ms, actor=ME, now_ms=now
            )

            assert (lease.token, lease.expires_ms >= deadline) == (1, True)
            deadline = lease.expires_ms
            with pytest.raises(LeaseHeld):
                leases.acquire(conn, "sprint", "b", "bob", ttl_ms=1, actor=ME, now_ms=now)


@pytest.mark.sqlite_only
def test_a_lease_is_found_by_its_key_alone(conn):
    plan = conn.execute(f"EXPLAIN QUERY PLAN {leases._FIND}", ("sprint", "b")).fetchall()

    assert [step[-1] for step in plan] == [
        "SEARCH leases USING PRIMARY KEY (name=? AND scope_id=?)"
    ]
