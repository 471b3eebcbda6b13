"""Descriptors that run short: a database that is not used makes room for the next."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Daemon

DESCRIPTORS = 96
PROJECTS = 60


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    found = Daemon()
    try:
        yield found.start(preexec_fn=limited)
    finally:
        found.close()


def count(daemon: Daemon, project: Path) -> int:
    value: int = daemon.call("state.incr", cwd=str(project), key="k", scope_id="s")["value"]
    return value


def test_every_database_is_opened_however_many_there_are(daemon: Daemon, tmp_path: Path) -> None:
    projects = [tmp_path / str(number) for number in range(PROJECTS)]
    for project in projects:
        project.mkdir()
        daemon.call("db.init", cwd=str(project))

    counted = [[count(daemon, project) for project in projects] for _ in range(2)]

    assert counted == [[1] * PROJECTS, [2] * PROJECTS]
    assert "too few descriptors, closing a database" in daemon.log.read_text()


def test_the_one_that_is_used_stays_open(daemon: Daemon, tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    daemon.call("db.init", cwd=str(used))

    for number in range(PROJECTS):
        project = tmp_path / str(number)
        project.mkdir()
        daemon.call("db.init", cwd=str(project))
        count(daemon, used)

    log = daemon.log.read_text()
    assert f"{tmp_path}/0/" in log
    assert f"{used}/" not in log
