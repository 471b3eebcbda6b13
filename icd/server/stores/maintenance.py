"""What a database needs while no call waits for it.  Runs in its thread.

A look costs a fraction of a millisecond: is the file still the one that is open, did another
process write to it.  Only after use is there more to do: prune, empty the log, count.
"""

import asyncio
import sqlite3
import time
from collections import deque
from contextlib import suppress
from functools import partial
from typing import NoReturn

from msgspec import Struct

from icd.app import idempotency as requests
from icd.app.dispatch import Clock, failure
from icd.app.write_cache import Recent
from icd.config import Settings
from icd.db.connection import transaction, until
from icd.db.engine import Engine
from icd.errors import Corrupt, DeadlineExceeded, Guard, IcError, Locked, LogLost, NoDatabase
from icd.features.database import store as contents
from icd.features.discoveries import lifecycle as dismissals
from icd.features.events import cursors, retention
from icd.features.state import store as state
from icd.server import limits

# Others may hold the lock; upkeep can wait for the next quiet moment.
PATIENCE_SECONDS = 0.5
CLOSING_SECONDS = 2.0
# What takes longer than this is left for the next quiet moment: a call may be about to come.
WORK_SECONDS = 0.25
REQUESTS_AT_ONCE = 1000
# Where events are to be forgotten, a quiet database is looked at this often.
RETENTION_MS = 3600 * 1000
DAY_MS = 24 * 3600 * 1000
# Rows of a larger file are not counted: a call would wait for that, a tenth of a second.
COUNTED_BYTES = 256 * 1024 * 1024
# Consumers whose lag is told: those furthest behind.
LAGS = 50


class Facts(Struct, frozen=True):
    """What the last look found; `rows` by table, empty where they are too many."""

    size_bytes: int
    wal_bytes: int
    rows: dict[str, int]
    lags: dict[str, int]  # of consumers, in events
    at_ms: int


class Turns:
    """Looks at databases that are due in the same moment: one for each pass of the loop.

    Each holds up the loop for a fraction of a millisecond; a thousand in one pass would be a pause
    that every caller notices.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._is_taken = False  # in this pass

    def take(self) -> "asyncio.Future[bool]":
        """Done when it is our turn; whoever does not want it any more sets it to True before."""
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if not self._is_taken:
            self._pass()
        return turn

    def _pass(self) -> None:
        self._is_taken = False
        while self._waiting and not self._is_taken:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(False)
                self._is_taken = True
                turn.get_loop().call_soon(self._pass)


class Maintenance:
    """`facts` is replaced as a whole, so that the loop may read it; all else is the thread's."""

    def __init__(self, database: Engine, clock: Clock, recent: Recent) -> None:
        self.facts: Facts | None = None
        self.used = True  # set by the loop between hops: something may have been written
        self._database = database
        self._clock = clock
        self._recent = recent
        self._next_ms: int | None = None  # when the next row expires
        self._counted: tuple[int, int] | None = None

    def look(self, *, close: bool) -> float | None:
        """Maintain the database, and close it if told to; the seconds until there is more to do."""
        try:
            with self._database.hold(time.monotonic() + PATIENCE_SECONDS):
                now_ms = self._database.time_ms(self._clock.now_ms)
                done = self._work(now_ms)
                if close and done is not False:
                    self._database.close()
        except NoDatabase:
            self._database.close()
            return None
        except (Locked, LogLost):
            return None
        if done is False:
            return 0.0
        return None if self._next_ms is None else max(0, self._next_ms - now_ms) / 1000

    def _work(self, now_ms: int) -> bool | None:
        """Whether there is nothing left to do; None: it took too long to find out."""
        self._database.stop_at = stop_at = time.monotonic() + WORK_SECONDS
        conn, done = self._connection(), None
        with Guard(partial(self._fail, conn)), suppress(DeadlineExceeded), until(conn, stop_at):
            done = self._see_to(conn, now_ms)
            self._note(conn, now_ms)
        return done

    def _fail(self, conn: sqlite3.Connection, exc: Exception) -> NoReturn:
        error = failure(exc, self._database.path, conn)
        if isinstance(error, Corrupt):
            self._database.close()  # the next to open it looks at all of it
        raise error from error.__cause__

    def _connection(self) -> sqlite3.Connection:
        database, was_open = self._database, self._database.is_open
        try:
            return database.connection()
        except LogLost as exc:
            database.owe(exc)
            raise
        except NoDatabase:
            # An older copy may take its place before a caller sees that it is gone.
            if was_open:
                with suppress(OSError, IcError):  # its directory may be gone, too
                    database.owe(LogLost(f"{database.path} was removed while it was in use"))
            raise

    def _see_to(self, conn: sqlite3.Connection, now_ms: int) -> bool:
        """Prune and empty the log, after use; whether nothing to do."""
        if self._database.others_wrote():
            self._recent.clear()
            self.used = True
        expired = self._next_ms is not None and self._next_ms <= now_ms
        if not (self.used or expired):
            return True
        settings = self._database.settings
        left = _prune(conn, now_ms) | _prune_events(conn, settings, now_ms)
        if left | _prune_dismissed(conn, settings, now_ms):
            return False
        self._database.tidy()
        self._next_ms = _next(conn, settings, now_ms)
        self.used = False
        return True

    def _note(self, conn: sqlite3.Connection, now_ms: int) -> None:
        """Renew the facts; rows are counted anew only if something was written since."""
        (size, log), known = self._database.sizes(), self.facts
        written = (conn.total_changes, self._database.foreign)
        if known is None or written != self._counted:
            rows = contents.counts(conn) if size <= COUNTED_BYTES else {}
            lags = cursors.lags(conn, limit=LAGS, now_ms=now_ms)
            self._counted = written
        else:
            rows, lags = known.rows, known.lags
        self.facts = Facts(size, log, rows, lags, now_ms)


def rest(settings: Settings, *, now: float, idle: float, due: float | None) -> float:
    """The seconds until there is something to prune, to notice or to close, whichever is first.

    All databases at rest are looked at in the same moment: waking up once for a hundred of them
    costs a fifth of waking up a hundred times.
    """
    period = limits.LOOK_SECONDS if idle < limits.REST_SECONDS else limits.REST_SECONDS
    moments = [period - now % period]
    if due is not None:
        moments.append(max(due, settings.idle_seconds))
    if idle < settings.close_idle_seconds:
        moments.append(settings.close_idle_seconds - idle)
    return min(moments)


def close(database: Engine) -> None:
    if database.is_open:
        with database.hold(time.monotonic() + CLOSING_SECONDS):
            try:
                database.look()  # SQLite would copy a log that was overwritten
            except LogLost as exc:
                database.owe(exc)
            finally:
                database.close()
    database.leave()


def _prune(conn: sqlite3.Connection, now_ms: int) -> bool:
    """Remove a bounded number of rows; whether there may be more."""
    with transaction(conn):
        rows = state.prune_some(conn, now_ms=now_ms)
        ids = requests.prune(conn, limit=REQUESTS_AT_ONCE, now_ms=now_ms)
    return rows >= state.PRUNED_AT_ONCE or ids >= REQUESTS_AT_ONCE


def _prune_events(conn: sqlite3.Connection, settings: Settings, now_ms: int) -> bool:
    """What is to be forgotten, by the settings; whether there may be more."""
    days, count = settings.events_keep_days, settings.events_keep_count
    if not (days or count):
        return False
    rule = retention.Rule(now_ms - days * DAY_MS if days else None, count or None)
    with transaction(conn):
        return retention.prune_some(conn, rule, now_ms=now_ms) >= retention.PRUNED_AT_ONCE


def _prune_dismissed(conn: sqlite3.Connection, settings: Settings, now_ms: int) -> bool:
    """Discoveries that are to be forgotten, by the settings; whether there may be more."""
    if not settings.discoveries_keep_days:
        return False
    before_ms = now_ms - settings.discoveries_keep_days * DAY_MS
    with transaction(conn):
        return dismissals.prune_some(conn, before_ms=before_ms) >= dismissals.PRUNED_AT_ONCE


def _next(conn: sqlite3.Connection, settings: Settings, now_ms: int) -> int | None:
    """When, in milliseconds, a row expires or something may be old enough to be forgotten."""
    moments = [state.next_expiry(conn)]
    if settings.discoveries_keep_days:
        oldest_ms = dismissals.oldest_ms(conn)
        if oldest_ms is not None:
            moments.append(oldest_ms + settings.discoveries_keep_days * DAY_MS)
    if settings.events_keep_days:
        moments.append(now_ms + RETENTION_MS)
    return min((moment for moment in moments if moment is not None), default=None)
