"""Discoveries, feedback and the interest profile of the original program, in our tables."""

import os
import sqlite3
import struct
import time
from contextlib import closing

import msgspec
import pytest

from icd.db import migrate
from icd.db.original import tables
from icd.features.database import export as dumps
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import rank as ranking
from icd.features.discoveries import vectors
from tests.data import original
from tests.db.conftest import copied
from tests.support.lines import (
    Discovery,
    Embedding,
    EmbeddingSource,
    Feedback,
    Profile,
)

NOW_S = original.NOW_S
OURS = (Discovery, EmbeddingSource, Embedding, Feedback, Profile)
VECTOR = struct.pack("<3f", 1, 0, -2)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "intercore.db")


@pytest.fixture
def brought(opened, path):
    """Open a database of the original that holds these rows: (table, columns with values)."""

    def connection(*rows):
        with closing(original.create(path, 9, rows=False)) as theirs:
            for table, values in rows:
                insert(theirs, table, values)
        return opened(path).connection()

    return connection


def insert(conn, table, values):
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    conn.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))


def discovery(name="x1", **values):
    given = {"id": name, "source": "arxiv", "source_id": name, "title": "t", "discovered_at": NOW_S}
    return "discoveries", given | values


def profile(**values):
    return "interest_profile", {"id": 1, "updated_at": NOW_S} | values


def column(conn, table, name):
    return [value for (value,) in conn.execute(f"SELECT {name} FROM {table} ORDER BY rowid")]


def is_sound(conn):
    assert migrate.is_current(conn)
    assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
    assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    left = "SELECT name FROM sqlite_schema WHERE name LIKE '%original%' OR name LIKE 'idx_%disc%'"
    assert conn.execute(left).fetchall() == []
    return True


# --- discoveries ----------------------------------------------------------------------------


def test_a_discovery_keeps_all_that_the_original_knew(brought):
    conn = brought(
        discovery(
            source_id="2401.1", title="a title", summary="s", url="u", raw_metadata='{"a": 1}',
            relevance_score=0.725, confidence_tier="high", status="promoted", run_id="r",
            bead_id="b", promoted_at=NOW_S + 2, reviewed_at=NOW_S + 1,
        )
    )  # fmt: skip

    assert is_sound(conn)
    assert conn.execute("SELECT * FROM discoveries").fetchall() == [(
        "x1", "arxiv", "2401.1", "a title", "s", "u", '{"a": 1}', 725_000, 1_000_000, "promoted",
        "r", "b", NOW_S, NOW_S * 1000, None, NOW_S + 2, NOW_S + 1, None, 1,
    )]  # fmt: skip


def test_a_title_stays_as_it_was_submitted(brought):
    conn = brought(discovery(title="a\tb\n" + "c" * 2000))

    assert column(conn, "discoveries", "title") == ["a\tb\n" + "c" * 2000]


@pytest.mark.parametrize("version", [1001, 1002, 1003, 1004])
def test_a_database_that_we_took_over_before_there_were_discoveries_gets_them(
    opened, path, version
):
    original.write(path, 9)
    original.take_over_long_ago(path, version)

    conn = opened(path).connection()

    assert is_sound(conn)
    assert column(conn, "discoveries", "title") == ["a title"]
    assert column(conn, "feedback_signals", "signal_type") == ["up"]
    assert profiles.get(conn).version == 1


def test_a_database_without_any_discovery_gets_empty_tables(opened, path):
    original.write(path, 8)

    conn = opened(path).connection()

    assert is_sound(conn)
    assert column(conn, "discoveries", "id") + column(conn, "interest_profile", "id") == []


@pytest.mark.parametrize(
    "score, millionths",
    [(0, 0), (0.5, 500_000), (7.0, 1_000_000), (-0.1, 0), (0.1 + 0.2, 300_000), ("x", 0),
     (float("inf"), 1_000_000), (float("-inf"), 0), (1e-7, 0)],
)  # fmt: skip
def test_scores_become_millionths_from_0_to_1(brought, score, millionths):
    conn = brought(discovery(relevance_score=score))

    assert column(conn, "discoveries", "relevance") == [millionths]


def test_a_dismissal_counts_from_the_review_or_from_now(brought):
    before_ms = time.time_ns() // 1_000_000

    conn = brought(
        discovery("a", status="dismissed", reviewed_at=NOW_S + 5),
        discovery("b", status="dismissed"),
        discovery("c", status="promoted", reviewed_at=NOW_S + 5),
    )

    known, unknown, none = column(conn, "discoveries", "dismissed_ms")
    assert (known, none) == ((NOW_S + 5) * 1000, None)
    assert before_ms <= unknown <= time.time_ns() // 1_000_000


def test_versions_are_as_many_as_discoveries_and_counted_on_from(brought):
    conn = brought(discovery("a"), discovery("b"), discovery("c"))

    assert column(conn, "discoveries", "version") == [1, 2, 3]
    counters = dict(conn.execute("SELECT name, value FROM counters WHERE name LIKE 'disc%'"))
    assert counters == {"discoveries": 3, "discoveries_deleted": 0}


def test_a_status_that_we_do_not_know_is_new(brought):
    conn = brought(discovery(status="archived"))

    assert column(conn, "discoveries", "status") == ["new"]


def test_what_is_one_find_for_us_is_brought_once(brought):
    conn = brought(
        discovery("a", source_id="x\ty"),
        discovery("b", source_id="x\nx"),
        discovery("c", source_id="x\x01y"),
    )

    assert column(conn, "discoveries", "id") == ["a", "b"]
    assert column(conn, "discoveries", "version") == [1, 2]


def test_metadata_that_is_no_json_becomes_a_string(brought):
    conn = brought(
        discovery("a", raw_metadata="{"),
        discovery("b", raw_metadata='{"n": 1e999, "s": "\\ud800"}'),
        discovery("c", raw_metadata="NaN"),
        discovery("d", raw_metadata=""),
        discovery("e", raw_metadata="[" * 99_999),
    )

    found = column(conn, "discoveries", "raw_metadata")
    assert found[:4] == ['"{"', '{"n": 1e999, "s": "\\ud800"}', '"NaN"', "{}"]
    assert found[4] == msgspec.json.encode("[" * 99_999).decode()


# --- vectors --------------------------------------------------------------------------------


def test_embeddings_have_the_dimension_of_the_first_of_their_source(brought):
    other = struct.pack("<2f", 1, 1)

    conn = brought(
        discovery("a", embedding=VECTOR),
        discovery("b", embedding=other),
        discovery("c", embedding=other, source="exa"),
        discovery("d"),
    )

    assert conn.execute("SELECT * FROM embeddings ORDER BY 1").fetchall() == [
        ("a", "arxiv", VECTOR), ("c", "exa", other),
    ]  # fmt: skip
    assert (vectors.dimension(conn, "arxiv"), vectors.dimension(conn, "exa")) == (3, 2)


@pytest.mark.parametrize(
    "data",
    [b"", b"abc", b"\0" * 8, struct.pack("<2f", 1, float("nan")), struct.pack("<f", float("inf")),
     struct.pack("<f", 1) * 16_385, "text", 1],
    ids=["empty", "odd", "zero", "nan", "infinite", "long", "text", "number"],
)  # fmt: skip
def test_what_is_no_vector_is_left_out(brought, data):
    conn = brought(discovery(embedding=data), profile(topic_vector=data))

    assert is_sound(conn)
    assert column(conn, "embeddings", "vector") == []
    assert conn.execute("SELECT count(*) FROM embedding_sources").fetchone() == (0,)
    assert profiles.get(conn).topic_vector is None


# --- feedback and the profile ---------------------------------------------------------------


def test_feedback_is_kept_if_it_is_about_something(brought):
    told = {"signal_type": "up", "signal_data": '{"a": 1}', "actor": "me", "created_at": NOW_S}

    conn = brought(
        discovery(),
        ("feedback_signals", told | {"discovery_id": "x1"}),
        ("feedback_signals", told | {"discovery_id": "gone"}),
        ("feedback_signals", {"discovery_id": "x1", "signal_type": "", "created_at": 1}),
    )

    assert conn.execute("SELECT * FROM feedback_signals").fetchall() == [
        (1, "x1", "unknown", "{}", "system", 1, None),
        (2, "x1", "up", '{"a": 1}', "me", NOW_S, None),
    ]


def test_the_profile_is_the_first_version_of_ours(brought):
    conn = brought(
        profile(topic_vector=VECTOR, keyword_weights='{"a": 1.5}', source_weights='{"b":-2}')
    )

    assert profiles.get(conn) == profiles.Profile(1, VECTOR, '{"a":1.5}', '{"b":-2}', NOW_S)


@pytest.mark.parametrize(
    "given, kept",
    [
        ("not json", "{}"),
        ("[1]", "{}"),
        ("", "{}"),
        ('{"a": "1", "b": true, "c": null, "d": 1}', '{"d":1}'),
        ('{"a": 1e999}', "{}"),
        ('{"a": 1000001, "b": -1000000, "c": 0}', '{"b":-1000000,"c":0}'),
        ('{"": 1, "a\\tb": 1, "%s": 1}' % ("x" * 201), "{}"),
        ('{"\\ud800": 1}', "{}"),
        ("[" * 99_999, "{}"),
    ],
)
def test_weights_that_are_no_numbers_are_left_out(brought, given, kept):
    conn = brought(profile(keyword_weights=given, source_weights=given))

    found = profiles.get(conn)
    assert (found.keyword_weights, found.source_weights) == (kept, kept)


def test_the_limits_of_what_is_brought_are_those_of_our_commands():
    names = "MAX_WEIGHTS", "MAX_WEIGHT"
    ours = [getattr(profiles, name) for name in names] + [vectors.MAX_DIMENSION]
    theirs = [getattr(tables, name) for name in (*names, "MAX_DIMENSION")]

    assert theirs == ours


def test_as_many_weights_as_can_be_are_brought_and_can_be_taken_in(brought):
    many = {f"{'🦀' * 190}{number}": 1.0 for number in range(1001)}

    conn = brought(discovery(), profile(keyword_weights=msgspec.json.encode(many).decode()))

    found = profiles.get(conn).keyword_weights
    assert (
        len(profiles.parse_weights(profiles.check_weights(found.encode()))) == profiles.MAX_WEIGHTS
    )


# --- content that the original would not have written ---------------------------------------

HOSTILE = {
    "null": None, "empty": "", "bytes": b"\xff\x00", "an id": b"x1", "negative": -1, "zero": 0,
    "large": 2**62, "largest": -(2**63), "real": 1.5, "text": "text", "json": "[1]",
    "control": "a\tb\0c", "long": "x" * 9999, "secret": "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
}  # fmt: skip
COLUMNS = {
    "discoveries": [
        "source", "source_id", "title", "summary", "url", "raw_metadata", "embedding",
        "relevance_score", "status", "run_id", "bead_id", "discovered_at", "promoted_at",
        "reviewed_at",
    ],
    "feedback_signals": ["discovery_id", "signal_type", "signal_data", "actor", "created_at"],
}  # fmt: skip


def fill(conn, value):
    """A row per column that holds it, beside all that is well."""
    needed = {
        "discoveries": {"source": "s", "title": "t"},
        "feedback_signals": {"discovery_id": "x1", "signal_type": "up"},
    }
    conn.execute("UPDATE discoveries SET embedding = ?", (VECTOR,))
    for table, columns in COLUMNS.items():
        for number, name in enumerate(columns):
            own = {"id": f"y{number}", "source_id": f"y{number}"} if table == "discoveries" else {}
            try:
                insert(conn, table, needed[table] | own | {name: value})
            except sqlite3.IntegrityError:
                assert value is None  # the original's tables refuse some of these
    if value is not None:
        conn.execute("UPDATE interest_profile SET keyword_weights = ?1, source_weights = ?1,"
                     " topic_vector = ?1, updated_at = ?1", (value,))  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
def test_no_content_stops_the_upgrade_and_all_of_it_can_be_exported_and_imported(
    opened, path, value
):
    with closing(original.create(path, 9)) as theirs:
        fill(theirs, value)

    conn = opened(path).connection()
    lines = [line for line in dumps.export(conn) if isinstance(line, OURS)]
    again = copied(lines, now_ms=NOW_S * 1000)

    assert is_sound(conn)
    assert {type(line) for line in again} == set(OURS)
    assert sorted(map(bare, again)) == sorted(map(bare, lines))
    assert ranking.rank(conn, profiles.get(conn), limit=10).items


def bare(line):
    """Without the numbers that a database gives its own rows."""
    return repr(msgspec.structs.replace(line, **{"version": 0} if hasattr(line, "version") else {}))


@pytest.mark.parametrize("name", [None, "", b"\xff", 7, "a\tb"])
def test_an_id_that_is_missing_or_odd_does_not_stop_the_upgrade(brought, name):
    conn = brought(discovery(name, source_id="other"), discovery("good"))

    assert is_sound(conn)
    assert column(conn, "discoveries", "id")[-1] == "good"


# --- the backup -----------------------------------------------------------------------------

WRITER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
conn.execute("PRAGMA wal_autocheckpoint = 0")
print("ready", flush=True)
sys.stdin.readline()
conn.execute("INSERT INTO discoveries (id, source, source_id, title) VALUES ('late', 's', 'l', 't')")
print("written", flush=True)
sys.stdin.readline()
"""
UPGRADER = """
import sys, time
from icd import config
from icd.db.database import Database
print("ready", flush=True)
sys.stdin.readline()
database = Database(sys.argv[1], config.DEFAULTS)
with database.hold(time.monotonic() + 60):
    database.connection()
    database.close()
"""


def test_finding_5_the_backup_holds_every_row_however_many_upgrade_at_once(start, path):
    """Copying the file beforehand misses what is in the log, and each program makes its own."""
    original.write(path, 9)
    writer = start(WRITER, path)
    upgraders = [start(UPGRADER, path) for _ in range(6)]
    for process in (writer, *upgraders):
        assert process.stdout.readline() == "ready\n"
    print(file=writer.stdin, flush=True)
    assert writer.stdout.readline() == "written\n"

    for process in upgraders:
        print(file=process.stdin, flush=True)
    assert [process.wait(60) for process in upgraders] == [0] * 6

    directory = os.path.dirname(path)
    (backup,) = [name for name in os.listdir(directory) if ".backup-" in name]
    for file, version in ((os.path.join(directory, backup), 9), (path, migrate.LATEST)):
        with closing(sqlite3.connect(file)) as conn:
            assert conn.execute("PRAGMA user_version").fetchone() == (version,)
            assert {"late", "x1"} == set(column(conn, "discoveries", "id"))
