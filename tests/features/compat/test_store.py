"""Legacy files against the database: who wins, and that claims go on where the files left off."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from icd.errors import Unhealthy
from icd.features.compat import store as compat
from icd.features.compat.store import Document, Guard, Side
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.values.processes import Writer

NOW = 1_800_000_000_123
ME = Writer(pid=41, session="session-a")
HOUR = 3_600_000


def document(payload='{"a":1}', *, age=HOUR, **options):
    return Document("dispatch", "s1", Raw(payload.encode()), NOW - age, **options)


def guard(*, age=0, interval=0, name="stop"):
    return Guard(name, "s1", NOW - age, interval)


def bring(conn, file, *, now_ms=NOW):
    if isinstance(file, Document):
        return compat.bring_document(conn, file, writer=ME, now_ms=now_ms)
    return compat.bring_guard(conn, file, now_ms=now_ms)


def put(conn, payload, *, age=0):
    return state.set(conn, "dispatch", "s1", payload, writer=Writer(), now_ms=NOW - age)


def row(conn, *, now_ms=NOW):
    return state.get(conn, "dispatch", "s1", now_ms=now_ms)


def is_allowed(conn, interval_s, *, now_ms=NOW, name="stop"):
    return sentinels.check(conn, name, "s1", interval_s=interval_s, now_ms=now_ms).allowed


# --- documents ------------------------------------------------------------------------------


def test_a_document_is_brought_in_with_its_own_time_and_its_importer(conn):
    verdict = bring(conn, document())

    found = row(conn)
    assert verdict == "new"
    assert (found.payload, found.updated_at) == ('{"a":1}', (NOW - HOUR) // 1000)
    assert (found.writer_pid, found.writer_session, found.expires_at) == (41, "session-a", None)


def test_a_document_is_brought_in_once(conn):
    bring(conn, document())
    before = row(conn)

    assert bring(conn, document()) == "same"
    assert row(conn) == before


def test_a_document_that_was_written_again_is_brought_in_again(conn):
    bring(conn, document())

    verdict = bring(conn, document('{"a":2}', age=HOUR - 1000))

    assert verdict == "updated"
    assert row(conn).payload == '{"a":2}'


def test_an_unchanged_document_that_was_written_again_renews_its_time(conn):
    bring(conn, document())

    verdict = bring(conn, document(age=0))

    assert verdict == "updated"
    assert row(conn).updated_at == NOW // 1000


@pytest.mark.parametrize("age", [0, HOUR - 1000, HOUR])
def test_the_database_wins_over_a_document_that_is_older_or_of_the_same_second(conn, age):
    put(conn, '"of the database"', age=age)

    assert bring(conn, document()) == "superseded"
    assert row(conn).payload == '"of the database"'


def test_what_the_database_has_in_the_same_words_is_the_same_however_new(conn):
    put(conn, '{"a":1}')

    assert bring(conn, document()) == "same"


def test_a_row_that_has_expired_is_not_in_the_way(conn):
    state.set(conn, "dispatch", "s1", "1", ttl_ms=1000, writer=Writer(), now_ms=NOW - 1000)

    assert bring(conn, document()) == "new"


def test_a_document_from_the_future_waits_for_its_time(conn):
    future = document(age=-5000)
    bring(conn, document(payload='"older"'))

    early = bring(conn, future)
    state.set(conn, future.key, future.scope_id, '"newer"', writer=Writer(), now_ms=NOW + 6000)

    assert early == "early"
    assert bring(conn, future, now_ms=NOW + 8000) == "superseded"


def test_a_cache_lives_as_long_as_its_file_would_have(conn):
    cache = document(age=20_000, ttl_ms=60_000)

    assert bring(conn, cache) == "new"
    assert row(conn, now_ms=NOW + 39_999) is not None
    assert row(conn, now_ms=NOW + 40_000) is None
    assert bring(conn, cache, now_ms=NOW + 40_000) == "expired"


# --- guards ---------------------------------------------------------------------------------


def test_a_once_only_guard_never_fires_again(conn):
    verdict = bring(conn, guard(age=HOUR))

    assert verdict == "new"
    assert not is_allowed(conn, 0, now_ms=NOW * 2)
    assert not is_allowed(conn, 1, now_ms=NOW * 2)


def test_a_guard_with_an_interval_fires_again_when_the_file_would_have(conn):
    bring(conn, guard(age=100_000, interval=300))

    assert not is_allowed(conn, 300, now_ms=NOW + 199_999)
    assert is_allowed(conn, 300, now_ms=NOW + 200_000)
    assert not is_allowed(conn, 300, now_ms=NOW + 200_001)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
)
@given(
    age=st.integers(0, 30 * 86_400_000),
    asked=st.integers(0, 30 * 86_400),
    later=st.integers(0, 30 * 86_400_000),
)
def test_whatever_interval_is_asked_an_imported_guard_answers_as_its_file(
    scratch, age, asked, later
):
    with scratch() as conn:
        bring(conn, guard(age=age, interval=300))
        sentinels.auto_prune(conn, now_ms=NOW + later)

        allowed = is_allowed(conn, asked, now_ms=NOW + later)

        assert allowed == (asked > 0 and age + later >= asked * 1000)


def test_no_stale_clean_up_of_the_library_touches_a_once_only_guard(conn):
    bring(conn, guard(age=30 * 86_400_000))

    sentinels.prune(conn, older_than_ms=HOUR, keep_once=True, now_ms=NOW)

    assert not is_allowed(conn, 0)


@pytest.mark.parametrize("interval", [0, 300])
def test_a_guard_is_brought_in_once(conn, interval):
    bring(conn, guard(age=1000, interval=interval))

    assert bring(conn, guard(age=1000, interval=interval), now_ms=NOW + 5) == "same"


def test_a_guard_that_was_touched_again_is_brought_in_again(conn):
    bring(conn, guard(age=400_000, interval=300))

    assert bring(conn, guard(age=1000, interval=300)) == "updated"
    assert not is_allowed(conn, 300, now_ms=NOW + 298_999)


def test_the_database_wins_over_a_guard_that_is_older(conn):
    assert is_allowed(conn, 300)

    assert bring(conn, guard(age=1, interval=300)) == "superseded"
    assert sentinels.find(conn, "stop", "s1").fired_ms == NOW


def test_a_claim_for_ever_in_the_database_outlasts_any_interval(conn):
    assert is_allowed(conn, 0, now_ms=NOW - HOUR)

    assert bring(conn, guard(interval=300)) == "superseded"
    assert not is_allowed(conn, 300, now_ms=NOW * 2)


def test_a_once_only_guard_over_an_older_claim_with_an_interval_is_for_ever(conn):
    assert is_allowed(conn, 60, now_ms=NOW - HOUR)

    assert bring(conn, guard()) == "updated"
    assert not is_allowed(conn, 60, now_ms=NOW * 2)


def test_a_once_only_guard_does_not_take_over_a_newer_claim_with_an_interval(conn):
    assert is_allowed(conn, 60)

    assert bring(conn, guard(age=HOUR)) == "superseded"
    assert is_allowed(conn, 60, now_ms=NOW + 60_000)


def test_a_retry_of_the_claim_that_a_newer_guard_replaced_is_throttled(conn):
    sentinels.check(conn, "stop", "s1", interval_s=60, request_id="r", now_ms=NOW - HOUR)
    bring(conn, guard(interval=60))

    again = sentinels.check(conn, "stop", "s1", interval_s=60, request_id="r", now_ms=NOW + 1)

    assert not again.allowed


def test_a_guard_from_the_future_waits_for_its_time_unless_it_needs_none(conn):
    future = guard(age=-HOUR, interval=300)

    assert bring(conn, future) == "early"
    assert bring(conn, future, now_ms=NOW + 2 * HOUR) == "new"
    assert bring(conn, guard(age=-HOUR, interval=0, name="once")) == "new"


# --- comparing changes nothing --------------------------------------------------------------


def test_judging_foretells_what_bringing_does_and_changes_nothing(conn):
    assert compat.judge_document(conn, document(), now_ms=NOW) == "new"
    assert compat.judge_guard(conn, guard(), now_ms=NOW) == "new"

    assert compat.side(conn, "dispatch", now_ms=NOW).state == 0
    assert compat.side(conn, "stop", now_ms=NOW).sentinels == 0


# --- verifying ------------------------------------------------------------------------------


@pytest.mark.sqlite_only
def test_state_that_does_not_read_back_as_written_is_an_error(conn):
    conn.execute(
        "CREATE TRIGGER meddle AFTER INSERT ON state BEGIN UPDATE state SET payload = '0'; END"
    )

    with pytest.raises(Unhealthy, match="dispatch s1 could not be verified"):
        bring(conn, document())


@pytest.mark.sqlite_only
def test_a_claim_that_does_not_read_back_as_written_is_an_error(conn):
    conn.execute("CREATE TRIGGER meddle AFTER INSERT ON sentinels BEGIN DELETE FROM sentinels; END")

    with pytest.raises(Unhealthy, match="sentinel stop s1 could not be verified"):
        bring(conn, guard())


# --- what the database holds ----------------------------------------------------------------


def test_a_side_counts_rows_and_tells_the_last_write(conn):
    put(conn, "1", age=5000)
    state.set(conn, "dispatch", "s2", "1", writer=ME, now_ms=NOW)
    state.set(conn, "dispatch", "s3", "1", ttl_ms=1000, writer=ME, now_ms=NOW - 1000)
    sentinels.check(conn, "dispatch", "s1", interval_s=0, now_ms=NOW - 2000)

    side = compat.side(conn, "dispatch", now_ms=NOW)

    assert side == Side("dispatch", 2, 1, NOW // 1000, (NOW - 2000) // 1000)


def test_a_key_that_nobody_wrote_has_no_last_write(conn):
    assert compat.side(conn, "stop", now_ms=NOW) == Side("stop", 0, 0, None, None)


def test_scopes_are_counted_once_whichever_table_knows_them(conn):
    put(conn, "1")
    sentinels.check(conn, "dispatch", "s1", interval_s=0, now_ms=NOW)
    sentinels.check(conn, "dispatch", "s2", interval_s=0, now_ms=NOW)

    assert compat.scopes(conn, "dispatch", now_ms=NOW) == 2
    assert compat.scopes(conn, "other", now_ms=NOW) == 0
