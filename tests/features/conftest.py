"""Which engine a test of a noun runs on: those that only need a connection run on both."""

import pytest


def pytest_generate_tests(metafunc):
    """A connection of each engine; what uses the file of a database, too, has that of SQLite."""
    if "engine" not in metafunc.fixturenames:
        return
    engines = [pytest.param("sqlite", id="sqlite")]
    is_of_files = "database" in metafunc.fixturenames
    if not is_of_files and not metafunc.definition.get_closest_marker("sqlite_only"):
        is_store = metafunc.module.__name__.endswith("test_store")
        marks = () if is_store else pytest.mark.long
        engines.append(pytest.param("postgres", id="postgres", marks=marks))
    metafunc.parametrize("engine", engines)


@pytest.fixture
def conn(request, engine):
    """A connection outside any transaction: each statement of a store commits by itself."""
    if engine == "postgres":
        return request.getfixturevalue("session")
    return request.getfixturevalue("database").connection()
