"""The daemon as a process: starting, stopping, and being the only one."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import (
    CLEAN,
    PATIENCE,
    Daemon,
    icctl,
    read_all,
    read_line,
    running,
    until,
    vanish,
)


def serve(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Where nobody looks, unless the test says where: a start that fails leaves a note there."""
    command = [sys.executable, "-m", "icd", "serve", *arguments]
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as nowhere:
        world = {**CLEAN, "INTERCORE_SOCKET": f"{nowhere}/icd.sock", **env}
        return subprocess.run(
            command, env=world, capture_output=True, text=True, timeout=PATIENCE, check=False
        )


def test_a_stopped_daemon_exits_with_0_and_leaves_no_socket(initialized: Path) -> None:
    with running() as daemon:
        assert daemon.call("db.health", cwd=str(initialized))["healthy"]

        status = daemon.stop()

        assert status == 0
        assert not os.path.exists(daemon.socket)
        assert not (initialized / ".clavain" / "intercore.db-wal").exists()


def test_what_was_read_before_the_stop_is_answered(initialized: Path) -> None:
    request = {
        "jsonrpc": "2.0", "id": 1, "method": "state.incr",
        "params": {"cwd": str(initialized), "key": "n", "scope_id": "s"},
    }  # fmt: skip
    with running() as daemon, daemon.connect() as sock:
        sock.sendall((json.dumps(request).encode() + b"\n") * 500)
        until(lambda: daemon.call("icd.status")["calls"].get("state.incr", 0) > 0)

        status = daemon.stop()
        replies = [json.loads(line) for line in read_all(sock).splitlines()]

    stored = icctl("state", "get", "n", "s", cwd=initialized, env={"INTERCORE_MODE": "direct"})
    assert status == 0
    assert replies
    assert int(stored.stdout) == max(reply["result"]["value"] for reply in replies)


def test_a_second_daemon_has_nothing_to_do(daemon: Daemon) -> None:
    second = serve("--socket", daemon.socket, env=daemon.env)

    assert second.returncode == 0
    assert f"already running (pid {daemon.pid})" in second.stderr
    assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_of_ten_daemons_started_at_once_one_serves(tmp_path: Path) -> None:
    daemon = Daemon()
    try:
        command = [sys.executable, "-m", "icd", "serve", "--socket", daemon.socket]
        started = [
            subprocess.Popen(command, env=daemon.env, stderr=subprocess.DEVNULL) for _ in range(10)
        ]
        until(lambda: sum(process.poll() is None for process in started) == 1)
        (daemon.process,) = [process for process in started if process.poll() is None]
        until(daemon.answers)

        assert daemon.call("icd.ping")["pid"] == daemon.pid
        assert [p.returncode for p in started if p is not daemon.process] == [0] * 9
    finally:
        daemon.close()


def test_a_socket_that_a_killed_daemon_left_behind_is_replaced() -> None:
    with running() as daemon:
        daemon.kill()
        assert os.path.exists(daemon.socket)

        daemon.start()

        assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_a_file_in_the_place_of_the_socket_is_not_removed() -> None:
    daemon = Daemon()
    try:
        Path(daemon.socket).write_text("precious")

        done = serve("--socket", daemon.socket, env=daemon.env)

        assert done.returncode == 78
        assert "is not a socket" in done.stderr
        assert Path(daemon.socket).read_text() == "precious"
    finally:
        daemon.close()


def test_the_socket_and_its_directory_are_private(daemon: Daemon) -> None:
    assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(daemon.home).st_mode) == 0o700


def test_a_directory_that_others_may_enter_is_refused() -> None:
    daemon = Daemon()
    try:
        daemon.home.chmod(0o755)

        done = serve("--socket", daemon.socket, env=daemon.env)

        assert done.returncode == 78
        assert "open to other users" in done.stderr
        assert "chmod 700" in done.stderr
    finally:
        daemon.close()


def test_a_socket_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    done = serve("--socket", str(tmp_path / ("x" * 120)), env={"HOME": str(tmp_path)})

    assert done.returncode == 78
    assert "too long" in done.stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [('durabilty = "full"\n', ":1: "), ("\n\nidle_seconds = 'x'\n", ":3: "), ("= =\n", ":1: ")],
)
def test_a_mistake_in_the_settings_is_told_with_its_line(
    content: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "icd.toml").write_text(content)
    daemon = Daemon()
    try:
        done = serve(
            "--socket", daemon.socket, "--config", str(tmp_path / "icd.toml"), env=daemon.env
        )

        assert done.returncode == 78
        assert complaint in done.stderr
        assert not os.path.exists(daemon.socket)
    finally:
        daemon.close()


@pytest.mark.parametrize(
    "arguments, env, complaint",
    [
        ([], {"INTERCORE_DURABILITY": "soft"}, "icd: $INTERCORE_DURABILITY: Invalid enum value"),
        (["--idle-seconds=0"], {}, "icd: --idle-seconds: Expected `float` >= 0.05"),
    ],
)
def test_a_mistake_in_the_environment_or_in_a_flag_is_told(
    arguments: list[str], env: dict[str, str], complaint: str, tmp_path: Path
) -> None:
    socket_path = tmp_path / "icd.sock"

    done = serve("--socket", str(socket_path), *arguments, env={"HOME": str(tmp_path), **env})

    assert done.returncode == 78
    assert done.stderr.startswith(complaint)
    assert not socket_path.exists()


# The last words are those of the tests' own `Daemon`.
FLAG = ["sh", "-c", 'exec "$0" -m icd "$@" --idle-seconds=0.05', sys.executable]


@pytest.mark.parametrize(
    "options",
    [
        {"env": {"INTERCORE_IDLE_SECONDS": "0.05"}},
        {"env": {"INTERCORE_IDLE_SECONDS": "86400"}, "command": FLAG},
    ],
)
def test_the_environment_wins_over_the_files_and_a_flag_over_the_environment(
    options: dict[str, Any], initialized: Path
) -> None:
    (initialized / ".clavain" / "intercore.toml").write_text("idle_seconds = 86400\n")
    wal = initialized / ".clavain" / "intercore.db-wal"
    with running(**options) as daemon:
        daemon.call("state.set", cwd=str(initialized), key="k", scope_id="s", payload=1)

        until(lambda: wal.exists() and wal.stat().st_size == 0)  # it was looked after


def test_settings_that_are_named_must_exist() -> None:
    done = serve("--config", "/nonexistent/icd.toml", env={"HOME": "/nonexistent"})

    assert done.returncode == 78
    assert "does not exist" in done.stderr


def test_the_log_is_one_json_object_per_line_unless_a_person_looks(daemon: Daemon) -> None:
    daemon.stop()

    entries = [json.loads(line) for line in daemon.log.read_text().splitlines()]

    assert [entry["msg"] for entry in entries] == ["listening", "stopping"]


def test_a_newcomer_at_a_terminal_is_told_what_to_type() -> None:
    daemon = Daemon()
    ours, theirs = os.openpty()
    try:
        command = [sys.executable, "-m", "icd", "serve", "--socket", daemon.socket]
        process = subprocess.Popen(command, env=daemon.env, stderr=theirs)
        os.close(theirs)
        shown = b""
        while b"Ctrl-C" not in shown:
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)

        assert process.wait(PATIENCE) == 0
        assert b"icctl init" in shown
        assert f"INTERCORE_SOCKET={daemon.socket}".encode() in shown
    finally:
        os.close(ours)
        daemon.close()


def test_another_user_is_turned_away(daemon: Daemon, initialized: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    os.chmod(daemon.home, 0o755)
    os.chmod(daemon.socket, 0o777)
    code = f"""
import os, socket
os.setuid(65534)
for _ in range(100):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect({daemon.socket!r})
    try:
        sock.sendall(b'{{"jsonrpc":"2.0","id":1,"method":"icd.ping"}}\\n')
        print(sock.recv(4096))
    except ConnectionError:
        print(b"")
"""
    before = daemon.log.read_text().count("refused a connection of another user")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert done.stdout == b"b''\n" * 100
    assert daemon.call("icd.ping")
    assert daemon.log.read_text().count("refused a connection of another user") <= before + 1


def test_expired_rows_are_pruned_when_the_daemon_has_nothing_else_to_do(initialized: Path) -> None:
    (initialized / ".clavain" / "intercore.toml").write_text("idle_seconds = 0.05\n")
    with running() as daemon:
        for scope in ("a", "b"):
            daemon.call(
                "state.set", cwd=str(initialized), key="k", scope_id=scope, payload=1, ttl_ms=1000
            )
        daemon.call("state.set", cwd=str(initialized), key="k", scope_id="stays", payload=1)
        wal = initialized / ".clavain" / "intercore.db-wal"

        until(lambda: _rows(initialized) == [("stays",)])
        until(lambda: wal.stat().st_size == 0)


def _rows(project: Path) -> list[tuple[str]]:
    """Through a connection that only reads: it must not checkpoint, or it would do our work."""
    import sqlite3

    path = project / ".clavain" / "intercore.db"
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return conn.execute("SELECT scope_id FROM state").fetchall()
    finally:
        conn.close()


def test_a_replaced_database_is_noticed(initialized: Path, daemon: Daemon) -> None:
    where = {"cwd": str(initialized)}
    daemon.call("state.set", **where, key="k", scope_id="old", payload=1)
    old = initialized / ".clavain" / "intercore.db"
    other = initialized / "other" / ".clavain"
    done = icctl(
        "init", "--db", str(other / "new.db"), cwd=initialized, env={"INTERCORE_MODE": "direct"}
    )
    assert done.returncode == 0
    os.replace(other / "new.db", old)

    told = daemon.respond("state.list", **where, key="k")
    found = daemon.call("state.list", **where, key="k")

    assert told["error"]["data"]["name"] == "log_lost"
    assert f"{old} was replaced" in told["error"]["message"]
    assert found == []
    assert daemon.log.read_text().count("was replaced while it was in use") == 1


def test_a_deleted_database_is_missed_and_a_new_one_found(
    initialized: Path, daemon: Daemon
) -> None:
    where = {"cwd": str(initialized)}
    daemon.call("state.set", **where, key="k", scope_id="s", payload=1)
    for file in (initialized / ".clavain").iterdir():
        file.unlink()

    missing = daemon.respond("state.get", **where, key="k", scope_id="s")
    daemon.call("db.init", **where)
    fresh = daemon.call("state.get", **where, key="k", scope_id="s")

    assert missing["error"]["data"]["name"] == "no_database"
    assert fresh is None


def test_a_nearer_database_is_preferred_as_soon_as_it_exists(
    initialized: Path, daemon: Daemon
) -> None:
    inner = initialized / "inner"
    inner.mkdir()
    where = {"cwd": str(inner)}
    daemon.call("state.set", **where, key="k", scope_id="outer", payload=1)
    env = {"INTERCORE_MODE": "direct"}
    assert icctl("init", "--db", ".clavain/intercore.db", cwd=inner, env=env).returncode == 0

    found = daemon.call("state.list", **where, key="k")

    assert found == []


def test_one_stopped_holder_does_not_delay_another_project(
    initialized: Path, tmp_path: Path, daemon: Daemon
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").mkdir()
    daemon.call("db.init", cwd=str(other))
    lock = initialized / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(["flock", lock, "-c", "read line"], stdin=subprocess.PIPE)
    try:
        until(lambda: _is_locked(lock))

        held = daemon.respond("state.list", cwd=str(initialized), key="k", deadline_ms=200)
        free = daemon.call("state.list", cwd=str(other), key="k", deadline_ms=200)

        assert held["error"]["data"]["name"] == "locked"
        assert "process" in held["error"]["message"]
        assert free == []
    finally:
        holder.communicate()


def _is_locked(path: Path) -> bool:
    return subprocess.run(["flock", "-n", str(path), "true"], check=False).returncode == 1


def test_each_caller_waits_for_the_lock_as_long_as_it_asked(initialized: Path) -> None:
    """Also when the daemon opens the database for the first time."""
    lock = initialized / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(["flock", lock, "-c", "read line"], stdin=subprocess.PIPE)
    with running() as daemon, daemon.connect() as patient:
        until(lambda: _is_locked(lock))
        params = {"cwd": str(initialized), "key": "k", "deadline_ms": 30_000}
        request = {"jsonrpc": "2.0", "id": 1, "method": "state.list", "params": params}
        patient.sendall(json.dumps(request).encode() + b"\n")

        hasty = daemon.respond("state.list", cwd=str(initialized), key="k", deadline_ms=100)
        holder.communicate()

        assert hasty["error"]["data"]["name"] in {"locked", "deadline_exceeded"}
        assert json.loads(read_line(patient))["result"] == []


def test_a_database_that_hangs_does_not_keep_the_daemon_from_leaving(initialized: Path) -> None:
    lock = initialized / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(["flock", lock, "-c", "read line"], stdin=subprocess.PIPE)
    try:
        with running() as daemon, daemon.connect() as patient:
            until(lambda: _is_locked(lock))
            params = {"cwd": str(initialized), "key": "k", "deadline_ms": 300_000}
            request = {"jsonrpc": "2.0", "id": 1, "method": "state.list", "params": params}
            patient.sendall(json.dumps(request).encode() + b"\n")
            until(lambda: daemon.call("icd.status")["databases"])

            status = daemon.stop()

            assert status == 0
            assert not os.path.exists(daemon.socket)
            assert "exiting without it" in daemon.log.read_text()
    finally:
        holder.communicate()


def test_a_database_that_cannot_be_opened_costs_no_descriptors(
    initialized: Path, daemon: Daemon
) -> None:
    (initialized / ".clavain" / "intercore.db").write_bytes(os.urandom(20_000))
    daemon.respond("state.list", cwd=str(initialized), key="k")
    before = len(os.listdir(f"/proc/{daemon.pid}/fd"))

    for _ in range(20):
        failed = daemon.respond("state.list", cwd=str(initialized), key="k")
        assert failed["error"]["data"]["name"] == "corrupt"

    assert len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before + 2


def test_deleted_projects_cost_no_descriptors_for_ever(tmp_path: Path, daemon: Daemon) -> None:
    projects = []
    for number in range(10):
        project = tmp_path / f"p{number}"
        (project / ".clavain").mkdir(parents=True)
        (project / ".clavain" / "intercore.toml").write_text("idle_seconds = 1.5\n")
        daemon.call("db.init", cwd=str(project))
        projects.append(project)
    for project in projects:
        vanish(project)

    until(lambda: daemon.call("icd.status")["databases"] == [])


def test_a_parent_s_database_is_found_when_the_nearer_one_is_removed(
    initialized: Path, daemon: Daemon
) -> None:
    inner = initialized / "inner"
    inner.mkdir()
    where = {"cwd": str(inner)}
    daemon.call("state.set", cwd=str(initialized), key="k", scope_id="outer", payload=1)
    env = {"INTERCORE_MODE": "direct"}
    assert icctl("init", "--db", ".clavain/intercore.db", cwd=inner, env=env).returncode == 0
    assert daemon.call("state.list", **where, key="k") == []
    vanish(inner / ".clavain")

    found = daemon.call("state.list", **where, key="k")

    assert found == [{"key": "k", "scope_id": "outer"}]


def test_a_stop_ends_a_daemon_that_still_looks_for_a_database(initialized: Path) -> None:
    """A settings file that never ends would hold up whoever reads it; a pipe is refused."""
    pipe = initialized / ".clavain" / "intercore.toml"
    os.mkfifo(pipe)
    with running() as daemon:
        refused = daemon.respond("state.list", cwd=str(initialized), key="k")

        assert refused["error"]["data"]["name"] == "misconfigured"
        assert daemon.stop() == 0


def test_a_daemon_without_stderr_serves_all_the_same() -> None:
    daemon = Daemon()
    try:
        script = 'exec "$0" -m icd serve --socket "$1" 2>&- >&-'
        daemon.process = subprocess.Popen(
            ["bash", "-c", script, sys.executable, daemon.socket], env=daemon.env
        )
        until(daemon.answers)

        assert daemon.call("icd.ping")["pid"] == daemon.pid
        assert daemon.stop() == 0
    finally:
        daemon.close()
