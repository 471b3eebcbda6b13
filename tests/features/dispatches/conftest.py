"""Real agents: whatever a test has started is gone after it."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import CLEAN, forked_icctl, icctl, until

MARK = "DISPATCH_TEST"


class Agents:
    """A project whose agents can be found again by what is in their environment."""

    def __init__(self, project: Path, **env: str) -> None:
        self.project = project
        self.env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock", "TMPDIR": str(project)}
        self.env |= {MARK: str(project), **env}

    def run(self, *argv: str, cwd: Path | None = None, **env: str) -> "subprocess.CompletedProcess":
        return icctl("dispatch", *argv, cwd=cwd or self.project, env={**self.env, **env})

    def spawn(self, *argv: str, cwd: Path | None = None, **env: str) -> str:
        done = self.run("spawn", *argv, cwd=cwd, **env)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode().strip()

    def sh(self, script: str, *flags: str, **env: str) -> str:
        return self.spawn(*flags, "--", "sh", "-c", script, **env)

    def show(self, dispatch_id: str) -> dict[str, Any]:
        return self._ask("status", dispatch_id)

    def ended(self, dispatch_id: str) -> dict[str, Any]:
        """All that is known when its runner has left."""
        runner = self.show(dispatch_id)["runner_pid"]
        until(lambda: is_gone(runner))
        return self.show(dispatch_id)

    def every(self) -> list[dict[str, Any]]:
        return self._ask("list")

    def _ask(self, *argv: str) -> Any:
        """Tests ask often, until something is so."""
        done = forked_icctl("dispatch", *argv, "--json", cwd=self.project, env=self.env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def written(self, name: str) -> str:
        """What an agent writes into a file, once it has."""
        path = self.project / name
        until(lambda: path.exists() and path.read_bytes().endswith(b"\n"))
        return path.read_text()

    def pid(self, name: str) -> int:
        return int(self.written(name))

    def left(self) -> list[int]:
        """Every process that was started by a test, and what these have started."""
        mark = os.fsencode(f"{MARK}={self.project}")
        return [pid for pid in _pids() if mark in _environ(pid)]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def is_gone(pid: int) -> bool:
    """Also if nobody has counted it yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


@pytest.fixture
def agents(initialized: Path) -> Iterator[Agents]:
    found = Agents(initialized)
    yield found
    for _ in range(3):  # who is killed may have a runner that is about to record it
        for pid in found.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def clean() -> dict[str, str]:
    return dict(CLEAN)
