"""Flags that every command understands, wherever they stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd.app.flags import Flags, strip
from icd.errors import Usage

WORDS = ["state", "get", "k", "s"]


@pytest.mark.parametrize("position", range(len(WORDS) + 1))
@pytest.mark.parametrize(
    "flag, expected",
    [
        (["--json"], {"json": True}),
        (["--verbose"], {"verbose": True}),
        (["--no-daemon"], {"no_daemon": True}),
        (["--help"], {"help": True}),
        (["-h"], {"help": True}),
        (["--db=x.db"], {"db": "x.db"}),
        (["--db", "x.db"], {"db": "x.db"}),
        (["--db=a=b.db"], {"db": "a=b.db"}),
        (["--db="], {"db": ""}),
        (["--timeout=500ms"], {"timeout_ms": 500}),
        (["--timeout", "2s"], {"timeout_ms": 2000}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_flag_may_stand_anywhere(flag, expected, position):
    argv = WORDS[:position] + flag + WORDS[position:]

    assert strip(argv) == Flags(words=WORDS, **expected)


def test_what_follows_two_dashes_is_left_alone():
    found = strip(["state", "--json", "get", "--", "--db", "--json", "--timeout=x", "--"])

    assert found == Flags(
        words=["state", "get", "--", "--db", "--json", "--timeout=x", "--"], json=True
    )


def test_other_flags_are_left_to_the_command():
    argv = ["state", "set", "--ttl=5m", "--json=1", "--dbx", "-v", "-"]

    assert strip(argv) == Flags(words=argv)


def test_the_last_of_two_wins():
    assert strip(["--db=a.db", "--db", "b.db", "--timeout=1s", "--timeout=2s"]) == Flags(
        words=[], db="b.db", timeout_ms=2000
    )


@pytest.mark.parametrize("flag", ["--db", "--timeout"])
def test_a_flag_without_its_value_is_a_mistake(flag):
    with pytest.raises(Usage, match=f"{flag} needs a value"):
        strip(["state", flag])


@pytest.mark.parametrize("value", ["5x", "soon", "", "5 s"])
def test_a_timeout_that_is_none_is_a_mistake(value):
    with pytest.raises(Usage, match=f"invalid timeout: {value}"):
        strip([f"--timeout={value}"])


def test_a_timeout_may_be_a_number_of_seconds():
    assert strip(["--timeout=5"]).timeout_ms == 5000


@pytest.mark.parametrize("value", ["-5s", "-1ns"])
def test_a_negative_timeout_is_a_mistake(value):
    with pytest.raises(Usage, match=f"the timeout {value} is negative"):
        strip([f"--timeout={value}"])


@pytest.mark.parametrize("value", ["0", "0s"])
def test_a_timeout_of_nothing_means_the_default(value):
    assert strip([f"--timeout={value}"]).timeout_ms is None


def test_a_timeout_is_never_rounded_down_to_nothing():
    assert strip(["--timeout=1ns"]).timeout_ms == 1


SWITCHES = st.sampled_from(["--json", "--verbose", "--no-daemon", "--db=x.db", "--timeout=1s"])
PLAIN = st.text("abc-=", min_size=1, max_size=4).filter(
    lambda word: word not in ("--", "-h") and not word.startswith("--db")
)


@given(st.lists(st.one_of(SWITCHES, PLAIN)))
def test_the_words_that_remain_are_those_that_are_no_flags_in_their_order(argv):
    switches = ("--json", "--verbose", "--no-daemon", "--db=x.db", "--timeout=1s")

    assert strip(argv).words == [word for word in argv if word not in switches]
