"""What is counted per call: times, rates, failures by caller, slow calls."""

import logging
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd.app import registry
from icd.app.call import Call
from icd.db.paths import Where
from icd.errors import (
    IcError,
    InvalidName,
    InvalidParams,
    Locked,
    MethodNotFound,
    NoDatabase,
    Usage,
)
from icd.features.state.verbs import Set
from icd.server.logs import log
from icd.server.metrics.counters import (
    LONGEST_BITS,
    MISTAKE,
    RING_SECONDS,
    ROWS,
    SENTENCE_CHARACTERS,
    SLOW_LINES,
    WINDOW_SECONDS,
    Counters,
    Times,
    sentence,
)
from icd.values.processes import Writer
from tests.conftest import NOW_MS

SECONDS = st.floats(min_value=0, max_value=4000, allow_nan=False)
START = 10_000.0
LOCKED = Locked("somebody holds it")


def counters(now=START, slow_ms=250):
    return Counters(now, slow_ms)


# --- how long calls took: percentiles near the true ones, in constant memory ---------------------


def filled(times):
    found = Times()
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
    one, other = filled([0.5] * 3), Times()

    other.add(0.5, 3)

    assert (other.count, other.seconds, other._buckets) == (one.count, one.seconds, one._buckets)


def test_without_calls_there_is_nothing_to_tell():
    assert Times().percentile(0.99) == 0.0


@pytest.mark.parametrize("seconds", [5000.0, 1e9])
def test_what_takes_longer_than_the_longest_counts_as_that(seconds):
    found = filled([seconds])

    assert found.percentile(0.5) == pytest.approx(2**LONGEST_BITS / 1e6, rel=1 / 32)
    assert found.below(LONGEST_BITS) == 1


def test_memory_does_not_grow_with_calls():
    found = Times()
    buckets = len(found._buckets)

    for exponent in range(-20, 40):
        found.add(2.0**exponent)

    assert len(found._buckets) == buckets


# --- calls a second over the last minute and the last quarter of an hour -------------------------


def called(rates, calls, now):
    rates.add("state.get", calls, 0.0, now)


def test_a_steady_stream_is_told_as_it_is():
    rates = counters(START)
    for second in range(2000):
        called(rates, 7, START + second)

    assert rates.per_second(60, START + 1999) == 7
    assert rates.per_second(RING_SECONDS, START + 1999) == 7


def test_a_burst_is_forgotten_after_its_time():
    rates = counters(START)
    called(rates, 120, START + 1000)

    assert rates.per_second(60, START + 1059) == 2
    assert rates.per_second(60, START + 1060) == 0
    assert rates.per_second(RING_SECONDS, START + 1000 + RING_SECONDS) == 0


def test_a_young_daemon_is_measured_by_its_own_age():
    rates = counters(START)
    called(rates, 40, START + 3)

    assert rates.per_second(60, START + 10) == 4


def test_the_first_second_is_not_blown_up():
    rates = counters(START)
    called(rates, 1, START + 0.001)

    assert rates.per_second(60, START + 0.001) == 1


@pytest.mark.parametrize("silence", [RING_SECONDS, RING_SECONDS + 1, 10 * RING_SECONDS + 17])
def test_after_a_long_silence_nothing_old_comes_back(silence):
    rates = counters(START)
    for second in range(RING_SECONDS):
        called(rates, 1, START + second)

    called(rates, 1, START + RING_SECONDS - 1 + silence)

    now = START + RING_SECONDS - 1 + silence
    assert rates.per_second(RING_SECONDS, now) == 1 / RING_SECONDS


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 3000), min_size=1, max_size=100).map(sorted),
    st.sampled_from([60, RING_SECONDS]),
)
def test_exactly_the_calls_of_the_last_seconds_are_counted(times, span):
    rates = counters(START)
    for time in times:
        called(rates, 1, START + time)
    now = START + times[-1]

    recent = sum(int(START + time) > int(now) - span for time in times)
    assert rates.per_second(span, now) == recent / min(span, max(1.0, now - START))


# --- failures by verb and caller: counted, bounded, without the caller's own words ---------------


def test_the_failures_of_a_caller_at_a_verb_are_one_row_with_the_last_of_them():
    table = counters()
    table.fail("state.set", "/p/hook.sh", LOCKED, now_ms=NOW_MS)
    table.fail("state.set", "/p/hook.sh", NoDatabase("no database at /x"), now_ms=NOW_MS + 5000)

    (row,) = table.by_caller()

    assert (row.method, row.caller, row.count) == ("state.set", "/p/hook.sh", 2)
    assert row.last_at == NOW_MS // 1000 + 5
    assert (row.error, row.sentence) == ("no_database", "no database at /x")


def test_the_latest_comes_first():
    table = counters()
    for caller in "abca":
        table.fail("state.get", caller, LOCKED, now_ms=NOW_MS)

    assert [row.caller for row in table.by_caller()] == ["a", "c", "b"]


def test_whoever_failed_longest_ago_makes_room():
    table = counters()
    for number in range(ROWS):
        table.fail("state.get", str(number), LOCKED, now_ms=NOW_MS)
    table.fail("state.get", "0", LOCKED, now_ms=NOW_MS)

    table.fail("state.get", "new", LOCKED, now_ms=NOW_MS)

    callers = [row.caller for row in table.by_caller()]
    assert len(callers) == ROWS
    assert callers[:2] == ["new", "0"]
    assert "1" not in callers


@pytest.mark.parametrize("kind", [Usage, InvalidName, InvalidParams, MethodNotFound])
def test_a_complaint_that_quotes_the_call_is_not_repeated(kind: type[IcError]):
    assert sentence(kind("unexpected argument 'sesam'")) == MISTAKE


def test_a_sentence_is_a_line_of_limited_length_and_valid_text():
    kept = sentence(NoDatabase("no database at /\udcff\n" + "x" * 1000))

    assert len(kept) == SENTENCE_CHARACTERS
    assert kept.startswith("no database at /\\udcff x")


# --- one line per slow call, and no flood of them ------------------------------------------------


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(vars(record))


@pytest.fixture
def lines():
    handler = Lines()
    level = log.level
    log.addHandler(handler)
    log.setLevel("INFO")
    yield handler.records
    log.removeHandler(handler)
    log.setLevel(level)


def call(**fields):
    method = registry.find("state.set")
    params = Set(key="k", scope_id="s", payload=b'"sesam"')
    world = {"where": Where("/p"), "writer": Writer(41, "s1"), "deadline": START}
    return Call(method=method, params=params, **(world | fields))


def test_a_line_tells_who_asked_for_what_and_where_the_time_went(lines):
    counters(slow_ms=250).slow(call(ran_at=START - 0.1), 0.75, "locked", now=START)

    (line,) = lines
    assert line["msg"] == "slow call"
    assert (line["method"], line["database"], line["error"]) == ("state.set", "/p", "locked")
    assert (line["ms"], line["waited_ms"], line["ran_ms"]) == (750, 650, 100)
    assert (line["pid"], line["session"]) == (41, "s1")
    assert "sesam" not in str(line)


def test_a_call_that_never_ran_only_has_its_time(lines):
    counters(slow_ms=250).slow(call(), 5.25, "deadline_exceeded", now=START)

    assert "ran_ms" not in lines[0]
    assert lines[0]["ms"] == 5250


def test_what_callers_call_things_is_made_fit_for_a_line(lines):
    odd = call(where=Where("/p/\udcff\n" + "x" * 5000), writer=Writer(41, "\x1b[2J" * 500))

    counters(slow_ms=1).slow(odd, 1.0, "", now=START)

    assert len(lines[0]["database"]) == len(lines[0]["session"]) == 300
    assert lines[0]["database"].isprintable()
    assert lines[0]["session"].isprintable()


def test_a_storm_is_a_few_lines_and_then_the_number_of_the_others(lines):
    slow = counters(slow_ms=250)
    for number in range(SLOW_LINES + 30):
        slow.slow(call(), 1.0, "", now=START + number * 0.001)
    assert len(lines) == SLOW_LINES

    slow.slow(call(), 1.0, "", now=START + WINDOW_SECONDS)
    slow.slow(call(), 1.0, "", now=START + WINDOW_SECONDS)

    assert len(lines) == SLOW_LINES + 2
    assert lines[SLOW_LINES]["left_out"] == 30
    assert "left_out" not in lines[SLOW_LINES + 1]
    assert slow.slow_calls == SLOW_LINES + 32
