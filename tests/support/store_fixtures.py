"""Fixtures for the domain: plain functions of a connection."""

import time
from contextlib import contextmanager

import pytest

from icd.features.runs import create as claims
from icd.values.processes import Writer
from tests.conftest import NOW_MS
from tests.support.postgres import Server, directory


@pytest.fixture
def scratch(conn):
    """A transaction that is undone: each example of a property starts on an empty database."""

    @contextmanager
    def undone():
        conn.execute("BEGIN")
        try:
            yield conn
        finally:
            conn.execute("ROLLBACK")

    return undone


@pytest.fixture
def create(conn):
    """Begin a run."""

    def created(*, now_ms=NOW_MS, takeover_after_ms=None, actor=Writer(41, "s"), **wanted):  # noqa: B008
        wanted = {"project_dir": "/p", "goal": "g"} | wanted
        run = claims.new(**wanted, actor=actor, now_ms=now_ms)
        claims.create(conn, run, takeover_after_ms=takeover_after_ms, actor=actor, now_ms=now_ms)
        return run

    return created


@pytest.fixture(scope="session")
def postgres():
    """A server of our own, for all tests of this process."""
    programs = directory()
    if programs is None:
        pytest.skip("no PostgreSQL is installed: apt-get install postgresql")
    pytest.importorskip("psycopg")
    server = Server(programs)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tables(postgres):
    """A project's tables on the server: how to connect to them, and how to empty them."""
    from icd.db.postgres import connect, project

    def connected():
        return connect.connect(postgres.store, "tests/store", deadline=time.monotonic() + 60)

    made = {"deadline": time.monotonic() + 60, "now_ms": NOW_MS}
    project.create(postgres.store, "tests/store", **made)
    found = connected()
    names = found.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace ="
        " (SELECT oid FROM pg_namespace WHERE nspname = ?) ORDER BY oid DESC",
        (found.schema,),
    ).fetchall()
    counters = found.execute("SELECT name, value FROM counters").fetchall()

    def emptied(conn):
        conn.execute("BEGIN")
        for (name,) in names:
            if name != "migrations":
                conn.execute(f"DELETE FROM {name}")
        conn.executemany("INSERT INTO counters (name, value) VALUES (?, ?)", counters)
        conn.execute("COMMIT")

    kept = [found]

    def usable():
        if kept[0].lost:  # a test may close it
            kept[0] = connected()
        return kept[0]

    yield usable, emptied
    usable().close()


@pytest.fixture
def session(tables):
    """A connection to empty tables on a server, outside any transaction."""
    usable, emptied = tables
    yield usable()
    usable().execute("ROLLBACK")
    emptied(usable())
