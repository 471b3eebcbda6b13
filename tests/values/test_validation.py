"""What things may be called."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd.errors import InvalidName
from icd.values import validation as names
from icd.values.wire import iso


@pytest.mark.parametrize(
    "key",
    ["a", "dispatch", "k-b_c9", "k.b", "k..b", "k.9", "k.:", "a.b.c:d-e_f", "a" * 200, "a.b."],
)
def test_keys_of_the_contract_are_taken(key):
    names.check_key(key)


@pytest.mark.parametrize(
    "key",
    ["", "K", "9a", ".a", "a b", "a\n", "a.B", "k.", "a/b", "é", "a:b", "a" * 201, "-a", "_a"],
)
def test_other_keys_are_refused(key):
    with pytest.raises(InvalidName, match="invalid key"):
        names.check_key(key)


@pytest.mark.parametrize("prefix", ["", "a", "a.", "dispatch.", "9", "a" * 200])
def test_the_beginning_of_a_key_is_a_prefix(prefix):
    names.check_key_prefix(prefix)


@pytest.mark.parametrize("prefix", ["A", "a b", "a\n", "é", "a%", "a" * 201])
def test_what_no_key_starts_with_is_no_prefix(prefix):
    with pytest.raises(InvalidName, match="invalid key prefix"):
        names.check_key_prefix(prefix)


# The contract; the code does without a regular expression, which takes long to load.
KEY = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_.:-]+)*")


@given(st.text("az09_-.:AÀ \n", max_size=6))
def test_a_key_is_what_its_expression_matches(key):
    try:
        names.check_key(key)
        taken = True
    except InvalidName:
        taken = False

    assert taken == bool(KEY.fullmatch(key))


@settings(max_examples=30)
@given(st.from_regex(KEY, fullmatch=True).filter(lambda key: len(key) <= 200), st.data())
def test_every_beginning_of_a_key_is_a_prefix(key, data):
    names.check_key(key)
    length = data.draw(st.integers(0, len(key)))

    names.check_key_prefix(key[:length])


@pytest.mark.parametrize("scope", ["", "unknown", "a b", "/home/é", "日本", "x" * 4096, "é" * 2048])
def test_a_scope_is_any_text(scope):
    names.check_scope(scope)


@pytest.mark.parametrize("text", ["a\tb", "a\nb", "\r", "\x00", "\x1b[31m", "\x7f"])
@pytest.mark.parametrize("check", [names.check_scope, names.check_name])
def test_control_characters_are_refused_and_not_printed(check, text):
    with pytest.raises(InvalidName, match="contains control characters") as refused:
        check(text)

    assert text not in refused.value.message


@pytest.mark.parametrize("text", ["x" * 4097, "é" * 2049])
@pytest.mark.parametrize("check", [names.check_scope, names.check_name])
def test_names_have_a_limit_in_bytes(check, text):
    with pytest.raises(InvalidName, match="longer than 4096 bytes"):
        check(text)


def test_a_name_is_not_empty():
    with pytest.raises(InvalidName, match="the name is empty") as refused:
        names.check_name("")

    assert "unset" in refused.value.hint


def test_a_long_word_is_shown_shortened_and_on_one_line():
    shown = names.shown("a\n" * 500)

    assert "\n" not in shown
    assert len(shown) < 200


@pytest.fixture
def in_tokyo(monkeypatch):
    """A process that was started in another time zone."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "seconds, text",
    [(1, "1970-01-01T00:00:01Z"), (1_800_000_007, "2027-01-15T08:00:07Z")],
)
def test_a_moment_is_shown_in_utc_whatever_the_zone(in_tokyo, seconds, text):
    assert time.localtime(0).tm_hour == 9
    assert iso(seconds) == text
