"""Scores are integers; tiers are a function of them and of the settings."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd.config import DEFAULTS
from icd.errors import InvalidScore
from icd.features.discoveries import store as discoveries
from icd.features.discoveries.store import ONE

scores = st.integers(0, ONE)
shares = st.integers(0, ONE).map(discoveries.fraction)


@pytest.mark.parametrize(
    ("score", "tier"),
    [
        (1.0, "high"),
        (0.8, "high"),
        (0.799999, "medium"),
        (0.5, "medium"),
        (0.499999, "low"),
        (0.3, "low"),
        (0.299999, "discard"),
        (0.0, "discard"),
    ],
)
def test_a_tier_starts_at_its_threshold(score, tier):
    assert discoveries.tier_of(discoveries.millionths(score), DEFAULTS) == tier


@pytest.mark.parametrize("score", [7.0, 1.0000001, -0.1, math.nan, math.inf, -math.inf])
def test_what_is_not_between_0_and_1_is_no_score(score):
    with pytest.raises(InvalidScore):
        discoveries.millionths(score)


@given(scores)
def test_a_score_is_shown_as_it_was_given(score):
    assert discoveries.millionths(discoveries.fraction(score)) == score


@given(scores, scores, shares, shares, shares)
def test_the_bounds_of_a_tier_hold_what_is_in_it_in_whatever_order_thresholds_are(
    relevance, decay, high, medium, low
):
    settings = msgspec.structs.replace(DEFAULTS, tier_high=high, tier_medium=medium, tier_low=low)
    found = discoveries.tier_of(discoveries.effective(relevance, decay), settings)

    inside = [
        tier
        for tier in discoveries.TIERS
        if discoveries.bounds_of(tier, settings)[0]
        <= relevance * decay
        < discoveries.bounds_of(tier, settings)[1]
    ]

    assert inside == [found]
