"""Fixtures for the domain: plain functions of a connection."""

from contextlib import contextmanager

import pytest


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
