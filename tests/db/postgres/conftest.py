"""Hosts of one project, whose data is on a server: as many as a test wants, each with its file."""

import shutil
import time

import pytest

pytest.importorskip("psycopg")

from icd import config
from icd.app import registry
from icd.app.call import Call
from icd.app.dispatch import run_batch
from icd.db.paths import Where
from icd.db.postgres.database import Shared
from icd.values.processes import Writer
from tests.conftest import FakeClock
from tests.support.processes import PATIENCE

PROJECT = "tests/store"


class Host:
    """A machine, with a clock of its own."""

    def __init__(self, root, empty, store, *, careful=False):
        path = root / ".clavain" / "intercore.db"
        path.parent.mkdir(parents=True)
        (root / ".git").mkdir()
        shutil.copyfile(empty, path)
        path.chmod(0o600)
        self.where = Where(str(root))
        self.clock = FakeClock()
        self.engine = Shared(str(path), config.DEFAULTS, store, PROJECT, careful=careful)
        self.engine.batch_seconds = PATIENCE  # all calls of a test are one batch

    def call(self, method, *, seconds=20.0, **params):
        found = registry.find(method)
        return Call(
            method=found,
            params=found.params(**params),
            where=self.where,
            writer=Writer(41, "s"),
            deadline=time.monotonic() + seconds,
        )

    def run(self, *calls):
        """Together, and what a slow machine did not reach after them, as a daemon does."""
        found = run_batch(self.engine, list(calls), clock=self.clock)
        left = [call for call, answer in zip(calls, found, strict=True) if answer is None]
        again = iter(self.run(*left) if left else [])
        return [answer or next(again) for answer in found]

    def ask(self, method, *, seconds=20.0, **params):
        (answer,) = self.run(self.call(method, seconds=seconds, **params))
        return answer

    def result(self, method, **params):
        answer = self.ask(method, **params)
        if answer.error is not None:
            raise answer.error
        return answer.result


@pytest.fixture
def host(tmp_path, empty_database, tables, postgres):
    """Make a host; all that a test made are closed after it, and the tables are emptied."""
    usable, emptied = tables
    made = []

    def found(*, store=None, careful=False):
        root = tmp_path / f"machine{len(made)}"
        host = Host(root, empty_database, store or postgres.store, careful=careful)
        made.append(host)
        return host

    yield found
    for each in made:
        each.engine.close()
    emptied(usable())
