"""Percentiles from buckets: near the true ones, in constant memory."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd.server.metrics.histogram import LONGEST_BITS, Histogram

SECONDS = st.floats(min_value=0, max_value=4000, allow_nan=False)


def filled(times):
    found = Histogram()
    for seconds in times:
        found.add(seconds)
    return found


@settings(deadline=None)
@given(
    st.lists(st.one_of(SECONDS, st.floats(0, 0.01)), min_size=1, max_size=200),
    st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_percentile_is_within_a_thirty_second_part_of_the_true_one(times, share):
    true = sorted(times)[math.ceil(share * len(times)) - 1]

    found = filled(times).percentile(share)

    assert abs(found - true) <= max(true / 32, 0.5e-6) + 1e-9


@settings(deadline=None)
@given(st.lists(SECONDS, max_size=200), st.integers(min_value=5, max_value=LONGEST_BITS))
def test_what_took_less_than_a_power_of_two_is_counted_exactly(times, exponent):
    assert filled(times).below(exponent) == sum(int(t * 1e6) < 2**exponent for t in times)


@settings(deadline=None)
@given(st.lists(SECONDS, max_size=200))
def test_count_and_sum_are_those_of_the_calls(times):
    found = filled(times)

    assert found.count == len(times)
    assert found.seconds == pytest.approx(sum(times))


def test_calls_that_took_the_same_time_can_be_added_at_once():
    one, other = filled([0.5] * 3), Histogram()

    other.add(0.5, 3)

    assert (other.count, other.seconds, other._buckets) == (one.count, one.seconds, one._buckets)


def test_without_calls_there_is_nothing_to_tell():
    assert Histogram().percentile(0.99) == 0.0


@pytest.mark.parametrize("seconds", [5000.0, 1e9])
def test_what_takes_longer_than_the_longest_counts_as_that(seconds):
    found = filled([seconds])

    assert found.percentile(0.5) == pytest.approx(2**LONGEST_BITS / 1e6, rel=1 / 32)
    assert found.below(LONGEST_BITS) == 1


def test_memory_does_not_grow_with_calls():
    found = Histogram()
    buckets = len(found._buckets)

    for exponent in range(-20, 40):
        found.add(2.0**exponent)

    assert len(found._buckets) == buckets
