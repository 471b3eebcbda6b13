"""Backup and repair with a real daemon: what one process does, the others must not suffer from."""

import os
import re
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from icd.db import lock
from tests.support import processes
from tests.support.processes import Daemon, icctl, running

DIRECT = {"INTERCORE_MODE": "direct"}


@pytest.fixture
def through(any_daemon: Daemon):
    """Run a command with the daemon there; what it printed."""

    def ran(*argv: str, cwd: Path, exit_code: int = 0) -> bytes:
        done = icctl(*argv, cwd=cwd, env={"INTERCORE_SOCKET": any_daemon.socket})
        assert done.returncode == exit_code, done
        return done.stdout + done.stderr

    return ran


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another project with a database."""
    root = tmp_path / "other"
    (root / ".git").mkdir(parents=True)
    assert icctl("init", cwd=root, env=DIRECT).returncode == 0
    return root


def spoil(project: Path, table: str = "state") -> None:
    """Damage one table; the header and the schema stay as they are."""
    path = project / ".clavain" / "intercore.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        (root,) = conn.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
        ).fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)


def test_a_damaged_database_is_refused_and_others_go_on(
    initialized: Path, other: Path, daemon: Daemon, through
) -> None:
    through("state", "set", "k", "s", "--value=1", cwd=initialized)
    through("backup", "mine", cwd=initialized)
    daemon.stop()
    spoil(initialized, "sentinels")
    daemon.start()

    # State could still be read; but who knows what else is wrong.
    told = through("state", "get", "k", "s", cwd=initialized, exit_code=2)
    assert b"icctl: state get: the database is damaged: " in told
    assert b"'icctl restore FILE'" in told
    through("state", "set", "k", "s", "--value=1", cwd=other)
    assert through("state", "get", "k", "s", cwd=other) == b"1\n"

    assert b"is damaged" in through("db", "check", cwd=initialized, exit_code=2)
    assert b"kept .clavain/intercore.db.damaged-" in through("restore", "mine", cwd=initialized)

    assert through("state", "get", "k", "s", cwd=initialized) == b"1\n"
    assert through("db", "check", cwd=initialized) == b"ok\n"


def test_damage_that_shows_in_passing_ends_the_use_of_a_database(
    initialized: Path, other: Path, shared_daemon: Daemon, through
) -> None:
    where = {"cwd": str(initialized), "key": "k"}
    shared_daemon.call("state.set", **where, scope_id="s", payload=1)
    shared_daemon.call("state.list", cwd=str(other), key="k")
    through("db", "vacuum", cwd=initialized)  # the daemon's log is empty, the file complete
    with closing(sqlite3.connect(initialized / ".clavain" / "intercore.db")) as stranger:
        stranger.execute("INSERT INTO counters VALUES ('stranger', 1)")
        stranger.commit()  # so that the daemon's cache is void
        stranger.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        spoil(initialized)

        first = shared_daemon.respond("state.get", **where, scope_id="s")
        second = shared_daemon.respond("sentinel.list", cwd=str(initialized))

    assert first["error"]["data"]["name"] == "corrupt"
    assert second["error"]["data"]["name"] == "corrupt"
    assert "icctl restore FILE" in second["error"]["data"]["hint"]
    assert shared_daemon.call("state.list", cwd=str(other), key="k") == []


def test_the_daemon_goes_on_with_what_was_restored_and_says_so(
    initialized: Path, daemon: Daemon, through
) -> None:
    through("state", "set", "k", "s", "--value=1", cwd=initialized)
    through("backup", "mine", cwd=initialized)
    through("state", "set", "k", "s", "--value=2", cwd=initialized)

    through("restore", "mine", cwd=initialized)

    assert through("state", "get", "k", "s", cwd=initialized) == b"1\n"
    assert "database replaced, reopened" in daemon.log.read_text()
    through("state", "set", "k", "s", "--value=3", cwd=initialized)
    done = icctl("state", "get", "k", "s", cwd=initialized, env=DIRECT)
    assert done.stdout == b"3\n"


def test_acknowledged_writes_around_backups_and_restores_are_never_torn(
    initialized: Path, shared_daemon: Daemon, through
) -> None:
    """While writers write through both hosts, each state that can be read is one that was."""
    env = {"INTERCORE_SOCKET": shared_daemon.socket}
    through("state", "incr", "n", "s", cwd=initialized)
    through("backup", "first", cwd=initialized)

    def write(number: int) -> int:
        mode = DIRECT if number % 2 else env
        return icctl("state", "incr", "n", "s", cwd=initialized, env=mode).returncode

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, number) for number in range(40)]
        for number in range(5):
            through("backup", f"b{number}", cwd=initialized)
            through("restore", "first", cwd=initialized)
            through("db", "vacuum", cwd=initialized)

    assert [done.result() for done in writing] == [0] * 40
    assert through("db", "check", cwd=initialized) == b"ok\n"
    for number in range(5):
        with closing(sqlite3.connect(initialized / f"b{number}")) as conn:
            payload, version, last = conn.execute(
                "SELECT payload, version, (SELECT value FROM counters WHERE name = 'state')"
                " FROM state"
            ).fetchone()
        # Either the row that was restored, or what the last write made of it.
        assert (int(payload), version) == (1, 1) or 1 < int(payload) <= version == last


def test_work_that_waits_for_one_database_holds_up_no_other(
    initialized: Path, other: Path, shared_daemon: Daemon
) -> None:
    holder = lock.FileLock(str(initialized / ".clavain" / "intercore.db.lock"), lock.poll)
    holder.acquire(time.monotonic() + 5)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(
            shared_daemon.respond, "db.vacuum", cwd=str(initialized), deadline_ms=1000
        )

        answers = [shared_daemon.call("state.list", cwd=str(other), key="k") for _ in range(20)]

        assert not waiting.done()
        assert answers == [[]] * 20
        assert waiting.result()["error"]["data"]["name"] == "locked"
    holder.close()


@pytest.mark.parametrize("method", ["backup.write", "backup.restore", "dump.export", "dump.import"])
def test_a_daemon_touches_no_file_that_a_peer_names(
    initialized: Path, shared_daemon: Daemon, method: str
) -> None:
    """The peer may sit in a sandbox that the daemon does not sit in."""
    target = initialized / "target"

    answer = shared_daemon.respond(method, cwd=str(initialized), file=str(target))

    assert answer["error"]["data"]["name"] == "method_not_found"
    assert not target.exists()


def test_a_deadline_ends_a_check_and_the_lane_goes_on(initialized: Path) -> None:
    path = initialized / ".clavain" / "intercore.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)"
            " INSERT INTO counters (name, value) SELECT 'c' || i, i FROM n"
        )
        conn.commit()
    where = {"cwd": str(initialized)}
    with running() as daemon:
        daemon.call("db.schema", **where)

        late = daemon.respond("db.check", **where, deadline_ms=20)
        small = daemon.respond("db.vacuum", **where, deadline_ms=20)

        assert late["error"]["data"]["name"] == "deadline_exceeded"
        assert small["error"]["data"]["name"] == "deadline_exceeded"
        assert daemon.call("db.check", **where, deadline_ms=60_000)["ok"]
        assert daemon.call("db.health", **where)["healthy"]


@pytest.mark.parametrize("make", [lambda file: None, lambda file: file.mkdir(), os.mkfifo])
def test_a_mistake_in_the_name_of_a_backup_makes_no_directory(tmp_path: Path, make) -> None:
    make(tmp_path / "typo")
    (tmp_path / "fresh" / ".git").mkdir(parents=True)

    done = icctl("restore", "../typo", cwd=tmp_path / "fresh", env=DIRECT)

    assert done.returncode == 2
    assert done.stderr.endswith(b"nothing was changed\n")
    assert not (tmp_path / "fresh" / ".clavain").exists()


# --- exports through a pipe, and at a terminal ----------------------------------------------


def test_an_export_goes_through_a_pipe_and_back(
    initialized: Path, other: Path, through, tmp_path: Path
) -> None:
    through("state", "set", "k", "s", "--value=1", cwd=initialized)
    env = {**DIRECT, "TMPDIR": str(tmp_path)}
    before = set(tmp_path.iterdir())

    lines = through("export", "-", cwd=initialized)
    taken = icctl("import", "-", cwd=other, env=env, stdin=lines)
    refused = icctl("import", "-", "--json", cwd=other, env=env, stdin=lines[:-3])

    assert lines.startswith(b'{"kind":"header"')
    assert lines.endswith(b'{"kind":"end"}\n')
    assert (taken.stdout, taken.stderr) == (b"imported 2 rows, skipped 0\n", b"")
    assert through("state", "get", "k", "s", cwd=other) == b"1\n"
    assert refused.returncode == 2
    assert refused.stderr.startswith(b"icctl: import: stdin:")
    assert set(tmp_path.iterdir()) == before


def test_whoever_reads_an_export_slowly_holds_nobody_up(
    initialized: Path, through, shared_daemon: Daemon
) -> None:
    """More than a pipe holds, and a reader that does not read."""
    for number in range(3):
        value = f'--value="{"x" * 100_000}"'
        through("state", "set", "k", f"s{number}", value, cwd=initialized)
    command = [processes.door / "icctl", "export", "-"]
    env = {**processes.CLEAN, "INTERCORE_SOCKET": shared_daemon.socket}
    with subprocess.Popen(command, cwd=initialized, env=env, stdout=subprocess.PIPE) as export:
        assert export.stdout is not None
        begun = export.stdout.read(1)

        told = through("state", "set", "k", "mine", "--value=2", cwd=initialized)

        assert export.poll() is None
        assert (begun + export.stdout.read()).endswith(b'{"kind":"end"}\n')
    assert told == b""
    assert export.returncode == 0


def test_a_reader_that_leaves_early_has_what_it_wants(initialized: Path, through) -> None:
    command = "icctl export - | head -c 10; exit ${PIPESTATUS[0]}"
    env = {**processes.CLEAN, **DIRECT}

    done = subprocess.run(
        ["bash", "-c", command], cwd=initialized, env=env, capture_output=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"kind":"h', b"")


def test_an_export_that_cannot_be_printed_has_failed(initialized: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [processes.door / "icctl", "export", "-"],
            cwd=initialized, env={**processes.CLEAN, **DIRECT},
            stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith(b"icctl: export: cannot write to stdout: No space left")


def test_nothing_is_drawn_where_there_is_no_terminal(initialized: Path, through) -> None:
    assert re.fullmatch(rb"exported \d+ rows\n", through("export", "file", cwd=initialized))
