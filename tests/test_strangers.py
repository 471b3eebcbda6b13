"""Another user of the machine puts a socket, or its directory, where ours would be."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.breakages import STRANGER
from tests.support.processes import PATIENCE, Daemon, icctl, running

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("door")]

# A call without a daemon takes a tenth of it, one that waits in a full backlog the whole of it.
DEADLINE = "--timeout=40s"
AT_ONCE_SECONDS = 30

# Listens as another user at the path, fills the backlog, and stays.
FULL_BACKLOG = """
import os, socket, sys
uid, path = int(sys.argv[1]), sys.argv[2]
os.setgroups([]); os.setgid(uid); os.setuid(uid)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, 0o777)
listener.listen(0)
waiting = []
while True:
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    try:
        one.connect(path)
    except BlockingIOError:
        break
    waiting.append(one)
print("full", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for a socket, with a name that is short enough."""
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def others(place: Path) -> Path:
    """A directory of another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    place.chmod(0o755)
    found = place / "others"
    found.mkdir(mode=0o755)
    os.chown(found, STRANGER, STRANGER)
    return found


@pytest.fixture
def full(others: Path) -> Iterator[Path]:
    """A socket of another user whose backlog is full."""
    path = others / "icd.sock"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", FULL_BACKLOG, str(STRANGER), str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"full\n"
        yield path
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def call(project: Path, path: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    env = {"INTERCORE_SOCKET": str(path)}
    return icctl(*(words or ("health", DEADLINE)), cwd=project, env=env)


def test_a_full_backlog_of_another_user_does_not_keep_a_call_waiting(
    initialized: Path, full: Path
) -> None:
    began = time.monotonic()

    done = call(initialized, full)

    assert time.monotonic() - began < AT_ONCE_SECONDS
    told = f"icctl: ignoring the socket directory {full.parent}: it belongs to user {STRANGER}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", told.encode())


@pytest.fixture
def listener(place: Path) -> Iterator[socket.socket]:
    """A service of our own user that is no daemon."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "service.sock"))
        sock.listen()
        sock.setblocking(False)
        yield sock


def nobody_came(sock: socket.socket) -> bool:
    try:
        sock.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def test_a_link_to_another_service_of_ours_is_not_followed(
    initialized: Path, place: Path, listener: socket.socket
) -> None:
    link = place / "icd.sock"
    link.symlink_to(place / "service.sock")

    done = call(initialized, link)

    told = f"icctl: ignoring the socket {link}: it is a symbolic link\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", told.encode())
    assert nobody_came(listener)


def test_a_link_to_a_directory_of_ours_is_not_followed(initialized: Path, place: Path) -> None:
    (place / "real").mkdir(mode=0o700)
    (place / "link").symlink_to(place / "real")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "real" / "icd.sock"))
        sock.listen()
        sock.setblocking(False)

        done = call(initialized, place / "link" / "icd.sock")

        assert nobody_came(sock)
    told = f"icctl: ignoring the socket directory {place / 'link'}: it is a symbolic link\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", told.encode())


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_may_write_to_is_not_used(
    mode: int, initialized: Path, place: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "icd.sock"))
        sock.listen()
        sock.setblocking(False)
        place.chmod(mode)

        done = call(initialized, place / "icd.sock")

        assert nobody_came(sock)
    told = f"icctl: ignoring the socket directory {place}: other users may write to it"
    assert (done.returncode, done.stdout) == (0, b"ok\n")
    assert done.stderr == f"{told} (mode {mode:04o})\n".encode()


def test_a_socket_of_ours_in_a_sticky_directory_is_used(initialized: Path, place: Path) -> None:
    """Others may write into it, and cannot replace what is ours."""
    with running() as daemon:
        daemon.home.chmod(0o1777)

        done = call(initialized, Path(daemon.socket), "ping")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"pong\n", b"")


def test_a_file_in_place_of_the_socket_is_told_once(initialized: Path, place: Path) -> None:
    (place / "icd.sock").touch()

    env = {"INTERCORE_SOCKET": str(place / "icd.sock"), "INTERCORE_MODE": "daemon"}
    done = icctl("health", "--timeout=300ms", cwd=initialized, env=env)

    told = f"icctl: ignoring the socket {place / 'icd.sock'}: it is not a socket\n"
    assert done.returncode == 2
    assert done.stderr.startswith(told.encode())
    assert done.stderr.count(b"\n") == 2  # and that no daemon answers


def test_a_failed_call_writes_nothing_into_a_directory_of_another_user(
    initialized: Path, others: Path
) -> None:
    done = call(initialized, others / "icd.sock", "state", "set", "K", "s", "--value=1")

    assert done.returncode == 2
    assert os.listdir(others) == []


def test_a_daemon_starts_though_another_user_sits_at_the_other_place(
    monkeypatch: pytest.MonkeyPatch, full: Path
) -> None:
    """Whether a daemon answers is asked at both places, and a stranger is no daemon of ours."""
    from icd.server.net import socket_claim as sockets

    monkeypatch.setattr(
        sockets, "candidates", lambda: [str(full.parent.parent / "icd.sock"), str(full)]
    )
    full.parent.parent.chmod(0o700)

    claim = sockets.claim(str(full.parent.parent / "icd.sock"))

    claim.release()


def test_the_doctor_names_the_stranger_and_does_not_wait(initialized: Path, full: Path) -> None:
    began = time.monotonic()

    done = call(initialized, full, "doctor", DEADLINE)

    assert time.monotonic() - began < AT_ONCE_SECONDS
    assert f"{full.parent} belongs to".encode() in done.stdout


def test_a_daemon_of_ours_that_is_busy_is_still_waited_for(initialized: Path, place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "icd.sock"))
        sock.listen(0)
        waiting = socket.socket(socket.AF_UNIX)
        waiting.connect(str(place / "icd.sock"))

        done = call(initialized, place / "icd.sock", "health", "--timeout=300ms")

        waiting.close()
    assert done.returncode == 2
    assert b"the daemon did not accept the call within 0.3 s" in done.stderr


def test_a_call_through_our_own_daemon_says_nothing(initialized: Path, daemon: Daemon) -> None:
    done = call(initialized, Path(daemon.socket))

    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")
