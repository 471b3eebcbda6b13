"""Discoveries, what belongs to them and the profile, from another database."""

import struct

import msgspec
import pytest
from msgspec import structs

from icd.errors import InvalidName, InvalidPayload, InvalidVector, InvalidWeights, UnreadableInput
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import vectors
from tests.support import lines as support
from tests.support.discovery_lines import (
    ALL,
    DISCOVERY,
    EMBEDDING,
    FEEDBACK,
    NOW,
    PROFILE,
    SOURCE,
    VECTOR,
)
from tests.support.lines import Counter, decoded

pytestmark = pytest.mark.sqlite_only  # tables are compared with all their columns


def take(conn, *lines):
    """Whether each was written, as one file."""
    return support.take(conn, *lines, now_ms=NOW)


def rows(conn, table):
    return conn.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def row(line, **changes):
    return structs.astuple(structs.replace(line, **changes))


def version(conn, name="disc1"):
    (found,) = conn.execute("SELECT version FROM discoveries WHERE id = ?", (name,)).fetchone()
    return found


def test_everything_about_a_discovery_is_taken_in_as_it_was(conn):
    assert take(conn, *ALL) == [True] * len(ALL)

    assert rows(conn, "discoveries") == [row(DISCOVERY, version=2)]
    for line in ALL[1:]:
        assert rows(conn, line.__struct_config__.tag) == [row(line)]


def test_a_second_time_changes_nothing(conn):
    take(conn, *ALL)
    before = conn.total_changes

    assert take(conn, *ALL) == [False] * len(ALL)
    assert conn.total_changes == before


# --- discoveries ----------------------------------------------------------------------------

LIFE = ["new", "scored", "proposed", "promoted", "dismissed"]


@pytest.mark.parametrize("here", LIFE)
@pytest.mark.parametrize("there", LIFE)
def test_of_two_discoveries_the_one_further_in_its_life_stays(conn, here, there):
    take(conn, structs.replace(DISCOVERY, status=here), EMBEDDING)

    written = take(conn, structs.replace(DISCOVERY, status=there, title="theirs"))

    is_theirs = LIFE.index(there) > LIFE.index(here)
    assert written == [is_theirs]
    assert [(line[3], line[9]) for line in rows(conn, "discoveries")] == [
        ("theirs", there) if is_theirs else ("a title", here)
    ]
    assert rows(conn, "embeddings") == [row(EMBEDDING)]


def test_the_same_find_under_another_id_stays_as_it_is_here(conn):
    take(conn, DISCOVERY)
    theirs = structs.replace(DISCOVERY, id="disc2", status="dismissed")
    parts = [structs.replace(line, discovery_id="disc2") for line in (EMBEDDING, FEEDBACK)]

    assert take(conn, theirs, *parts) == [False] * 3
    assert [line[0] for line in rows(conn, "discoveries")] == ["disc1"]
    assert rows(conn, "embeddings") + rows(conn, "feedback_signals") == []


def test_another_find_under_the_same_id_stays_as_it_is_here(conn):
    """Its embedding, and a daemon's matrix of its source, would still be those of the first."""
    take(conn, DISCOVERY, SOURCE, EMBEDDING)
    before = rows(conn, "discoveries") + rows(conn, "embeddings")

    theirs = structs.replace(DISCOVERY, source="exa", status="dismissed")

    assert take(conn, theirs) == [False]
    assert rows(conn, "discoveries") + rows(conn, "embeddings") == before


def test_versions_are_above_those_of_both_databases(conn):
    take(conn, DISCOVERY)

    take(conn, Counter("discoveries", 40), structs.replace(DISCOVERY, id="d2", source_id="2"))

    assert version(conn, "d2") == 41


def test_a_discovery_that_gets_an_embedding_has_changed(conn):
    """Else a daemon that has read it would not look at it again."""
    take(conn, DISCOVERY)
    before = version(conn)

    take(conn, EMBEDDING)

    assert version(conn) > before


# --- embeddings -----------------------------------------------------------------------------


def test_an_embedding_that_is_here_stays(conn):
    take(conn, DISCOVERY, EMBEDDING)

    assert take(conn, structs.replace(EMBEDDING, vector=struct.pack("<3f", 9, 9, 9))) == [False]
    assert rows(conn, "embeddings") == [row(EMBEDDING)]


def test_an_embedding_of_another_dimension_than_its_source_has_here_is_left_out(conn):
    take(conn, structs.replace(SOURCE, dimension=2))

    assert take(conn, *ALL[:3]) == [True, False, False]
    assert vectors.dimension(conn, "arxiv") == 2


def test_an_embedding_belongs_to_the_source_of_its_discovery(conn):
    take(conn, DISCOVERY, structs.replace(EMBEDDING, source="other"))

    assert rows(conn, "embeddings") == [row(EMBEDDING)]


# --- feedback -------------------------------------------------------------------------------


def test_equal_signals_are_here_as_often_as_in_the_file(conn):
    other = structs.replace(FEEDBACK, signal_type="down")
    file = [DISCOVERY, FEEDBACK, other, FEEDBACK]
    take(conn, DISCOVERY, FEEDBACK)

    assert take(conn, *file) == [False, False, True, True]
    assert take(conn, *file) == [False] * 4
    assert [line[2] for line in rows(conn, "feedback_signals")] == ["up", "down", "up"]


def test_signals_get_numbers_of_this_database(conn):
    take(conn, DISCOVERY, structs.replace(FEEDBACK, id=7), structs.replace(FEEDBACK, id=7))

    assert [line[0] for line in rows(conn, "feedback_signals")] == [1, 2]


# --- the profile ----------------------------------------------------------------------------


@pytest.mark.parametrize("later, written", [(-1, False), (0, False), (1, True)])
def test_of_two_profiles_the_later_one_stays_under_a_new_version(conn, later, written):
    take(conn, PROFILE)
    theirs = structs.replace(PROFILE, version=2, updated_at=PROFILE.updated_at + later)

    assert take(conn, structs.replace(theirs, source_weights="{}")) == [written]
    found = profiles.get(conn)
    assert (found.version, found.source_weights) == ((5, "{}") if written else (4, '{"arxiv": -1}'))


# --- hostile files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, error",
    [
        (structs.replace(DISCOVERY, id=""), InvalidName),
        (structs.replace(DISCOVERY, source="a\tb"), InvalidName),
        (structs.replace(DISCOVERY, source_id=""), InvalidName),
        (structs.replace(DISCOVERY, raw_metadata="{"), UnreadableInput),
        (structs.replace(DISCOVERY, raw_metadata="[" * 99_999), UnreadableInput),
        (structs.replace(SOURCE, source=""), InvalidName),
        (structs.replace(EMBEDDING, vector=b"abc"), InvalidVector),
        (structs.replace(EMBEDDING, vector=b"\0" * 12), InvalidVector),
        (structs.replace(FEEDBACK, signal_type=""), InvalidName),
        (structs.replace(FEEDBACK, actor="a\tb"), InvalidName),
        (structs.replace(FEEDBACK, signal_data=""), UnreadableInput),
        (structs.replace(PROFILE, keyword_weights="{"), InvalidPayload),
        (structs.replace(PROFILE, keyword_weights='{"a\\tb": 1}'), InvalidWeights),
        (structs.replace(PROFILE, source_weights='{"a": "1"}'), InvalidWeights),
        (structs.replace(PROFILE, topic_vector=b""), InvalidVector),
    ],
)
def test_what_nobody_could_have_stored_is_refused(conn, line, error):
    take(conn, DISCOVERY)

    with pytest.raises(error):
        take(conn, line)


WRONG = [
    (DISCOVERY, {"relevance": -1}, {"relevance": 1_000_001}, {"decay": 1_000_001},
     {"relevance": 0.5}, {"status": "archived"}, {"discovered_ms": -1}, {"version": -1},
     {"title": None}, {"extra": 1}),
    (SOURCE, {"dimension": 0}, {"dimension": 16_385}),
    (EMBEDDING, {"vector": "%"}, {"vector": None}),
    (FEEDBACK, {"created_at": -1}, {"signal_data": None}, {"id": -1}),
    (PROFILE, {"id": 2}, {"version": -1}, {"keyword_weights": {}}, {"updated_at": 1.5}),
]  # fmt: skip


@pytest.mark.parametrize(
    "line, change",
    [pytest.param(line, c, id=f"{type(line).__name__} {c}") for line, *all_ in WRONG for c in all_],
)
def test_a_value_that_no_column_can_have_is_no_line(line, change):
    written = msgspec.json.decode(msgspec.json.encode(line))

    with pytest.raises(msgspec.ValidationError):
        decoded(msgspec.json.encode(written | change))

    assert decoded(msgspec.json.encode(written)) == line


def test_a_vector_is_base64_in_the_file():
    assert msgspec.json.decode(msgspec.json.encode(EMBEDDING))["vector"] == "AACAPwAAAAAAAADA"
    assert len(VECTOR) == 12
