"""Forgetting what was dismissed."""

import struct

import pytest
from msgspec import structs

from icd.features.discoveries import retention as dismissals
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.values.processes import Writer
from tests.support.discovery_lines import DISCOVERY, EMBEDDING, FEEDBACK, NOW
from tests.support.lines import take


@pytest.fixture
def add(conn):
    """Discoveries with all that belongs to one."""

    def added(**dismissed):
        for name, at_ms in dismissed.items():
            status = "scored" if at_ms is None else "dismissed"
            lines = (
                structs.replace(
                    DISCOVERY, id=name, source_id=name, status=status, dismissed_ms=at_ms
                ),
                structs.replace(EMBEDDING, discovery_id=name, vector=struct.pack("<3f", 1, 2, 3)),
                structs.replace(FEEDBACK, discovery_id=name),
            )
            assert all(take(conn, *lines, now_ms=NOW))

    return added


def ids(conn, column="id", table="discoveries"):
    return {value for (value,) in conn.execute(f"SELECT {column} FROM {table}")}


def counter(conn, name):
    (found,) = conn.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return found


def test_what_was_dismissed_by_then_goes_with_all_that_belongs_to_it(conn, add):
    add(old=NOW - 1, just=NOW, later=NOW + 1, never=None)

    assert dismissals.prune(conn, before_ms=NOW) == 2

    assert ids(conn) == {"later", "never"}
    assert ids(conn, "discovery_id", "embeddings") == {"later", "never"}
    assert ids(conn, "discovery_id", "feedback_signals") == {"later", "never"}


def test_finding_7_the_log_keeps_what_happened_to_what_is_gone(conn, add):
    """With a foreign key from events, nothing that has any could be deleted."""
    add(old=NOW)
    fact = Fact("discovery", "discovery.dismissed", subject_id="old")
    events.append(conn, fact, actor=Writer(), now_ms=NOW)

    dismissals.prune(conn, before_ms=NOW)

    assert ids(conn) == set()
    assert [event.subject_id for event in events.read(conn, limit=9)] == ["old"]


def test_deletions_are_counted_for_those_who_keep_discoveries_in_memory(conn, add):
    add(a=NOW, b=NOW, c=None)
    changes = counter(conn, "discoveries")

    dismissals.prune(conn, before_ms=NOW)
    assert counter(conn, "discoveries_deleted") == 2
    assert counter(conn, "discoveries") > changes

    dismissals.prune(conn, before_ms=NOW)
    assert counter(conn, "discoveries_deleted") == 2


def test_pieces_begin_with_the_oldest_and_end_where_the_whole_would(conn, add, monkeypatch):
    monkeypatch.setattr(dismissals, "PRUNED_AT_ONCE", 2)
    add(c=NOW, a=NOW - 2, b=NOW - 1)

    assert dismissals.oldest_ms(conn) == NOW - 2
    assert dismissals.prune_some(conn, before_ms=NOW) == 2
    assert (ids(conn), dismissals.oldest_ms(conn)) == ({"c"}, NOW)
    assert [dismissals.prune_some(conn, before_ms=NOW) for _ in range(2)] == [1, 0]
    assert dismissals.oldest_ms(conn) is None


def test_the_dimension_of_a_source_stays_known(conn, add):
    add(a=NOW)

    dismissals.prune(conn, before_ms=NOW)

    assert conn.execute("SELECT * FROM embedding_sources").fetchall() == [("arxiv", 3)]
