"""Databases of the original program: taken over in place, with everything that was in them."""

import os
import sqlite3
import time
from contextlib import closing

import pytest

from icd.db import migrate
from icd.errors import SchemaTooNew
from icd.features.events import cursors
from icd.features.events import store as events
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.features.state.store import Name
from icd.values.processes import Writer
from tests.data import original

SCHEMAS = range(1, 10)
NOW_MS = original.NOW_S * 1000


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "intercore.db")


@pytest.fixture
def upgraded(opened, path):
    """Open an original database of some schema with our program."""

    def connection(schema, *, stamped=None):
        original.write(path, schema, stamped=stamped)
        return opened(path).connection()

    return connection


def backups(path):
    directory = os.path.dirname(path)
    return sorted(
        os.path.join(directory, name) for name in os.listdir(directory) if ".backup-" in name
    )


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_is_upgraded(upgraded, schema):
    assert migrate.is_current(upgraded(schema))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_state_is_kept(upgraded, schema):
    conn = upgraded(schema)

    rows = conn.execute(
        "SELECT key, scope_id, payload, updated_at, expires_at FROM state ORDER BY key, scope_id"
    ).fetchall()

    assert rows == original.STATE


@pytest.mark.parametrize("schema", SCHEMAS)
def test_sentinels_are_kept(upgraded, schema):
    found = [(s.name, s.scope_id, s.last_fired) for s in sentinels.every(upgraded(schema))]

    assert found == original.SENTINELS


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_table_and_index_is_ours(upgraded, schema):
    conn = upgraded(schema)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as new:
        migrate.apply(new, "", now_ms=NOW_MS)
        ours = shape(new)

    found = shape(conn)

    assert found == ours
    assert conn.execute("PRAGMA foreign_key_check").fetchall() == []
    assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def shape(conn):
    return set(conn.execute("SELECT name, tbl_name FROM sqlite_schema"))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_one_private_backup_holds_the_old_database(upgraded, path, mode, schema):
    upgraded(schema)

    (backup,) = backups(path)
    with closing(sqlite3.connect(backup)) as conn:
        version = conn.execute("PRAGMA user_version").fetchone()
        rows = conn.execute("SELECT * FROM state ORDER BY key, scope_id").fetchall()
    assert version == (schema,)
    assert rows == original.STATE
    assert mode(backup) == 0o600


@pytest.mark.parametrize("came_from", [2, 3, 4])
def test_a_database_that_the_original_broke_while_upgrading_it_is_taken_over(upgraded, came_from):
    """Its migration from v2 to v4 left columns out and stamped the result v9."""
    conn = upgraded(came_from, stamped=9)

    assert migrate.is_current(conn)
    assert state.get(conn, "turns", "s1", now_ms=NOW_MS).payload == "41"


def test_an_upgraded_database_is_not_upgraded_again(upgraded, opened, path):
    upgraded(9)

    opened(path)

    assert len(backups(path)) == 1


def test_rows_that_were_still_in_the_log_are_taken_over_and_backed_up(opened, path):
    with closing(original.create(path, 9)) as theirs:
        theirs.execute("PRAGMA wal_autocheckpoint = 0")
        theirs.execute("INSERT INTO state (key, scope_id, payload) VALUES ('late', 's', '1')")

        conn = opened(path).connection()

        assert state.get(conn, "late", "s", now_ms=NOW_MS).payload == "1"
    with closing(sqlite3.connect(backups(path)[0])) as copy:
        assert copy.execute("SELECT payload FROM state WHERE key = 'late'").fetchall() == [("1",)]


def test_indexes_and_helpers_of_the_original_are_gone(upgraded):
    conn = upgraded(9)

    names = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema")}
    assert not names & {
        "idx_state_scope",
        "idx_state_expires",
        "_migrate_lock",
        "original_state",
        "original_sentinels",
    }
    assert {"state_by_scope", "state_by_expiry", "sentinels_by_prune"} <= names


# --- what the rows mean afterwards ----------------------------------------------------------


def test_expired_rows_stay_invisible_and_ttl_rows_expire_when_they_would_have(upgraded):
    conn = upgraded(9)
    ends_ms = (original.NOW_S + 60) * 1000

    visible = [state.get(conn, "dispatch", "s2", now_ms=at) for at in (NOW_MS, ends_ms - 1)]
    over = state.get(conn, "dispatch", "s2", now_ms=ends_ms)

    assert [row.payload for row in visible] == ["[1,  2]", "[1,  2]"]
    assert over is None
    assert state.get(conn, "expired", "s1", now_ms=NOW_MS) is None
    assert state.scopes(conn, "dispatch", now_ms=NOW_MS) == [
        Name("dispatch", "s1"),
        Name("dispatch", "s2"),
    ]


def test_every_row_has_a_version_of_its_own_and_the_next_write_a_larger_one(upgraded):
    conn = upgraded(9)
    versions = [version for (version,) in conn.execute("SELECT version FROM state")]

    row = state.set(conn, "k", "s", "1", writer=Writer(), now_ms=NOW_MS)

    assert len(set(versions)) == len(original.STATE)
    assert min(versions) > 0
    assert row.version > max(versions)


def test_a_counter_of_the_original_goes_on_counting(upgraded):
    conn = upgraded(9)

    row = state.incr(conn, "turns", "s1", writer=Writer(), now_ms=NOW_MS)

    assert row.payload == "42"


def test_an_interval_is_not_cut_short_by_the_second_that_was_stored(upgraded):
    """The original knows the second of a claim, which may have happened at its very end."""
    conn = upgraded(9)
    fired_ms = (original.NOW_S - 10) * 1000

    def check(now_ms):
        return sentinels.check(conn, "drift", "s1", interval_s=60, now_ms=now_ms).allowed

    assert [check(fired_ms + 60_998), check(fired_ms + 60_999)] == [False, True]


def test_a_claim_of_the_original_is_once_only_for_who_asks_so(upgraded):
    conn = upgraded(9)

    assert not sentinels.check(conn, "stop", "s1", interval_s=0, now_ms=NOW_MS).allowed


def test_claims_of_the_original_are_never_pruned_by_themselves(upgraded):
    conn = upgraded(9)
    late = NOW_MS + 1000 * sentinels.WEEK_MS

    assert sentinels.auto_prune(conn, now_ms=late) == 0
    sentinels.check(conn, "drift", "s1", interval_s=60, now_ms=late)
    assert sentinels.auto_prune(conn, now_ms=late * 2) == 0


def test_claims_of_the_original_can_be_reset_and_pruned_by_hand(upgraded):
    conn = upgraded(9)

    counts = [
        sentinels.reset(conn, "stop", "s1"),
        sentinels.prune(conn, older_than_ms=0, now_ms=NOW_MS),
    ]

    assert counts == [1, 1]


def test_texts_that_were_stored_as_bytes_become_text(opened, path):
    with closing(original.create(path, 9, rows=False)) as theirs:
        theirs.execute("INSERT INTO state (key, scope_id, payload) VALUES ('k', 's', x'5b315d')")

    conn = opened(path).connection()

    assert state.get(conn, "k", "s", now_ms=NOW_MS).payload == "[1]"


def test_rows_that_no_program_of_ours_could_have_written_do_not_stop_the_upgrade(opened, path):
    with closing(original.create(path, 9, rows=False)) as theirs:
        theirs.executemany(
            "INSERT INTO state VALUES (?, ?, ?, ?, ?)",
            [(b"k", "s", "1", 2**62, 2**62), ("k", "s", b"2", "soon", -7)],
        )
        theirs.executemany(
            "INSERT INTO sentinels VALUES (?, ?, ?)", [(b"n", "s", 2**62), ("n", "s", "long ago")]
        )

        theirs.execute("INSERT INTO state VALUES ('u', 's', CAST(x'22ff22' AS TEXT), 1, NULL)")
        theirs.execute("INSERT INTO sentinels VALUES (CAST(x'ff' AS TEXT), 's', 1)")

    conn = opened(path).connection()

    assert migrate.is_current(conn)
    assert conn.execute("SELECT key, scope_id, payload FROM state").fetchall() == [
        ("k", "s", "2"), ("u", "s", '"\ufffd"'),
    ]  # fmt: skip
    assert [(s.name, s.scope_id) for s in sentinels.every(conn)] == [("n", "s"), ("\ufffd", "s")]


# --- events ---


def test_an_event_with_any_time_text_or_payload_does_not_stop_the_upgrade(opened, path):
    with closing(original.create(path, 9, rows=False)) as theirs:
        for at in (2**62, -1, "noon", b"x", 1.5):
            theirs.execute(
                "INSERT INTO dispatch_events (dispatch_id, from_status, to_status, reason,"
                " created_at) VALUES ('d', 'a', 'b', CAST(x'ff' AS TEXT), ?)", (at,),
            )  # fmt: skip
        theirs.execute(
            "INSERT INTO discovery_events (discovery_id, event_type, payload, created_at)"
            " VALUES ('x', 'new', ?, 7)", ("[" * 100_000,),
        )  # fmt: skip

    found = events.read(opened(path).connection(), limit=9)

    assert [event.at_ms for event in found] == [0] * 5 + [7000]
    assert [event.reason for event in found[:5]] == ["\ufffd"] * 5


def test_events_enter_the_log_in_the_order_in_which_they_were_shown_with_their_ids(opened, path):
    with closing(original.create(path, 9, rows=False)) as theirs:
        theirs.execute("INSERT INTO runs (id, project_dir, goal) VALUES ('r1', '/p', 'x')")
        theirs.executemany(
            "INSERT INTO phase_events (run_id, from_phase, to_phase, gate_result, created_at)"
            " VALUES ('r1', 'a', 'b', ?, ?)",
            [("pass", 20), (None, 10)],  # the clock was set back
        )
        theirs.execute(
            "INSERT INTO dispatch_events (id, dispatch_id, from_status, to_status, reason, created_at)"
            " VALUES (40, 'd1', 'spawned', 'running', 'why', 20)"
        )
        theirs.execute(
            "INSERT INTO interspect_events (run_id, agent_name, event_type, override_reason,"
            " context_json, session_id, project_dir, created_at)"
            " VALUES ('r1', 'a', 'override', 'noise', 'not json', 's', '/p', 30)"
        )
        theirs.execute(
            "INSERT INTO discovery_events (discovery_id, event_type, to_status, payload, created_at)"
            " VALUES ('x1', 'discovery.submitted', 'new', '{\"id\":\"x1\"}', 30)"
        )

    conn = opened(path).connection()

    found = events.read(conn, limit=10)
    assert [(e.seq, e.source, e.id, e.type) for e in found] == [
        (1, "phase", 2, "advance"),
        (2, "dispatch", 40, "status_change"),
        (3, "phase", 1, "advance"),
        (4, "discovery", 1, "discovery.submitted"),
        (5, "interspect", 1, "override"),
    ]
    assert [bytes(e.payload).decode() for e in found[2:]] == [
        '{"gate_result": "pass"}',
        '{"id":"x1"}',
        '{"agent_name": "a", "context_json": "not json"}',
    ]
    assert (found[1].subject_id, found[1].reason, found[1].run_id) == ("d1", "why", "")
    assert (found[4].session, found[4].project_dir, found[4].reason) == ("s", "/p", "noise")


def test_later_events_are_later_for_whoever_counts_by_the_originals_ids(opened, path):
    with closing(original.create(path, 9, rows=False)) as theirs:
        theirs.execute(
            "INSERT INTO dispatch_events VALUES (40, 'd', NULL, 'a', 'b', 't', NULL, 20)"
        )

    conn = opened(path).connection()
    seq = events.append(conn, events.Fact("dispatch", "t"), actor=Writer(), now_ms=NOW_MS)

    assert seq == 41
    wanted = events.Wanted(limit=9, marks=events.Marks(dispatch=40))
    assert [event.seq for event in events.page(conn, wanted)[0]] == [41]


def test_an_old_cursor_goes_on_where_it_was(opened, path):
    with closing(original.create(path, 9, rows=False)) as theirs:
        theirs.execute("INSERT INTO runs (id, project_dir, goal) VALUES ('r1', '/p', 'x')")
        for at in (10, 20, 30):
            theirs.execute(
                "INSERT INTO phase_events (run_id, from_phase, to_phase, created_at)"
                " VALUES ('r1', 'a', 'b', ?)", (at,),
            )  # fmt: skip
            theirs.execute(
                "INSERT INTO dispatch_events (dispatch_id, from_status, to_status, created_at)"
                " VALUES ('d', 'a', 'b', ?)", (at,),
            )  # fmt: skip
        theirs.execute(
            "INSERT INTO state (key, scope_id, payload) VALUES ('cursor', 'c',"
            ' \'{"phase":2,"dispatch":2,"interspect":0,"discovery":0}\')'
        )

    conn = opened(path).connection()
    cursor = cursors.find(conn, "c", "", now_ms=NOW_MS)

    rest = events.read(conn, since=cursor.seq, limit=9)
    assert [(event.source, event.id) for event in rest] == [("dispatch", 3), ("phase", 3)]
    assert cursor.expires_ms is None


def test_events_of_a_database_that_was_taken_over_before_there_was_a_log_enter_it(opened, path):
    original.write(path, 9)
    original.take_over_long_ago(path, 1001)

    found = events.read(opened(path).connection(), limit=9)

    assert sorted(event.source for event in found) == [
        "discovery", "dispatch", "interspect", "phase",
    ]  # fmt: skip


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize("stamped", [10, 39])
def test_later_schemas_of_the_original_are_refused_and_untouched(opened, path, stamped):
    original.write(path, 9, stamped=stamped)
    with open(path, "rb") as file:
        before = file.read()

    with pytest.raises(SchemaTooNew, match=f"schema v{stamped} of the original program") as refused:
        opened(path)

    assert "run 'icctl init --adopt'" in refused.value.hint
    with open(path, "rb") as file:
        assert file.read() == before
    assert backups(path) == []


def test_the_upgrade_happens_at_the_first_use_without_init(opened, path):
    original.write(path, 1)

    database = opened(path)

    with database.hold(time.monotonic() + 5):
        assert state.get(database.connection(), "turns", "s1", now_ms=NOW_MS).payload == "41"
