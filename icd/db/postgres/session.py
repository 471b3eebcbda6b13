"""A connection of one project: it takes turns, tells the time, and knows what others wrote.

A writer begins with the advisory lock of its project, and everything else happens after it: the
clock is read, and what counts the project's changes.  So the moments of all writers ascend with
their turns, whatever clocks their machines have.  A reader takes a snapshot of what was committed.

All of a beginning travels together, and so do the word to the listeners and the COMMIT.
"""

from __future__ import annotations

import time

# hashlib would load OpenSSL, which costs more than all the rest.
from _blake2 import blake2b
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING

from icd.db import migrate
from icd.db.postgres.connection import SILENCE_SECONDS, Connection, Cursor
from icd.errors import (
    DeadlineExceeded,
    IcError,
    Locked,
    SchemaTooNew,
    StoreUnreachable,
    UnknownOutcome,
)

if TYPE_CHECKING:
    from psycopg import pq

PREFIX = "intercore_"
# Others wait for a transaction whose host falls silent: so long, and then the server ends it.
IDLE_MS = 3000
# Waiting for a turn ends a little earlier than the statement, so that the holder can be named.
LOCK_SHARE = 0.9
_LIMITS = "SELECT set_config('lock_timeout', ?, true), set_config('statement_timeout', ?, true)"
_TURN = "SELECT pg_advisory_xact_lock(?)"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_COUNTS = """
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0),
       coalesce((SELECT sum(value) FROM counters), 0),
       (SELECT max(version) FROM migrations)
"""
_NOTIFY = "SELECT pg_notify(?, '')"
# Who holds the lock of a key: its number is kept in two halves.
_HOLDER = """
SELECT a.application_name, a.usename, coalesce(host(a.client_addr), ''),
       (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::bigint
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.classid::bigint = (?1 >> 32) & 4294967295 AND l.objid::bigint = ?1 & 4294967295
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
LIMIT 1
"""
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
Counts = tuple[int, int, int]


class Session(Connection):
    """`schema` is the project's own, and its name that of the channel and of the lock."""

    def __init__(self, link: pq.abc.PGconn, schema: str) -> None:
        super().__init__(link)
        self.schema = schema
        self.key = lock_key(schema)
        self.counts: Counts | None = None  # as the last transaction left them
        self.foreign = 0  # how often others were found to have written
        self.waited_ms = 0.0
        self.now_ms = 0
        self.has_tables = False
        self.tells = True  # unless the one who commits says otherwise
        self._writes = False

    def begin(self, *, write: bool) -> Cursor:
        """Take a turn, with the deadline of the connection's bounds."""
        return self.take_turn(write=write, seconds=self.bounds.stop_at - self.bounds.monotonic())

    def take_turn(self, *, write: bool, seconds: float, snapshot: bool = False) -> Cursor:
        self.give_up()  # a statement outside a transaction may have failed in one
        began = time.monotonic()
        most = min(max(seconds, 0.01), 86_400.0) * 1000
        self.until = began + max(seconds, 0.0) + SILENCE_SECONDS
        self.in_transaction, self._level, self._writes = True, 0, write
        found = self.send(_SNAPSHOT if snapshot else "BEGIN")
        self.send(_LIMITS, (f"{most * LOCK_SHARE:.0f}", f"{most:.0f}"))
        if write:
            self.send(_TURN, (self.key,))
        now = self.send(_NOW)
        counts = self.send(_COUNTS) if self.has_tables else None
        try:
            self.settle()
        except Locked as exc:
            self.give_up()
            raise Locked(f"{exc.message}: {self.holder() or 'until now'}") from exc
        except BaseException:
            self.give_up()
            raise
        self.waited_ms = (time.monotonic() - began) * 1000 if write else 0.0
        (self.now_ms,) = now.fetchone()
        if counts is not None:
            self._compare(counts.fetchone())
        return found

    def _compare(self, counts: Counts) -> None:
        if counts[2] != migrate.LATEST:
            self.give_up()
            self.close()  # it is opened with all the care
            raise SchemaTooNew(f"the store has been changed to schema v{counts[2]} meanwhile")
        if self.counts is not None and counts != self.counts:
            self.foreign += 1
        self.counts = counts

    def commit(self) -> Cursor:
        """Commit, and tell the others; a COMMIT without an answer has an unknown outcome."""
        counts = None
        self.until = max(self.until, time.monotonic() + SILENCE_SECONDS)
        if self._writes and self.has_tables:
            counts = self.send(_COUNTS)
            if self.tells:
                self.send(_NOTIFY, (self.schema,))
        done = self.send("COMMIT")
        try:
            self.settle()
        except (StoreUnreachable, DeadlineExceeded) as exc:
            # An ending of the server, too, may have come after the commit.
            if self._writes and (self.lost or isinstance(exc, StoreUnreachable)):
                told = f"unknown_outcome: the store fell silent at the commit: {exc.message}"
                raise UnknownOutcome(told) from exc
            raise
        finally:
            self.in_transaction, self._level, self.tells, self.until = False, 0, True, inf
        if counts is not None:
            self.counts = counts.fetchone()
        if done.tag != b"COMMIT":
            raise Locked("the store rolled the transaction back; nothing was changed")
        return done

    def give_up(self) -> None:
        """Roll back what can still be rolled back."""
        if not self.lost and (self.in_transaction or self.is_failed):
            with suppress(IcError):
                self.roll_back()
        self.in_transaction, self.until = False, inf

    def holder(self) -> str | None:
        """Who has the project's turn, for a person; None if it is free."""
        with self.within(SILENCE_SECONDS):
            row = self.execute(_HOLDER, (self.key,)).fetchone()
        if row is None:
            return None
        name, role, address, ms = row
        place = f" at {address}" if address else ""
        return f"{name or 'a program'} of the role {role}{place}, for {ms} ms"

    def listen(self) -> None:
        """Be told when others write: the socket can be read then."""
        self.execute(f'LISTEN "{self.schema}"')

    def ask_time(self) -> int:
        with self.within(SILENCE_SECONDS):
            (found,) = self.execute(_NOW).fetchone()
        return int(found)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Outside a transaction: the server counts as silent after so long."""
        self.until = time.monotonic() + seconds
        try:
            yield
        finally:
            self.until = inf

    def relink(self, other: Session) -> None:
        """Go on with another connection, where this one was lost."""
        self.adopt(other)
        self.foreign += 1  # the others may have written meanwhile
        self.counts = None


def lock_key(schema: str) -> int:
    """The number of a project's advisory lock."""
    digest = blake2b(schema.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
