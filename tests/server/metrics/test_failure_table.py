"""Failures by verb and caller: counted, bounded, and without the caller's own words."""

import pytest

from icd.errors import (
    IcError,
    InvalidName,
    InvalidParams,
    Locked,
    MethodNotFound,
    NoDatabase,
    Usage,
)
from icd.server.metrics.failure_table import MISTAKE, ROWS, SENTENCE_CHARACTERS, Blame, sentence
from tests.conftest import NOW_MS

LOCKED = Locked("somebody holds it")


def test_the_failures_of_a_caller_at_a_verb_are_one_row_with_the_last_of_them():
    blame = Blame()
    blame.note("state.set", "/p/hook.sh", LOCKED, now_ms=NOW_MS)
    blame.note("state.set", "/p/hook.sh", NoDatabase("no database at /x"), now_ms=NOW_MS + 5)

    (row,) = blame.rows()

    assert (row.method, row.caller, row.count) == ("state.set", "/p/hook.sh", 2)
    assert (row.at_ms, row.error, row.sentence) == (NOW_MS + 5, "no_database", "no database at /x")


def test_the_latest_comes_first():
    blame = Blame()
    for caller in "abca":
        blame.note("state.get", caller, LOCKED, now_ms=NOW_MS)

    assert [row.caller for row in blame.rows()] == ["a", "c", "b"]


def test_whoever_failed_longest_ago_makes_room():
    blame = Blame()
    for number in range(ROWS):
        blame.note("state.get", str(number), LOCKED, now_ms=NOW_MS)
    blame.note("state.get", "0", LOCKED, now_ms=NOW_MS)

    blame.note("state.get", "new", LOCKED, now_ms=NOW_MS)

    callers = [row.caller for row in blame.rows()]
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
