"""Fixtures: real SQLite, real files, real processes; the clock is passed in."""

import gc
import os
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from icd import config
from icd.app.dispatch import Clock
from icd.db.database import Database
from tests.support import processes
from tests.support.processes import CLEAN, DOORS, PATIENCE, Daemon, running

pytest_plugins = [
    "tests.support.store_fixtures",
    "tests.support.call_fixtures",
    "tests.support.command_fixtures",
]

NOW_MS = 1_800_000_000_000

# How long an example takes says how busy the machine is, and nothing about us.
hypothesis.settings.register_profile(
    "unhurried",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Set what children inherit: nohup, cron and a shell's `&` ignore signals and close stdin."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.fstat(0)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def pytest_collection_finish() -> None:
    """Of two threads that start at once, Python 3.11 may refuse to measure the coverage of one.

    Its settrace() then raises in that thread, before it has begun: so threads are not measured.
    And thousands of tests that were collected are no garbage: to look at them again and again
    took a tenth of the time.
    """
    threading.settrace(None)  # type: ignore[arg-type]
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What is skipped where everything must run is an error."""
    if os.environ.get("CI") and terminalreporter.stats.get("skipped"):
        terminalreporter.write_line(
            "CI skips nothing: install what is missing in .ci/run", red=True
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class FakeClock(Clock):
    """A clock that moves only when a test says so."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.wall_ms = now_ms

    def now_ms(self) -> int:
        return self.wall_ms


@pytest.fixture(autouse=True, scope="session")
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is made in this process is trusted, and recorded in the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What the daemon runs on; asynchronous tests are marked with `@pytest.mark.anyio`."""
    return "asyncio"


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


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a migrated database, to be copied: to make one costs three times as much."""
    path = tmp_path_factory.mktemp("empty") / ".clavain" / "intercore.db"
    made = Database(str(path), config.DEFAULTS)
    with made.hold(time.monotonic() + PATIENCE, create=True):
        made.connection(create=True)
        made.close()
    made.lock.close()
    return path


def _copied(empty_database: Path, project: Path, home: Path | None = None) -> Database:
    """A database as `icctl init` makes it, and not yet open; `home` is that of who made it."""
    path = project / ".clavain" / "intercore.db"
    found = Database(str(path), config.DEFAULTS)
    with (
        found.hold(time.monotonic() + PATIENCE, create=True),
        pytest.MonkeyPatch.context() as patch,
    ):
        if home is not None:
            patch.setenv("HOME", str(home))
        shutil.copyfile(empty_database, path)
        path.chmod(0o600)
        found.made()
    return found


@pytest.fixture
def database(project: Path, empty_database: Path):
    """A migrated database, closed after the test."""
    found = _copied(empty_database, project)
    with found.hold(time.monotonic() + PATIENCE):
        found.connection()
    yield found
    with found.hold(time.monotonic() + PATIENCE):
        found.close()
    found.lock.close()


@pytest.fixture
def conn(database: Database) -> sqlite3.Connection:
    """A connection outside any transaction: each statement of core commits by itself."""
    return database.connection()


@pytest.fixture(params=[pytest.param("python", marks=pytest.mark.long), "native"])
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both clients in turn, as `icctl` and on the PATH; the native one with the sanitizers in it."""
    found: Path = DOORS / request.param
    if not (found / "icctl").exists():
        pytest.skip("no C compiler: the native client was not built")
    monkeypatch.setattr(processes, "door", found)
    monkeypatch.setitem(CLEAN, "PATH", f"{found}:/usr/bin:/bin")
    return found


@pytest.fixture
def daemon():
    with running() as found:
        yield found


@pytest.fixture(scope="session")
def shared_daemon() -> Iterator[Daemon]:
    """For tests that only talk to it, each in a project of its own: to start one costs more.

    It is started as users start it, while those of `daemon` are forked: see tests/support/forked.py.
    """
    with running(command=[sys.executable, "-P", "-m", "icd"]) as found:
        yield found
        assert found.call("icd.ping"), "it must have survived everything"


@pytest.fixture
def any_daemon(request: pytest.FixtureRequest) -> Daemon:
    """The test's own, if it asks for one, and else the one that is shared."""
    name = "daemon" if "daemon" in request.fixturenames else "shared_daemon"
    found: Daemon = request.getfixturevalue(name)
    return found


@pytest.fixture
def initialized(project: Path, empty_database: Path) -> Path:
    """A project with a database, as `icctl init` makes it, without starting a Python for it."""
    _copied(empty_database, project, home=project).lock.close()  # as commands have it: see icctl()
    return project


@pytest.fixture
def initialize(empty_database: Path) -> Callable[[Path, Path], None]:
    """Make a database in a project, as `icctl init` does for the owner of a home directory."""

    def made(project: Path, home: Path) -> None:
        _copied(empty_database, project, home).lock.close()

    return made
