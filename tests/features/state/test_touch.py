"""`state touch`: a new expiry for a row, whose payload stays."""

import pytest

from icd.app.invocation import Output
from icd.errors import InvalidTtl
from icd.features.state import store
from icd.values.processes import Writer

NOW = 1_800_000_000_123
ME, YOU = Writer(pid=41, session="me"), Writer(pid=42, session="you")
ROW = {"key": "k", "scope_id": "s"}


def put(conn, *, ttl_ms=0):
    return store.set(conn, "k", "s", '{ "a":1 }', ttl_ms=ttl_ms, writer=ME, now_ms=NOW)


def touch(conn, ttl_ms, *, now_ms=NOW, writer=YOU):
    return store.touch(conn, "k", "s", ttl_ms=ttl_ms, writer=writer, now_ms=now_ms)


@pytest.mark.parametrize("before_ms", [0, 1000, 60_000])
def test_a_row_expires_as_long_from_now_as_was_asked(conn, before_ms):
    put(conn, ttl_ms=before_ms)

    touch(conn, 5000, now_ms=NOW + 500)

    last = store.get(conn, "k", "s", now_ms=NOW + 5499)
    assert last is not None
    assert last.payload == '{ "a":1 }'
    assert store.get(conn, "k", "s", now_ms=NOW + 5500) is None


def test_a_touch_of_zero_takes_the_expiry_away(conn):
    put(conn, ttl_ms=1000)

    assert touch(conn, 0).expires_ms is None
    assert store.get(conn, "k", "s", now_ms=NOW + 10**12) is not None


def test_a_touch_is_a_change_with_a_version_and_a_writer(conn):
    before = put(conn)

    row = touch(conn, 5000)

    assert row == store.get(conn, "k", "s", now_ms=NOW)
    assert row.version == before.version + 1
    assert (row.writer_pid, row.writer_session) == (YOU.pid, YOU.session)


def test_a_row_that_is_not_there_or_has_expired_is_not_brought_back(conn):
    assert touch(conn, 5000) is None
    before = put(conn, ttl_ms=1000)

    assert touch(conn, 5000, now_ms=NOW + 1000) is None
    assert store.get(conn, "k", "s", now_ms=NOW + 1000) is None
    assert put(conn).version == before.version + 1  # no number was taken meanwhile


def test_a_debounced_write_after_a_touch_is_done(ask, recent):
    """Else the row would expire although its writer has just written it."""
    ask("state.set", recent=recent, **ROW, payload="1", debounce_ms=60_000)
    ask("state.touch", recent=recent, **ROW, ttl_ms=5000)

    written = ask("state.set", recent=recent, **ROW, payload="1", debounce_ms=60_000).result

    assert not written.skipped
    assert written.expires_at is None


def test_a_retried_touch_is_done_once(result):
    result("state.set", **ROW, payload="1")

    first = result("state.touch", **ROW, ttl_ms=5000, request_id="r")
    again = result("state.touch", **ROW, ttl_ms=9000, request_id="r2")
    retried = result("state.touch", **ROW, ttl_ms=5000, request_id="r")

    assert retried.version == first.version < again.version


def test_a_life_of_less_than_a_second_is_refused_and_changes_nothing(call, result):
    result("state.set", **ROW, payload="1")

    with pytest.raises(InvalidTtl, match="at least 1 second"):
        call("state.touch", **ROW, ttl_ms=999)

    assert result("state.get", **ROW).expires_at is None


def test_the_command_says_nothing_and_exits_with_1_if_there_is_no_row(ic):
    assert ic("state", "touch", "k", "s", "--ttl=5m") == Output(1)
    ic("state", "set", "k", "s", stdin=b"1")

    assert ic("state", "touch", "k", "s", "--ttl=5m") == Output(0)
    assert b"expires_at\t\n" not in ic("state", "get", "k", "s", "--meta").stdout


def test_the_command_needs_to_be_told_how_long(ic):
    output = ic("state", "touch", "k", "s")

    assert (output.exit, output.stdout) == (3, b"")
    assert b"--ttl" in output.stderr
