"""What a method is given."""

import time

from icd.app.dispatch import Clock


def test_the_clock_of_the_machine_counts_milliseconds_since_the_epoch():
    before = time.time_ns() // 1_000_000

    now = Clock().now_ms()

    assert before <= now <= time.time_ns() // 1_000_000


def test_the_other_clock_of_the_machine_never_steps_back():
    before = time.monotonic()

    assert before <= Clock().monotonic() <= time.monotonic()
