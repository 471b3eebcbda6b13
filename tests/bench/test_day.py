"""What a normal day leaves in the file; the whole of it, and over more days, is in `make bench`."""

import pytest
from msgspec import structs

from icd import config
from tests.bench import day

pytestmark = pytest.mark.long

# Sentinels are kept for a week; what is kept for longer only adds to the growth.
WARM_DAYS, DAYS = 8, 8
# Records have ids at random, and each index takes whole pages: so few days are a rough measure.
ROUGH = 1.5


def grown(kinds, settings=config.DEFAULTS):
    return day.measure(kinds=kinds, settings=settings, warm_days=WARM_DAYS, days=DAYS).per_day


def test_a_day_of_hooks_grows_the_file_by_less_than_10_kilobytes():
    growth = grown(day.HOOKS)

    assert 0 < growth < day.LIMIT_BYTES


def test_a_day_grows_it_by_less_than_10_kilobytes_where_events_are_forgotten():
    growth = grown(day.RECORDS, structs.replace(config.DEFAULTS, events_keep_days=3))

    assert growth < day.LIMIT_BYTES


def test_a_day_whose_events_are_kept_grows_it_by_about_that():
    growth = grown(day.RECORDS)

    assert growth < ROUGH * day.LIMIT_BYTES
