"""The interest profile and the retention of discoveries, with real processes."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from icd import __version__
from icd.db import migrate
from tests.support.discovery_lines import DISCOVERY
from tests.support.lines import End, Header
from tests.support.processes import Daemon, icctl, running, until

pytestmark = pytest.mark.long

PROCESSES = 16


@pytest.fixture(params=["daemon", "direct", "mixed"])
def ic(request, initialized: Path, daemon: Daemon):
    """Run a command as the n-th of many processes."""

    def run(number: int, *words: str):
        host = request.param
        if host == "mixed":
            host = "daemon" if number % 2 else "direct"
        env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": host}
        return icctl("discovery", "profile", *words, "--timeout=30s", cwd=initialized, env=env)

    return run


def at_once(function):
    with ThreadPoolExecutor(PROCESSES) as threads:
        return list(threads.map(function, range(PROCESSES)))


def test_finding_8_of_all_who_have_read_the_same_profile_one_changes_it(ic):
    """Where the last writer wins, all of them would be told that they did."""
    winners = []
    for version in range(2):

        def update(number: int, version: int = version):
            mine = json.dumps({f"of-{number}": 1})
            return ic(number, "update", f"--keyword-weights={mine}", f"--if-version={version}")

        done = at_once(update)

        assert sorted(one.returncode for one in done) == [0] + [1] * (PROCESSES - 1)
        told = (
            f"the profile is at version {version + 1}, expected version {version}"
            if version
            else "the profile already exists (version 1)"
        )
        assert all(told.encode() in one.stderr for one in done if one.returncode)
        winners.append(next(n for n, one in enumerate(done) if one.returncode == 0))

    found = json.loads(ic(0, "--json").stdout)
    assert found["version"] == 2
    assert json.loads(found["keyword_weights"]) == {f"of-{winners[-1]}": 1}


def test_finding_8_updates_of_different_parts_do_not_undo_each_other(ic):
    def update(number: int):
        part = "--keyword-weights" if number % 4 < 2 else "--source-weights"
        return ic(number, "update", f'{part}={{"{part[2:]}": 1}}')

    assert [one.returncode for one in at_once(update)] == [0] * PROCESSES

    found = json.loads(ic(0, "--json").stdout)
    assert found["version"] == PROCESSES
    assert json.loads(found["keyword_weights"]) == {"keyword-weights": 1}
    assert json.loads(found["source_weights"]) == {"source-weights": 1}


def _ids(project: Path) -> list[str]:
    """What is in the file, without asking anybody."""
    uri = f"file:{project}/.clavain/intercore.db?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM discoveries ORDER BY id")]


def test_a_daemon_forgets_what_was_dismissed_long_ago(initialized: Path) -> None:
    (initialized / ".clavain" / "intercore.toml").write_text("discoveries_keep_days = 1\n")
    lines = [
        Header("intercore-export", migrate.LATEST, __version__),
        structs.replace(DISCOVERY, status="dismissed", dismissed_ms=1000),
        structs.replace(DISCOVERY, id="stays", source_id="2"),
        End(),
    ]
    file = initialized / "file"
    file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    with running(env={"INTERCORE_IDLE_SECONDS": "0.05"}) as daemon:
        env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}
        done = icctl("import", "file", cwd=initialized, env={"INTERCORE_MODE": "direct"})
        assert (done.returncode, done.stderr) == (0, b"")

        def rank(status: str) -> bytes:
            done = icctl("discovery", "rank", f"--status={status}", cwd=initialized, env=env)
            assert (done.returncode, done.stderr) == (0, b"")
            return done.stdout

        assert rank("dismissed") != b""  # whoever asks again and again leaves it no time of its own
        until(lambda: _ids(initialized) == ["stays"])

        assert rank("scored").startswith(b"stays\t")
