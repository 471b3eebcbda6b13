"""What the daemon answers itself, without waiting for any database: busy never looks like dead."""

import os
import sqlite3
import time
from collections import Counter
from typing import Any

from icd import __version__
from icd.rpc.discover import document
from icd.rpc.method import Params
from icd.rpc.methods import daemon
from icd.server.mirrors import Mirrors
from icd.server.router import Router

# Where `icctl` notes calls that failed without us, and how much of it is read; see icctl/failures.
MISSED = "failures"
MISSED_CHARACTERS = 65_536 + 4096


class About:
    """Facts and counts since the start."""

    def __init__(self, socket: str, router: Router, mirrors: Mirrors) -> None:
        self.sessions = 0
        self.calls: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.socket = socket
        self._router = router
        self._mirrors = mirrors
        self._started = time.monotonic()

    def count(self, method: str, error: Any) -> None:
        self.calls[method] += 1
        if error is not None and error.exit >= 2:
            self.failures[method] += 1

    def refuse(self, command: str) -> None:
        """A command line that made no sense: its author, a script, may never look at stderr."""
        name = command.replace(" ", ".")
        self.calls[name] += 1
        self.failures[name] += 1

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
        return f"{len(self._router.stores)} databases open, {self.sessions} sessions"

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

    def _missed(self) -> Counter[str]:
        """What clients wrote down beside our socket, in a directory that is never a hung one."""
        try:
            path = os.path.join(os.path.dirname(self.socket), MISSED)
            with open(path, encoding="ascii", errors="replace") as file:
                return Counter(file.read(MISSED_CHARACTERS).split())
        except OSError:
            return Counter()

    def _report(self) -> daemon.Report:
        return daemon.Report(
            version=__version__,
            protocol=daemon.PROTOCOL,
            pid=os.getpid(),
            uptime=int(time.monotonic() - self._started),
            socket=self.socket,
            sqlite_version=sqlite3.sqlite_version,
            sessions=self.sessions,
            calls=dict(self.calls),
            failures=dict(self.failures),
            missed=dict(self._missed()),
            databases=[
                daemon.OpenDatabase(
                    path=store.path,
                    calls=store.calls,
                    batches=store.batches,
                    waiting=store.waiting,
                    reopened=store.database.reopened,
                )
                for store in self._router.stores.values()
            ],
            mirror=self._mirrors.report(),
        )
