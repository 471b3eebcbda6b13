"""THE dispatcher: the one place with the transaction of a call, and with an error map.

Both hosts call `run_batch`: the daemon with whatever is waiting, a direct call with itself alone.

Promises
    - nobody is answered before COMMIT has returned;
    - a failing call never fails its neighbours: each runs in a savepoint of its own, and if the
      shared transaction is lost (a full disk takes all of it), every other call runs again alone;
    - a call whose deadline has passed is answered, not executed;
    - every statement ends: what runs STATEMENT_GRACE_SECONDS after the deadline of its call is
      stopped there and undone, and the calls beside it are answered all the same;
    - what is read has a size: a call that reads too much is told so, and a batch that has read
      enough is committed;
    - the lock is held from before the database is looked at until after the commit.
"""

import math
import os
import sqlite3
import time
from zlib import crc32

import msgspec

from icd.app import idempotency as requests
from icd.app.call import Answer, Call, Clock, Context, Params, Whole
from icd.app.write_cache import Recent
from icd.db import paths
from icd.db.bounds import RESULT_CHARACTERS, Connection
from icd.db.database import Database
from icd.db.files import permissions as access
from icd.errors import (
    Corrupt,
    DeadlineExceeded,
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

# After this much work the batch is committed, so that those who wait outside get their turn.
BATCH_SECONDS = 0.005
# And after it has read this much, in characters: all of it is in memory until it is handed out.
BATCH_CHARACTERS = 1024 * 1024
# A statement that was begun in time and is about to end may do so; the caller still listens.
STATEMENT_GRACE_SECONDS = 0.1
# What the daemon asks for itself may wait for its turn, but others do not wait for it any longer.
BACKGROUND_SECONDS = 0.5

_ENVELOPE = frozenset(Params.__struct_fields__)


def run_batch(
    database: Database,
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
    size = next((i for i, call in enumerate(calls) if call.method.runs.whole), len(calls)) or 1
    left: list[Answer | None] = [None] * (len(calls) - size)
    return _run_some(database, calls[:size], clock=clock, recent=recent, close=close) + left


def _run_some(
    database: Database, calls: list[Call], *, clock: Clock, recent: Recent | None, close: bool
) -> list[Answer | None]:
    now = clock.monotonic()
    answers = [None if now < call.deadline else _too_late() for call in calls]
    waiting = [i for i, answer in enumerate(answers) if answer is None]
    if not waiting:
        return answers
    creates = any(calls[i].method.runs.creates for i in waiting)
    database.stop_at = max(calls[i].deadline for i in waiting) + STATEMENT_GRACE_SECONDS
    try:
        with database.hold(min(calls[i].deadline for i in waiting), create=creates):
            try:
                _run_locked(database, calls, answers, clock=clock, recent=recent)
                if close and not database.is_left_alone():
                    _doubt(calls, answers)
            except Exception as exc:  # noqa: BLE001 -- the error map
                _answer_rest(answers, Answer(error=failure(exc, database.path)))
            finally:
                # Damage that shows in passing: whoever opens it again looks at all of it.
                if close or any(a and isinstance(a.error, Corrupt) for a in answers):
                    database.close()
    except Locked as exc:
        for i in waiting:
            if calls[i].deadline <= clock.monotonic():
                answers[i] = Answer(error=exc)
    except NoDatabase as exc:  # its directory is gone, and the lock with it
        database.close()
        _turn_away(database, calls, answers, otherwise=Answer(error=exc))
    except Exception as exc:  # noqa: BLE001 -- the error map
        _answer_rest(answers, Answer(error=failure(exc)))
    return answers


def _doubt(calls: list[Call], answers: list[Answer | None]) -> None:
    """What was committed is in files that have no name any more, and we are about to leave."""
    for i, (call, answer) in enumerate(zip(calls, answers, strict=True)):
        if answer is not None and answer.error is None and call.method.writes:
            doubt = UnknownOutcome("unknown_outcome: files of the database were removed meanwhile")
            answers[i] = Answer(error=doubt)


def _answer_rest(answers: list[Answer | None], answer: Answer) -> None:
    answers[:] = [known or answer for known in answers]


def failure(exc: Exception, path: str = "", conn: sqlite3.Connection | None = None) -> IcError:
    """Map any exception to what the caller is told; what nobody foresaw is our bug.

    `path` is the database that was being used, in whose files the cause may lie, and `conn` the
    connection to it, in whose rows it may lie.
    """
    known: IcError | None = None
    if isinstance(exc, IcError):
        return exc.with_traceback(None)  # nobody reads it, and it would keep the whole batch
    if isinstance(exc, MemoryError):  # nor may what it was too much for be kept
        return Overloaded("there is not enough memory to answer")
    if isinstance(exc, sqlite3.Error):
        known = from_sqlite(exc)
        if isinstance(known, DeadlineExceeded):
            return known
        known = (access.cause(exc, path) if path else None) or known
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


def _too_late() -> Answer:
    return Answer(error=DeadlineExceeded("the deadline passed before the call could run"))


def _run_locked(
    database: Database,
    calls: list[Call],
    answers: list[Answer | None],
    *,
    clock: Clock,
    recent: Recent | None,
) -> None:
    if calls[0].method.runs.whole:
        answers[0] = _run_whole(database, calls[0], clock=clock, recent=recent)
        return
    conn = _connection(database, calls, answers, recent)
    here = [i for i, answer in enumerate(answers) if answer is None]
    if conn is None or not here:
        return
    batch = _Batch(conn, database, clock, recent)
    if len(here) == 1:
        answers[here[0]] = batch.alone(calls[here[0]])
    else:
        for i, answer in zip(here, batch.together([calls[i] for i in here]), strict=True):
            answers[i] = answer


def _run_whole(database: Database, call: Call, *, clock: Clock, recent: Recent | None) -> Answer:
    if recent is not None:
        recent.clear()  # it may be another file afterwards
    elsewhere = None if call.method.runs.creates else _judge(database, call.where)
    if elsewhere is not None:
        return elsewhere
    assert call.method.run is not None
    call.ran_at = clock.monotonic()
    whole = Whole(database, clock.now_ms(), call.deadline)
    result = call.method.run(whole, call.params)
    return Answer(result=result, warnings=database.told())


def _connection(
    database: Database, calls: list[Call], answers: list[Answer | None], recent: Recent | None
) -> Connection | None:
    """Open the database if need be, and turn away whoever does not mean it."""
    waiting = [call for call, answer in zip(calls, answers, strict=True) if answer is None]
    creates = any(call.method.runs.creates for call in waiting)
    reopened = database.reopened
    try:
        conn = database.connection(create=creates)
    except NoDatabase as exc:
        _turn_away(database, calls, answers, otherwise=Answer(error=exc))
        return None
    except LogLost as exc:
        if all(call.background for call in waiting):
            database.owe(exc)
        else:
            database.incidents.append(exc.message)
        raise
    if recent is not None and (database.others_wrote() or database.reopened != reopened):
        recent.clear()
    _turn_away(database, calls, answers, otherwise=None)
    return conn


def _turn_away(
    database: Database,
    calls: list[Call],
    answers: list[Answer | None],
    *,
    otherwise: Answer | None,
) -> None:
    """A caller's database may have moved since it was looked up: look again, under the lock.

    Whoever means this one gets `otherwise`: nothing yet, or why it cannot be opened.
    """
    found: dict[paths.Where, Answer | None] = {}
    last = None
    for i, call in enumerate(calls):
        if call.where is last or answers[i] is not None or call.method.runs.creates:
            continue
        if call.where not in found:
            found[call.where] = _judge(database, call.where) or otherwise
        answers[i] = found[call.where]
        last = call.where if answers[i] is None else None  # the usual case needs no look-up


def _judge(database: Database, where: paths.Where) -> Answer | None:
    """None if the caller means the file that is open; a cheap look usually settles it."""
    try:
        if database.identity is not None and paths.identity(where) == database.identity:
            return None
        same = paths.canonical(paths.resolve(where)) == database.path
        return None if same else Answer(moved=True)
    except IcError as exc:
        return Answer(error=exc)


class _Batch:
    """Calls sharing a connection while the lock is held."""

    def __init__(
        self, conn: Connection, database: Database, clock: Clock, recent: Recent | None
    ) -> None:
        self._conn = conn
        self._database = database
        self._clock = clock
        self._recent = recent

    def alone(self, call: Call) -> Answer:
        """One call, one transaction."""
        try:
            self._begin(write=call.method.writes is not None, deadline=call.deadline)
            answer = self._run(call)
            self._conn.execute("COMMIT")
        except Exception as exc:  # noqa: BLE001 -- the error map
            self._roll_back()
            return Answer(error=failure(exc, self._database.path, self._conn), trace=call.trace)
        return answer

    def together(self, calls: list[Call]) -> list[Answer | None]:
        """Many calls, one transaction; or each its own, if the shared one is lost."""
        answers: list[Answer | None] = [None] * len(calls)
        try:
            writes = any(call.method.writes is not None for call in calls)
            self._begin(write=writes, deadline=min(call.deadline for call in calls))
            stop_at = time.monotonic() + BATCH_SECONDS
            read = 0
            for i, call in enumerate(calls):
                answers[i] = answer = self._in_savepoint(call)
                if not self._conn.in_transaction:
                    return self._again_alone(calls, keep=(i, answer))
                read += answer.size
                if read > BATCH_CHARACTERS or time.monotonic() > stop_at:
                    break
            self._conn.execute("COMMIT")
        except Exception:  # noqa: BLE001 -- whoever is to blame will hear it alone
            self._roll_back()
            return self._again_alone(calls)
        return answers

    def _again_alone(
        self, calls: list[Call], keep: tuple[int, Answer | None] = (-1, None)
    ) -> list[Answer | None]:
        self._roll_back()
        answers: list[Answer | None] = [None] * len(calls)
        read = 0
        for i, call in enumerate(calls):
            if read > BATCH_CHARACTERS and i != keep[0]:
                continue
            answers[i] = answer = keep[1] if i == keep[0] else self._in_time(call)
            read += answer.size if answer else 0
        return answers

    def _in_time(self, call: Call) -> Answer:
        return self.alone(call) if self._clock.monotonic() < call.deadline else _too_late()

    def _begin(self, *, write: bool, deadline: float) -> None:
        """Begin; a program that does not know our lock is waited for until the deadline."""
        while True:
            try:
                self._conn.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            except sqlite3.OperationalError as exc:
                if not isinstance(from_sqlite(exc), Locked) or time.monotonic() >= deadline:
                    raise
            else:
                return

    def _in_savepoint(self, call: Call) -> Answer:
        if call.method.writes is None or call.method.writes.atomic:
            return self._caught(call)
        self._conn.execute("SAVEPOINT call")
        answer = self._caught(call)
        if self._conn.in_transaction:
            if answer.error is not None:
                self._conn.execute("ROLLBACK TO call")
                self._forget()
            self._conn.execute("RELEASE call")
        return answer

    def _caught(self, call: Call) -> Answer:
        try:
            return self._run(call)
        except Exception as exc:  # noqa: BLE001 -- the error map
            return Answer(error=failure(exc, self._database.path, self._conn), trace=call.trace)

    def _run(self, call: Call) -> Answer:
        call.ran_at = self._clock.monotonic()
        ctx = Context(
            conn=self._conn,
            path=self._database.path,
            now_ms=self._clock.now_ms(),
            monotonic=call.ran_at,
            writer=call.writer,
            request_id=call.params.request_id,
            recent=self._recent,
            warnings=self._database.told(),
            deadline=call.deadline,
            settings=self._database.settings,
            progress=call.progress,
        )
        bounds = self._conn.bounds
        # What is written to a file of the caller's is not kept in memory.
        room = math.inf if call.method.runs.local else RESULT_CHARACTERS
        stop_at = call.deadline + STATEMENT_GRACE_SECONDS
        if call.background:
            stop_at = min(stop_at, call.ran_at + BACKGROUND_SECONDS)
        bounds.begin(stop_at, room, self._clock.monotonic)
        try:
            if call.verbose:
                return self._run_traced(ctx, call)
            result = _execute(ctx, call)
            return Answer(result=result, warnings=ctx.warnings, size=bounds.taken)
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
            call.trace = [f"lock: waited {self._database.lock.waited_ms:.3f} ms"]
            call.trace += [f"sql: {' '.join(text.split())[:500]}" for text in statements]
            call.trace.append(f"time: {took:.3f} ms")
        size = self._conn.bounds.taken
        return Answer(result=result, warnings=ctx.warnings, trace=call.trace, size=size)

    def _roll_back(self) -> None:
        if self._conn.in_transaction:
            self._conn.execute("ROLLBACK")
        self._forget()

    def _forget(self) -> None:
        """What was undone must not be remembered as written."""
        if self._recent is not None:
            self._recent.clear()


def _execute(ctx: Context, call: Call) -> object:
    """Run the method, unless its effect is already known under the caller's request id."""
    method, request_id = call.method, call.params.request_id
    assert method.run is not None, f"{method.name} does not run on a database"
    if not (request_id and method.writes and method.writes.keeps_effects):
        return method.run(ctx, call.params)
    digest = _digest(call.params)
    effect = requests.find(ctx.conn, request_id, method=method.name, digest=digest)
    if effect is not None:
        return msgspec.json.decode(effect, type=method.result)
    result = method.run(ctx, call.params)
    if ctx.changed:
        requests.record(
            ctx.conn,
            request_id,
            method=method.name,
            digest=digest,
            effect=msgspec.json.encode(result).decode(),
            now_ms=ctx.now_ms,
            monotonic_ms=int(ctx.monotonic * 1000),
        )
    return result


def _digest(params: Params) -> int:
    """A fingerprint of the method's own parameters: deadlines differ between two attempts."""
    own = [getattr(params, f) for f in params.__struct_fields__ if f not in _ENVELOPE]
    return crc32(msgspec.json.encode(own))
