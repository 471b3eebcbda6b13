"""Databases of every schema that there ever was, opened by either host: all of it is still there."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from icd.db import migrate
from tests.data import later
from tests.data.databases import make
from tests.support.databases import ABSENT, NAMES, expected, is_kept, load, read
from tests.support.processes import Daemon, icctl, running

LATER = f"original-{later.SCHEMA}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    with running() as daemon:
        yield daemon


def assert_kept(said: dict[str, list[str]], name: str) -> None:
    """Lines may be added by later versions, and fields to lines; none may be lost."""
    for command, lines in expected(name).items():
        for line in lines:
            assert any(is_kept(line, new) for new in said[command]), (command, line, said[command])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_without_a_daemon_it_is_upgraded_and_nothing_is_lost(name: str, project: Path) -> None:
    load(name, project)
    if name == LATER:
        assert icctl("init", "--adopt", cwd=project, env=ABSENT).returncode == 0

    said = read(project, ABSENT)

    assert_kept(said, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_daemon_upgrades_it_and_nothing_is_lost(
    name: str, project: Path, shared: Daemon
) -> None:
    env = {"INTERCORE_SOCKET": shared.socket, "INTERCORE_MODE": "daemon"}
    load(name, project)
    if name == LATER:
        refused = icctl("health", cwd=project, env=env)
        assert (refused.returncode, b"icctl init --adopt" in refused.stderr) == (2, True)
        assert icctl("init", "--adopt", cwd=project, env=env).returncode == 0

    said = read(project, env)

    assert_kept(said, name)


def test_there_is_one_of_every_schema() -> None:
    ours = {f"ours-{number}" for number, _ in migrate.pending(0)}
    theirs = {f"original-{number}" for number in range(1, migrate.LAST_ORIGINAL + 1)}

    assert set(NAMES) >= ours | theirs | {LATER}
    assert {path.stem for path in make.HERE.glob("*.expected")} == set(NAMES)


def test_they_are_what_the_migrations_made_when_they_were_released() -> None:
    """A migration that was edited would make another database than people have."""
    for name, content in make.every():
        assert (make.HERE / f"{name}.sql").read_text("utf-8") == content, name


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("ours-")])
def test_every_table_of_ours_has_rows(name: str, project: Path) -> None:
    path = load(name, project)

    with closing(sqlite3.connect(path)) as conn:
        tables = conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        empty = [
            table for (table,) in tables if not conn.execute(f"SELECT 1 FROM {table}").fetchone()
        ]

    assert empty == []


def test_a_value_that_changed_or_a_field_that_is_gone_is_noticed() -> None:
    old = '{"kind":"state","key":"k","payload":"1"}'

    assert is_kept(old, '{"kind":"state","key":"k","payload":"1","more":2}')
    assert not is_kept(old, '{"kind":"state","key":"k","payload":"2"}')
    assert not is_kept(old, '{"kind":"state","key":"k"}')
    assert not is_kept("allowed", "throttled")
