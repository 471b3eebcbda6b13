"""Throttle guards: who is told "allowed", at which millisecond, and what is forgotten when."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from icd.errors import RequestMismatch
from icd.features.sentinels import store as sentinels
from icd.features.sentinels.store import PRUNED_PER_CHECK, WEEK_MS

NOW = 1_800_000_000_123
DAY_S = 24 * 3600
MONTH_S = 30 * DAY_S


def check(conn, now_ms, *, interval_s, name="stop", scope="s1", request_id=None):
    return sentinels.check(
        conn, name, scope, interval_s=interval_s, request_id=request_id, now_ms=now_ms
    )


def allowed(conn, now_ms, *, interval_s, **other):
    return check(conn, now_ms, interval_s=interval_s, **other).allowed


def stored(conn, name="stop", scope="s1"):
    names = ("last_fired", "fired_ms", "interval_ms", "once", "prune_ms", "request_id")
    row = conn.execute(
        f"SELECT {', '.join(names)} FROM sentinels WHERE name = ? AND scope_id = ?", (name, scope)
    ).fetchone()
    return dict(zip(names, row, strict=True)) if row else None


# --- intervals ------------------------------------------------------------------------------


def test_the_first_check_is_allowed_and_says_when_the_next_one_may_be(conn):
    verdict = check(conn, NOW, interval_s=5)

    assert verdict == sentinels.Verdict(allowed=True, fired_ms=NOW, retry_ms=5000)


def test_a_check_one_millisecond_before_the_interval_ends_is_throttled(conn):
    check(conn, NOW, interval_s=5)

    verdict = check(conn, NOW + 4999, interval_s=5)

    assert verdict == sentinels.Verdict(allowed=False, fired_ms=NOW, retry_ms=1)


def test_a_check_at_the_millisecond_the_interval_ends_is_allowed(conn):
    check(conn, NOW, interval_s=5)

    verdict = check(conn, NOW + 5000, interval_s=5)

    assert verdict == sentinels.Verdict(allowed=True, fired_ms=NOW + 5000, retry_ms=5000)


def test_a_second_is_never_cut_short_by_the_second_hand(conn):
    """The original allowed again 53 ms after a claim made at x.95."""
    claimed = 1_800_000_000_950
    check(conn, claimed, interval_s=1)

    early = allowed(conn, claimed + 53, interval_s=1)
    due = allowed(conn, claimed + 1000, interval_s=1)

    assert (early, due) == (False, True)


def test_a_throttled_check_does_not_postpone_the_next_claim(conn):
    check(conn, NOW, interval_s=5)
    check(conn, NOW + 4000, interval_s=5)

    assert allowed(conn, NOW + 5000, interval_s=5)


def test_seconds_are_shown_and_milliseconds_kept(conn):
    check(conn, NOW, interval_s=5)

    row = stored(conn)

    assert (row["last_fired"], row["fired_ms"]) == (NOW // 1000, NOW)


def test_names_and_scopes_are_claimed_apart(conn):
    verdicts = [
        allowed(conn, NOW, interval_s=5, name=name, scope=scope)
        for name, scope in [("a", "s"), ("a", "t"), ("b", "s"), ("a", "s")]
    ]

    assert verdicts == [True, True, True, False]


def test_a_shorter_interval_is_judged_by_what_the_caller_asks_now(conn):
    check(conn, NOW, interval_s=3600)

    assert allowed(conn, NOW + 1000, interval_s=1)


def test_the_largest_interval_ever_asked_is_kept(conn):
    check(conn, NOW, interval_s=10)
    check(conn, NOW + 1, interval_s=3600)
    check(conn, NOW + 10_001, interval_s=10)

    assert stored(conn)["interval_ms"] == 3_600_000


def test_a_claim_with_the_largest_interval_fits_the_database(conn):
    check(conn, NOW, interval_s=sentinels.MAX_INTERVAL_S)

    assert not allowed(conn, NOW + 1, interval_s=sentinels.MAX_INTERVAL_S)


# --- interval 0 -----------------------------------------------------------------------------


@pytest.mark.parametrize("later", [0, 1, 5, MONTH_S])
def test_a_once_only_claim_never_fires_again_whatever_is_asked_later(conn, later):
    check(conn, NOW, interval_s=0)

    verdict = check(conn, NOW + 400 * DAY_S * 1000, interval_s=later)

    assert verdict == sentinels.Verdict(allowed=False, fired_ms=NOW, retry_ms=None)


def test_a_once_only_claim_says_that_it_will_never_be_allowed_again(conn):
    assert check(conn, NOW, interval_s=0).retry_ms is None


def test_a_row_that_was_claimed_with_an_interval_is_refused_to_a_once_only_check(conn):
    check(conn, NOW, interval_s=5)

    verdict = check(conn, NOW + 3_600_000, interval_s=0)

    assert verdict == sentinels.Verdict(allowed=False, fired_ms=NOW, retry_ms=None)


def test_a_once_only_check_does_not_stop_a_row_that_was_claimed_with_an_interval(conn):
    check(conn, NOW, interval_s=5)
    check(conn, NOW + 1000, interval_s=0)

    assert allowed(conn, NOW + 5000, interval_s=5)


# --- a clock that steps back ----------------------------------------------------------------


def test_a_clock_that_stepped_back_delays_by_one_interval_from_the_check_that_sees_it(conn):
    check(conn, NOW, interval_s=5)
    back = NOW - 3_600_000

    seen = check(conn, back, interval_s=5)
    early = check(conn, back + 4999, interval_s=5)
    due = check(conn, back + 5000, interval_s=5)

    assert seen == sentinels.Verdict(allowed=False, fired_ms=back, retry_ms=5000)
    assert not early.allowed
    assert due.allowed


def test_a_once_only_claim_survives_a_clock_that_stepped_back(conn):
    check(conn, NOW, interval_s=0)
    check(conn, NOW - 3_600_000, interval_s=0)

    assert not allowed(conn, NOW + 3_600_000, interval_s=0)


def test_the_shown_second_follows_the_corrected_clock(conn):
    check(conn, NOW, interval_s=5)
    check(conn, NOW - 10_000, interval_s=5)

    assert stored(conn)["last_fired"] == (NOW - 10_000) // 1000


# --- asking again with the same id ----------------------------------------------------------


def test_the_winner_who_asks_again_with_its_id_is_told_allowed_again(conn):
    check(conn, NOW, interval_s=5, request_id="r1")

    again = check(conn, NOW + 700, interval_s=5, request_id="r1")

    assert again == sentinels.Verdict(allowed=True, fired_ms=NOW, retry_ms=4300)


def test_the_winner_of_a_once_only_claim_is_told_allowed_again(conn):
    check(conn, NOW, interval_s=0, request_id="r1")

    again = check(conn, NOW + 700, interval_s=0, request_id="r1")

    assert again == sentinels.Verdict(allowed=True, fired_ms=NOW, retry_ms=None)


def test_a_repetition_after_the_interval_is_told_allowed_without_a_second_claim(conn):
    check(conn, NOW, interval_s=5, request_id="r1")

    again = check(conn, NOW + 60_000, interval_s=5, request_id="r1")

    assert again == sentinels.Verdict(allowed=True, fired_ms=NOW, retry_ms=0)
    assert stored(conn)["fired_ms"] == NOW


def test_another_id_is_throttled_while_the_winner_may_still_ask_again(conn):
    check(conn, NOW, interval_s=5, request_id="r1")

    loser = allowed(conn, NOW + 1, interval_s=5, request_id="r2")
    winner = allowed(conn, NOW + 2, interval_s=5, request_id="r1")

    assert (loser, winner) == (False, True)


def test_a_throttled_id_may_win_when_it_asks_later(conn):
    check(conn, NOW, interval_s=5, request_id="r1")
    check(conn, NOW + 1, interval_s=5, request_id="r2")

    assert allowed(conn, NOW + 5000, interval_s=5, request_id="r2")


def test_a_claim_without_an_id_replaces_the_id_of_the_claim_before(conn):
    check(conn, NOW, interval_s=5, request_id="r1")
    check(conn, NOW + 5000, interval_s=5)

    assert not allowed(conn, NOW + 5001, interval_s=5, request_id="r1")


def test_an_id_that_claimed_with_another_interval_is_a_mismatch(conn):
    check(conn, NOW, interval_s=5, request_id="r1")

    with pytest.raises(RequestMismatch):
        check(conn, NOW + 1, interval_s=3, request_id="r1")

    assert stored(conn)["fired_ms"] == NOW


def test_an_id_stays_a_mismatch_when_the_other_interval_is_over(conn):
    check(conn, NOW, interval_s=5, request_id="r1")

    with pytest.raises(RequestMismatch):
        check(conn, NOW + 3000, interval_s=3, request_id="r1")

    assert stored(conn)["fired_ms"] == NOW


def test_an_id_that_begins_like_another_one_is_another_one(conn):
    check(conn, NOW, interval_s=5, request_id="r1/2")

    assert not allowed(conn, NOW + 1, interval_s=5, request_id="r1")


# --- auto-prune -----------------------------------------------------------------------------


def test_a_claim_is_pruned_when_it_is_older_than_a_week(conn):
    check(conn, NOW, interval_s=5)

    at_a_week = sentinels.auto_prune(conn, now_ms=NOW + WEEK_MS)
    after_it = sentinels.auto_prune(conn, now_ms=NOW + WEEK_MS + 1)

    assert (at_a_week, after_it) == (0, 1)
    assert stored(conn) is None


def test_a_claim_with_an_interval_of_thirty_days_survives_a_week(conn):
    check(conn, NOW, interval_s=MONTH_S)
    end = NOW + MONTH_S * 1000

    pruned = [sentinels.auto_prune(conn, now_ms=at) for at in (NOW + 2 * WEEK_MS, end, end + 1)]

    assert pruned == [0, 0, 1]


def test_a_longer_interval_that_was_only_asked_for_protects_a_row_too(conn):
    check(conn, NOW, interval_s=5)
    check(conn, NOW + 1, interval_s=MONTH_S)

    assert sentinels.auto_prune(conn, now_ms=NOW + MONTH_S * 1000) == 0
    assert not allowed(conn, NOW + MONTH_S * 1000 - 1, interval_s=MONTH_S)


def test_a_once_only_claim_is_never_pruned_by_itself(conn):
    check(conn, NOW, interval_s=0)

    assert sentinels.auto_prune(conn, now_ms=NOW + 1000 * WEEK_MS) == 0


def test_a_row_that_was_ever_asked_with_interval_0_is_never_pruned_by_itself(conn):
    check(conn, NOW, interval_s=5)
    check(conn, NOW + 1, interval_s=0)
    check(conn, NOW + 5000, interval_s=5)

    assert sentinels.auto_prune(conn, now_ms=NOW + 1000 * WEEK_MS) == 0
    assert not allowed(conn, NOW + 1000 * WEEK_MS, interval_s=0)


def test_a_claim_renewed_is_kept_for_a_week_from_then(conn):
    check(conn, NOW, interval_s=5)
    check(conn, NOW + WEEK_MS, interval_s=5)

    assert sentinels.auto_prune(conn, now_ms=NOW + 2 * WEEK_MS) == 0
    assert sentinels.auto_prune(conn, now_ms=NOW + 2 * WEEK_MS + 1) == 1


def test_a_prune_is_bounded_and_takes_the_oldest_first(conn):
    for number in range(PRUNED_PER_CHECK + 3):
        check(conn, NOW + number, interval_s=5, scope=f"s{number:02}")
    late = NOW + 2 * WEEK_MS

    first = sentinels.auto_prune(conn, now_ms=late)
    left = [sentinel.scope_id for sentinel in sentinels.every(conn)]
    second = sentinels.auto_prune(conn, now_ms=late)

    assert (first, second) == (PRUNED_PER_CHECK, 3)
    assert left == [f"s{number:02}" for number in range(PRUNED_PER_CHECK, PRUNED_PER_CHECK + 3)]


# --- reset, list, prune ---------------------------------------------------------------------


@pytest.mark.parametrize("interval_s", [0, 5])
def test_a_reset_sentinel_is_allowed_again(conn, interval_s):
    check(conn, NOW, interval_s=interval_s)

    count = sentinels.reset(conn, "stop", "s1")

    assert count == 1
    assert allowed(conn, NOW + 1, interval_s=interval_s)


def test_a_reset_of_an_absent_sentinel_counts_nothing(conn):
    assert sentinels.reset(conn, "stop", "s1") == 0


def test_a_reset_leaves_other_scopes_alone(conn):
    check(conn, NOW, interval_s=0, scope="s1")
    check(conn, NOW, interval_s=0, scope="s2")

    sentinels.reset(conn, "stop", "s1")

    assert not allowed(conn, NOW, interval_s=0, scope="s2")


def test_a_reset_of_all_scopes_leaves_other_names_alone(conn):
    for name, scope in [("stop", "s1"), ("stop", "s2"), ("stopped", "s1")]:
        check(conn, NOW, interval_s=0, name=name, scope=scope)

    count = sentinels.reset_all(conn, "stop")

    assert count == 2
    assert [s.name for s in sentinels.every(conn)] == ["stopped"]


def test_the_list_is_sorted_by_name_and_scope(conn):
    for name, scope, interval_s in [("b", "x", 0), ("a", "y", 5), ("a", "x", 7)]:
        check(conn, NOW, interval_s=interval_s, name=name, scope=scope)

    assert sentinels.every(conn) == [
        sentinels.Sentinel("a", "x", NOW // 1000, once=False, interval=7),
        sentinels.Sentinel("a", "y", NOW // 1000, once=False, interval=5),
        sentinels.Sentinel("b", "x", NOW // 1000, once=True, interval=0),
    ]


def test_a_prune_removes_what_fired_at_least_that_long_ago(conn):
    check(conn, NOW, interval_s=5, scope="old")
    check(conn, NOW + 1, interval_s=5, scope="young")

    count = sentinels.prune(conn, older_than_ms=1000, now_ms=NOW + 1000)

    assert count == 1
    assert [s.scope_id for s in sentinels.every(conn)] == ["young"]


def test_a_prune_older_than_0_removes_everything_even_what_fired_in_the_future(conn):
    check(conn, NOW, interval_s=0, scope="once")
    check(conn, NOW + 3_600_000, interval_s=5, scope="future")

    assert sentinels.prune(conn, older_than_ms=0, now_ms=NOW) == 2
    assert sentinels.every(conn) == []


@pytest.mark.parametrize("older_than_ms", [0, 1000])
def test_a_prune_that_keeps_once_only_claims_takes_the_others_only(conn, older_than_ms):
    check(conn, NOW, interval_s=0, scope="once")
    check(conn, NOW, interval_s=5, scope="often")

    count = sentinels.prune(
        conn, older_than_ms=older_than_ms, keep_once=True, now_ms=NOW + 3_600_000
    )

    assert count == 1
    assert [s.scope_id for s in sentinels.every(conn)] == ["once"]


@pytest.mark.parametrize("older_than_ms", [0, 1000])
def test_a_prune_that_keeps_what_is_live_changes_no_answer(conn, older_than_ms):
    check(conn, NOW, interval_s=0, scope="once")
    check(conn, NOW, interval_s=7200, scope="still throttles")
    check(conn, NOW, interval_s=3600, scope="just over")
    check(conn, NOW, interval_s=5, scope="asked with more since")
    check(conn, NOW + 1, interval_s=7200, scope="asked with more since")

    count = sentinels.prune(
        conn, older_than_ms=older_than_ms, keep_live=True, now_ms=NOW + 3_600_000
    )

    left = {s.scope_id for s in sentinels.every(conn)}
    assert count == 1
    assert left == {"once", "still throttles", "asked with more since"}


# --- properties -----------------------------------------------------------------------------

PROPERTY = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
INTERVALS = st.sampled_from([0, 1, 1, 2, 2, 5, 8 * DAY_S])
CHECKS = st.tuples(st.just("check"), INTERVALS)
WAITS = st.tuples(
    st.just("wait"),
    st.sampled_from([1, 499, 999, 1000, 1001, 2000, 5000, WEEK_MS + 1, 8 * DAY_S * 1000 + 1]),
)
RESETS = st.tuples(st.just("reset"), st.just(0))
STEPS_BACK = st.tuples(st.just("step back"), st.sampled_from([1, 700, 1000, 3000, WEEK_MS]))


@PROPERTY
@given(st.lists(st.one_of(CHECKS, CHECKS, WAITS, RESETS), max_size=60))
def test_while_the_clock_moves_forward_one_check_per_interval_is_allowed(scratch, steps):
    """Others prune all the while, which never changes the answer to anything ever asked."""
    with scratch() as conn:
        now, fired, once, asked = NOW, None, False, set()
        for what, value in steps:
            if what == "wait":
                now += value
                if sentinels.auto_prune(conn, now_ms=now):
                    assert 0 not in asked
                    assert now - fired > max(WEEK_MS, *(interval * 1000 for interval in asked))
                    fired, asked = None, set()
            elif what == "reset":
                sentinels.reset(conn, "stop", "s1")
                fired, once, asked = None, False, set()
            else:
                due = fired is None or (not once and value > 0 and now - fired >= value * 1000)
                assert allowed(conn, now, interval_s=value) == due
                once = once or (fired is None and value == 0)
                fired = now if due else fired
                asked.add(value)


@PROPERTY
@given(st.lists(st.one_of(CHECKS, CHECKS, WAITS, RESETS, STEPS_BACK), max_size=60))
@example([("check", 5), ("step back", 3000), ("check", 5), ("wait", 5000), ("check", 5)])
def test_a_step_back_never_allows_early_and_never_blocks_longer_than_one_interval(scratch, steps):
    """Real time only moves forward; `behind` is how far the clock was set back."""
    with scratch() as conn:
        real, behind = NOW, 0
        claimed = once = None  # the moment of the last claim, in real time
        watched = None  # the first check since the last claim or step back, in real time
        for what, value in steps:
            if what == "wait":
                real += value
            elif what == "step back":
                behind += value
                watched = None
            elif what == "reset":
                sentinels.reset(conn, "stop", "s1")
                claimed = once = watched = None
            else:
                verdict = allowed(conn, real - behind, interval_s=value)
                if claimed is None:
                    assert verdict
                    claimed, once, watched = real, value == 0, real
                elif once or value == 0:
                    assert not verdict
                elif verdict:
                    assert real - claimed >= value * 1000
                    claimed, watched = real, real
                else:
                    assert watched is None or real - watched < value * 1000
                watched = real if watched is None else watched
