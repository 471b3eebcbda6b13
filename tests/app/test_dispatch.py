"""THE dispatcher: one transaction for many calls, and no call pays for its neighbour."""

import gc
import os
import re
import shutil
import sqlite3
import time
import weakref
from contextlib import closing

import pytest

from icd import config
from icd.app import dispatch
from icd.app.call import Params
from icd.app.dispatch import Clock, run_batch
from icd.app.verb import Method, Runs, Writes
from icd.db import lock
from icd.db.database import BATCH_SECONDS, Database
from icd.db.paths import Where
from icd.errors import (
    Corrupt,
    DeadlineExceeded,
    DiskFull,
    IcError,
    InputOutput,
    Internal,
    Locked,
    LogLost,
    NoDatabase,
    NotAnInteger,
    PermissionRefused,
    SymlinkRefused,
)
from icd.features.state import store as state
from tests.support.processes import PATIENCE

ROW = {"key": "k", "scope_id": "s"}


class Nothing(Params):
    pass


def method(run, *, writes=True, result=str):
    """A verb that exists in a test only."""
    return Method("test.verb", Nothing, result, run, writes=Writes() if writes else None)


def raising(exc, *, writes=True):
    def run(ctx, _params):
        if writes:
            ctx.conn.execute("INSERT INTO counters VALUES ('half done', 1)")
        raise exc

    return method(run, writes=Writes() if writes else None)


def count(conn, name="half done"):
    return conn.execute("SELECT count(*) FROM counters WHERE name = ?", (name,)).fetchone()[0]


@pytest.fixture
def incr(call):
    """A call that counts; whoever counts twice is seen."""

    def made(scope="s", **other):
        return call("state.incr", key="k", scope_id=scope, **other)

    return made


@pytest.fixture
def put(call):
    def made(payload="1", scope="s", **other):
        return call("state.set", key="k", scope_id=scope, payload=payload, **other)

    return made


@pytest.fixture
def value(result):
    """What a scope of the key k holds."""

    def found(scope="s"):
        row = result("state.get", key="k", scope_id=scope)
        return row and bytes(row.payload).decode()

    return found


@pytest.fixture
def stranger(database):
    """Another program's connection to the same file."""
    with closing(sqlite3.connect(database.path, isolation_level=None, timeout=0)) as conn:
        yield conn


@pytest.fixture
def other_holder(database):
    """Somebody else who holds the database's lock."""
    held = lock.FileLock(database.path + ".lock", lock.poll)
    held.acquire(time.monotonic() + 5)
    yield held
    held.close()


@pytest.fixture
def made(project):
    """Databases of a test beside the usual one, with the words of a caller who means them."""
    found = []

    def database(name, *, create=True):
        found.append(Database(str(project / name), config.DEFAULTS))
        if create:
            with found[-1].hold(time.monotonic() + 5, create=True):
                found[-1].connection(create=True)
        return found[-1], Where(str(project), name)

    yield database
    for each in found:
        each.close()
        each.lock.close()


# --- the ordinary case ----------------------------------------------------------------------


def test_calls_are_answered_in_their_order(batch, incr):
    answers = batch(*(incr() for _ in range(5)))

    assert [answer.result.value for answer in answers] == [1, 2, 3, 4, 5]


def test_a_call_sees_what_the_one_before_it_wrote(batch, put, call):
    _, read = batch(put("7"), call("state.get", **ROW))

    assert bytes(read.result.payload) == b"7"


def test_a_batch_is_committed_when_it_is_answered(batch, put, stranger):
    batch(put("7"), put("8", "t"))

    rows = stranger.execute("SELECT payload FROM state ORDER BY scope_id").fetchall()
    assert rows == [("7",), ("8",)]


def test_a_batch_of_nothing_is_nothing(batch):
    assert batch() == []


def test_the_lock_is_free_again_after_a_batch(batch, put, database):
    batch(put())

    other = lock.FileLock(database.path + ".lock", lock.poll)
    other.acquire(time.monotonic())
    other.close()


def test_the_clock_is_read_once_the_lock_is_held(batch, put, still, result):
    still.wall_ms = 5_000
    batch(put())

    assert result("state.get", **ROW).updated_at == 5


# --- a failing call among neighbours --------------------------------------------------------


def test_a_failing_call_fails_alone(batch, incr, put, call, value):
    batch(put('"text"', "bad"))

    answers = batch(incr("a"), incr("bad"), incr("b"))

    assert [type(answer.error) for answer in answers] == [type(None), NotAnInteger, type(None)]
    assert [value("a"), value("bad"), value("b")] == ["1", '"text"', "1"]


@pytest.mark.parametrize(
    "exc",
    [StopIteration(), ValueError("x"), RuntimeError("x"), AssertionError(), KeyError("k")],
    ids=lambda exc: type(exc).__name__,
)
@pytest.mark.parametrize("writes", [True, False])
def test_whatever_a_method_raises_is_an_internal_error_of_that_call(
    batch, call, incr, conn, value, *, exc, writes
):
    first, bad, last = batch(incr("a"), call(raising(exc, writes=writes)), incr("b"))

    assert (first.error, last.error) == (None, None)
    assert isinstance(bad.error, Internal)
    assert re.fullmatch(r"internal error, reference [0-9a-f]{8}", bad.error.message)
    assert bad.error.__cause__ is exc
    assert [value("a"), value("b"), count(conn)] == ["1", "1", 0]


@pytest.mark.parametrize("neighbours", [0, 1], ids=["alone", "among others"])
@pytest.mark.parametrize("kind", [NotAnInteger, sqlite3.OperationalError, ValueError])
def test_an_error_is_forgotten_once_it_was_told(batch, call, incr, kind, neighbours):
    """It held the frames that it had passed, and these its answer: 5 KB of every refused call."""

    def run(_ctx, _params):
        raise kind("x")

    answers = batch(call(method(run)), *[incr("a")] * neighbours)
    told = weakref.ref(answers[0].error)
    assert told() is not None

    del answers
    gc.collect()

    assert told() is None


@pytest.mark.parametrize("exc", [StopIteration(), ValueError("x")], ids=["StopIteration", "other"])
def test_a_method_that_raises_alone_leaves_nothing_behind(batch, call, conn, exc):
    (answer,) = batch(call(raising(exc)))

    assert isinstance(answer.error, Internal)
    assert count(conn) == 0
    assert not conn.in_transaction


def test_references_of_internal_errors_differ(batch, call):
    bad = [call(raising(ValueError())) for _ in range(3)]

    messages = {answer.error.message for answer in batch(*bad)}

    assert len(messages) == 3


def test_a_method_that_ends_the_transaction_itself_fails_nobody_else(batch, call, incr, value):
    def rolls_back(ctx, _params):
        ctx.conn.execute("ROLLBACK")
        raise ValueError("and says so")

    first, bad, last = batch(incr("a"), call(method(rolls_back)), incr("b"))

    assert isinstance(bad.error, Internal)
    assert [first.result.value, last.result.value] == [1, 1]
    assert [value("a"), value("b")] == ["1", "1"]


# --- a full disk ----------------------------------------------------------------------------


@pytest.fixture
def nearly_full(conn, batch, put):
    """A database that cannot grow by a single page."""
    batch(put("0", "a"), put("0", "b"))
    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    conn.execute(f"PRAGMA max_page_count = {pages}")


LARGE = '"' + "x" * 90_000 + '"'


def test_a_full_disk_in_the_middle_fails_the_large_call_only(nearly_full, batch, incr, put, value):
    first, large, last = batch(incr("a"), put(LARGE, "large"), incr("b"))

    assert isinstance(large.error, DiskFull)
    assert (large.error.name, large.error.exit) == ("disk_full", 2)
    assert [first.result.value, last.result.value] == [1, 1]
    assert [value("a"), value("b"), value("large")] == ["1", "1", None]


def test_a_full_disk_leaves_nothing_half_done(nearly_full, batch, incr, put, conn):
    before = conn.execute("SELECT value FROM counters WHERE name = 'state'").fetchone()[0]

    batch(incr("a"), put(LARGE, "large", request_id="r1"), incr("b"))

    after = conn.execute("SELECT value FROM counters WHERE name = 'state'").fetchone()[0]
    assert after == before + 2
    assert conn.execute("SELECT count(*) FROM requests").fetchone() == (0,)
    assert not conn.in_transaction


def test_a_full_disk_fails_a_lone_call_with_its_name(nearly_full, batch, put, value):
    (answer,) = batch(put(LARGE, "large"))

    assert isinstance(answer.error, DiskFull)
    assert value("large") is None


def test_several_calls_that_do_not_fit_fail_each_for_itself(nearly_full, batch, put, incr, value):
    answers = batch(put(LARGE, "x"), incr("a"), put(LARGE, "y"), incr("b"))

    assert [type(answer.error) for answer in answers] == [
        DiskFull,
        type(None),
        DiskFull,
        type(None),
    ]
    assert [value("a"), value("b")] == ["1", "1"]


def test_after_a_full_disk_no_debounced_write_is_taken_for_done(
    nearly_full, batch, put, recent, value
):
    batch(put("1", "a"), put(LARGE, "large"), recent=recent)
    (answer,) = batch(put("1", "a", debounce_ms=60_000), recent=recent)

    assert answer.error is None
    assert value("a") == "1"


# --- a commit that fails --------------------------------------------------------------------


@pytest.fixture
def orphan(conn):
    """A verb whose mistake is noticed at the commit only."""
    conn.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    conn.execute(
        "CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)"
    )

    def run(ctx, _params):
        ctx.conn.execute("INSERT INTO children VALUES (7)")
        return "done"

    return method(run)


def test_a_commit_that_fails_fails_the_guilty_call_only(batch, call, incr, orphan, *, conn, value):
    first, guilty, last = batch(incr("a"), call(orphan), incr("b"))

    assert isinstance(guilty.error, Internal)
    assert [first.result.value, last.result.value] == [1, 1]
    assert [value("a"), value("b")] == ["1", "1"]
    assert conn.execute("SELECT count(*) FROM children").fetchone() == (0,)


def test_a_commit_that_fails_alone_is_told(batch, call, orphan, conn):
    (guilty,) = batch(call(orphan))

    assert isinstance(guilty.error, Internal)
    assert conn.execute("SELECT count(*) FROM children").fetchone() == (0,)
    assert not conn.in_transaction


@pytest.mark.parametrize("kind", [MemoryError, ValueError])
@pytest.mark.parametrize("calls", [1, 2])
def test_what_goes_wrong_after_the_commit_takes_no_answer_back(
    batch, incr, value, *, database, monkeypatch, kind, calls
):
    """Else a caller would be told to try again what is done."""
    remember = database._remember

    def fail():
        remember()
        raise kind

    batch(incr())
    database.batch_seconds = PATIENCE
    monkeypatch.setattr(database, "_remember", fail)
    answers = batch(*(incr() for _ in range(calls)))
    monkeypatch.undo()
    database.lock.release()

    assert [answer.error for answer in answers] == [None] * calls
    assert value() == str(1 + calls)


def test_a_commit_that_fails_keeps_no_memory_of_its_writes(
    batch, call, orphan, put, *, recent, value
):
    batch(put("1"), call(orphan), recent=recent)
    (answer,) = batch(put("1", debounce_ms=60_000), recent=recent)

    assert answer.error is None
    assert value() == "1"


# --- deadlines and the budget ---------------------------------------------------------------


def test_a_call_past_its_deadline_is_answered_and_not_executed(batch, incr, still, value):
    late, in_time = batch(incr("late", deadline=still.seconds - 1), incr("in time"))

    assert isinstance(late.error, DeadlineExceeded)
    assert late.error.retryable
    assert in_time.result.value == 1
    assert value("late") is None


def test_a_deadline_of_now_has_passed(batch, incr, still):
    (answer,) = batch(incr(deadline=still.seconds))

    assert isinstance(answer.error, DeadlineExceeded)


def test_when_all_are_late_nothing_is_locked(batch, incr, still, other_holder):
    answers = batch(incr(deadline=still.seconds - 1), incr(deadline=still.seconds - 2))

    assert [type(answer.error) for answer in answers] == [DeadlineExceeded] * 2


def test_a_write_that_is_late_does_not_make_reads_wait_for_another_writer(once, call, stranger):
    stranger.execute("BEGIN IMMEDIATE")
    now = time.monotonic()
    late = call("state.delete", key="k", scope_id="s", deadline=now - 1)
    reads = [call("state.list", key="k", deadline=now + 0.5 * i) for i in (1, 20)]

    answers = once(late, *reads)

    assert isinstance(answers[0].error, DeadlineExceeded)
    assert [answer.error for answer in answers[1:]] == [None, None]


def works_long(_ctx, _params):
    until = time.monotonic() + BATCH_SECONDS * 1.5
    while time.monotonic() < until:
        pass
    return "done"


def test_after_enough_work_the_rest_is_left_for_the_next_batch(once, call, incr, value):
    slow, *rest = once(call(method(works_long)), incr("a"), incr("b"))

    assert slow.result == "done"
    assert rest == [None, None]
    assert [value("a"), value("b")] == [None, None]


def test_what_was_done_before_the_rest_is_left_is_committed(once, call, incr, value):
    def works_long_and_writes(ctx, params):
        state.set(ctx.conn, "k", "s", "7", writer=ctx.writer, now_ms=ctx.now_ms)
        return works_long(ctx, params)

    once(call(method(works_long_and_writes)), incr("a"))

    assert value() == "7"


def test_a_batch_of_one_is_never_left_for_later(once, call):
    (answer,) = once(call(method(works_long)))

    assert answer.result == "done"


# --- the lock -------------------------------------------------------------------------------


@pytest.mark.timeout(60, method="thread")
def test_who_waits_for_the_lock_in_vain_hears_who_holds_it(database, incr, clock, other_holder):
    call = incr(deadline=time.monotonic() + 0.05)

    (answer,) = run_batch(database, [call], clock=clock)

    assert isinstance(answer.error, Locked)
    assert f"process {os.getpid()} " in answer.error.message


@pytest.mark.timeout(60, method="thread")
def test_who_has_more_time_is_left_for_the_next_batch(database, incr, clock, other_holder):
    hurried, patient = incr(deadline=time.monotonic() + 0.05), incr()

    answers = run_batch(database, [hurried, patient], clock=clock)

    assert isinstance(answers[0].error, Locked)
    assert answers[1] is None


def test_a_batch_of_reads_does_not_wait_for_a_writer(batch, put, call, stranger):
    batch(put("7"))
    stranger.execute("BEGIN IMMEDIATE")
    read = call("state.get", **ROW)

    answers = batch(read, call("state.list", key="k"), read)

    assert [answer.error for answer in answers] == [None] * 3
    assert bytes(answers[0].result.payload) == b"7"


@pytest.mark.parametrize("calls", [1, 2])
def test_while_reads_run_another_program_may_write(batch, call, stranger, calls):
    def writes_meanwhile(_ctx, _params):
        stranger.execute("INSERT INTO counters VALUES (random(), 1)")
        return "done"

    answers = batch(*[call(method(writes_meanwhile, writes=False))] * calls)

    assert [answer.result for answer in answers] == ["done"] * calls


def test_a_lone_read_does_not_wait_for_a_writer(batch, put, call, stranger):
    batch(put("7"))
    stranger.execute("BEGIN IMMEDIATE")

    (answer,) = batch(call("state.get", **ROW))

    assert bytes(answer.result.payload) == b"7"


def test_a_program_that_ignores_the_lock_makes_a_write_fail_by_name(batch, put, conn, stranger):
    conn.execute("PRAGMA busy_timeout = 1")
    stranger.execute("BEGIN IMMEDIATE")

    soon = time.monotonic() + 0.2
    answers = batch(put("1", "a", deadline=soon), put("2", "b", deadline=soon + 0.2))

    assert [type(answer.error) for answer in answers] == [Locked, Locked]
    assert "does not use intercore" in answers[0].error.message


# --- a database that moved ------------------------------------------------------------------


def test_a_caller_whose_database_is_another_by_now_is_told_so(batch, incr, project, value):
    sub = project / "sub"
    (sub / ".clavain").mkdir(parents=True)
    (sub / ".clavain" / "intercore.db").write_text("another one" * 8192)

    moved, here = batch(incr("moved", where=Where(str(sub))), incr("here"))

    assert moved.moved
    assert (moved.result, moved.error) == (None, None)
    assert here.result.value == 1
    assert value("moved") is None


def test_a_caller_without_a_database_is_told_so(batch, incr, tmp_path):
    nowhere, here = batch(incr(where=Where(str(tmp_path))), incr())

    assert isinstance(nowhere.error, NoDatabase)
    assert here.result.value == 1


def test_when_nobody_means_this_database_nothing_runs(batch, incr, tmp_path, conn):
    where = Where(str(tmp_path))

    answers = batch(incr(where=where), incr(where=where))

    assert [type(answer.error) for answer in answers] == [NoDatabase, NoDatabase]
    assert conn.execute("SELECT count(*) FROM state").fetchone() == (0,)


def test_a_database_that_was_deleted_is_no_database(batch, incr, database):
    for suffix in ("", "-wal", "-shm"):
        os.unlink(database.path + suffix)

    answers = batch(incr(), incr())

    assert [type(answer.error) for answer in answers] == [NoDatabase, NoDatabase]
    assert not os.path.exists(database.path)


def test_a_directory_that_was_deleted_is_no_database(incr, still, made, project):
    database, where = made("data/x.db")
    shutil.rmtree(project / "data")

    (answer,) = run_batch(database, [incr(where=where)], clock=still)

    assert isinstance(answer.error, NoDatabase)
    assert not (project / "data").exists()


def test_a_database_that_was_replaced_is_asked_in_its_new_shape(batch, put, database, value, conn):
    batch(put("1"))
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = database.path + ".copy"
    shutil.copyfile(database.path, copy)
    batch(put("2"))
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    os.replace(copy, database.path)
    (told,) = batch(put("3"))

    assert isinstance(told.error, LogLost)
    assert value() == "1"
    assert database.reopened == 1


def test_a_database_that_was_replaced_forgets_what_was_debounced(
    batch, put, database, *, conn, recent, value
):
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = database.path + ".copy"
    shutil.copyfile(database.path, copy)
    batch(put("1"), recent=recent)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.replace(copy, database.path)
    (told,) = batch(put("1", debounce_ms=60_000), recent=recent)
    assert isinstance(told.error, LogLost)

    (answer,) = batch(put("1", debounce_ms=60_000), recent=recent)

    assert not answer.result.skipped
    assert value() == "1"


def test_a_database_whose_directory_became_a_link_is_refused(batch, put, project, tmp_path):
    os.rename(project / ".clavain", tmp_path / "elsewhere")
    (project / ".clavain").symlink_to(tmp_path / "elsewhere")

    (answer,) = batch(put("1"))

    assert isinstance(answer.error, SymlinkRefused)


@pytest.mark.parametrize("method", ["state.get", "state.incr"])
def test_an_empty_file_is_no_database(call, still, made, project, method):
    (project / "empty.db").touch()
    database, where = made("empty.db", create=False)

    (answer,) = run_batch(database, [call(method, where=where, **ROW)], clock=still)

    assert isinstance(answer.error, NoDatabase)


def test_init_is_not_turned_away(call, still, made):
    database, where = made("deep/x.db", create=False)
    init = call("db.init", where=where)
    write = call("state.incr", where=where, **ROW)

    created, written = run_batch(database, [init, write], clock=still)

    assert created.result.path == database.path
    assert written.result.value == 1


# --- asking again ---------------------------------------------------------------------------


def test_a_retry_in_the_same_batch_is_answered_once(batch, incr, value):
    first, again = batch(incr(request_id="r1"), incr(request_id="r1"))

    assert (first.result, again.result.value) == (again.result, 1)
    assert value() == "1"


def test_a_retry_after_the_shared_transaction_was_lost_is_executed_once(
    nearly_full, batch, incr, put, value
):
    answers = batch(incr("a", request_id="r1"), put(LARGE, "large"), incr("a", request_id="r1"))

    assert [answers[0].result.value, answers[2].result.value] == [1, 1]
    assert value("a") == "1"


# --- verbose --------------------------------------------------------------------------------


def test_a_verbose_call_tells_waits_statements_and_time(batch, incr):
    (answer,) = batch(incr(verbose=True))

    assert re.fullmatch(r"lock: waited \d+\.\d{3} ms", answer.trace[0])
    assert re.fullmatch(r"time: \d+\.\d{3} ms", answer.trace[-1])
    statements = answer.trace[1:-1]
    assert all(line.startswith("sql: ") for line in statements)
    assert any("INSERT INTO state" in line for line in statements)


def test_a_trace_is_one_line_a_statement_and_not_too_long(batch, put):
    (answer,) = batch(put('"' + "x" * 5000 + '"', verbose=True))

    assert all("\n" not in line and len(line) <= 505 for line in answer.trace)


def test_nobody_else_is_traced(batch, incr):
    quiet, verbose, after = batch(incr(), incr(verbose=True), incr())

    assert [bool(answer.trace) for answer in (quiet, verbose, after)] == [False, True, False]


def test_a_verbose_call_that_fails_leaves_no_trace_to_others(batch, call, incr):
    bad = call(raising(ValueError()), verbose=True)

    failed, after = batch(bad, incr())

    assert isinstance(failed.error, Internal)
    assert not after.trace


# --- the error map --------------------------------------------------------------------------


def test_an_error_of_ours_is_told_as_it_is():
    error = NotAnInteger("no")

    assert dispatch.failure(error) is error


@pytest.mark.parametrize(
    "exc, kind",
    [
        (PermissionError(13, "Permission denied"), PermissionRefused),
        (OSError(28, "No space left on device"), DiskFull),
        (OSError(5, "Input/output error"), InputOutput),
        (ValueError("x"), Internal),
        (sqlite3.ProgrammingError("x"), Internal),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_any_exception_becomes_an_error_that_remembers_its_cause(exc, kind):
    error = dispatch.failure(exc)

    assert type(error) is kind
    assert isinstance(error, IcError)
    assert error.__cause__ is exc


def test_a_database_that_cannot_be_opened_answers_everybody_with_the_reason(
    call, still, made, project
):
    (project / "x.db").write_bytes(b"not a database" * 100)
    database, where = made("x.db", create=False)
    read = call("state.get", where=where, **ROW)

    answers = run_batch(database, [read, read], clock=still)

    assert [answer.error.name for answer in answers] == ["corrupt", "corrupt"]


# --- the database as a whole ----------------------------------------------------------------


def whole(run):
    return Method("test.whole", Nothing, str, run, runs=Runs(whole=True))


def test_a_call_on_the_whole_database_is_a_batch_of_its_own(call, once, incr):
    seen = []

    def look(given, _params):
        seen.append(given.database.connection().in_transaction)
        return "looked"

    calls = [incr(), call(whole(look)), incr()]

    first = once(*calls)
    second = once(*calls[1:])
    third = once(*calls[2:])

    assert [bool(answer) for answer in first] == [True, False, False]
    assert [answer and answer.result for answer in second] == ["looked", None]
    assert third[0].error is None
    assert seen == [False]


def test_a_call_on_the_whole_database_is_told_its_deadline(call, once):
    soon = time.monotonic() + 30

    (answer,) = once(call(whole(lambda given, _: given.deadline), deadline=soon))

    assert answer.result == soon


def test_a_call_on_the_whole_database_fails_alone(call, once):
    def fail(_given, _params):
        raise KeyError

    (answer,) = once(call(whole(fail)))

    assert isinstance(answer.error, Internal)


def test_a_caller_of_another_database_is_not_given_this_one(call, once, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".git").mkdir()

    (answer,) = once(call(whole(lambda _given, _: "never"), where=Where(str(elsewhere))))

    assert isinstance(answer.error, NoDatabase)


def test_a_database_that_shows_damage_is_closed(call, once, database):
    def read(ctx, _params):
        raise Corrupt("the database file is damaged")

    (answer,) = once(call(method(read, writes=False)))

    assert isinstance(answer.error, Corrupt)
    assert not database.is_open


# --- the clock ---


def test_the_clock_of_the_machine_counts_milliseconds_since_the_epoch():
    before = time.time_ns() // 1_000_000

    now = Clock().now_ms()

    assert before <= now <= time.time_ns() // 1_000_000


def test_the_other_clock_of_the_machine_never_steps_back():
    before = time.monotonic()

    assert before <= Clock().monotonic() <= time.monotonic()
