"""Scores, and the tiers that they fall into.

A score is an integer in millionths: nothing adds up by rounding, and the same row is in the same
tier for every caller.  What counts is the effective score, relevance times decay; thresholds are
compared with the exact product, a number of millionths of millionths.
"""

from functools import lru_cache
from typing import Literal, get_args

from icd.config import Settings
from icd.errors import InvalidScore

ONE = 1_000_000

Tier = Literal["high", "medium", "low", "discard"]
TIERS: tuple[Tier, ...] = get_args(Tier)


def millionths(score: float) -> int:
    if not 0 <= score <= 1:  # nor is NaN
        raise InvalidScore(f"the score {score:g} is not between 0 and 1")
    return round(score * ONE)


def shown(score: int) -> float:
    return score / ONE


def effective(relevance: int, decay: int) -> int:
    return relevance * decay // ONE


def starts(settings: Settings) -> dict[Tier, int]:
    """The product at which each tier starts, the highest tier first."""
    return _starts(settings.tier_high, settings.tier_medium, settings.tier_low, 0.0)


@lru_cache(maxsize=16)  # asked for every row that is shown
def _starts(*thresholds: float) -> dict[Tier, int]:
    return {
        tier: millionths(threshold) * ONE for tier, threshold in zip(TIERS, thresholds, strict=True)
    }


def tier(score: int, settings: Settings) -> Tier:
    """The first tier whose threshold an effective score reaches."""
    return next(tier for tier, start in starts(settings).items() if score * ONE >= start)


def bounds(tier: Tier | None, settings: Settings) -> tuple[int, int]:
    """The least product of a tier, or of all tiers, and the first one beyond it."""
    if tier is None:
        return 0, ONE * ONE + 1
    begins = starts(settings)
    above = [begins[higher] for higher in TIERS[: TIERS.index(tier)]]
    return begins[tier], min([*above, ONE * ONE + 1])
