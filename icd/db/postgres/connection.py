"""A connection to a server, in the shape of sqlite3's, over libpq's pipeline.

Invariants
    - what has no answer to read is only queued within a transaction, and travels with the next
      statement that has one; its failure is told there, and undoes what SQLite's would;
    - every wait for the server ends: at the deadline of the call, and a little later the connection
      is given up, because nothing can be said of a transaction whose server is silent;
    - a statement is prepared once for each combination of the types that it is given; integers are
      always eight bytes long.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

import psycopg
from psycopg import pq

from icd.db.connection import Bounds
from icd.db.engine import Values
from icd.db.postgres import errors
from icd.db.postgres.translate import Plan, plan
from icd.errors import DeadlineExceeded, InvalidPayload, StoreUnreachable

# Of one connection: statements times the combinations of NULLs that they meet.  Others are sent
# without a name.
PREPARED = 1024
# The server stops a statement at the deadline; so much later it counts as silent.
SILENCE_SECONDS = 1.0
# Without a deadline, such as for a migration.
LONGEST_SECONDS = 60.0
ENCODING = "utf-8"

_INT8, _TEXT, _BYTEA, _FLOAT8, _UNKNOWN = 20, 25, 17, 701, 0
_OIDS: dict[type, int] = {
    int: _INT8, bool: _INT8, str: _TEXT, bytes: _BYTEA, float: _FLOAT8, type(None): _UNKNOWN,
}  # fmt: skip
_OK = pq.ExecStatus.COMMAND_OK
_ROWS = pq.ExecStatus.TUPLES_OK
_SYNC = pq.ExecStatus.PIPELINE_SYNC
_EMPTY = pq.ExecStatus.EMPTY_QUERY
_SQLSTATE = pq.DiagnosticField.SQLSTATE
_MESSAGE = pq.DiagnosticField.MESSAGE_PRIMARY
_DETAIL = pq.DiagnosticField.MESSAGE_DETAIL


def _numeric(value: bytes) -> float:
    return float(value) if b"." in value else int(value)


_READERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda value: int(value == b"t"),  # as SQLite has it
    17: lambda value: bytes.fromhex(value[2:].decode()),
    20: int,
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    1700: _numeric,  # a sum
}


def _text(value: bytes) -> str:
    return value.decode(ENCODING)


class Cursor:
    """What a statement found or did; asked for before the server was, it asks."""

    row_factory: Callable[[Any, tuple[Any, ...]], Any] | None

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._result: pq.abc.PGresult | None = None
        self._plan: Plan | None = None
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self._many = 0
        self.error: Exception | None = None
        self.level = 0  # of the savepoint in which it was sent
        self.row_factory = conn.bounds.count

    def execute(self, sql: str, parameters: Values = (), /) -> Cursor:
        found = self._conn.execute(sql, parameters)
        found.row_factory = self.row_factory
        return found

    def take(self, result: pq.abc.PGresult) -> None:
        self._result = result
        self._rows = self._read(result)

    def _settled(self) -> pq.abc.PGresult:
        if self._result is None:
            self._conn.settle()
        assert self._result is not None
        return self._result

    def _read(self, result: pq.abc.PGresult) -> Iterator[tuple[Any, ...]]:
        columns = range(result.nfields)
        readers = [_READERS.get(result.ftype(column), _text) for column in columns]
        value = result.get_value
        for row in range(result.ntuples):
            yield tuple(
                None if (held := value(row, column)) is None else readers[column](held)
                for column in columns
            )

    @property
    def tag(self) -> bytes:
        """What the server calls what it did."""
        return self._settled().command_status or b""

    @property
    def rowcount(self) -> int:
        result = self._settled()
        is_read = self._plan is not None and self._plan.verb in ("SELECT", "WITH", "VALUES")
        return -1 if is_read else self._many + int(result.command_tuples or 0)

    @property
    def lastrowid(self) -> int | None:
        result = self._settled()
        assert self._plan is not None
        number = result.get_value(0, 0) if self._plan.numbered and result.ntuples else None
        return None if number is None else int(number)

    def fetchone(self) -> Any:
        self._settled()
        row = next(self._rows, None)
        if row is None or self.row_factory is None:
            return row
        return self.row_factory(None, row)

    def fetchmany(self, size: int | None = 1, /) -> list[Any]:
        found: list[Any] = []
        while len(found) < (size or 1) and (row := self.fetchone()) is not None:
            found.append(row)
        return found

    def fetchall(self) -> list[Any]:
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row


class Connection:
    """One connection.  `lost`: the server is gone, and with it the transaction."""

    def __init__(self, link: pq.abc.PGconn) -> None:
        self.bounds = Bounds()
        self.lost = False
        self.trips = 0  # to the server and back
        self.total_changes = 0
        self.in_transaction = False
        self._level = 0  # savepoints that are open
        self.until = inf  # the server counts as silent from then on, monotonic
        self._waiting: deque[Cursor | _Key] = deque()  # a key: what prepares a statement
        self._names: dict[_Key, bytes] = {}
        self._named = 0
        self._trace: Callable[[str], object] | None = None
        self._poll = select.poll()
        self.socket = -1
        self._use(link)

    def _use(self, link: pq.abc.PGconn) -> None:
        self.link = link
        self.socket = link.socket
        link.nonblocking = 1
        if link.pipeline_status == pq.PipelineStatus.OFF:
            link.enter_pipeline_mode()

    def adopt(self, other: Connection) -> None:
        """Go on with the link of another connection; nothing of this one is left."""
        self._use(other.link)
        self._names, self._named = other._names, other._named
        self._waiting.clear()
        self.lost = self.in_transaction = False

    @property
    def is_failed(self) -> bool:
        """The server waits for a ROLLBACK."""
        return self.link.transaction_status != pq.TransactionStatus.IDLE

    # --- as sqlite3 has it ---

    def cursor(self) -> Cursor:
        return Cursor(self)

    def execute(self, sql: str, parameters: Values = (), /) -> Cursor:
        found = plan(sql)
        if found.verb in _TURNS:
            return self._turn(found)
        cursor = self._send(found, found.values(parameters))
        if found.answers or not self.in_transaction:
            self.settle()
        return cursor

    def executemany(self, sql: str, parameters: Iterable[Values], /) -> Cursor:
        found, cursor, many = plan(sql), Cursor(self), 0
        sent = [self._send(found, found.values(each)) for each in parameters]
        self.settle()
        if sent:
            many = sum(each.rowcount for each in sent[:-1])
            cursor = sent[-1]
            cursor._many = many  # noqa: SLF001 -- the module is the class
        return cursor

    def set_trace_callback(self, trace: Callable[[str], object] | None, /) -> None:
        self._trace = trace

    def close(self) -> None:
        self.lost = True
        self.in_transaction = False
        self._waiting.clear()
        self.link.finish()

    # --- transactions ---

    def _turn(self, found: Plan) -> Cursor:
        """What begins and ends transactions and savepoints."""
        if self._trace is not None:
            self._trace(found.text)
        words = found.text.upper().split()
        if words[0] == "BEGIN":
            return self.begin(write="IMMEDIATE" in words)
        if words[0] == "COMMIT":
            return self.commit()
        if words[0] == "ROLLBACK" and "TO" not in words:
            return self.roll_back()
        if words[0] == "SAVEPOINT":
            self._level += 1
        cursor = self._send(found, ())
        if words[0] == "RELEASE":
            if len(self._waiting) > 1:
                self.settle()  # here, so that a failure is told to the call that it belongs to
            self._level -= 1
        return cursor

    def begin(self, *, write: bool) -> Cursor:  # noqa: ARG002 -- for those who take turns
        self.in_transaction, self._level = True, 0
        return self.send("BEGIN")

    def commit(self) -> Cursor:
        """Commit; the outcome is unknown if the server falls silent now."""
        cursor = self.send("COMMIT")
        try:
            self.settle()
        finally:
            self.in_transaction, self._level = False, 0
        return cursor

    def roll_back(self) -> Cursor:
        self._level = 0
        cursor = self.send("ROLLBACK")
        try:
            self.settle()
        finally:
            self.in_transaction = False
        return cursor

    # --- statements ---

    def send(self, sql: str, parameters: Values = ()) -> Cursor:
        """Queue a statement whose answer is read later."""
        found = plan(sql)
        return self._send(found, found.values(parameters))

    def _send(self, found: Plan, values: Any) -> Cursor:
        if self.lost:
            raise StoreUnreachable("the connection to the store was lost; nothing was changed")
        if self._trace is not None and found.verb not in _TURNS:
            self._trace(found.text)
        cursor = Cursor(self)
        cursor._plan, cursor.level = found, self._level  # noqa: SLF001
        if found.verb in _WRITES:
            self.total_changes += 1
        oids = tuple([_OIDS[value.__class__] for value in values])
        given = [_encoded(value) for value in values]
        formats = [pq.Format.BINARY if oid == _BYTEA else pq.Format.TEXT for oid in oids]
        try:
            name = self._names.get((found.text, oids))
            if name is None and found.verb in _REPEATED and len(self._names) < PREPARED:
                name = self._prepare(found.text, oids)
            if name is not None:
                self.link.send_query_prepared(name, given, formats)
            else:
                self.link.send_query_params(found.text.encode(), given, oids, formats)
        except _Broken as exc:
            raise self._gone(exc) from exc
        self._waiting.append(cursor)
        return cursor

    def _prepare(self, text: str, oids: tuple[int, ...]) -> bytes:
        self._named += 1
        name = b"s%d" % self._named
        self.link.send_prepare(name, text.encode(), oids)
        self._waiting.append((text, oids))
        self._names[text, oids] = name
        return name

    def settle(self) -> None:
        """Hear the answers to all that was sent; raises the first failure among them."""
        if not self._waiting:
            return
        failed: Exception | None = None
        failed_at = 0
        until = self._patience()
        self.trips += 1
        try:
            self.link.pipeline_sync()
            self._flush(until)
            while self._waiting:
                result, sent = self._answer(until), self._waiting.popleft()
                is_good = result.status in _GOOD
                if isinstance(sent, Cursor):
                    sent.take(result)
                elif not is_good:
                    self._names.pop(sent, None)
                if not is_good and failed is None:
                    failed = self._failure(result)
                    failed_at = sent.level if isinstance(sent, Cursor) else self._level
            self._answer(until, marked=True)
        except _Broken as exc:
            raise self._gone(exc) from exc
        while self.link.notifies() is not None:
            pass  # what others wrote is noticed by what it has changed
        if failed is not None:
            if failed_at == 0:  # the server has undone everything
                self.in_transaction = False
            raise failed

    def _answer(self, until: float, *, marked: bool = False) -> pq.abc.PGresult:
        """The result of one statement, and the end of it; `marked`: of all, which has no end."""
        found = self._result(until)
        if found is None or (found.status == _SYNC) != marked:
            raise _Silent("it ended the connection")
        if not marked:
            self._result(until)
        return found

    def _result(self, until: float) -> pq.abc.PGresult | None:
        while self.link.is_busy():
            self._wait(select.POLLIN, until)
            self.link.consume_input()
        return self.link.get_result()

    def _flush(self, until: float) -> None:
        while self.link.flush():
            if self._wait(select.POLLIN | select.POLLOUT, until) & select.POLLIN:
                self.link.consume_input()

    def _patience(self) -> float:
        """The moment, monotonic, at which the server counts as silent."""
        now = time.monotonic()
        left = self.bounds.stop_at - self.bounds.monotonic()
        return min(now + min(max(left, 0.0) + SILENCE_SECONDS, LONGEST_SECONDS), self.until)

    def _wait(self, events: int, until: float) -> int:
        self._poll.register(self.socket, events)
        left = until - time.monotonic()
        ready = self._poll.poll(max(0.0, left) * 1000)
        self._poll.unregister(self.socket)
        if not ready:
            raise _Silent("it is silent")
        return ready[0][1]

    def _gone(self, exc: Exception) -> Exception:
        told = errors.lost(str(exc))
        is_late = isinstance(exc, _Silent) and self.bounds.stop_at is not inf
        self.close()
        return DeadlineExceeded(told.message) if is_late else told

    def _failure(self, result: pq.abc.PGresult) -> Exception:
        state = (result.error_field(_SQLSTATE) or b"").decode()
        parts = (result.error_field(_MESSAGE), result.error_field(_DETAIL))
        message = ": ".join(part.decode(ENCODING, "replace") for part in parts if part)
        return errors.named(state, message)


class _Silent(Exception):
    pass


_Broken = (psycopg.Error, OSError, _Silent)
_Key = tuple[str, tuple[int, ...]]
_TURNS = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}
_WRITES = {"INSERT", "UPDATE", "DELETE"}
_REPEATED = _WRITES | _TURNS | {"SELECT", "WITH", "VALUES"}
_GOOD = (_OK, _ROWS, _EMPTY)


def _encoded(value: Any) -> bytes | None:
    if value is None or value.__class__ is bytes:
        return value
    if value.__class__ is str:
        if "\0" in value:
            raise InvalidPayload("text with a NUL character cannot be stored", hint="remove it")
        return value.encode(ENCODING)
    return str(int(value)).encode() if value.__class__ is bool else repr(value).encode()
