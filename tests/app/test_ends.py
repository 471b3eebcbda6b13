"""Every statement of a call ends, what a call reads is bounded, and its neighbours are served."""

import time

import pytest

from icd.app import dispatch
from icd.app.call import Params
from icd.app.dispatch import Clock, run_batch
from icd.app.verb import Method, Runs, Writes
from icd.db.connection import RESULT_CHARACTERS, transaction, until
from icd.errors import DeadlineExceeded, ReplyTooLarge
from tests.support.processes import PATIENCE

NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
ENDLESS = {
    "rows": f"{NUMBERS} SELECT i FROM n WHERE i < 0",
    "count": f"{NUMBERS} SELECT count(*) FROM n",
    "sorted": f"{NUMBERS} SELECT i FROM n ORDER BY random()",
    "grouped": f"{NUMBERS} SELECT i % 7, max(i) FROM n GROUP BY 1",
    "joined": f"{NUMBERS} SELECT count(*) FROM n AS a, n AS b WHERE a.i = b.i",
    "patterns": f"{NUMBERS} SELECT i FROM n WHERE i || hex(zeroblob(5000)) LIKE '%x%0%y%'",
    "json": f"{NUMBERS} SELECT i FROM n WHERE json_array_length('[' || i || ']') > 1",
    "write": f"INSERT INTO counters {NUMBERS} SELECT 'c' || i, i FROM n",
}
ONE_MEGABYTE = "SELECT hex(zeroblob(500000))"


class Nothing(Params):
    pass


def verb(statement, *, writes=False, times=1, local=False):
    def run(ctx, _params):
        found = []
        for _ in range(times):
            found += ctx.conn.execute(statement).fetchall()
        return len(found)

    return Method(
        "test.verb", Nothing, int, run, writes=Writes() if writes else None, runs=Runs(local=local)
    )


@pytest.fixture
def run(database):
    def answers(*calls):
        return run_batch(database, list(calls), clock=Clock())

    return answers


def soon(seconds=0.2):
    return time.monotonic() + seconds


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_statement_that_does_not_end_is_ended(run, call, kind):
    began = time.monotonic()
    (answer,) = run(call(verb(ENDLESS[kind], writes=kind == "write"), deadline=soon()))

    assert isinstance(answer.error, DeadlineExceeded)
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("kind", ["rows", "write"])
def test_its_neighbours_are_answered_and_what_they_wrote_is_kept(run, call, conn, kind):
    endless = call(verb(ENDLESS[kind], writes=kind == "write"), deadline=soon())
    incr = [call("state.incr", key="k", scope_id=str(number)) for number in range(3)]

    answers, left = [], [incr[0], endless, *incr[1:]]
    while left:  # a batch ends after a few milliseconds; a host gives the rest to the next one
        found = run(*left)
        assert found[0] is not None, "a batch answers at least one call"
        answers += filter(None, found)
        left = [one for one, answer in zip(left, found, strict=True) if answer is None]

    assert sorted(a.error.name for a in answers if a.error) == ["deadline_exceeded"]
    rows = conn.execute("SELECT scope_id, payload FROM state ORDER BY scope_id").fetchall()
    assert rows == [("0", "1"), ("1", "1"), ("2", "1")]
    assert conn.execute("SELECT count(*) FROM counters WHERE name LIKE 'c_%'").fetchone() < (10,)


class RunsOut(Clock):
    """Time is over as soon as a call has done its work."""

    def __init__(self):
        self.is_over = False

    def monotonic(self):
        return super().monotonic() + (1000 if self.is_over else 0)


def test_a_commit_that_took_effect_is_never_told_as_one_that_did_not(database, call, conn):
    """SQLite looks at the clock when the work of a statement is done, a COMMIT's as well."""
    conn.set_progress_handler(conn.bounds.is_over, 1)  # at every step, and so in each COMMIT
    clock = RunsOut()

    def write(ctx, _params):
        ctx.conn.execute("INSERT INTO counters VALUES ('mine', 1)")
        clock.is_over = True

    one = call(Method("test.verb", Nothing, str, write, writes=Writes()))
    (answer,) = run_batch(database, [one], clock=clock)

    assert answer.error is None
    assert conn.execute("SELECT value FROM counters WHERE name = 'mine'").fetchone() == (1,)


def test_a_transaction_within_a_bound_is_ended_all_the_same(conn):
    conn.set_progress_handler(conn.bounds.is_over, 1)
    moment = time.monotonic() + 1000

    with until(conn, moment), transaction(conn):
        conn.execute("INSERT INTO counters VALUES ('mine', 1)")
        conn.bounds.stop_at = 0.0  # it has just passed

    assert conn.execute("SELECT value FROM counters WHERE name = 'mine'").fetchone() == (1,)


def test_a_call_that_reads_too_much_is_told_so(run, call):
    times = RESULT_CHARACTERS // 1_000_000 + 1

    (answer,) = run(call(verb(ONE_MEGABYTE, times=times)))

    assert isinstance(answer.error, ReplyTooLarge)
    assert "--limit" in answer.error.hint


def test_what_goes_to_a_file_of_the_caller_may_be_larger(run, call):
    times = RESULT_CHARACTERS // 1_000_000 + 1

    (answer,) = run(call(verb(ONE_MEGABYTE, times=times, local=True)))

    assert answer.result == times


def test_a_batch_that_has_read_enough_is_committed_and_the_rest_is_left(run, call):
    answers = run(*(call(verb(ONE_MEGABYTE)) for _ in range(5)))

    assert sum(answer is not None for answer in answers) <= 2
    assert answers[0].size > dispatch.BATCH_CHARACTERS // 2


def test_what_is_read_alone_after_a_lost_transaction_is_bounded_too(run, call):
    """A write that is stopped takes the transaction with it, and every other call runs alone."""
    lost = call(verb(ENDLESS["write"], writes=True), deadline=soon(0.05))

    answers = run(lost, *(call(verb(ONE_MEGABYTE)) for _ in range(5)))

    assert isinstance(answers[0].error, DeadlineExceeded)
    assert sum(answer is not None for answer in answers) <= 3
