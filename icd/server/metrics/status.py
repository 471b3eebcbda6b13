"""What the daemon answers itself, without waiting for any database: busy never looks like dead.

A report is put together from what is in memory, and from two small files beside the socket; no
file of a project is touched, so a hung mount does not show here but as a call that waits.
"""

import os
import sqlite3
import time
from collections import Counter

from icd import __version__
from icd.app.call import Answer, Call, Params
from icd.app.openrpc import document
from icd.errors import IcError
from icd.features.daemon import methods as daemon
from icd.server import start_failures as startups
from icd.server.metrics.slow import Slow
from icd.server.metrics.tally import Tally, last_error
from icd.server.stores.registry import Router
from icd.server.stores.store import Store
from icd.server.workers.hooks.hooks import Hooks
from icd.server.workers.mirror.mirrors import Mirrors
from icd.values.wire import iso

# Where `icctl` notes calls that failed without us, and how much of it is read; see icctl/messages.
MISSED = "failures"
MISSED_CHARACTERS = 65_536 + 4096
# Two connections that write or checkpoint at the same instant can corrupt a WAL database before.
SOUND_SQLITE = (3, 51, 3)
SQLITE_NOTE = (
    "before 3.51.3, two connections at once could damage a database; "
    "harmless here: intercore's lock lets one at a time touch the file (ADR 0004)"
)


class About:
    """Facts and counts since the start."""

    def __init__(
        self, socket: str, router: Router, mirrors: Mirrors, hooks: Hooks, slow_ms: int
    ) -> None:
        self.sessions = 0
        self.subscribers = 0
        self.socket = socket
        self._router = router
        self._mirrors = mirrors
        self._hooks = hooks
        self._started = time.monotonic()
        self._started_at = int(time.time())
        self._tally = Tally(self._started)
        self._slow = Slow(slow_ms)

    def count(self, method: str, began: float) -> None:
        now = time.monotonic()
        self._tally.add(method, 1, now - began, now)

    def count_all(self, calls: list[Call], answers: list[Answer], began: float) -> None:
        """Calls that were answered together; what the daemon asked for itself does not count."""
        now = time.monotonic()
        took = now - began
        sizes: dict[str, int] = {}
        for call in calls:
            if not call.background:
                name = call.method.name
                sizes[name] = sizes.get(name, 0) + 1
        for name, size in sizes.items():
            self._tally.add(name, size, took, now)
        if took >= self._slow.seconds:
            for call, answer in zip(calls, answers, strict=True):
                if not call.background:
                    error = answer.error.name if answer.error is not None else ""
                    self._slow.note(call, took, error, now=now)

    def blame(self, method: str, caller: str, error: IcError) -> None:
        self._tally.fail(method, caller, error, now_ms=time.time_ns() // 1_000_000)

    def answer(self, params: Params) -> object:
        if isinstance(params, daemon.Ping):
            return daemon.Pong(pid=os.getpid(), version=__version__)
        if isinstance(params, daemon.Hello):
            return self._welcome(params)
        if isinstance(params, daemon.Discover):
            return document()
        return self._report()

    def summary(self) -> str:
        """For the service manager, in a line."""
        hung = self._router.hung()
        told = f"{len(self._router.stores)} databases open, {self.sessions} sessions"
        return f"{told}, does not answer: {', '.join(hung)}" if hung else told

    def _welcome(self, params: daemon.Hello) -> daemon.Welcome:
        if daemon.PROTOCOL not in params.protocols:
            raise daemon.no_common_protocol(params.protocols)
        return daemon.Welcome(
            protocol=daemon.PROTOCOL,
            capabilities=daemon.CAPABILITIES,
            unknown_capabilities=[
                name for name in params.capabilities if name not in daemon.CAPABILITIES
            ],
            version=__version__,
            pid=os.getpid(),
            sqlite_version=sqlite3.sqlite_version,
        )

    def _missed(self) -> tuple[Counter[str], int | None]:
        """What clients wrote down beside our socket, in a directory that is never a hung one."""
        try:
            path = os.path.join(os.path.dirname(self.socket), MISSED)
            with open(path, encoding="ascii", errors="replace") as file:
                found = Counter(file.read(MISSED_CHARACTERS).split())
                return found, int(os.fstat(file.fileno()).st_mtime)
        except OSError:
            return Counter(), None

    def _start_up_errors(self) -> list[daemon.StartUpError]:
        directory, now_ms = os.path.dirname(self.socket), time.time_ns() // 1_000_000
        return [
            daemon.StartUpError(
                at=failed.at_ms // 1000, at_iso=iso(failed.at_ms // 1000), sentence=failed.sentence
            )
            for failed in startups.recent(directory, now_ms)
        ]

    def _report(self) -> daemon.Report:
        now = time.monotonic()
        by_caller = self._tally.by_caller()
        missed, missed_at = self._missed()
        return daemon.Report(
            version=__version__,
            protocol=daemon.PROTOCOL,
            pid=os.getpid(),
            started_at=self._started_at,
            started_at_iso=iso(self._started_at),
            uptime=int(now - self._started),
            socket=self.socket,
            sqlite_version=sqlite3.sqlite_version,
            sqlite_note=SQLITE_NOTE if sqlite3.sqlite_version_info < SOUND_SQLITE else None,
            sessions=self.sessions,
            subscribers=self.subscribers,
            calls=self._tally.calls,
            failures=dict(self._tally.failures),
            missed=dict(missed),
            missed_at=missed_at,
            missed_at_iso=None if missed_at is None else iso(missed_at),
            slow_calls=self._slow.count,
            rates=self._tally.rates(now),
            methods=self._tally.methods(),
            failures_by_caller=by_caller,
            last_error=last_error(by_caller),
            start_up_errors=self._start_up_errors(),
            databases=[_database(store, now) for store in self._router.stores.values()],
            mirror=self._mirrors.report(),
            hooks=self._hooks.report(),
        )


def _database(store: Store, now: float) -> daemon.OpenDatabase:
    """What is known of a database without touching its file."""
    found = daemon.OpenDatabase(
        path=store.path,
        calls=store.calls,
        batches=store.batches,
        own_batches=store.own_batches,
        mean_batch=round(store.calls / max(1, store.batches), 2),
        largest_batch=store.largest_batch,
        waiting=store.waiting,
        reopened=store.database.reopened,
    )
    if store.hung_since is not None:
        found.hung_seconds = int(now - store.hung_since)
    facts = store.facts
    if facts is not None:
        found.size_bytes, found.wal_bytes, found.rows = (
            facts.size_bytes,
            facts.wal_bytes,
            facts.rows,
        )
        found.lags = facts.lags
        found.measured_at = facts.at_ms // 1000
        found.measured_at_iso = iso(found.measured_at)
    return found
