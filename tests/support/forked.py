"""Programs of ours at a tenth of what they cost: most of that is the start of Python.

Here it is made once for each kind of program, and forked for each call (tests/support/forking.py).
For tests that want answers; how a program starts, and what it loads when, is what others are about.
"""

import atexit
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import forking

PATIENCE = 45.0


class Process:
    """One that was forked, as `subprocess.Popen` shows those that it has started."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        line.settimeout(PATIENCE)
        self.pid = int.from_bytes(self._number(), "big")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int.from_bytes(self._number(), "big", signed=True)
            except (TimeoutError, BlockingIOError):
                return None
            self._line.close()
        return self.returncode

    def _number(self) -> bytes:
        data = self._line.recv(forking.NUMBER, socket.MSG_PEEK)  # sent at once, read at once
        assert len(data) == forking.NUMBER, "the one that forks has ended"
        return self._line.recv(forking.NUMBER)

    def __del__(self) -> None:
        self._line.close()


class Forker:
    """Forks for each call; made when it is first asked, and ended with the tests."""

    def __init__(self, kind: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="icd-", dir="/tmp"))
        self.socket = str(self.home / "fork.sock")
        # As `python -m icd` starts it, and as `icctl-python`.
        flags = ["-P"] if kind == "daemon" else ["-E", "-P"]
        self._process = subprocess.Popen(
            [sys.executable, *flags, forking.__file__, kind, self.socket],
            cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(self.home)},
        )  # fmt: skip
        self._made_by = os.getpid()
        atexit.register(self.close)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, argv: list[str], cwd: str, env: dict[str, str], files: list[int]) -> Process:
        return Process(forking.begun(self.socket, argv, cwd, env, files))

    def close(self) -> None:
        if os.getpid() == self._made_by:  # and not a process that was forked from it
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(PATIENCE)
            shutil.rmtree(self.home, ignore_errors=True)


@functools.cache
def forker(kind: str) -> Forker:
    return Forker(kind)
