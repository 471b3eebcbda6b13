"""THE dispatcher: the one place with the transaction of a call, and with an error map.

Both hosts call `run_batch`: the daemon with whatever is waiting, a direct call with itself alone.

Promises
    - no caller is answered before COMMIT has returned;
    - a failing call never fails its neighbours: each runs in a savepoint of its own, and if the
      shared transaction is lost (a full disk takes all of it), every other call runs again alone;
    - a call whose deadline has passed is answered, not executed;
    - every statement ends: what runs STATEMENT_GRACE_SECONDS after the deadline of its call is
      stopped there and undone, and the calls beside it are answered all the same;
    - what is read has a size: a call that reads too much is told so, and a batch that has read
      enough is committed;
    - the lock is held from before the database is looked at until after the commit.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from icd.app import idempotency
from icd.app.call import Answer, Call, Context, Whole
from icd.db import paths, permissions
from icd.db.connection import RESULT_CHARACTERS, Connection, untold
from icd.errors import (
    Corrupt,
    DeadlineExceeded,
    Guard,
    IcError,
    Internal,
    Locked,
    LogLost,
    NoDatabase,
    Overloaded,
    UnknownOutcome,
    from_os,
    from_sqlite,
)
from icd.values.processes import several_machines

# A batch that has read this much, in characters, is committed, as after much work: all of it is in
# memory until it is handed out.
BATCH_CHARACTERS = 1024 * 1024
# A statement that was begun in time and is about to end may do so; the caller still listens.
STATEMENT_GRACE_SECONDS = 0.1
# What the daemon asks for itself may wait for its turn, but others do not wait for it any longer.
BACKGROUND_SECONDS = 0.5

if TYPE_CHECKING:
    from icd.app.write_cache import Recent
    from icd.db.engine import Engine

_NO_ROWS = ()  # of state, that a method touches

A = TypeVar("A")


class Clock:
    """The two clocks of the machine; tests bring their own."""

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def run_batch(
    database: Engine,
    calls: list[Call],
    *,
    clock: Clock,
    recent: Recent | None = None,
    close: bool = False,
) -> list[Answer | None]:
    """Run the calls in order, in one transaction.  None: not reached, give it to the next batch.

    A call that works on the database as a whole is a batch of its own.

    `close` closes the database at the end, under the same lock: to a host that runs one call and
    leaves, waiting for the lock once more could turn a committed call into a failed one.
    """
    size = len(calls)
    if any(method.runs.whole for method in {call.method for call in calls}):
        size = next(i for i, call in enumerate(calls) if call.method.runs.whole) or 1
    batch = _Batch(database, calls[:size], clock, recent)
    batch.run(close=close)
    return list(map(batch.answers.get, map(id, calls)))


def failure(exc: Exception, path: str = "", conn: sqlite3.Connection | None = None) -> IcError:
    """Map any exception to what the caller is told; one that is not known here is our bug.

    `path` is the database that was being used, in whose files the cause may lie, and `conn` the
    connection to it, in whose rows it may lie.
    """
    known: IcError | None = None
    if isinstance(exc, IcError):
        return exc.with_traceback(None)  # it is not read, and would keep the whole batch alive
    if isinstance(exc, MemoryError):  # nor may what it was too much for be kept
        return Overloaded("not enough memory for the result")
    if isinstance(exc, sqlite3.Error):
        known = from_sqlite(exc)
        if isinstance(known, DeadlineExceeded):
            return known
        known = (permissions.cause(exc, path) if path else None) or known
    elif isinstance(exc, OSError):
        known = from_os(exc, "use the database")
    if known is None:
        from icd.db.damaged_rows import blamed  # only what went wrong pays for it

        damaged = blamed(exc, conn)
        if damaged is not None:
            return damaged  # without its cause, whose frames hold a statement open
    if known is None:
        known = Internal(f"internal error, reference {os.urandom(4).hex()}")
    known.__cause__ = exc
    return known


def answered(
    run: Callable[[A], Answer], given: A, path: str = "", conn: Connection | None = None
) -> Answer:
    """What a function answers; what it raises is an answer, too."""
    try:
        return run(given)
    except Exception as exc:  # noqa: BLE001 -- the error map
        told = getattr(given, "trace", ())  # of a call that is verbose
        return Answer(error=failure(exc, path, conn), trace=told)


def _too_late() -> Answer:
    return Answer(error=DeadlineExceeded("the deadline passed before the call could run"))


class _Batch:
    """Calls that share the lock, and usually a transaction; those that end are in `answers`."""

    _conn: Connection

    def __init__(
        self, database: Engine, calls: list[Call], clock: Clock, recent: Recent | None
    ) -> None:
        self.answers: dict[int, Answer] = {}  # by the identity of the call
        self._calls = calls
        self._methods = {call.method for call in calls}  # few, where the calls are many
        self._database = database
        self._clock = clock
        self._recent = recent
        self._now_ms = 0  # of the transaction that has begun

    def run(self, *, close: bool) -> None:
        now = self._clock.monotonic()
        deadlines = [call.deadline for call in self._calls]
        if min(deadlines, default=0.0) <= now:
            self._answer_if(lambda call: call.deadline <= now, _too_late())
            deadlines = [call.deadline for call in self._waiting()]
            if not deadlines:
                return
        database = self._database
        database.stop_at = max(deadlines) + STATEMENT_GRACE_SECONDS
        try:
            with database.hold(min(deadlines), create=self._creates):
                self._run_locked(close=close)
        except Locked as exc:
            now = self._clock.monotonic()
            self._answer_if(lambda call: call.deadline <= now, Answer(error=exc))
        except NoDatabase as exc:  # its directory is gone, and the lock with it
            database.close()
            self._turn_away(otherwise=Answer(error=exc))
        except Exception as exc:  # noqa: BLE001 -- what is committed by now stays answered
            self._answer_rest(exc)

    def _run_locked(self, *, close: bool) -> None:
        database = self._database
        # What a row tells of a process may be about another machine.
        looking = None if database.steady else several_machines.set(True)
        try:
            error = answered(self._run_waiting, close, database.path).error
            if error is not None:
                self._answer_rest(error)
        finally:
            # Damage that shows in passing: the next open checks all of it.
            errors = [answer.error for answer in self.answers.values() if answer.error is not None]
            if close or any(isinstance(error, Corrupt) for error in errors):
                database.close()
            if looking is not None:
                several_machines.reset(looking)

    def _run_waiting(self, close: bool) -> Answer:  # noqa: FBT001 -- given by `answered`
        if self._calls[0].method.runs.whole:
            self._run_whole(self._calls[0])
        elif self._open() and (waiting := self._waiting()):
            self._run_together(waiting) if len(waiting) > 1 else self._run_alone(waiting[0])
        if close and not self._database.is_left_alone():
            self._doubt()
        return Answer()

    # --- who is answered already ---

    def _waiting(self) -> list[Call]:
        if not self.answers:
            return self._calls
        return [call for call in self._calls if id(call) not in self.answers]

    @property
    def _creates(self) -> bool:
        creators = {method for method in self._methods if method.runs.creates}
        return bool(creators) and any(call.method in creators for call in self._waiting())

    def _answer(self, call: Call, answer: Answer) -> Answer:
        self.answers[id(call)] = answer
        return answer

    def _answer_if(self, holds: Callable[[Call], bool], answer: Answer) -> None:
        for call in self._waiting():
            if holds(call):
                self._answer(call, answer)

    def _answer_rest(self, exc: Exception) -> None:
        error = failure(exc, self._database.path)
        self._answer_if(lambda _: True, Answer(error=error))

    def _doubt(self) -> None:
        """Call the outcome of writes unknown: they are in files that have no name any more."""
        doubt = UnknownOutcome(
            "unknown_outcome: files of the database were removed during the call"
        )
        for call in self._calls:
            answer = self.answers.get(id(call))
            if answer is not None and answer.error is None and call.method.writes:
                self._answer(call, Answer(error=doubt))

    # --- the database ---

    def _run_whole(self, call: Call) -> None:
        self._forget()  # it may be another file afterwards
        elsewhere = None if call.method.runs.creates else self._judge(call.where)
        if elsewhere is not None:
            self._answer(call, elsewhere)
            return
        assert call.method.run is not None
        call.ran_at = self._clock.monotonic()
        progress = call.progress or untold
        files, now_ms = self._database.files(), self._clock.now_ms()
        whole = Whole(files, now_ms, call.deadline, progress)
        result = call.method.run(whole, call.params)
        self._answer(call, Answer(result=result, warnings=self._database.told()))

    def _open(self) -> bool:
        """Open the database if need be, and turn away the calls that mean another one."""
        database, reopened = self._database, self._database.reopened
        try:
            self._conn = database.connection(create=self._creates)
        except NoDatabase as exc:
            self._turn_away(otherwise=Answer(error=exc))
            return False
        except LogLost as exc:
            if all(call.background for call in self._waiting()):
                database.owe(exc)
            else:
                database.incidents.append(exc.message)
            raise
        if database.others_wrote() or database.reopened != reopened:
            self._forget()
        self._turn_away(otherwise=None)
        return True

    def _turn_away(self, *, otherwise: Answer | None) -> None:
        """A caller's database may have moved since it was looked up: look again, under the lock.

        Calls that mean this one get `otherwise`: nothing yet, or why it cannot be opened.
        """
        found: dict[paths.Where, Answer | None] = {}
        last = None  # the usual case needs no look-up
        for call in self._waiting():
            if call.where is last or call.method.runs.creates:
                continue
            if call.where not in found:
                found[call.where] = self._judge(call.where) or otherwise
            answer = found[call.where]
            last = call.where if answer is None else None
            if answer is not None:
                self._answer(call, answer)

    def _judge(self, where: paths.Where) -> Answer | None:
        """None if the caller means the file that is open; a cheap look usually settles it."""
        database = self._database
        try:
            if database.identity is not None and paths.identity(where) == database.identity:
                return None
            same = paths.canonical(paths.resolve(where)) == database.path
            return None if same else Answer(moved=True)
        except IcError as exc:
            return Answer(error=exc)

    # --- the transaction ---

    def _run_alone(self, call: Call) -> Answer:
        """One call, one transaction."""
        answer = answered(self._transact, call, self._database.path, self._conn)
        return self._answer(call, answer)

    def _transact(self, call: Call) -> Answer:
        try:
            self._begin(write=call.method.writes is not None, deadline=call.deadline)
            answer = self._run(call)
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        return answer

    def _run_together(self, calls: list[Call]) -> None:
        """Many calls, one transaction; or each its own, if the shared one is lost."""
        found: list[Answer] = []
        conn, clock = self._conn, time.monotonic
        # A call that fails the others will hear it alone.
        with Guard(lambda exc: self._part(calls, len(found), exc)):
            is_write = any(method.writes is not None for method in {c.method for c in calls})
            self._begin(write=is_write, deadline=min([call.deadline for call in calls]))
            stop_at = clock() + self._database.batch_seconds
            read = 0
            path, run = self._database.path, self._run
            for call in calls:
                writes = call.method.writes
                if writes is None or writes.atomic:
                    answer = answered(run, call, path, conn)
                else:
                    answer = self._in_savepoint(call)
                if not conn.in_transaction:
                    self._answer(call, answer)  # it lost the transaction of all
                    self._run_each(calls)
                    return
                found.append(answer)
                read += answer.size
                if read > BATCH_CHARACTERS or clock() > stop_at:
                    break
            answers = dict(zip(map(id, calls), found, strict=False))
            self._commit()
            self.answers |= answers

    def _part(self, calls: list[Call], ran: int, exc: Exception) -> None:
        """The shared transaction is lost; one whose commit may have happened is not run again."""
        if not isinstance(exc, UnknownOutcome):
            self._run_each(calls)
            return
        self._forget()
        for call in calls[:ran]:
            self._answer(call, Answer(error=exc))

    def _run_each(self, calls: list[Call]) -> None:
        """Undo what was done together, and give each call a transaction of its own."""
        self._roll_back()
        read = 0
        for call in calls:
            if id(call) in self.answers:
                continue
            if read > BATCH_CHARACTERS:
                break
            if self._clock.monotonic() < call.deadline:
                read += self._run_alone(call).size
            else:
                self._answer(call, _too_late())

    def _begin(self, *, write: bool, deadline: float) -> None:
        now_ms = self._clock.now_ms
        self._now_ms = self._database.begin(write=write, deadline=deadline, now_ms=now_ms)

    def _commit(self) -> None:
        """Commit, and say whether those who listen elsewhere may have something to look at."""
        tells = False
        if not self._database.steady:
            found = [method.writes for method in self._methods if method.writes is not None]
            tells = any(writes.appends or writes.rows != _NO_ROWS for writes in found)
        self._database.commit(tells=tells)

    def _in_savepoint(self, call: Call) -> Answer:
        self._conn.execute("SAVEPOINT call")
        answer = answered(self._run, call, self._database.path, self._conn)
        if self._conn.in_transaction:
            if answer.error is not None:
                self._conn.execute("ROLLBACK TO call")
                self._forget()
            self._conn.execute("RELEASE call")
        return answer

    def _run(self, call: Call) -> Answer:
        database, conn, monotonic = self._database, self._conn, self._clock.monotonic
        deadline = call.deadline
        call.ran_at = now = monotonic()
        ctx = Context(
            conn,
            database.path,
            self._now_ms,
            now if database.steady else self._now_ms / 1000,
            call.writer,
            call.params.request_id,
            self._recent,
            database.told() if database.notes else [],
            deadline,
            database.settings,
            call.progress,
        )
        bounds = conn.bounds
        # What is written to a file of the caller's is not kept in memory.
        room = math.inf if call.method.runs.local else RESULT_CHARACTERS
        stop_at = deadline + STATEMENT_GRACE_SECONDS
        until = min(stop_at, now + BACKGROUND_SECONDS) if call.background else stop_at
        bounds.begin(until, room, monotonic)
        try:
            if call.verbose:
                return self._run_traced(ctx, call)
            return Answer(_execute(ctx, call), None, ctx.warnings, size=bounds.taken)
        finally:
            bounds.end()  # before the transaction ends, which nothing may stop

    def _run_traced(self, ctx: Context, call: Call) -> Answer:
        """Note what is done, for a person who wants to see it; also when it fails."""
        statements: list[str] = []
        began = time.perf_counter()
        self._conn.set_trace_callback(statements.append)
        try:
            result = _execute(ctx, call)
        finally:
            self._conn.set_trace_callback(None)
            took = (time.perf_counter() - began) * 1000
            call.trace = [f"lock: waited {self._database.waited_ms:.3f} ms"]
            call.trace += [f"sql: {' '.join(text.split())[:500]}" for text in statements]
            call.trace.append(f"time: {took:.3f} ms")
        size = self._conn.bounds.taken
        return Answer(result=result, warnings=ctx.warnings, trace=call.trace, size=size)

    def _roll_back(self) -> None:
        self._database.roll_back()
        self._forget()

    def _forget(self) -> None:
        """Forget the last writes: what was undone must not be remembered as written."""
        if self._recent is not None:
            self._recent.clear()


def _execute(ctx: Context, call: Call) -> object:
    method = call.method
    assert method.run is not None, f"{method.name} does not run on a database"
    if ctx.request_id and method.writes is not None and method.writes.keeps_effects:
        return idempotency.run_once(ctx, call)
    return method.run(ctx, call.params)
