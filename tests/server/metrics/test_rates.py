"""Calls a second over the last minute and the last quarter of an hour."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd.server.metrics.rates import RING_SECONDS, Rates

START = 10_000.0


def test_a_steady_stream_is_told_as_it_is():
    rates = Rates(START)
    for second in range(2000):
        rates.add(7, START + second)

    assert rates.per_second(60, START + 1999) == 7
    assert rates.per_second(RING_SECONDS, START + 1999) == 7


def test_a_burst_is_forgotten_after_its_time():
    rates = Rates(START)
    rates.add(120, START + 1000)

    assert rates.per_second(60, START + 1059) == 2
    assert rates.per_second(60, START + 1060) == 0
    assert rates.per_second(RING_SECONDS, START + 1000 + RING_SECONDS) == 0


def test_a_young_daemon_is_measured_by_its_own_age():
    rates = Rates(START)
    rates.add(40, START + 3)

    assert rates.per_second(60, START + 10) == 4


def test_the_first_second_is_not_blown_up():
    rates = Rates(START)
    rates.add(1, START + 0.001)

    assert rates.per_second(60, START + 0.001) == 1


@pytest.mark.parametrize("silence", [RING_SECONDS, RING_SECONDS + 1, 10 * RING_SECONDS + 17])
def test_after_a_long_silence_nothing_old_comes_back(silence):
    rates = Rates(START)
    for second in range(RING_SECONDS):
        rates.add(1, START + second)

    rates.add(1, START + RING_SECONDS - 1 + silence)

    now = START + RING_SECONDS - 1 + silence
    assert rates.per_second(RING_SECONDS, now) == 1 / RING_SECONDS


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 3000), min_size=1, max_size=100).map(sorted),
    st.sampled_from([60, RING_SECONDS]),
)
def test_exactly_the_calls_of_the_last_seconds_are_counted(times, span):
    rates = Rates(START)
    for time in times:
        rates.add(1, START + time)
    now = START + times[-1]

    recent = sum(int(START + time) > int(now) - span for time in times)
    assert rates.per_second(span, now) == recent / min(span, max(1.0, now - START))
