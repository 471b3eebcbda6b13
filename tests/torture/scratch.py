"""A database on which anything is tried, and nothing stays."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from icd import config
from icd.app import registry
from icd.app.call import Answer, Call, Params
from icd.app.dispatch import Clock, _Batch
from icd.app.verb import Method
from icd.db.database import Database
from icd.db.paths import Where
from icd.errors import Internal
from icd.values.processes import Writer

NOW_MS = 1_800_000_000_000
LATER_SECONDS = 60.0
RUN = "run.create", {"goal": "g", "project": "/project", "scope_id": "s"}
VECTOR = "AACAPwAAAAA="
ROWS: dict[str, dict[str, object]] = {
    "state.set": {"key": "k", "scope_id": "s", "payload": {"a": 1}},
    "sentinel.check": {"name": "n", "scope_id": "s", "interval": 60},
    "lease.acquire": {"name": "n", "scope_id": "s", "owner": "o", "ttl_ms": 1000},
    "events.record": {"source": "ci", "type": "t", "payload": {}},
    "cursor.register": {"consumer": "c"},
    "discovery.submit": {"source": "s", "source_id": "1", "title": "t", "embedding": VECTOR},
}


class Still(Clock):
    def now_ms(self) -> int:
        return NOW_MS


class Scratch:
    """With a few rows of each noun, for commands to find."""

    def __init__(self) -> None:
        path = os.path.join(tempfile.mkdtemp(prefix="scratch-"), "intercore.db")
        database = Database(path, config.DEFAULTS)
        with database.hold(time.monotonic() + LATER_SECONDS, create=True):
            self._conn = database.connection(create=True)
        self._batch = _Batch(database, [], Still(), None)
        self._batch._conn = self._conn
        self.run_id = str(self._made(*RUN).id)
        for name, given in ROWS.items():
            self._made(name, given)

    def _made(self, name: str, given: dict[str, object]) -> Any:
        method = registry.find(name)
        assert method is not None, name
        params = msgspec.json.decode(msgspec.json.encode(given), type=method.params)
        answer = self._batch._run_alone(self.call(method, params))
        assert answer.error is None, f"{name}: {answer.error}"
        return answer.result

    @staticmethod
    def can_run(method: Method) -> bool:
        """What works on rows; not what works on the daemon, or on whole files."""
        return method.run is not None and not (
            method.runs.whole or method.runs.local or method.runs.creates
        )

    @staticmethod
    def call(method: Method, params: Params) -> Call:
        later = time.monotonic() + LATER_SECONDS
        return Call(method, params, Where("/project"), Writer(1, "session"), later)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Whatever is done in here is undone."""
        self._conn.execute("BEGIN")
        try:
            yield
        finally:
            if self._conn.in_transaction:
                self._conn.execute("ROLLBACK")

    def answer(self, call: Call) -> Answer:
        """As a daemon that runs several calls in one transaction; a bug is raised."""
        answer = self._batch._in_savepoint(call)
        if isinstance(answer.error, Internal):
            raise answer.error.__cause__ or answer.error
        return answer
