"""Rows as lines, and what becomes of them elsewhere."""

import sqlite3

import pytest
from msgspec import structs

from icd.app import idempotency as requests
from icd.db import migrate
from icd.errors import (
    InvalidName,
    InvalidPattern,
    InvalidPayload,
    SchemaTooNew,
    SecretRefused,
    UnreadableInput,
)
from icd.features.database import export as dumps
from icd.features.database.import_ import check_header
from icd.features.events import cursors, retention
from icd.features.events import store as events
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.features.triggers import store as hooks
from icd.values.processes import Writer
from tests.support import discovery_lines, run_lines
from tests.support import lines as support
from tests.support.lines import (
    Attribution,
    Counter,
    Cursor,
    End,
    Header,
    HookPosition,
    Lane,
    LaneMember,
    Lease,
    Migration,
    Request,
    Reservation,
    Sentinel,
    Session,
    State,
)

NOW = 1_800_000_000_000
ROW = State("k", "s", "1", 7, NOW // 1000, None, None, 41, "me")
FACT = events.Fact("review", "seen", "r1", "f1", "a", "b", "why", "{}", "/p", "key")
MIGRATIONS = len(migrate.pending(0))
COUNTERS = 7
LEASE = Lease(
    "sprint", "s", "me", 7, 60_000, NOW // 1000, NOW // 1000, NOW // 1000 + 60, NOW + 60_000, "x", 1
)
CLAIM = Sentinel("n", "s", NOW // 1000, NOW, 60_000, 0, NOW + 1, 60_000, "id")

RESERVATION = Reservation(
    "lock0001", "file_reservation", "me", ".", "src/*", 1, "", None, "", "", NOW // 1000, NOW,
    None, None, None, None, None, None, None, "src/",
)  # fmt: skip
SESSION = Session("s1", "/p", 1, "codex", None, "{}", NOW // 1000, None, 5, 6, 0, 0)
ATTRIBUTION = Attribution("s1", "/p", "b", "r", None, NOW // 1000)
LANE = Lane(
    "lane0001", "kernel", "standing", "active", "core", "go", '{"paused":true}', NOW // 1000,
    NOW // 1000, NOW, None,
)  # fmt: skip
MEMBER = LaneMember("lane0001", "B-1", NOW // 1000, None, NOW)
ROWS = {
    line.__struct_config__.tag: structs.astuple(line)
    for line in (
        *(*run_lines.ALL, LEASE, RESERVATION, SESSION, ATTRIBUTION, LANE, MEMBER),
        *discovery_lines.ALL,
    )
}
FILLED = 8 + len(ROWS)


def fill(conn):
    state.set(conn, "k", "s", "1", writer=Writer(41, "me"), now_ms=NOW)
    state.set(conn, "k", "t", "2", ttl_ms=60_000, writer=Writer(), now_ms=NOW)
    sentinels.check(conn, "n", "s", interval_s=60, request_id="id", now_ms=NOW)
    sentinels.check(conn, "once", "s", interval_s=0, now_ms=NOW)
    requests.record(
        conn, "r", method="state.set", digest=1, effect="{}", now_ms=NOW, monotonic_ms=0
    )
    events.append(conn, FACT, actor=Writer(41, "me"), now_ms=NOW)
    cursors.advance(conn, "c", "", 1, now_ms=NOW)
    hooks.begin(conn, ["on-event"])
    for table, values in ROWS.items():
        marks = ", ".join("?" * len(values))
        conn.execute(f"INSERT INTO {table} VALUES ({marks})", values)
    conn.execute("UPDATE counters SET value = ? WHERE name = 'leases'", (LEASE.token,))


def take(conn, *lines, now_ms=NOW):
    return support.take(conn, *lines, now_ms=now_ms)


def get(conn, scope="s", *, now_ms=NOW):
    return state.get(conn, "k", scope, now_ms=now_ms)


# --- out ------------------------------------------------------------------------------------


def test_a_header_comes_first_and_an_end_last(conn):
    first, *_, last = dumps.export(conn)

    assert isinstance(first, Header)
    assert first.schema == migrate.LATEST
    assert isinstance(last, End)


def test_every_row_of_every_table_is_there(conn):
    fill(conn)

    lines = list(dumps.export(conn))[1:-1]

    tables = [kind.__struct_config__.tag for kind in map(type, lines)]
    assert tables == [
        *["migrations"] * MIGRATIONS, *["counters"] * COUNTERS, "state", "state", "sentinels",
        "sentinels", "requests", "events", "cursors", "hook_positions", "runs", "run_skips",
        "run_agents", "run_artifacts", "run_actions", "dispatches", "leases", "reservations",
        "sessions", "attributions", "lanes", "lane_members", "discoveries", "embedding_sources",
        "embeddings", "feedback_signals", "interest_profile",
    ]  # fmt: skip
    assert structs.astuple(lines[MIGRATIONS + COUNTERS]) == (
        "k",
        "s",
        "1",
        1,
        NOW // 1000,
        None,
        None,
        41,
        "me",
    )


@pytest.mark.sqlite_only
def test_no_table_and_no_column_is_forgotten(conn):
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    columns = "SELECT name FROM pragma_table_info(?)"
    there = {
        table: [column for (column,) in conn.execute(columns, (table,))]
        for (table,) in conn.execute(tables)
    }

    known = {table: list(dumps.kinds()[table].__struct_fields__) for table in dumps.TABLES}

    assert known == there


def test_the_number_of_rows_is_known_beforehand(conn):
    fill(conn)

    assert dumps.rows(conn) == len(list(dumps.export(conn))[1:-1])
    assert {type(line) for line in list(dumps.export(conn))[1:-1]} == {*dumps.kinds().values()}


# --- in -------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere():
    """An empty database."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    migrate.apply(conn, "", now_ms=NOW)
    yield conn
    conn.close()


def test_what_was_exported_is_there_after_the_import(conn, elsewhere):
    fill(conn)
    lines = list(dumps.export(conn))[1:-1]

    written = take(elsewhere, *lines)

    assert written == [None] * (MIGRATIONS + COUNTERS) + [True] * FILLED
    assert structs.replace(get(elsewhere), version=0) == structs.replace(get(conn), version=0)
    assert get(elsewhere, "t").expires_ms == NOW + 60_000
    assert sentinels.every(elsewhere) == sentinels.every(conn)
    assert requests.find(elsewhere, "r", method="state.set", digest=1) == "{}"


def test_a_project_moves_to_a_server_and_back_with_every_row(database, session, elsewhere):
    here = database.connection()
    fill(here)
    lines = list(dumps.export(here))[1:-1]

    take(session, *lines)
    there = list(dumps.export(session))[1:-1]
    take(elsewhere, *there)
    back = list(dumps.export(elsewhere))[1:-1]

    # An import gives versions of state and of discoveries, and numbers of sessions, anew.
    bare = [[_bare(line) for line in each] for each in (lines, there, back)]
    assert bare[1] == bare[0]
    assert bare[2] == bare[0]


def _bare(line):
    if isinstance(line, support.State | support.Discovery):
        return structs.replace(line, version=0)
    if isinstance(line, support.Session | support.RunAction):
        return structs.replace(line, id=0)
    return None if isinstance(line, support.Migration | support.Counter) else line


def test_a_second_time_nothing_is_left_to_do(conn, elsewhere):
    fill(conn)
    lines = list(dumps.export(conn))[1:-1]
    take(elsewhere, *lines)
    before = list(dumps.export(elsewhere))

    assert take(elsewhere, *lines) == [None] * (MIGRATIONS + COUNTERS) + [False] * FILLED
    assert list(dumps.export(elsewhere)) == before


def test_a_database_takes_nothing_new_from_itself(conn):
    fill(conn)
    lines = list(dumps.export(conn))

    assert True not in take(conn, *lines[1:-1])
    assert list(dumps.export(conn)) == lines


@pytest.mark.parametrize("later, written", [(-1, False), (0, False), (1, True)])
def test_of_two_rows_the_later_one_stays(conn, later, written):
    state.set(conn, "k", "s", '"mine"', writer=Writer(), now_ms=NOW)

    assert take(conn, structs.replace(ROW, updated_at=NOW // 1000 + later)) == [written]
    assert get(conn).payload == ("1" if written else '"mine"')


def test_a_row_that_expired_here_is_no_row(conn):
    state.set(conn, "k", "s", '"mine"', ttl_ms=1000, writer=Writer(), now_ms=NOW + 5000)

    assert take(conn, ROW, now_ms=NOW + 6000) == [True]


def test_a_row_that_expired_on_the_way_is_not_taken_in(conn):
    line = structs.replace(ROW, expires_at=NOW // 1000, expires_ms=NOW)

    assert take(conn, line) == [False]


def test_versions_are_above_those_of_both_databases(conn):
    state.set(conn, "k", "mine", "1", writer=Writer(), now_ms=NOW)

    take(conn, Counter("state", 40), ROW)

    assert get(conn).version == 41
    assert state.set(conn, "k", "x", "1", writer=Writer(), now_ms=NOW).version == 42


def test_a_counter_never_goes_back(conn):
    for _ in range(3):
        state.set(conn, "k", "s", "1", writer=Writer(), now_ms=NOW)

    take(conn, Counter("state", 1))

    assert state.set(conn, "k", "s", "1", writer=Writer(), now_ms=NOW).version == 4


@pytest.mark.parametrize(
    "there, line, written",
    [
        (60, structs.replace(CLAIM, fired_ms=NOW + 1), True),
        (60, CLAIM, False),
        (60, structs.replace(CLAIM, fired_ms=NOW - 1), False),
        (60, structs.replace(CLAIM, fired_ms=NOW - 1, once=1), True),
        (0, structs.replace(CLAIM, fired_ms=NOW + 1), False),
        (0, structs.replace(CLAIM, fired_ms=NOW + 1, once=1), False),
    ],
)
def test_of_two_claims_the_later_one_stays_or_the_one_for_all_time(conn, there, line, written):
    sentinels.check(conn, "n", "s", interval_s=there, now_ms=NOW)

    assert take(conn, line) == [written]


def test_a_request_that_is_known_keeps_its_effect(conn):
    requests.record(conn, "r", method="m", digest=1, effect='"mine"', now_ms=NOW, monotonic_ms=0)

    assert take(conn, Request("r", "m", 1, '"theirs"', NOW)) == [False]
    assert requests.find(conn, "r", method="m", digest=1) == '"mine"'


def test_the_history_of_the_schema_stays_its_own(conn):
    before = conn.execute("SELECT * FROM migrations").fetchall()

    assert take(conn, Migration(1001, "9.9", 1), Migration(1002, "9.9", 1)) == [None, None]
    assert conn.execute("SELECT * FROM migrations").fetchall() == before


@pytest.mark.parametrize(
    "line, error",
    [
        (structs.replace(ROW, key="Not a key"), InvalidName),
        (structs.replace(ROW, scope_id="a\tb"), InvalidName),
        (structs.replace(ROW, payload="{"), InvalidPayload),
        (structs.replace(ROW, payload='"ghp_0123456789abcdefghijklmnopqrstuvwxyz"'), SecretRefused),
        (structs.replace(ROW, expires_at=NOW // 1000 + 1), UnreadableInput),
        (structs.replace(ROW, expires_ms=NOW + 1), UnreadableInput),
        (structs.replace(CLAIM, name=""), InvalidName),
        (structs.replace(CLAIM, scope_id="a\nb"), InvalidName),
        (structs.replace(LEASE, name=""), InvalidName),
        (structs.replace(LEASE, scope_id="a\tb"), InvalidName),
        (End(), UnreadableInput),
        (Header("intercore-export", migrate.LATEST, "1"), UnreadableInput),
    ],
)
def test_what_nobody_could_have_stored_is_refused(conn, line, error):
    with pytest.raises(error):
        take(conn, line)


@pytest.mark.parametrize(
    "line, error, told",
    [
        (ROW, UnreadableInput, "not a header"),
        (Header("intercore-export", migrate.LATEST + 1, "9.9"), SchemaTooNew, "intercore 9.9"),
        (Header("intercore-export", 1000, "0.1"), UnreadableInput, f"v1000, not v{migrate.LATEST}"),
    ],
)
def test_a_schema_that_is_not_known_is_refused(line, error, told):
    with pytest.raises(error, match=told) as caught:
        check_header(line)

    assert caught.value.hint


def test_our_own_header_is_accepted(conn):
    check_header(next(dumps.export(conn)))


# --- the log --------------------------------------------------------------------------------


def test_events_keep_their_numbers_and_only_what_goes_on_from_here_is_taken_in(conn, elsewhere):
    for _ in range(3):
        events.append(conn, events.Fact("ci", "theirs"), actor=Writer(), now_ms=NOW)
    lines = list(dumps.export(conn))[1:-1]
    events.append(elsewhere, events.Fact("ci", "ours"), actor=Writer(), now_ms=NOW)

    take(elsewhere, *lines)

    found = [(event.seq, event.type) for event in events.read(elsewhere, limit=9)]
    assert found == [(1, "ours"), (2, "theirs"), (3, "theirs")]


def test_where_everything_was_pruned_no_number_is_given_again(conn, elsewhere):
    events.append(conn, FACT, actor=Writer(), now_ms=NOW)
    cursors.advance(conn, "c", "", 1, now_ms=NOW)
    retention.prune(conn, retention.Rule(keep=0), force=False, now_ms=NOW)

    take(elsewhere, *list(dumps.export(conn))[1:-1])

    assert events.append(elsewhere, FACT, actor=Writer(), now_ms=NOW) == 2
    assert cursors.find(elsewhere, "c", "", now_ms=NOW).seq == 1


@pytest.mark.parametrize("later, seq", [(-1, 2), (0, 2), (1, 1)])
def test_of_two_cursors_the_one_that_moved_later_stays(conn, later, seq):
    for _ in range(2):
        events.append(conn, events.Fact("ci", "t"), actor=Writer(), now_ms=NOW)
    cursors.advance(conn, "c", "", 2, now_ms=NOW)

    take(conn, Cursor("c", "", 1, NOW // 1000, NOW + later, None))

    assert cursors.find(conn, "c", "", now_ms=NOW).seq == seq


def test_a_cursor_that_has_expired_is_not_taken_in(conn):
    assert take(conn, Cursor("c", "", 0, 1, 1, NOW)) == [False]


# --- hooks ----------------------------------------------------------------------------------


def test_what_hooks_had_elsewhere_they_do_not_get_here(conn, elsewhere):
    fill(conn)
    lines = list(dumps.export(conn))[1:-1]
    hooks.begin(elsewhere, ["on-event"])

    take(elsewhere, *lines)

    assert not hooks.is_pending(elsewhere, ["on-event"])


def test_no_hook_is_taken_beyond_the_end_of_the_log(conn):
    fill(conn)

    take(conn, HookPosition("on-event", 2**60, 2**60))

    events.append(conn, events.Fact("x", "y"), actor=Writer(), now_ms=NOW)
    delivery = hooks.start_next(conn, ["on-event"])
    assert delivery is not None
    assert (delivery.seq, delivery.redelivery) == (2, False)


# --- reservations ---------------------------------------------------------------------------


def reserved(conn):
    return conn.execute("SELECT owner, pattern, key FROM reservations").fetchall()


def test_a_reservation_that_is_in_the_way_of_one_here_is_left_out(conn):
    take(conn, RESERVATION)

    theirs = structs.replace(RESERVATION, id="lock0002", owner="they", pattern="src/a")
    free = structs.replace(theirs, id="lock0003", pattern="docs/**", key="wrong")
    assert take(conn, theirs, free) == [False, True]

    assert reserved(conn) == [("me", "src/*", "src/"), ("they", "docs/**", "docs")]


@pytest.mark.parametrize("pattern", ["a/../b", "./a", "[", "a//b", ""])
def test_a_pattern_that_no_command_would_have_stored_is_refused(conn, pattern):
    with pytest.raises(InvalidPattern):
        take(conn, structs.replace(RESERVATION, pattern=pattern))


# --- sessions -------------------------------------------------------------------------------


def test_of_two_accounts_of_a_session_the_one_that_counted_more_stays_under_its_number_here(conn):
    other = structs.replace(SESSION, session_id="s0")
    assert take(conn, other, SESSION) == [True, True]
    less = structs.replace(SESSION, input_tokens=4, model="less")
    more = structs.replace(SESSION, output_tokens=7, model="more", id=9)

    assert take(conn, less, more) == [False, True]

    found = conn.execute("SELECT session_id, id, model FROM sessions ORDER BY id").fetchall()
    assert found == [("s0", 1, None), ("s1", 2, "more")]


@pytest.mark.parametrize("here, theirs", [(0, 1), (1, 0)])
def test_tokens_of_a_session_never_get_fewer(conn, here, theirs):
    """Whichever account counted more in all, each of them may have counted more of something."""
    accounts = [
        structs.replace(SESSION, cache_creation_tokens=100, cache_read_tokens=7),
        structs.replace(SESSION, input_tokens=50, cache_read_tokens=9, model="more"),
    ]

    assert take(conn, accounts[here], accounts[theirs]) == [True, True]

    columns = "input_tokens, output_tokens, cache_creation_tokens, cache_read_tokens, model"
    found = conn.execute(f"SELECT {columns} FROM sessions").fetchall()
    assert found == [(50, 6, 100, 9, "more")]
    assert take(conn, *accounts) == [False, False]


def test_of_two_attributions_the_later_one_stays(conn):
    earlier = structs.replace(ATTRIBUTION, bead_id="old", updated_at=NOW // 1000 - 1)

    assert take(conn, ATTRIBUTION, earlier) == [True, False]


# --- lanes and actions ----------------------------------------------------------------------


def members(conn):
    return conn.execute("SELECT lane_id, bead_id, removed_at FROM lane_members").fetchall()


def test_of_two_lanes_of_one_name_the_later_one_stays_under_its_id_here(conn):
    take(conn, LANE, MEMBER)
    theirs = structs.replace(LANE, id="lane0009", intent="new", updated_ms=NOW + 1)
    another = structs.replace(MEMBER, lane_id="lane0009", bead_id="B-9")

    assert take(conn, theirs, another) == [True, True]
    assert take(conn, structs.replace(theirs, intent="old", updated_ms=NOW)) == [False]

    assert conn.execute("SELECT id, intent FROM lanes").fetchall() == [("lane0001", "new")]
    assert members(conn) == [("lane0001", "B-1", None), ("lane0001", "B-9", None)]


def test_of_two_words_about_an_issue_in_a_lane_the_later_one_stays(conn):
    take(conn, LANE, MEMBER)
    left = structs.replace(MEMBER, removed_at=NOW // 1000 + 1, changed_ms=NOW + 1000)

    assert take(conn, left, MEMBER) == [True, False]
    assert members(conn) == [("lane0001", "B-1", NOW // 1000 + 1)]


def test_a_member_of_no_lane_is_refused(conn):
    with pytest.raises(UnreadableInput, match="there is no lane 'lane0001' before it"):
        take(conn, MEMBER)


@pytest.mark.parametrize("metadata", ["[]", "{", '{"password":"hunter22222"}'])
def test_metadata_that_no_command_would_store_is_refused(conn, metadata):
    with pytest.raises(InvalidPayload):
        take(conn, structs.replace(LANE, metadata=metadata))


def test_of_two_actions_the_later_change_stays_under_its_number_here(conn):
    first = structs.replace(run_lines.ACTION, command="/first", id=5)
    take(conn, run_lines.RUN, first, run_lines.ACTION)
    later = structs.replace(run_lines.ACTION, id=5, mode="autonomous", updated_ms=NOW + 1)

    assert take(conn, later, run_lines.ACTION) == [True, False]

    found = conn.execute("SELECT id, command, mode FROM run_actions ORDER BY id").fetchall()
    assert found == [(1, "/first", "both"), (2, "/work", "autonomous")]


def test_arguments_that_are_no_array_are_refused(conn):
    take(conn, run_lines.RUN)

    with pytest.raises(InvalidPayload, match="not a JSON array"):
        take(conn, structs.replace(run_lines.ACTION, args="{}"))


# --- leases ---------------------------------------------------------------------------------


def leases(conn):
    return conn.execute("SELECT token, renewed_at, owner FROM leases").fetchall()


@pytest.mark.parametrize(
    "token, renewed, written",
    [(8, 0, True), (8, -9, True), (7, 1, True), (7, 0, False), (7, -1, False), (6, 9, False)],
)
def test_of_two_leases_the_later_token_stays_or_the_later_renewal(conn, token, renewed, written):
    take(conn, LEASE)
    at = LEASE.renewed_at + renewed
    theirs = structs.replace(LEASE, token=token, renewed_at=at, owner="they")

    assert take(conn, theirs) == [written]
    assert leases(conn) == [(token, at, "they") if written else (7, LEASE.renewed_at, "me")]


@pytest.mark.parametrize("expires_ms", [0, NOW])
def test_a_lease_that_was_released_or_has_expired_is_not_taken_in(conn, expires_ms):
    assert take(conn, structs.replace(LEASE, expires_ms=expires_ms)) == [False]
    assert leases(conn) == []


@pytest.mark.parametrize("told, last", [(40, 40), (3, 7)])
def test_no_token_of_either_database_is_given_away_again(conn, told, last):
    """Also if the file's counter says less than its rows."""
    take(conn, Counter("leases", told), LEASE)

    value = conn.execute("SELECT value FROM counters WHERE name = 'leases'").fetchone()
    assert value == (last,)
