"""Databases of the original program: taken over in place, with everything that was in them."""

import os
import sqlite3
import time
from contextlib import closing

import pytest

from icd.core import sentinels, state
from icd.core.state import Name
from icd.db import migrate
from icd.errors import SchemaTooNew
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
def test_every_other_table_is_untouched(upgraded, path, schema):
    conn = upgraded(schema)

    ours = {"migrations", "counters", "requests", "events", "cursors", "hook_positions"}
    found = {name: what for name, what in original.others(conn).items() if name not in ours}

    with closing(sqlite3.connect(backups(path)[0])) as before:
        assert found == original.others(before)
    assert (len(found) > 0) == (schema > 1)


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

    row = state.set(conn, "k", "s", "1", writer=state.Writer(), now_ms=NOW_MS)

    assert len(set(versions)) == len(original.STATE)
    assert min(versions) > 0
    assert row.version > max(versions)


def test_a_counter_of_the_original_goes_on_counting(upgraded):
    conn = upgraded(9)

    row = state.incr(conn, "turns", "s1", writer=state.Writer(), now_ms=NOW_MS)

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


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize("stamped", [10, 39])
def test_later_schemas_of_the_original_are_refused_and_untouched(opened, path, stamped):
    original.write(path, 9, stamped=stamped)
    with open(path, "rb") as file:
        before = file.read()

    with pytest.raises(SchemaTooNew, match=f"schema v{stamped} of the original program") as refused:
        opened(path)

    assert "keep using the original program" in refused.value.hint
    with open(path, "rb") as file:
        assert file.read() == before
    assert backups(path) == []


def test_the_upgrade_happens_at_the_first_use_without_init(opened, path):
    original.write(path, 1)

    database = opened(path)

    with database.hold(time.monotonic() + 5):
        assert state.get(database.connection(), "turns", "s1", now_ms=NOW_MS).payload == "41"
