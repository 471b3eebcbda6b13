"""sentinel.*: verdicts as the API tells them, retries, warnings."""

import msgspec
import pytest

from icd.errors import InvalidName, RequestMismatch
from icd.features.sentinels import verbs as sentinels
from icd.features.sentinels.store import MAX_INTERVAL_S, PRUNED_PER_CHECK, WEEK_MS
from icd.features.sentinels.verbs import Claim


def check(ask, *, interval=5, name="stop", scope="s1", **other):
    return ask("sentinel.check", name=name, scope_id=scope, interval=interval, **other)


def check_many(ask, *guards, **other):
    claims = [Claim(*guard) for guard in guards]
    answer = ask("sentinel.check_many", guards=claims, **other)
    return [verdict.allowed for verdict in answer.result]


# --- check ----------------------------------------------------------------------------------


def test_a_verdict_tells_everything_in_seconds_rounded_so_that_nothing_comes_early(ask, still):
    check(ask)
    still.wall_ms += 1

    verdict = check(ask).result

    assert msgspec.to_builtins(verdict) == {
        "name": "stop",
        "scope_id": "s1",
        "allowed": False,
        "last_fired": 1_800_000_000,
        "last_fired_iso": "2027-01-15T08:00:00Z",
        "retry_after": 5,
        "expires": 1_800_000_006,
        "expires_iso": "2027-01-15T08:00:06Z",
    }


def test_whoever_waits_for_as_long_as_it_was_told_is_allowed(ask, still):
    check(ask)
    still.wall_ms += 1
    told = check(ask).result

    still.wall_ms += told.retry_after * 1000

    assert check(ask).result.allowed


def test_whoever_waits_until_the_second_it_was_told_is_allowed(ask, still):
    check(ask)
    told = check(ask).result

    still.wall_ms = told.expires * 1000

    assert check(ask).result.allowed


def test_a_once_only_verdict_will_never_be_allowed_again(ask):
    verdicts = [check(ask, interval=0).result for _ in range(2)]

    assert [v.allowed for v in verdicts] == [True, False]
    assert {(v.retry_after, v.expires, v.expires_iso) for v in verdicts} == {(None, None, None)}


def test_the_largest_interval_is_answered(ask):
    verdict = check(ask, interval=MAX_INTERVAL_S).result

    assert verdict.expires == 1_800_000_001 + MAX_INTERVAL_S
    assert verdict.expires_iso.startswith("2327-")


def test_a_check_that_is_asked_again_with_its_id_is_told_the_same(ask, still):
    first = check(ask, request_id="r1")
    still.wall_ms += 700

    again = check(ask, request_id="r1")

    assert first.result.allowed
    assert again.result.allowed


def test_an_id_that_claimed_with_another_interval_is_a_mismatch(ask):
    check(ask, request_id="r1")

    answer = check(ask, request_id="r1", interval=6)

    assert isinstance(answer.error, RequestMismatch)


@pytest.mark.parametrize("scope, shown", [("", "empty"), ("unknown", "unknown")])
def test_a_scope_that_all_sessions_share_is_warned_of(ask, scope, shown):
    answer = check(ask, scope=scope)

    assert answer.result.allowed
    assert list(answer.warnings) == [
        f"the scope of sentinel stop is {shown}: all sessions without an id share it"
    ]


def test_an_ordinary_scope_is_not_warned_of(ask):
    assert not check(ask).warnings


@pytest.mark.parametrize(
    "params", [{"name": ""}, {"name": "a\tb"}, {"scope": "a\nb"}, {"name": "x" * 5000}]
)
def test_names_that_break_lines_are_refused_before_anything_is_locked(ask, params):
    with pytest.raises(InvalidName):
        check(ask, **params)


@pytest.mark.parametrize("interval", [-1, MAX_INTERVAL_S + 1, 1.5, "5", None, True])
def test_an_interval_that_is_none_is_refused_by_its_type(interval):
    raw = msgspec.json.encode({"name": "a", "scope_id": "s", "interval": interval})

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=sentinels.Check)


# --- check_many -----------------------------------------------------------------------------


def test_several_guards_are_claimed_apart(ask):
    check(ask, name="b", interval=0)

    verdicts = check_many(ask, ("a", "s1", 0), ("b", "s1", 0), ("c", "s1", 5))

    assert verdicts == [True, False, True]


def test_the_same_guard_twice_is_allowed_once(ask):
    assert check_many(ask, ("a", "s", 5), ("a", "s", 5)) == [True, False]


@pytest.mark.parametrize("intervals", [(5, 5), (0, 0), (5, 0), (0, 5), (5, 60)])
def test_the_same_guard_twice_is_told_the_same_when_asked_again(ask, still, intervals):
    guards = [("a", "s", interval) for interval in intervals]
    first = check_many(ask, *guards, request_id="r1")
    still.wall_ms += 100

    again = check_many(ask, *guards, request_id="r1")

    assert first == [True, False]
    assert again == first


def test_guards_that_were_lost_stay_lost_when_asked_again(ask, still):
    check(ask, name="b", interval=60)
    guards = [("a", "s1", 60), ("b", "s1", 60)]
    first = check_many(ask, *guards, request_id="r1")
    still.wall_ms += 100

    assert check_many(ask, *guards, request_id="r1") == first == [True, False]


def test_guards_that_are_all_lost_are_all_told_so(ask):
    guards = [("a", "s", 60), ("b", "s", 0)]
    check_many(ask, *guards)

    assert check_many(ask, *guards) == [False, False]


def test_every_shared_scope_is_warned_of(ask):
    claims = [Claim("a", "", 5), Claim("b", "s", 5), Claim("c", "unknown", 5)]

    answer = ask("sentinel.check_many", guards=claims)

    assert [warning.split(":")[0] for warning in answer.warnings] == [
        "the scope of sentinel a is empty",
        "the scope of sentinel c is unknown",
    ]


@pytest.mark.parametrize("count, fits", [(0, False), (1, True), (sentinels.MANY, True)])
def test_the_number_of_guards_is_bounded(count, fits):
    guards = [{"name": "a", "scope_id": str(n), "interval": 5} for n in range(count)]
    raw = msgspec.json.encode({"guards": guards})

    if fits:
        assert len(msgspec.json.decode(raw, type=sentinels.CheckMany).guards) == count
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(raw, type=sentinels.CheckMany)


def test_one_guard_too_many_is_refused():
    guards = [{"name": "a", "scope_id": str(n), "interval": 5} for n in range(sentinels.MANY + 1)]

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"guards": guards}), type=sentinels.CheckMany)


def test_a_guard_with_a_bad_name_refuses_them_all(ask, result):
    with pytest.raises(InvalidName):
        check_many(ask, ("a", "s", 5), ("", "s", 5))

    assert result("sentinel.list") == []


# --- auto-prune -----------------------------------------------------------------------------


def test_a_claim_prunes_a_few_that_are_long_over(ask, still, result):
    for number in range(PRUNED_PER_CHECK + 1):
        check(ask, scope=f"old{number}")
    still.wall_ms += WEEK_MS + 1

    check(ask, scope="new")

    assert len(result("sentinel.list")) == 2


def test_claims_of_many_prune_too(ask, still, result):
    check(ask, scope="old")
    still.wall_ms += WEEK_MS + 1

    check_many(ask, ("stop", "new", 5))

    assert [fired.scope_id for fired in result("sentinel.list")] == ["new"]


@pytest.fixture
def no_deletion(conn):
    conn.execute(
        "CREATE TRIGGER no BEFORE DELETE ON sentinels BEGIN SELECT RAISE(ABORT, 'no'); END"
    )


@pytest.mark.parametrize("alone", [True, False])
def test_a_prune_that_fails_is_a_warning_and_the_claim_counts(
    ask, call, batch, still, no_deletion, *, alone
):
    check(ask, scope="old")
    still.wall_ms += WEEK_MS + 1
    claim = call("sentinel.check", name="stop", scope_id="new", interval=5)

    answer = batch(claim)[0] if alone else batch(call("sentinel.list"), claim)[1]
    after = check(ask, scope="new")

    assert answer.result.allowed
    assert list(answer.warnings) == ["auto-prune: no"]
    assert not after.result.allowed


@pytest.mark.parametrize("alone", [True, False])
def test_a_prune_that_takes_the_transaction_with_it_fails_the_claim_and_nobody_else(
    ask, call, batch, still, conn, *, alone
):
    check(ask, scope="old")
    conn.execute(
        "CREATE TRIGGER no BEFORE DELETE ON sentinels BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    )
    still.wall_ms += WEEK_MS + 1
    claim = call("sentinel.check", name="stop", scope_id="new", interval=5)
    neighbour = call("state.incr", key="k", scope_id="s")

    answers = batch(claim) if alone else batch(neighbour, claim, neighbour)

    fine = [answer.error is None for answer in answers]
    assert fine == ([False] if alone else [True, False, True])
    scopes = [scope for (scope,) in conn.execute("SELECT scope_id FROM sentinels")]
    assert scopes == ["old"]


# --- reset, list, prune ---------------------------------------------------------------------


def test_a_reset_tells_whether_there_was_something(ask, result):
    check(ask)

    counts = [result("sentinel.reset", name="stop", scope_id="s1").reset for _ in range(2)]

    assert counts == [1, 0]


def test_a_reset_of_all_scopes_counts_them(ask, result):
    for scope in ("a", "b"):
        check(ask, scope=scope)

    assert result("sentinel.reset_all", name="stop").reset == 2


def test_a_reset_that_is_asked_again_with_its_id_resets_nothing_more(ask, result):
    check(ask)
    first = result("sentinel.reset", name="stop", scope_id="s1", request_id="r1")
    check(ask)

    again = result("sentinel.reset", name="stop", scope_id="s1", request_id="r1")

    assert (first.reset, again.reset) == (1, 1)
    assert not check(ask).result.allowed


def test_a_reset_of_no_name_is_refused(ask):
    with pytest.raises(InvalidName):
        ask("sentinel.reset_all", name="")


def test_the_list_tells_what_is_known(ask, result):
    check(ask, name="b", interval=0)
    check(ask, name="a", interval=300)

    assert [msgspec.to_builtins(fired) for fired in result("sentinel.list")] == [
        {
            "name": name,
            "scope_id": "s1",
            "last_fired": 1_800_000_000,
            "last_fired_iso": "2027-01-15T08:00:00Z",
            "once": once,
            "interval": interval,
        }
        for name, once, interval in [("a", False, 300), ("b", True, 0)]
    ]


def test_a_prune_counts_what_it_removed(ask, still, result):
    check(ask, name="once", interval=0)
    check(ask, name="often", interval=5)
    still.wall_ms += 60_000

    counts = [
        result("sentinel.prune", older_than_ms=60_001).pruned,
        result("sentinel.prune", older_than_ms=60_000, keep_once=True).pruned,
        result("sentinel.prune", older_than_ms=0).pruned,
    ]

    assert counts == [0, 1, 1]


@pytest.mark.parametrize("interval", [0, 60, 30 * 86_400])
@pytest.mark.parametrize("days", [[1], [400], [1, 1], [-1, 1]], ids=str)
def test_a_retried_claim_is_told_the_same_although_the_clock_was_set(result, still, interval, days):
    guard = {"name": "mine", "scope_id": "s", "interval": interval, "request_id": "mine"}
    first = result("sentinel.check", **guard)

    for number, step in enumerate(days):
        still.wall_ms += step * 24 * 3600 * 1000
        for other in range(10):
            result("sentinel.check", name=f"{number} {other}", scope_id="s", interval=60)
    again = result("sentinel.check", **guard)

    assert (first.allowed, again.allowed) == (True, True)
