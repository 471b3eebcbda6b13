"""Fixtures for the domain: plain functions of a connection."""

from contextlib import contextmanager

import pytest

from icd.features.runs import create as claims
from icd.values.processes import Writer
from tests.conftest import NOW_MS


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
