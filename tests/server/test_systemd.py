"""What systemd passes to the daemon, and what the daemon tells it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import mirrors
from tests.support.processes import PATIENCE, Daemon, icctl, read_line, running, until
from tests.support.systemd import ACTIVATED, SERVE

# A daemon whose loop can be made to hang for ever, by a signal.
HANGING = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))
from icd.__main__ import main
main()
"""


class Manager:
    """The side of systemd that listens to notifications."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "notify.sock")
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(self.path)
        self.env = {"NOTIFY_SOCKET": self.path}

    def told(self, patience: float = PATIENCE) -> str:
        self._sock.settimeout(patience)
        return self._sock.recv(4096).decode()

    def wait_for(self, word: str) -> str:
        while word not in (told := self.told()):
            pass
        return told

    def forget(self) -> None:
        """What was said before now."""
        self._sock.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while self._sock.recv(4096):
                pass

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


@contextlib.contextmanager
def activated(
    daemon: Daemon, **env: str
) -> "Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]":
    """A socket with a daemon behind it that was started for it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(daemon.socket)
        listener.listen(16)
        with daemon.log.open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", ACTIVATED, str(listener.fileno()), *SERVE],
                env={**daemon.env, **env}, pass_fds=[listener.fileno()], cwd="/",
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        daemon.process = process
        try:
            yield listener, process
        finally:
            daemon.close()


def test_readiness_and_the_end_are_told(manager: Manager) -> None:
    with running(env=manager.env) as daemon:
        ready = manager.wait_for("READY=1")

        daemon.stop()

        assert f"STATUS=listening at {daemon.socket}" in ready
        assert "STATUS=stopping" in manager.wait_for("STOPPING=1")


def test_a_reload_is_told_from_beginning_to_end(manager: Manager) -> None:
    with running(env=manager.env) as daemon:
        manager.wait_for("READY=1")

        daemon.call("icd.reload")

        assert "MONOTONIC_USEC=" in manager.wait_for("RELOADING=1")
        manager.wait_for("READY=1")


def test_a_name_in_the_abstract_namespace_is_understood(tmp_path: Path) -> None:
    name = f"icd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(PATIENCE)

        with running(env={"NOTIFY_SOCKET": f"@{name}"}):
            told = sock.recv(4096)

    assert told.startswith(b"READY=1")


def test_the_watchdog_is_fed_with_a_status(manager: Manager, initialized: Path) -> None:
    with running(env={**manager.env, "WATCHDOG_USEC": "200000"}) as daemon:
        daemon.call("db.health", cwd=str(initialized))
        manager.forget()

        # The daemon may see a moment later that we have left.
        until(lambda: manager.told() == "WATCHDOG=1\nSTATUS=1 databases open, 0 sessions")
        assert manager.told() == "WATCHDOG=1\nSTATUS=1 databases open, 0 sessions"


def test_the_watchdog_of_another_process_is_not_fed(manager: Manager) -> None:
    with running(env={**manager.env, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}) as daemon:
        daemon.stop()

    told = []
    with contextlib.suppress(TimeoutError, BlockingIOError):
        while True:
            told.append(manager.told(0))
    assert any("STOPPING=1" in line for line in told)
    assert not any("WATCHDOG" in line for line in told)


def test_a_loop_that_hangs_does_not_feed_the_watchdog(manager: Manager) -> None:
    env = {**manager.env, "WATCHDOG_USEC": "100000"}
    with running(env=env, command=[sys.executable, "-c", HANGING]) as daemon:
        manager.wait_for("WATCHDOG=1")
        os.kill(daemon.pid, signal.SIGUSR1)
        until(lambda: not _answers(daemon))
        manager.forget()

        # Ten periods: a daemon that lives would have reported twenty times.
        with pytest.raises(TimeoutError):
            manager.told(1.0)


def test_a_database_that_hangs_does_not_stop_the_watchdog(
    manager: Manager, initialized: Path
) -> None:
    database = initialized / ".clavain" / "intercore.db"
    holder = subprocess.Popen(["flock", f"{database}.lock", "sleep", "60"])
    try:
        with (
            running(env={**manager.env, "WATCHDOG_USEC": "100000"}) as daemon,
            daemon.connect() as sock,
        ):
            request = {"jsonrpc": "2.0", "id": 1, "method": "db.health",
                       "params": {"cwd": str(initialized), "deadline_ms": 60_000}}  # fmt: skip
            until(lambda: _is_locked(f"{database}.lock"))
            sock.sendall(json.dumps(request).encode() + b"\n")
            until(lambda: daemon.call("icd.status")["databases"])
            manager.forget()

            assert "WATCHDOG=1" in manager.told()
            assert "WATCHDOG=1" in manager.told()
    finally:
        subprocess.run(["pkill", "-P", str(holder.pid)], check=False)
        holder.kill()
        holder.wait()


def test_a_second_daemon_tells_systemd_that_all_is_well(daemon: Daemon, manager: Manager) -> None:
    done = subprocess.run(
        [*SERVE, "--socket", daemon.socket], env={**daemon.env, **manager.env},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.returncode == 0
    assert manager.told().startswith("READY=1\nSTATUS=icd is already running")


def test_a_socket_that_was_passed_is_served_and_left_in_its_place(initialized: Path) -> None:
    daemon = Daemon()
    with activated(daemon) as (_listener, process):
        health = daemon.call("db.health", cwd=str(initialized))

        process.terminate()
        status = process.wait(PATIENCE)

        assert health["healthy"]
        assert status == 0
        assert os.path.exists(daemon.socket)


def test_a_caller_that_came_before_the_daemon_is_answered() -> None:
    daemon = Daemon()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(daemon.socket)
        listener.listen(16)
        with daemon.connect() as early:
            early.sendall(b'{"jsonrpc":"2.0","id":1,"method":"icd.ping"}\n')
            process = subprocess.Popen(
                ["bash", "-c", ACTIVATED, str(listener.fileno()), *SERVE],
                env=daemon.env, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL,
            )  # fmt: skip
            daemon.process = process
            try:
                assert json.loads(read_line(early))["result"]["pid"] == process.pid
            finally:
                daemon.close()


def test_variables_that_are_meant_for_another_process_are_ignored() -> None:
    with running(env={"LISTEN_PID": "1", "LISTEN_FDS": "1"}) as daemon:
        assert daemon.call("icd.ping")["pid"] == daemon.pid


@pytest.mark.skipif(
    not shutil.which("systemd-socket-activate"), reason="Debian's systemd is missing"
)
def test_systemds_own_starter_starts_it_on_the_first_call(initialized: Path, door: Path) -> None:
    daemon = Daemon()
    starter = subprocess.Popen(
        ["systemd-socket-activate", "-l", daemon.socket,
         *(f"--setenv={name}={value}" for name, value in daemon.env.items()), *SERVE],
        env=daemon.env, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    daemon.process = starter
    try:
        until(lambda: os.path.exists(daemon.socket))
        os.chmod(daemon.home, 0o700)

        done = icctl("sentinel", "check", "n", "s", "--interval=60", "--timeout=20s",
                     cwd=initialized, env={"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"})  # fmt: skip

        assert (done.returncode, done.stdout, done.stderr) == (0, b"allowed\n", b"")
        assert daemon.call("icd.status")["calls"]["sentinel.check"] == 1
    finally:
        daemon.close()


def settings(daemon: Daemon, text: str) -> None:
    file = daemon.home / ".config" / "intercore" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_an_idle_daemon_leaves_if_it_will_be_started_again() -> None:
    daemon = Daemon()
    settings(daemon, "exit_idle_seconds = 0.3\n")
    with activated(daemon) as (_listener, process):
        assert daemon.call("icd.ping")["pid"] == process.pid

        assert process.wait(PATIENCE) == 0
        assert '"why":"idle"' in daemon.log.read_text()


def test_a_daemon_with_a_caller_stays() -> None:
    daemon = Daemon()
    settings(daemon, "exit_idle_seconds = 0.2\n")
    with activated(daemon) as (_listener, process):
        with daemon.connect() as sock:
            sock.sendall(b'{"jsonrpc":"2.0","id":1,"method":"icd.ping"}\n')
            read_line(sock)
            began = time.monotonic()
            until(lambda: time.monotonic() - began > 1.0)

            assert process.poll() is None

        assert process.wait(PATIENCE) == 0


def test_a_daemon_with_a_mirrored_row_to_expire_stays_until_it_is_gone(initialized: Path) -> None:
    daemon = Daemon()
    settings(daemon, "exit_idle_seconds = 0.2\nidle_seconds = 0.05\nclose_idle_seconds = 0.15\n")
    mirrored = daemon.home / ".interband" / "interphase" / "lane" / "s.json"
    mirrors.want(daemon.home)
    mirrors.accept(daemon.home, initialized)
    with activated(daemon) as (_listener, process):
        daemon.call(
            "state.set", cwd=str(initialized), key="lane", scope_id="s",
            payload={"lane": "x"}, ttl_ms=5000,
        )  # fmt: skip
        until(mirrored.exists)

        assert process.wait(PATIENCE) == 0
        assert not mirrored.exists()
        assert not (initialized / ".clavain" / "intercore.db-wal").exists()


def test_a_daemon_that_was_started_by_hand_stays() -> None:
    daemon = Daemon()
    settings(daemon, "exit_idle_seconds = 0.1\n")
    try:
        daemon.start()
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 1.0)

        assert daemon.call("icd.ping")["pid"] == daemon.pid
    finally:
        daemon.close()


def _answers(daemon: Daemon) -> bool:
    with daemon.connect() as sock:
        sock.settimeout(0.5)
        sock.sendall(b'{"jsonrpc":"2.0","id":1,"method":"icd.ping"}\n')
        with contextlib.suppress(TimeoutError):
            return bool(sock.recv(100))
    return False


def _is_locked(path: str) -> bool:
    return subprocess.run(["flock", "--nonblock", path, "true"], check=False).returncode != 0
