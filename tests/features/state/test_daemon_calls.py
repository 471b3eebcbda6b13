"""What the mirror reads, and what it is told was touched."""

from icd.app import registry
from icd.features.state import verbs as state
from icd.features.state import watch


def test_rows_are_read_by_name_and_missing_ones_are_none(result):
    result("state.set", key="bead", scope_id="s1", payload="1")

    one, other = result(watch.ROWS, names=[("bead", "s1"), ("bead", "s2")])

    assert (one.payload, other) == ("1", None)


def test_versions_are_read_by_the_page(result):
    result("state.set", key="bead", scope_id="s1", payload="1")

    assert result(watch.VERSIONS, key="bead", after=None, since=0) == ([("s1", 1)], None)


def test_the_questions_of_the_mirror_are_not_part_of_the_api():
    assert registry.find("mirror.rows") is None


def test_a_write_to_state_says_which_row_it_touches():
    params = state.Delete("k", "s")

    assert registry.find("state.delete").writes.rows(params) == (("k", "s"),)


def test_nothing_of_the_sentinels_touches_state():
    writing = [method for method in registry.table("sentinel").values() if method.writes]

    assert [method.writes.rows for method in writing] == [()] * len(writing)
