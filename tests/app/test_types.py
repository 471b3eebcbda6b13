"""Words that people type: Go durations and whole numbers, exactly and without floats."""

import re
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd.app.types import DURATION, SPAN, TRUTH, Seconds, Whole
from icd.durations import milliseconds

UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
DIGITS = st.text("0123456789", max_size=12)
PARTS = st.tuples(DIGITS, st.none() | DIGITS, st.sampled_from(sorted(UNITS_NS))).filter(
    lambda part: part[0] or part[1]
)
GRAMMAR = re.compile(r"[+-]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|d))+)", re.ASCII)


@given(st.sampled_from(["", "+", "-"]), st.lists(PARTS, min_size=1, max_size=4))
def test_a_duration_is_the_sum_of_its_parts_rounded_up_to_milliseconds(sign, parts):
    text = sign + "".join(
        whole + ("" if fraction is None else f".{fraction}") + unit
        for whole, fraction, unit in parts
    )

    total_ns = sum(
        floor(Fraction(f"{whole or 0}.{fraction or 0}") * UNITS_NS[unit])
        for whole, fraction, unit in parts
    )
    expected = ceil(Fraction(total_ns, 10**6))
    assert milliseconds(text) == (-expected if sign == "-" else expected)


@given(st.text("0123456789.+-hmsudnµ ", max_size=8))
def test_what_go_would_not_parse_is_no_duration(text):
    assert (milliseconds(text) is None) == (GRAMMAR.fullmatch(text) is None)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("0", 0),
        ("0s", 0),
        ("1ns", 1),
        ("250ms", 250),
        ("1.5s", 1500),
        (".5s", 500),
        ("5.s", 5000),
        ("1h30m", 5_400_000),
        ("2m", 120_000),
        ("7d", 604_800_000),
        ("-5m", -300_000),
        ("+1s", 1000),
        ("1.0000001s", 1001),
    ],
)
def test_durations_of_go_and_days(text, expected):
    assert milliseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "+", "-", "5", "s", ".s", "1x", "1 s", " 1s", "1s ", "1,5s", "--1s", "1e3s", "٣s"]
)
def test_other_words_are_no_duration(text):
    assert milliseconds(text) is None


def test_a_number_without_end_is_no_crash():
    assert milliseconds("9" * 5000 + "s") is None or milliseconds("9" * 5000 + "s") > 0


@pytest.mark.parametrize(
    "text, message", [("soon", "invalid duration 'soon'"), ("-1s", "negative")]
)
def test_a_duration_that_is_none_is_a_mistake_in_the_command_line(text, message):
    with pytest.raises(ValueError, match=message):
        DURATION.read(text)


def test_a_duration_is_handed_out_in_milliseconds():
    assert DURATION.read("1.5s") == 1500


@pytest.mark.parametrize(
    "text, expected", [("300", 300_000), ("0", 0), ("+5", 5000), ("5m", 300_000), ("250ms", 250)]
)
def test_a_span_is_a_duration_or_a_number_of_seconds(text, expected):
    assert SPAN.read(text) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("-5", "'-5' is negative"),
        ("1.5", r"did you mean '1\.5s' or '1\.5d'"),
        ("5 s", "did you mean '5s'"),
        ("2 weeks", "did you mean '14d'"),
        ("soon", "or a number of seconds"),
        ("999999999999", "longer than a century"),
    ],
)
def test_a_span_that_is_none_is_a_mistake_in_the_command_line(text, message):
    with pytest.raises(ValueError, match=message):
        SPAN.read(text)


@pytest.mark.parametrize(
    "text, expected",
    [("300", 300), ("3600s", 3600), ("5m", 300), ("1h30m", 5400), ("1500ms", 2), ("0s", 0)],
)
def test_an_interval_is_seconds_or_a_duration_rounded_up(text, expected):
    assert Seconds(0, 10**6).read(text) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("soon", "neither seconds nor a duration"),
        ("1.5", "neither seconds nor a duration"),
        ("", "neither seconds nor a duration"),
        ("-5", "not between"),
        ("-5s", "not between"),
        ("100d", "not between"),
    ],
)
def test_an_interval_that_is_none_is_a_mistake_in_the_command_line(text, message):
    with pytest.raises(ValueError, match=message):
        Seconds(0, 10**6).read(text)


@given(st.integers(-(10**6), 10**6))
def test_a_whole_number_within_its_bounds_is_itself(number):
    assert Whole(-(10**6), 10**6).read(str(number)) == number


@pytest.mark.parametrize(
    "text", ["", "x", "1.0", "1e3", "1_000", " 1", "0x1", "٣", "9" * 20, "1\n"]
)
def test_other_words_are_no_whole_number(text):
    with pytest.raises(ValueError, match="is not an integer"):
        Whole(-(10**30), 10**30).read(text)


@pytest.mark.parametrize("text", ["-1", "11"])
def test_a_whole_number_has_bounds(text):
    with pytest.raises(ValueError, match="is not between 0 and 10"):
        Whole(0, 10).read(text)


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_what_go_takes_for_true_is_true(text):
    assert TRUTH.read(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_what_go_takes_for_false_is_false(text):
    assert TRUTH.read(text) is False


@pytest.mark.parametrize("text", ["", "yes", "no", "tRUE", " true", "2"])
def test_anything_else_is_neither(text):
    with pytest.raises(ValueError, match="neither true nor false"):
        TRUTH.read(text)
