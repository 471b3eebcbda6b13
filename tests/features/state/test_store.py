"""State rows: what is visible when, which version they get, and who may write over whom."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.errors import NotAnInteger, VersionConflict
from icd.features.state import store as state
from icd.features.state.store import Name
from icd.values.processes import Writer
from icd.values.wire import INT64

NOW = 1_800_000_000_123
ME = Writer(pid=41, session="session-a")
NOBODY = Writer()


def put(conn, payload="1", *, key="k", scope="s", now_ms=NOW, writer=ME, **options):
    return state.set(conn, key, scope, payload, writer=writer, now_ms=now_ms, **options)


def get(conn, *, key="k", scope="s", now_ms=NOW):
    return state.get(conn, key, scope, now_ms=now_ms)


def incr(conn, *, key="k", scope="s", now_ms=NOW, writer=ME, **options):
    return state.incr(conn, key, scope, writer=writer, now_ms=now_ms, **options)


# --- reading and writing --------------------------------------------------------------------


def test_a_payload_comes_back_exactly_as_it_was_written(conn):
    payload = '{ "b": 1,\n  "a": [1,  2], "a": "é\\ud800" }'

    put(conn, payload)

    assert get(conn).payload == payload


def test_a_row_that_was_never_written_is_absent(conn):
    assert get(conn) is None


def test_the_writer_of_the_last_write_is_recorded(conn):
    put(conn, writer=Writer(1, "first"))
    put(conn, writer=ME)

    row = get(conn)

    assert (row.writer_pid, row.writer_session) == (41, "session-a")


def test_an_unknown_writer_leaves_nothing_of_the_one_before(conn):
    put(conn, writer=ME)
    put(conn, writer=NOBODY)

    row = get(conn)

    assert (row.writer_pid, row.writer_session) == (None, None)


def test_the_answer_of_a_write_is_what_a_read_finds(conn):
    written = put(conn, '"x"', ttl_ms=1500)

    assert get(conn) == written


def test_a_row_shows_seconds_and_utc(conn):
    row = put(conn)

    assert row.updated_at == NOW // 1000
    assert row.document().updated_at_iso == "2027-01-15T08:00:00Z"


def test_scopes_are_kept_apart(conn):
    put(conn, "1", scope="a")
    put(conn, "2", scope="b")

    assert [get(conn, scope=scope).payload for scope in ("a", "b")] == ["1", "2"]


# --- expiry ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after_ms, visible", [(0, True), (999, True), (1000, False), (10**9, False)]
)
def test_a_row_is_visible_up_to_the_last_millisecond_of_its_ttl(conn, after_ms, visible):
    put(conn, ttl_ms=1000)

    assert (get(conn, now_ms=NOW + after_ms) is not None) == visible


@pytest.mark.parametrize(
    "now_ms, shown",
    [(1_800_000_000_000, 1_800_000_001), (1_800_000_000_001, 1_800_000_002)],
)
def test_the_shown_expiry_is_rounded_up(conn, now_ms, shown):
    row = put(conn, ttl_ms=1000, now_ms=now_ms)

    assert (row.expires_at, row.expires_ms) == (shown, now_ms + 1000)


def test_a_row_without_a_ttl_never_expires(conn):
    put(conn)

    row = get(conn, now_ms=NOW * 2)

    assert (row.expires_at, row.expires_ms) == (None, None)


def test_a_write_without_a_ttl_makes_the_row_durable(conn):
    put(conn, ttl_ms=1000)
    put(conn)

    assert get(conn, now_ms=NOW + 10_000) is not None


def test_a_write_with_a_ttl_replaces_the_ttl(conn):
    put(conn, ttl_ms=1000)
    put(conn, ttl_ms=5000)

    assert get(conn, now_ms=NOW + 4999).expires_ms == NOW + 5000


@pytest.fixture
def expired(conn):
    """The moment at which the row k s, an integer of version 1, has just expired."""
    put(conn, "41", ttl_ms=1000)
    return NOW + 1000


def test_an_expired_row_is_not_listed(conn, expired):
    assert state.scopes(conn, "k", now_ms=expired) == []
    assert state.by_prefix(conn, "k", now_ms=expired) == []


def test_deleting_an_expired_row_counts_nothing(conn, expired):
    assert state.delete(conn, "k", "s", now_ms=expired) == 0


def test_deleting_all_counts_the_visible_rows_only(conn, expired):
    put(conn, scope="t")

    assert state.delete_all(conn, "k", now_ms=expired) == 1


def test_deleting_removes_an_expired_row_for_good(conn, expired):
    state.delete(conn, "k", "s", now_ms=expired)

    assert get(conn, now_ms=NOW) is None


def test_counting_over_an_expired_row_starts_at_zero_with_a_new_ttl(conn, expired):
    row = incr(conn, now_ms=expired, ttl_ms=2000)

    assert (row.payload, row.expires_ms) == ("1", expired + 2000)


def test_an_expired_row_is_nothing_to_compare_with(conn, expired):
    row = put(conn, "2", if_version=0, now_ms=expired)

    assert row.payload == "2"


def test_the_version_of_an_expired_row_is_no_longer_its_version(conn, expired):
    with pytest.raises(VersionConflict, match="k s does not exist, expected version 1"):
        put(conn, "2", if_version=1, now_ms=expired)


# --- versions -------------------------------------------------------------------------------


def test_every_write_takes_the_next_version_of_the_database(conn):
    versions = [
        put(conn).version,
        put(conn, key="other").version,
        incr(conn).version,
        put(conn).version,
    ]

    assert versions == [1, 2, 3, 4]


def test_a_version_does_not_come_back_after_a_deletion(conn):
    first = put(conn).version
    state.delete(conn, "k", "s", now_ms=NOW)

    assert put(conn).version > first + 1


def test_a_deletion_of_nothing_is_no_change(conn):
    state.delete(conn, "k", "s", now_ms=NOW)
    state.delete_all(conn, "k", now_ms=NOW)

    assert put(conn).version == 1


def test_a_write_over_the_expected_version_succeeds(conn):
    first = put(conn, "1")

    second = put(conn, "2", if_version=first.version)

    assert get(conn) == second


def test_a_write_over_another_version_is_refused_and_changes_nothing(conn):
    first = put(conn, "1")
    second = put(conn, "2")

    with pytest.raises(VersionConflict, match="k s is at version 2, expected version 1"):
        put(conn, "3", if_version=first.version)

    assert get(conn) == second


def test_a_write_over_nothing_is_refused_where_there_is_a_row(conn):
    put(conn, "1")

    with pytest.raises(VersionConflict, match=r"already exists \(version 1\)"):
        put(conn, "2", if_version=0)

    assert get(conn).payload == "1"


def test_a_write_over_a_version_is_refused_where_there_is_no_row(conn):
    with pytest.raises(VersionConflict, match="does not exist, expected version 7"):
        put(conn, if_version=7)

    assert get(conn) is None


# --- counters -------------------------------------------------------------------------------


def test_a_counter_starts_at_zero(conn):
    assert incr(conn).payload == "1"


def test_a_counter_adds_what_it_is_told(conn):
    values = [incr(conn, by=by).payload for by in (5, -7, 0)]

    assert values == ["5", "-2", "-2"]


def test_a_running_counter_keeps_its_expiry(conn):
    incr(conn, ttl_ms=1000)

    row = incr(conn, ttl_ms=60_000, now_ms=NOW + 500)

    assert row.expires_ms == NOW + 1000


def test_a_running_counter_without_an_expiry_gets_none(conn):
    incr(conn)

    assert incr(conn, ttl_ms=1000).expires_ms is None


@pytest.mark.parametrize("start", [INT64 - 2, -INT64 + 1])
def test_a_counter_reaches_the_ends_of_its_range(conn, start):
    put(conn, str(start))
    by = 1 if start > 0 else -1

    assert incr(conn, by=by).payload == str(start + by)


@pytest.mark.parametrize(
    "start, by", [(INT64 - 1, 1), (-INT64, -1), (0, INT64), (10**18 * 9, 10**18)]
)
def test_a_counter_does_not_leave_its_range(conn, start, by):
    put(conn, str(start))

    with pytest.raises(NotAnInteger, match="would exceed the range of 64-bit integers"):
        incr(conn, by=by)

    assert get(conn).payload == str(start)


@pytest.mark.parametrize(
    "payload",
    ['"1"', "1.0", "1e3", "null", "true", "[1]", "{}", "-", "12345678901234567890", "1" * 5000],
)
def test_what_is_not_an_integer_is_not_counted(conn, payload):
    put(conn, payload)

    with pytest.raises(NotAnInteger, match="k s does not hold an integer"):
        incr(conn)

    assert get(conn).payload == payload


# --- listing, deleting, pruning -------------------------------------------------------------


def test_the_scopes_of_a_key_are_listed_in_order(conn):
    for key, scope in [("k", "b"), ("k", "a"), ("kk", "c")]:
        put(conn, key=key, scope=scope)

    assert state.scopes(conn, "k", now_ms=NOW) == [Name("k", "a"), Name("k", "b")]


def test_a_prefix_lists_every_key_that_starts_with_it(conn):
    for key in ("ab", "ab.c", "ab-c", "ab_d", "abz", "ac", "aa", "b"):
        put(conn, key=key)

    found = [name.key for name in state.by_prefix(conn, "ab", now_ms=NOW)]

    assert found == ["ab", "ab-c", "ab.c", "ab_d", "abz"]


def test_an_empty_prefix_lists_everything_by_key_and_scope(conn):
    for key, scope in [("b", "x"), ("a", "y"), ("a", "x")]:
        put(conn, key=key, scope=scope)

    found = state.by_prefix(conn, "", now_ms=NOW)

    assert found == [Name("a", "x"), Name("a", "y"), Name("b", "x")]


def test_a_deletion_counts_the_row_it_removed(conn):
    put(conn)

    counts = [state.delete(conn, "k", "s", now_ms=NOW) for _ in range(2)]

    assert counts == [1, 0]


def test_deleting_all_scopes_leaves_other_keys_alone(conn):
    for key, scope in [("k", "a"), ("k", "b"), ("kk", "a")]:
        put(conn, key=key, scope=scope)

    count = state.delete_all(conn, "k", now_ms=NOW)

    assert count == 2
    assert state.by_prefix(conn, "", now_ms=NOW) == [Name("kk", "a")]


def test_a_prune_removes_what_is_invisible_already(conn):
    put(conn, scope="now", ttl_ms=1000)
    put(conn, scope="later", ttl_ms=1001)
    put(conn, scope="never")

    count = state.prune(conn, now_ms=NOW + 1000)

    assert count == 1
    assert [n.scope_id for n in state.scopes(conn, "k", now_ms=NOW)] == ["later", "never"]


def test_a_piece_of_a_prune_is_bounded(conn):
    with_expiry = state.PRUNED_AT_ONCE + 5
    conn.execute("BEGIN")
    for number in range(with_expiry):
        put(conn, scope=str(number), ttl_ms=1000)
    put(conn, scope="never")
    conn.execute("COMMIT")

    counts = [state.prune_some(conn, now_ms=NOW + 1000) for _ in range(3)]

    assert counts == [state.PRUNED_AT_ONCE, 5, 0]
    assert get(conn, scope="never") is not None


def test_the_next_expiry_is_the_earliest_of_all(conn):
    put(conn, scope="never")
    nothing = state.next_expiry(conn)
    put(conn, scope="late", ttl_ms=5000)
    put(conn, scope="soon", ttl_ms=1000)

    assert (nothing, state.next_expiry(conn)) == (None, NOW + 1000)


# --- against a model ------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "a.b", "c"])
SCOPES = st.sampled_from(["s", "t"])
TTLS = st.sampled_from([0, 0, 1000, 1001, 5000])
OPERATIONS = st.one_of(
    st.tuples(st.just("set"), KEYS, SCOPES, st.integers(-3, 3).map(str), TTLS),
    st.tuples(st.just("compare"), KEYS, SCOPES, st.sampled_from(["same", "zero", "stale"]), TTLS),
    st.tuples(st.just("incr"), KEYS, SCOPES, st.integers(-5, 5), TTLS),
    st.tuples(st.just("delete"), KEYS, SCOPES),
    st.tuples(st.just("delete all"), KEYS),
    st.tuples(st.just("prune")),
    st.tuples(st.just("clock"), st.sampled_from([1, 999, 1000, 1001, 5000, -1, -2000])),
)


class Model:
    """State as a dictionary: (payload, version, expiry) by key and scope."""

    def __init__(self):
        self.rows = {}
        self.now = NOW
        self.versions = []

    def visible(self, key, scope):
        row = self.rows.get((key, scope))
        return row if row and (row[2] is None or row[2] > self.now) else None

    def wrote(self, key, scope, row, *, payload, expires):
        """Note a write, whose version must be larger than every one before it."""
        assert row.version > max(self.versions, default=0)
        assert (row.payload, row.expires_ms) == (payload, expires)
        self.versions.append(row.version)
        self.rows[key, scope] = (payload, row.version, expires)

    def expiry(self, ttl_ms):
        return self.now + ttl_ms if ttl_ms else None


def apply(model, conn, what, *words):
    if what == "clock":
        model.now += words[0]
    elif what == "prune":
        gone = [k for k, row in model.rows.items() if row[2] is not None and row[2] <= model.now]
        assert state.prune(conn, now_ms=model.now) == len(gone)
        for name in gone:
            del model.rows[name]
    elif what == "delete all":
        names = [name for name in model.rows if name[0] == words[0]]
        count = sum(model.visible(*name) is not None for name in names)
        assert state.delete_all(conn, words[0], now_ms=model.now) == count
        for name in names:
            del model.rows[name]
    elif what == "delete":
        count = 1 if model.visible(*words) else 0
        assert state.delete(conn, *words, now_ms=model.now) == count
        model.rows.pop(words, None)
    else:
        write(model, conn, what, *words)


def write(model, conn, what, *words):
    key, scope, value, ttl_ms = words
    stands = model.visible(key, scope)
    where = {"key": key, "scope": scope, "now_ms": model.now, "ttl_ms": ttl_ms}
    if what == "incr":
        payload = str((int(stands[0]) if stands else 0) + value)
        expires = stands[2] if stands else model.expiry(ttl_ms)
        model.wrote(key, scope, incr(conn, by=value, **where), payload=payload, expires=expires)
        return
    expected = None
    if what == "compare":
        last = model.versions[-1] if model.versions else 0
        expected = {"same": stands[1] if stands else 0, "zero": 0, "stale": last + 9}[value]
        value = "7"
    if expected not in (None, stands[1] if stands else 0):
        with pytest.raises(VersionConflict):
            put(conn, value, if_version=expected, **where)
        return
    row = put(conn, value, if_version=expected, **where)
    model.wrote(key, scope, row, payload=value, expires=model.expiry(ttl_ms))


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(OPERATIONS, max_size=50))
def test_state_behaves_like_a_dictionary_with_a_clock(scratch, operations):
    with scratch() as conn:
        model = Model()
        for operation in operations:
            apply(model, conn, *operation)

            seen = {name for name in model.rows if model.visible(*name)}
            listed = state.by_prefix(conn, "", now_ms=model.now)
            assert [(n.key, n.scope_id) for n in listed] == sorted(seen)
            for key, scope in seen:
                row = get(conn, key=key, scope=scope, now_ms=model.now)
                assert (row.payload, row.version, row.expires_ms) == model.rows[key, scope]


@pytest.mark.sqlite_only
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(scope=st.text(st.characters(exclude_categories=["Cs"])), value=st.text())
def test_any_text_survives_the_database(scratch, scope, value):
    payload = json.dumps(value)

    with scratch() as conn:
        put(conn, payload, scope=scope)
        found = get(conn, scope=scope)

    assert (found.scope_id, found.payload) == (scope, payload)


# --- pages of versions ----------------------------------------------------------------------


def versions(conn, *, after=None, since=0, limit=2, now_ms=NOW):
    return state.versions(conn, "k", after=after, since=since, limit=limit, now_ms=now_ms)


def test_the_versions_of_a_key_come_in_pages(conn):
    for scope in ("a", "b", "c"):
        put(conn, scope=scope)
    put(conn, key="other", scope="x")

    assert versions(conn) == ([("a", 1), ("b", 2)], "b")
    assert versions(conn, after="b") == ([("c", 3)], None)


def test_a_page_is_bounded_by_what_is_read(conn):
    """Rows that expired, or are too old, must not make a page a long one."""
    put(conn, scope="a", ttl_ms=1000)
    put(conn, scope="b", now_ms=NOW - 60_000)
    put(conn, scope="c")

    assert versions(conn, since=NOW // 1000, now_ms=NOW + 1000) == ([], "b")
    assert versions(conn, after="b", since=NOW // 1000, now_ms=NOW + 1000) == ([("c", 3)], None)


def test_a_last_page_that_is_full_is_followed_by_an_empty_one(conn):
    for scope in ("a", "b"):
        put(conn, scope=scope)

    assert versions(conn) == ([("a", 1), ("b", 2)], "b")
    assert versions(conn, after="b") == ([], None)
