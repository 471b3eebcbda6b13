"""Fixtures for files, permissions and other processes."""

import os
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from icd import config
from icd.db import migrate
from icd.db.database import Database
from icd.features.database import export as dumps
from tests.support.lines import decoded, take

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


def copied(lines, *, now_ms):
    """What another database exports after it has taken these lines in."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as elsewhere:
        migrate.apply(elsewhere, "", now_ms=now_ms)
        read = [decoded(msgspec.json.encode(line)) for line in lines]
        take(elsewhere, *read, now_ms=now_ms)
        kinds = tuple({type(line) for line in lines})
        return [line for line in dumps.export(elsewhere) if isinstance(line, kinds)]


@pytest.fixture
def start():
    """Start a Python program in a process of its own, with pipes for stdin and stdout."""
    started = []

    def program(text, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-c", text, *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield program
    for process in started:
        with process:
            process.kill()


@pytest.fixture
def open_umask():
    """A caller whose umask takes nothing away: what we create must be private all the same."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def opened():
    """Databases of a test, opened and held one after the other, closed at its end."""
    found = []

    def database(path, *, create=False, settings=config.DEFAULTS):
        made = Database(str(path), settings)
        found.append(made)
        with made.hold(time.monotonic() + PATIENCE, create=create):
            made.connection(create=create)
        return made

    yield database
    for made in found:
        made.close()
        made.lock.close()


@pytest.fixture
def spoil():
    """Overwrite the root page of a table in a closed database: only who reads it notices."""

    def spoiled(path, table="state"):
        with closing(sqlite3.connect(path)) as conn:
            (size,) = conn.execute("PRAGMA page_size").fetchone()
            (root,) = conn.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
            ).fetchone()
        with open(path, "r+b") as file:
            file.seek((root - 1) * size)
            file.write(b"\xff" * size)

    return spoiled


@pytest.fixture
def mode():
    """The permission bits of a file."""
    return lambda path: stat.S_IMODE(os.stat(path).st_mode)
