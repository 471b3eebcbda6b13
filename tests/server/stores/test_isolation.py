"""One database hangs: its callers are told, everybody else goes on as if nothing had happened."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from icd.server import limits
from tests.support import mirrors
from tests.support.mounts import Mount, mounted
from tests.support.processes import PATIENCE, Daemon, read_line, running, until

CALLS = 200


@pytest.fixture
def mount() -> Iterator[Mount]:
    with mounted() as found:
        yield found


@pytest.fixture
def hung(mount: Mount) -> Path:
    """A project on a file system that can hang; it does not yet."""
    project = mount.path / "project"
    (project / ".git").mkdir(parents=True)
    return project


def ask(daemon: Daemon, project: Path, **params: Any) -> Any:
    """Send a write, and come back for its reply later."""
    sock = daemon.connect()
    params = {"cwd": str(project), "key": "k", "scope_id": "s", "payload": 1, **params}
    request = {"jsonrpc": "2.0", "id": 1, "method": "state.set", "params": params}
    sock.sendall(json.dumps(request).encode() + b"\n")
    return sock


def reply(sock: Any) -> Any:
    with sock:
        return json.loads(read_line(sock))


def go_on(daemon: Daemon, project: Path) -> None:
    """Calls to another database, each of which must be answered."""
    for number in range(CALLS):
        where = {"cwd": str(project), "key": "k", "scope_id": f"s{number}"}
        daemon.call("state.set", **where, payload=number, deadline_ms=2000)


@contextmanager
def stopped_holder(project: Path) -> Iterator[int]:
    """A process that took the lock of the project's database, and was stopped before it let go."""
    lock = project / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(
        ["flock", lock, "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.send_signal(signal.SIGSTOP)
        yield holder.pid
    finally:
        holder.send_signal(signal.SIGCONT)
        holder.communicate()


def said(daemon: Daemon, message: str) -> int:
    lines = daemon.log.read_text().splitlines()
    return sum(json.loads(line)["msg"] == message for line in lines)


def threads(daemon: Daemon) -> int:
    return len(os.listdir(f"/proc/{daemon.pid}/task"))


def test_an_open_database_that_hangs_delays_nobody_else(
    daemon: Daemon, mount: Mount, hung: Path, initialized: Path
) -> None:
    daemon.call("db.init", cwd=str(hung))
    daemon.call("db.health", cwd=str(initialized))
    mount.hang()
    first, second = (ask(daemon, hung, deadline_ms=ms) for ms in (1000, 1500))

    go_on(daemon, initialized)
    errors = [reply(sock)["error"] for sock in (first, second)]
    go_on(daemon, initialized)

    assert {error["data"]["name"] for error in errors} <= {"unknown_outcome", "deadline_exceeded"}
    assert all(str(hung) in error["message"] for error in errors)
    mount.release()
    until(lambda: "result" in reply(ask(daemon, hung, deadline_ms=1000)))


def test_a_database_that_hangs_is_logged_once_and_once_when_it_is_back(
    daemon: Daemon, mount: Mount, hung: Path
) -> None:
    daemon.call("db.init", cwd=str(hung))
    mount.hang()

    for _ in range(3):
        refused = reply(ask(daemon, hung, deadline_ms=int(limits.HUNG_SECONDS * 500)))
        assert "error" in refused
    assert (said(daemon, "database hangs"), said(daemon, "database responds again")) == (1, 0)
    mount.release()

    until(lambda: said(daemon, "database responds again"))
    assert said(daemon, "database hangs") == 1


def test_a_place_that_cannot_be_looked_at_delays_nobody_else_and_collects_no_threads(
    daemon: Daemon, mount: Mount, hung: Path, initialized: Path
) -> None:
    daemon.call("db.health", cwd=str(initialized))
    before = threads(daemon)
    mount.hang()

    waiting = [ask(daemon, hung, deadline_ms=1000) for _ in range(40)]
    go_on(daemon, initialized)
    names = {reply(sock)["error"]["data"]["name"] for sock in waiting}

    assert names == {"deadline_exceeded"}
    assert threads(daemon) <= before + limits.LOOKUPS_AT_ONCE
    mount.release()
    until(lambda: threads(daemon) <= before)
    daemon.call("db.init", cwd=str(hung))


def test_a_place_that_cannot_be_looked_at_does_not_keep_the_daemon_from_leaving(
    mount: Mount, hung: Path
) -> None:
    with running() as daemon:
        mount.hang()
        assert "error" in reply(ask(daemon, hung, deadline_ms=200))

        assert daemon.stop() == 0


def test_a_hung_database_does_not_keep_the_daemon_from_leaving(mount: Mount, hung: Path) -> None:
    """The kernel writes back what was mapped into the process, and keeps it until that is done."""
    with running() as daemon:
        daemon.call("db.init", cwd=str(hung))
        mount.hang()
        assert "error" in reply(ask(daemon, hung, deadline_ms=200))
        assert daemon.process is not None

        daemon.process.terminate()

        until(lambda: not os.path.exists(daemon.socket))
        mount.release()
        assert daemon.process.wait(PATIENCE) == 0


def test_a_mirror_that_hangs_delays_no_call_and_does_not_keep_the_daemon(
    mount: Mount, initialized: Path
) -> None:
    with running(env={"INTERBAND_ROOT": str(mount.path)}) as daemon:
        mirrors.accept(daemon.home, initialized)
        mount.hang()
        where = {"cwd": str(initialized), "key": "bead", "scope_id": "s"}

        for number in range(20):
            daemon.call("state.set", **where, payload={"n": number})

        assert daemon.call("icd.status")["mirror"]["waiting"] == 1
        assert daemon.stop() == 0


def test_a_stopped_holder_of_a_lock_delays_nobody_else(
    daemon: Daemon, initialized: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    daemon.call("db.init", cwd=str(other))
    daemon.call("db.health", cwd=str(initialized))
    with stopped_holder(initialized) as pid:
        held = ask(daemon, initialized, deadline_ms=1000)
        go_on(daemon, other)
        assert reply(held)["error"]["data"]["name"] in {"locked", "deadline_exceeded"}
        go_on(daemon, other)

        patient = reply(ask(daemon, initialized, deadline_ms=4000))["error"]
        assert (patient["data"]["name"], f"process {pid}" in patient["message"]) == ("locked", True)
    assert "result" in reply(ask(daemon, initialized))


def test_a_stopped_holder_of_a_lock_does_not_keep_the_daemon_from_leaving(
    initialized: Path,
) -> None:
    """Nor is the database closed without the lock."""
    with running() as daemon:
        assert "result" in reply(ask(daemon, initialized))
        with stopped_holder(initialized):
            assert daemon.stop() == 0

        assert not os.path.exists(daemon.socket)
        assert said(daemon, "a database does not close; exiting without it") == 1


def test_a_reload_waits_for_better_times_and_holds_up_nobody(
    mount: Mount, hung: Path, initialized: Path
) -> None:
    with running() as daemon:
        daemon.call("db.init", cwd=str(hung))
        mount.hang()
        waiting = ask(daemon, hung, deadline_ms=1000)

        early = daemon.connect()  # before anybody knows that it hangs
        early.sendall(b'{"jsonrpc":"2.0","id":1,"method":"icd.reload"}\n')
        go_on(daemon, initialized)
        until(lambda: daemon.call("icd.status")["databases"][0].get("hung_seconds") is not None)
        refused = daemon.respond("icd.reload")["error"]
        go_on(daemon, initialized)
        mount.release()

        assert "error" in reply(waiting)
        assert "does not answer" in refused["message"]
        early.close()
        until(lambda: "result" in daemon.respond("icd.reload"))
        go_on(daemon, initialized)
