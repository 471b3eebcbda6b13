"""Many daemons at once, and one that is killed again and again: nobody has to clean up."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, until
from tests.support.sizes import size

pytestmark = pytest.mark.long

STARTS = size(50, 20)
CYCLES = size(200, 60)
WRITERS = 2

# A start costs nearly half a second of Python; a fork of a process that has loaded everything does
# not.  Each line that this one reads is the path of a socket, on which a child of its own serves.
NURSERY = """
import os, signal, sys
import icd.server.main
from icd.__main__ import main
from icd.app import registry
registry.every()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: they must not linger
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        main(["serve", "--socket", line.strip()])
    print(pid, flush=True)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("round_", range(3))
def test_of_many_daemons_started_at_once_one_serves(round_: int) -> None:
    daemon = Daemon()
    # Round 1 begins where nothing is, round 2 where a daemon was killed.
    if round_:
        daemon.start().kill()
    command = [sys.executable, "-m", "icd", "serve", "--socket", daemon.socket]
    starts = [
        subprocess.Popen(
            command, env=daemon.env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(STARTS)
    ]
    try:
        until(lambda: sum(start.poll() is None for start in starts) <= 1, patience=200)
        (owner,) = [start for start in starts if start.poll() is None]
        losers = [start for start in starts if start is not owner]

        told = [(start.wait(), *start.communicate()) for start in losers]

        assert {(code, out) for code, out, _ in told} == {(0, b"")}
        sentence = rf"icd: icd is already running \(pid {owner.pid}\) at {daemon.socket}\n"
        assert [err for _, _, err in told if not re.fullmatch(sentence, err.decode())] == []
        daemon.process = owner
        assert daemon.call("icd.hello")["pid"] == owner.pid
        assert daemon.stop() == 0
        assert not os.path.exists(daemon.socket)
    finally:
        for start in starts:
            start.kill()
            start.communicate()
        daemon.close()


class Nursery:
    """Daemons that start fast, one after another, on the same socket."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="icd-", dir="/tmp"))
        self.socket = str(self.home / "icd.sock")
        self.log = self.home / "log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", NURSERY], env={**CLEAN, "HOME": str(self.home)},
                cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def start(self) -> int:
        """The pid of a daemon that answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self.socket + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        until(lambda: self._pid_behind_the_socket() == pid)
        return pid

    def _pid_behind_the_socket(self) -> int | None:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(self.socket)
            except OSError:
                return None
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int.from_bytes(credentials[:4], sys.byteorder)

    def children(self) -> list[int]:
        found = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        return [int(pid) for pid in found.split()]

    def close(self) -> None:
        for pid in self.children():
            os.kill(pid, signal.SIGKILL)
        self._process.communicate()
        subprocess.run(["rm", "-rf", self.home], check=True)


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    yield found
    found.close()


class Writer(threading.Thread):
    """Counts in the database until it is told to end, through whichever host is there."""

    def __init__(self, project: Path, env: dict[str, str], name: str) -> None:
        super().__init__()
        self._project, self._env, self._name = project, env, name
        self.over = threading.Event()
        self.acknowledged = 0
        self.failed: list[object] = []

    def run(self) -> None:
        while not self.over.wait(0.01):
            done = icctl("state", "incr", "n", self._name, cwd=self._project, env=self._env)
            if (done.returncode, done.stderr) == (0, b""):
                self.acknowledged += 1
            else:
                self.failed.append(done)


@pytest.mark.timeout(240)
def test_kills_and_restarts_need_no_clean_up_and_lose_nothing(
    initialized: Path, nursery: Nursery
) -> None:
    env = {"INTERCORE_SOCKET": nursery.socket}
    writers = [Writer(initialized, env, f"w{number}") for number in range(WRITERS)]
    pid = nursery.start()
    for writer in writers:
        writer.start()

    for _ in range(CYCLES):
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
        pid = nursery.start()

    for writer in writers:
        writer.over.set()
        writer.join(PATIENCE)
    direct = {"INTERCORE_MODE": "direct"}
    for number, writer in enumerate(writers):
        kept = icctl("state", "get", "n", f"w{number}", cwd=initialized, env=direct)
        assert (writer.failed, int(kept.stdout)) == ([], writer.acknowledged)
    assert sum(writer.acknowledged for writer in writers) > CYCLES / 4, "the load was too light"
    assert icctl("db", "check", cwd=initialized, env=direct).stdout == b"ok\n"
    assert nursery.children() == [pid]
    assert sorted(os.listdir(nursery.home)) == ["icd.lock", "icd.sock", "log"]
    assert "Traceback" not in nursery.log.read_text()


def test_a_daemon_that_is_killed_is_replaced_by_an_ordinary_start() -> None:
    """As those above, without a nursery."""
    daemon = Daemon()
    try:
        for _ in range(5):
            daemon.start()
            assert daemon.call("icd.hello")["pid"] == daemon.pid
            daemon.kill()
        assert daemon.start().stop() == 0
    finally:
        daemon.close()
