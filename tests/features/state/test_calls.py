"""state.*: documents as the API tells them, debouncing, retries."""

import sqlite3
from contextlib import closing

import msgspec
import pytest
from msgspec import Raw

from icd.errors import (
    InvalidName,
    InvalidParams,
    InvalidPayload,
    InvalidTtl,
    NotAnInteger,
    RequestMismatch,
    SecretRefused,
    VersionConflict,
)
from icd.features.state import verbs as state
from icd.features.state.store import Name
from icd.values.processes import Writer
from icd.values.wire import CENTURY_MS, INT64

YOU = Writer(pid=42, session="session-b")
ROW = {"key": "k", "scope_id": "s"}


def put(result, payload="1", **other):
    return result("state.set", payload=payload, **(ROW | other))


def get(result):
    return result("state.get", **ROW)


# --- set and get ----------------------------------------------------------------------------


def test_a_document_tells_everything_that_is_known(result):
    put(result, '{"a": 1}', ttl_ms=1500)

    found = msgspec.json.decode(msgspec.json.encode(get(result)))

    assert found == {
        "key": "k",
        "scope_id": "s",
        "payload": {"a": 1},
        "version": 1,
        "updated_at": 1_800_000_000,
        "updated_at_iso": "2027-01-15T08:00:00Z",
        "expires_at": 1_800_000_002,
        "expires_at_iso": "2027-01-15T08:00:02Z",
        "writer_pid": 41,
        "writer_session": "session-a",
    }


def test_what_is_not_there_is_null(result):
    assert get(result) is None


def test_a_write_tells_version_and_times(result):
    written = put(result)

    assert msgspec.to_builtins(written) == {
        "key": "k",
        "scope_id": "s",
        "version": 1,
        "updated_at": 1_800_000_000,
        "updated_at_iso": "2027-01-15T08:00:00Z",
        "expires_at": None,
        "expires_at_iso": None,
    }


def test_a_payload_is_stored_verbatim_without_the_white_space_around_it(result):
    put(result, ' {"b":1,\n "a" : 2}\n')

    assert bytes(get(result).payload) == b'{"b":1,\n "a" : 2}'


def test_a_row_is_gone_at_the_millisecond_its_ttl_ends(result, still):
    put(result, ttl_ms=1000)

    still.wall_ms += 999
    just_before = get(result)
    still.wall_ms += 1

    assert just_before is not None
    assert get(result) is None


def test_an_expired_row_equals_an_absent_one_for_every_method(result, still):
    put(result, "41", ttl_ms=1000)
    still.wall_ms += 1000

    assert result("state.list", key="k") == []
    assert result("state.list", prefix="") == []
    assert result("state.delete", **ROW).deleted == 0
    put(result, "41", ttl_ms=1000)
    still.wall_ms += 1000
    assert result("state.incr", **ROW).value == 1
    put(result, "41", ttl_ms=1000)
    still.wall_ms += 1000
    assert put(result, "2", if_version=0).version > 0


def test_a_write_over_another_version_is_a_conflict_and_changes_nothing(ask, result):
    put(result, "1")

    answer = ask("state.set", payload="2", if_version=7, **ROW)

    assert isinstance(answer.error, VersionConflict)
    assert (answer.error.exit, bytes(get(result).payload)) == (1, b"1")


@pytest.mark.parametrize("ttl_ms, fits", [(0, True), (1, False), (999, False), (1000, True)])
@pytest.mark.parametrize("method", ["state.set", "state.incr"])
def test_a_ttl_is_at_least_one_second(call, method, ttl_ms, fits):
    params = {"payload": "1"} if method == "state.set" else {}

    if fits:
        assert call(method, ttl_ms=ttl_ms, **ROW, **params).params.ttl_ms == ttl_ms
    else:
        with pytest.raises(InvalidTtl, match=rf"at least 1 second \(got {ttl_ms}ms\)"):
            call(method, ttl_ms=ttl_ms, **ROW, **params)


@pytest.mark.parametrize("method", ["state.set", "state.get", "state.delete", "state.incr"])
@pytest.mark.parametrize("row", [{"key": "K", "scope_id": "s"}, {"key": "k", "scope_id": "a\tb"}])
def test_names_are_judged_before_anything_is_locked(call, method, row):
    params = {"payload": "1"} if method == "state.set" else {}

    with pytest.raises(InvalidName):
        call(method, **row, **params)


@pytest.mark.parametrize(
    "payload, kind", [("{", InvalidPayload), ('"pass' + 'word=hunter2x"', SecretRefused)]
)
def test_payloads_are_judged_before_anything_is_locked(call, payload, kind):
    with pytest.raises(kind):
        call("state.set", payload=payload, **ROW)


TOO_LONG = {"ttl_ms": CENTURY_MS + 1}


@pytest.mark.parametrize(
    "other", [{"ttl_ms": -1}, TOO_LONG, {"if_version": -1}, {"if_version": INT64}, {"new": 1}]
)
@pytest.mark.parametrize("kind", ["state.set", "state.incr"])
def test_numbers_out_of_bounds_are_refused_by_their_type(kind, other):
    types = {"state.set": (state.Set, {"payload": 1}), "state.incr": (state.Incr, {})}
    params, more = types[kind]

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({**ROW, **more, **other}), type=params)


@pytest.mark.parametrize("by, fits", [(INT64 - 1, True), (-INT64, True), (INT64, False)])
def test_an_increment_is_a_64_bit_integer(by, fits):
    raw = msgspec.json.encode({**ROW, "by": by})

    if fits:
        assert msgspec.json.decode(raw, type=state.Incr).by == by
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(raw, type=state.Incr)


def test_the_payload_of_a_request_arrives_as_it_was_written():
    raw = b'{"key":"k","scope_id":"s","payload":{ "a" : 1, "a":2 }}'

    assert bytes(msgspec.json.decode(raw, type=state.Set).payload) == b'{ "a" : 1, "a":2 }'


# --- incr, delete, list, prune --------------------------------------------------------------


def test_a_counter_tells_its_value(result):
    values = [result("state.incr", by=by, **ROW).value for by in (1, 41)]

    assert values == [1, 42]


def test_a_counter_at_zero_tells_zero(result):
    assert result("state.incr", by=0, **ROW).value == 0


def test_what_is_not_an_integer_is_an_error_and_stays(ask, result):
    put(result, '"text"')

    answer = ask("state.incr", **ROW)

    assert isinstance(answer.error, NotAnInteger)
    assert bytes(get(result).payload) == b'"text"'


def test_a_deletion_tells_how_many(result):
    for scope in ("a", "b", "s"):
        put(result, scope_id=scope)

    counts = [
        result("state.delete", **ROW).deleted,
        result("state.delete", **ROW).deleted,
        result("state.delete_all", key="k").deleted,
    ]

    assert counts == [1, 0, 2]


def test_a_list_is_by_key_or_by_prefix(result):
    for key in ("k", "k.a", "l"):
        put(result, key=key)

    assert result("state.list", key="k") == [Name("k", "s")]
    assert result("state.list", prefix="k") == [Name("k", "s"), Name("k.a", "s")]
    assert len(result("state.list", prefix="")) == 3


@pytest.mark.parametrize(
    "params", [{"key": "k", "prefix": "k"}, {"key": "K"}, {"prefix": "K"}, {"key": ""}]
)
def test_a_list_wants_at_most_one_of_both(call, params):
    with pytest.raises(InvalidName):
        call("state.list", **params)


def test_a_deletion_of_all_wants_a_key(call):
    with pytest.raises(InvalidName):
        call("state.delete_all", key="")


def test_a_prune_tells_how_many(result, still):
    put(result, ttl_ms=1000)
    still.wall_ms += 1000

    assert [result("state.prune").pruned for _ in range(2)] == [1, 0]


# --- asking again with the same id ----------------------------------------------------------


def test_a_write_that_is_asked_again_is_not_done_again(result):
    first = put(result, "1", request_id="r1")
    put(result, "2")

    again = put(result, "1", request_id="r1")

    assert again == first
    assert bytes(get(result).payload) == b"2"


def test_a_count_that_is_asked_again_is_not_counted_again(result):
    values = [result("state.incr", request_id="r1", **ROW).value for _ in range(3)]

    assert values == [1, 1, 1]
    assert bytes(get(result).payload) == b"1"


def test_a_deletion_that_is_asked_again_is_told_the_same(result):
    put(result)
    first = result("state.delete", request_id="r1", **ROW)
    put(result)

    again = result("state.delete", request_id="r1", **ROW)

    assert (first.deleted, again.deleted) == (1, 1)
    assert get(result) is not None


def test_a_deletion_of_all_that_is_asked_again_is_told_the_same(result):
    put(result)

    counts = [result("state.delete_all", key="k", request_id="r1").deleted for _ in range(2)]

    assert counts == [1, 1]


@pytest.mark.parametrize(
    "other",
    [
        {"payload": "2"},
        {"scope_id": "t"},
        {"key": "l"},
        {"ttl_ms": 1000},
        {"if_version": 0},
        {"debounce_ms": 5},
    ],
)
def test_an_id_that_stood_for_another_write_is_a_mismatch(ask, result, other):
    put(result, "1", request_id="r1")

    answer = ask("state.set", request_id="r1", **({"payload": "1"} | ROW | other))

    assert isinstance(answer.error, RequestMismatch)


def test_an_id_that_stood_for_another_method_is_a_mismatch(ask, result):
    result("state.incr", request_id="r1", **ROW)

    answer = ask("state.delete", request_id="r1", **ROW)

    assert isinstance(answer.error, RequestMismatch)
    assert bytes(get(result).payload) == b"1"


def test_a_retry_with_less_time_left_is_the_same_call(result):
    first = result("state.incr", request_id="r1", deadline_ms=5000, **ROW)
    again = result("state.incr", request_id="r1", deadline_ms=4000, session="x", **ROW)

    assert (first.value, again.value) == (1, 1)


def test_a_write_that_failed_leaves_its_id_free(ask, result):
    put(result, '"text"')
    failed = ask("state.incr", request_id="r1", **ROW)
    put(result, "1")

    again = result("state.incr", request_id="r1", **ROW)

    assert isinstance(failed.error, NotAnInteger)
    assert again.value == 2


def test_an_empty_id_is_no_id(result):
    values = [result("state.incr", request_id="", **ROW).value for _ in range(2)]

    assert values == [1, 2]


# --- debouncing -----------------------------------------------------------------------------


@pytest.fixture
def debounced(ask, recent):
    """Write with a window of two seconds; hand out whether it was skipped."""

    def write(payload="1", **other):
        answer = ask("state.set", payload=payload, debounce_ms=2000, recent=recent, **(ROW | other))
        assert answer.error is None
        return answer.result.skipped

    return write


def test_an_unchanged_write_inside_the_window_is_skipped(debounced, result, still):
    first = debounced()
    still.seconds += 1.999
    still.wall_ms += 1999

    second = debounced()

    assert (first, second) == (False, True)
    assert get(result).version == 1


def test_a_skipped_write_is_answered_with_the_row_that_stands(ask, recent, debounced):
    debounced()

    answer = ask("state.set", payload="1", debounce_ms=2000, recent=recent, **ROW)

    assert msgspec.to_builtins(answer.result) == {
        "key": "k",
        "scope_id": "s",
        "version": 1,
        "updated_at": 1_800_000_000,
        "updated_at_iso": "2027-01-15T08:00:00Z",
        "expires_at": None,
        "expires_at_iso": None,
        "skipped": True,
    }


def test_after_the_window_an_unchanged_write_is_done(debounced, still):
    debounced()
    still.seconds += 2.0

    assert not debounced()


def test_skipped_writes_do_not_prolong_the_window(debounced, still):
    debounced()
    still.seconds += 1.5
    debounced()
    still.seconds += 0.5

    assert not debounced()


def test_a_changed_payload_is_written(debounced, result):
    debounced("1")

    assert not debounced("2")
    assert bytes(get(result).payload) == b"2"


def test_another_writer_is_never_skipped(debounced, result):
    debounced()

    assert not debounced(writer=YOU)
    assert get(result).writer_pid == 42


def test_after_another_writer_the_first_one_is_not_skipped_either(debounced):
    debounced()
    debounced(writer=YOU)

    assert not debounced()


BETWEEN = {
    "another payload": ("state.set", {"payload": "2", **ROW}),
    "a ttl": ("state.set", {"payload": "1", "ttl_ms": 1000, **ROW}),
    "a compare-and-set": ("state.set", {"payload": "2", "if_version": 1, **ROW}),
    "a deletion": ("state.delete", ROW),
    "a deletion of all": ("state.delete_all", {"key": "k"}),
    "a count": ("state.incr", ROW),
}


@pytest.mark.parametrize("method, params", BETWEEN.values(), ids=BETWEEN)
def test_what_changed_meanwhile_is_written_again(ask, recent, debounced, result, *, method, params):
    debounced()
    ask(method, recent=recent, **params)

    skipped = debounced()

    assert not skipped
    assert bytes(get(result).payload) == b"1"


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM state", "UPDATE state SET payload = '2'", "INSERT INTO counters VALUES ('x', 1)"],
)
def test_what_another_program_did_meanwhile_is_noticed(database, debounced, result, statement):
    debounced()
    with closing(sqlite3.connect(database.path, isolation_level=None)) as stranger:
        stranger.execute(statement)

    skipped = debounced()

    assert not skipped
    assert bytes(get(result).payload) == b"1"


def test_a_row_that_a_ttl_write_made_expire_is_written_again(ask, recent, debounced, result, still):
    debounced()
    ask("state.set", payload="1", ttl_ms=1000, recent=recent, **ROW)
    still.wall_ms += 1000
    ask("state.prune", recent=recent)

    assert not debounced()
    assert get(result) is not None


def test_without_a_memory_every_write_is_done(result):
    versions = [put(result, debounce_ms=2000).version for _ in range(2)]

    assert versions == [1, 2]


def test_without_a_window_every_write_is_done(ask, recent):
    answers = [ask("state.set", payload="1", recent=recent, **ROW) for _ in range(2)]

    assert [answer.result.version for answer in answers] == [1, 2]


@pytest.mark.parametrize("other", [{"ttl_ms": 1000}, {"if_version": 0}])
def test_a_window_goes_with_neither_ttl_nor_version(call, other):
    with pytest.raises(InvalidParams, match="debounce cannot be combined"):
        call("state.set", payload="1", debounce_ms=5, **ROW, **other)


def test_a_skipped_write_leaves_its_id_free(ask, recent, debounced, conn):
    debounced()
    ask("state.set", payload="1", debounce_ms=2000, request_id="r1", recent=recent, **ROW)

    assert conn.execute("SELECT count(*) FROM requests").fetchone() == (0,)


def test_a_write_that_failed_after_all_is_not_remembered(conn, call, batch, recent, result):
    """A neighbour in the same batch keeps the transaction alive; only the savepoint is undone."""
    conn.execute("CREATE TRIGGER no BEFORE INSERT ON requests BEGIN SELECT RAISE(ABORT, 'no'); END")
    lost = call("state.set", payload="1", request_id="r1", **ROW)
    neighbour = call("state.set", key="other", scope_id="s", payload="1")

    failed, fine = batch(lost, neighbour, recent=recent)
    again = batch(call("state.set", payload="1", debounce_ms=2000, **ROW), recent=recent)[0]

    assert failed.error is not None
    assert fine.error is None
    assert not again.result.skipped
    assert bytes(get(result).payload) == b"1"


def test_a_raw_payload_is_what_the_api_hands_out(result):
    put(result, "[1,  2]")

    assert isinstance(get(result).payload, Raw)


# --- secrets --------------------------------------------------------------------------------

TOKEN = "gh" + "p_" + "Abcdefghij0123456789ABCDEFGHIJ"


@pytest.mark.parametrize("method", ["state.set", "state.incr"])
@pytest.mark.parametrize(
    "row",
    [{"key": "k", "scope_id": TOKEN}, {"key": TOKEN, "scope_id": "s"}],
    ids=["scope", "key"],
)
def test_a_secret_is_no_name_of_a_row_that_is_written(ask, method, row):
    payload = {"payload": "1"} if method == "state.set" else {}

    with pytest.raises(SecretRefused) as refused:
        ask(method, **row, **payload)

    assert TOKEN not in refused.value.message


def test_a_session_id_is_a_scope(result):
    scope = "550e8400-e29b-41d4-a716-446655440000"

    assert result("state.set", key="k", scope_id=scope, payload="1").version == 1


# --- a retry after a step of the clock ------------------------------------------------------

DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("days", [[1], [400], [1, 1], [-1, 1]], ids=str)
def test_a_retried_increment_is_executed_once_although_the_clock_was_set(result, still, days):
    result("state.incr", **ROW, request_id="mine")

    for number, step in enumerate(days):
        still.wall_ms += step * DAY_MS
        for other in range(5):
            result("state.incr", key="other", scope_id="s", request_id=f"{number} {other}")
    again = result("state.incr", **ROW, request_id="mine")

    assert again.value == 1
    assert result("state.incr", **ROW, request_id="next").value == 2
