"""The place where clients look: lost, taken again, or left to another."""

import contextlib
import fcntl
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

from tests.support.processes import PATIENCE, Daemon, icctl, running, until, vanish
from tests.support.systemd import ACTIVATED, SERVE


def answers(daemon: Daemon) -> bool:
    with contextlib.suppress(OSError, AssertionError):
        return bool(daemon.call("icd.ping")["pid"] == daemon.pid)
    return False


def test_a_socket_that_was_unlinked_is_there_again(initialized: Path) -> None:
    with running() as daemon, daemon.connect() as before:
        os.unlink(daemon.socket)
        meanwhile = icctl(
            "sentinel", "check", "n", "s", "--interval=60", cwd=initialized,
            env={"INTERCORE_SOCKET": daemon.socket},
        )  # fmt: skip

        until(lambda: answers(daemon))
        before.sendall(b'{"jsonrpc":"2.0","id":1,"method":"icd.ping"}\n')

        assert meanwhile.stdout == b"allowed\n"
        assert b'"result"' in before.recv(1000)
        assert stat.S_IMODE(os.stat(daemon.socket).st_mode) == 0o600
        assert daemon.call("icd.status")["socket"] == daemon.socket
        assert "was removed" in daemon.log.read_text()


def test_a_directory_that_was_removed_is_there_again() -> None:
    with running() as daemon:
        directory = daemon.home / "run"
        daemon.stop()
        daemon.socket = str(directory / "icd.sock")
        daemon.start()
        vanish(directory)

        until(lambda: answers(daemon))
        second = subprocess.run(
            [*SERVE, "--socket", daemon.socket], env=daemon.env, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        assert second.returncode == 0
        assert f"already running (pid {daemon.pid})" in second.stderr


def test_a_lock_that_was_removed_is_held_again() -> None:
    with running() as daemon:
        lock = Path(daemon.socket).with_suffix(".lock")
        lock.unlink()

        until(lock.exists)
        until(lambda: lock.read_text().strip() == str(daemon.pid))

        assert answers(daemon)


def test_a_newcomer_that_looks_around_does_not_end_the_daemon() -> None:
    """It holds the lock for as long as it takes to see that somebody answers."""
    with running() as daemon:
        lock = Path(daemon.socket).with_suffix(".lock")
        lock.unlink()
        with lock.open("w") as newcomer:
            fcntl.flock(newcomer, fcntl.LOCK_EX)
            until(lambda: "was removed" in daemon.log.read_text() or not answers(daemon))

        until(lambda: lock.read_text().strip() == str(daemon.pid))
        assert answers(daemon)


def test_whoever_took_the_lock_meanwhile_is_the_owner(initialized: Path) -> None:
    with running() as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)  # else it may take its place again first
        os.unlink(daemon.socket)
        Path(daemon.socket).with_suffix(".lock").unlink()
        second = Daemon(env=daemon.env)
        second.socket = daemon.socket
        try:
            second.start()

            os.kill(daemon.pid, signal.SIGCONT)
            assert daemon.process is not None
            assert daemon.process.wait(PATIENCE) == 0
            assert answers(second)
        finally:
            second.close()


def test_a_daemon_makes_way_for_systemds_socket(initialized: Path) -> None:
    """systemd puts its socket in the place of one that is there, whoever listens to it."""
    with running() as daemon, socket.socket(socket.AF_UNIX) as listener:
        os.unlink(daemon.socket)
        listener.bind(daemon.socket)
        listener.listen(16)
        second = Daemon(env=daemon.env)
        second.socket = daemon.socket
        second.process = subprocess.Popen(
            ["bash", "-c", ACTIVATED, str(listener.fileno()), *SERVE],
            env=daemon.env, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            pid = second.call("icd.ping")["pid"]

            assert daemon.process is not None
            assert daemon.process.wait(PATIENCE) == 0
            assert pid == second.pid
            assert os.path.exists(daemon.socket)
        finally:
            second.close()


def test_a_directory_that_is_open_to_others_is_not_used_again() -> None:
    with running() as daemon:
        os.chmod(daemon.home, 0o755)
        os.unlink(daemon.socket)

        until(lambda: "cannot listen again" in daemon.log.read_text())
        os.chmod(daemon.home, 0o700)

        until(lambda: answers(daemon))


def test_a_place_that_is_taken_during_a_reload_is_left_to_the_other() -> None:
    with running() as daemon, socket.socket(socket.AF_UNIX) as other:
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: '"reloading"' in daemon.log.read_text())
        os.unlink(daemon.socket)
        other.bind(daemon.socket)
        other.listen(16)

        assert daemon.process.wait(PATIENCE) == 0
        assert os.path.exists(daemon.socket)
