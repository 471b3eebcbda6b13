"""What the daemon answers itself, without waiting for any database: busy never looks like dead.

A report is put together from what is in memory, and from two small files beside the socket; no
file of a project is touched, so a hung mount does not show here but as a call that waits.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from icd import __version__
from icd.app.call import Params
from icd.app.reference.openrpc import document
from icd.features.daemon import report, verbs
from icd.features.daemon.report import OpenDatabase, Report, StartUpError
from icd.server import start_failures
from icd.server.metrics.counters import Counters
from icd.server.stores.registry import Stores
from icd.server.stores.store import Store
from icd.server.workers.hooks import Hooks
from icd.server.workers.mirror import Mirrors

SQLITE_NOTE = (
    "before 3.51.3, two connections at once could damage a database; "
    "harmless here: intercore's lock lets one at a time touch the file (ADR 0004)"
)


class About:
    """Facts and counts since the start."""

    def __init__(
        self,
        socket: Callable[[], str],
        router: Stores,
        mirrors: Mirrors,
        hooks: Hooks,
        slow_ms: int,
    ) -> None:
        self.sessions = 0
        self.subscribers = 0
        self._socket = socket
        self._router = router
        self._mirrors = mirrors
        self._hooks = hooks
        self._started = time.monotonic()
        self._started_at = int(time.time())
        self.counters = Counters(self._started, slow_ms)

    @contextmanager
    def subscriber(self) -> Iterator[None]:
        self.subscribers += 1
        try:
            yield
        finally:
            self.subscribers -= 1

    def answer(self, params: Params) -> object:
        if isinstance(params, verbs.Ping):
            return verbs.Pong(pid=os.getpid(), version=__version__)
        if isinstance(params, verbs.Hello):
            return _welcome(params)
        if isinstance(params, verbs.Discover):
            return document()
        return self._report()

    def summary(self) -> str:
        """A line about the daemon, for the service manager."""
        hung = self._router.hung()
        told = f"{len(self._router.stores)} databases open, {self.sessions} sessions"
        return f"{told}, does not answer: {', '.join(hung)}" if hung else told

    def _report(self) -> Report:
        now, counters = time.monotonic(), self.counters
        directory = os.path.dirname(self._socket())
        missed, missed_at = report.missed(directory)
        failed = start_failures.recent(directory, _now_ms())
        is_sound = sqlite3.sqlite_version_info >= report.SOUND_SQLITE
        return Report(
            version=__version__,
            protocol=verbs.PROTOCOL,
            pid=os.getpid(),
            started_at=self._started_at,
            uptime=int(now - self._started),
            socket=self._socket(),
            sqlite_version=sqlite3.sqlite_version,
            sqlite_note=None if is_sound else SQLITE_NOTE,
            sessions=self.sessions,
            subscribers=self.subscribers,
            calls=counters.calls,
            failures=dict(counters.failures),
            missed=dict(missed),
            missed_at=missed_at,
            slow_calls=counters.slow_calls,
            rates=counters.rates(now),
            methods=counters.methods(),
            failures_by_caller=counters.by_caller(),
            start_up_errors=[StartUpError(each.at_ms // 1000, each.sentence) for each in failed],
            databases=[_database(store, now) for store in self._router.stores.values()],
            mirror=self._mirrors.report(),
            hooks=self._hooks.report(),
        )


def _welcome(params: verbs.Hello) -> verbs.Welcome:
    if verbs.PROTOCOL not in params.protocols:
        raise verbs.no_common_protocol(params.protocols)
    return verbs.Welcome(
        protocol=verbs.PROTOCOL,
        capabilities=verbs.CAPABILITIES,
        unknown_capabilities=[n for n in params.capabilities if n not in verbs.CAPABILITIES],
        version=__version__,
        pid=os.getpid(),
        sqlite_version=sqlite3.sqlite_version,
    )


def _database(store: Store, now: float) -> OpenDatabase:
    """What is known of a database without touching its file."""
    found = OpenDatabase(
        path=store.path,
        calls=store.calls,
        batches=store.batches,
        own_batches=store.own_batches,
        mean_batch=round(store.calls / max(1, store.batches), 2),
        waiting=store.waiting,
        reopened=store.database.reopened,
        largest_batch=store.largest_batch,
        hung_seconds=None if store.hung_since is None else int(now - store.hung_since),
    )
    facts = store.facts
    if facts is None:
        return found
    return replace(
        found,
        size_bytes=facts.size_bytes,
        wal_bytes=facts.wal_bytes,
        rows=facts.rows,
        lags=facts.lags,
        measured_at=facts.at_ms // 1000,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
