"""What the daemon remembers of writes, and when it must not rely on it."""

import pytest

from icd.app.write_cache import REMEMBERED, Recent
from icd.features.state.store import Row
from icd.values.processes import Writer

ME = Writer(1, "a")
AT = 1000.0


def row(payload="1", *, key="k", scope="s", expires_ms=None):
    return Row(key, scope, payload, 1, 0, None, expires_ms, 1, "a")


def unchanged(recent, payload="1", writer=ME, *, key="k", scope="s", window=2.0, at=AT):
    return recent.unchanged(key, scope, payload, writer, window=window, at=at)


@pytest.fixture
def recent():
    """A memory that knows of one write."""
    memory = Recent()
    memory.remember(row(), ME, at=AT)
    return memory


def test_an_empty_memory_knows_of_nothing_unchanged():
    assert unchanged(Recent()) is None


def test_the_same_payload_by_the_same_writer_inside_the_window_is_unchanged(recent):
    assert unchanged(recent, at=AT + 1.999) == row()


def test_the_window_ends_when_it_is_over(recent):
    assert unchanged(recent, at=AT + 2.0) is None


@pytest.mark.parametrize("writer", [Writer(1, "b"), Writer(1), Writer()])
def test_another_session_is_never_told_unchanged(recent, writer):
    assert unchanged(recent, writer=writer) is None


def test_a_session_is_one_writer_however_many_processes_it_starts(recent):
    assert unchanged(recent, writer=Writer(2, "a")) == row()


@pytest.mark.parametrize("pid, same", [(7, True), (8, False), (None, False)])
def test_without_a_session_a_process_is_a_writer(recent, pid, same):
    recent.remember(row(), Writer(7), at=AT)

    assert (unchanged(recent, writer=Writer(pid)) is not None) == same


def test_a_session_is_not_a_process_without_one(recent):
    recent.remember(row(), Writer(7), at=AT)

    assert unchanged(recent, writer=Writer(7, "a")) is None


def test_another_payload_is_a_change(recent):
    assert unchanged(recent, "2") is None


def test_another_row_is_another_row(recent):
    assert unchanged(recent, scope="t") is None
    assert unchanged(recent, key="l") is None


def test_the_last_writer_is_the_one_who_counts(recent):
    recent.remember(row(), Writer(2, "b"), at=AT)

    assert unchanged(recent) is None


def test_a_forgotten_write_is_no_longer_known(recent):
    recent.forget("k", "s")

    assert unchanged(recent) is None


def test_forgetting_what_is_not_known_is_nothing(recent):
    recent.forget("k", "t")

    assert unchanged(recent) == row()


def test_a_cleared_memory_knows_nothing(recent):
    recent.clear()

    assert unchanged(recent) is None


def test_a_write_that_expires_is_not_noted_and_erases_the_one_before(recent):
    recent.remember(row(expires_ms=5), ME, at=AT)

    assert unchanged(recent) is None


def test_the_memory_is_bounded_and_drops_the_oldest_write(recent):
    for number in range(REMEMBERED):
        recent.remember(row(scope=str(number)), ME, at=AT)

    assert unchanged(recent) is None
    assert unchanged(recent, scope="0") == row(scope="0")
    assert len(recent._writes) == REMEMBERED


def test_a_write_repeated_counts_as_the_youngest(recent):
    for number in range(REMEMBERED - 1):
        recent.remember(row(scope=str(number)), ME, at=AT)
    recent.remember(row("2"), ME, at=AT)

    recent.remember(row(scope="one more"), ME, at=AT)

    assert unchanged(recent, "2") == row("2")
    assert unchanged(recent, scope="0") is None
