"""Fixtures: real SQLite, real files, real processes; the clock is passed in."""

import sqlite3
import time
from pathlib import Path

import pytest

from icd import config
from icd.db.database import Database
from icd.rpc.method import Clock
from tests.processes import icctl, running

NOW_MS = 1_800_000_000_000


class FakeClock(Clock):
    """A clock that moves only when a test says so."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.wall_ms = now_ms

    def now_ms(self) -> int:
        return self.wall_ms


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory that is nobody's sub-project: discovery must not climb out of it."""
    root = tmp_path / "project"
    root.mkdir()
    (root / ".git").mkdir()
    return root


@pytest.fixture
def database(project: Path):
    """A migrated database, closed after the test."""
    path = project / ".clavain" / "intercore.db"
    found = Database(str(path), config.DEFAULTS)
    with found.hold(time.monotonic() + 5, create=True):
        found.connection(create=True)
    yield found
    with found.hold(time.monotonic() + 5):
        found.close()
    found.lock.close()


@pytest.fixture
def conn(database: Database) -> sqlite3.Connection:
    """A connection outside any transaction: each statement of core commits by itself."""
    return database.connection()


@pytest.fixture
def daemon():
    with running() as found:
        yield found


@pytest.fixture
def initialized(project: Path) -> Path:
    """A project with a database."""
    assert icctl("init", cwd=project, env={"INTERCORE_MODE": "direct"}).returncode == 0
    return project
