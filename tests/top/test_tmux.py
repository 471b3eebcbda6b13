"""`icctl top` in a real tmux: drawn, resized, quit, and the terminal left as it was."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from icctl.api import Client
from tests.support import processes
from tests.support.processes import CLEAN, until

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not there: apt install tmux")


class Tmux:
    """A server of its own, with one pane."""

    def __init__(self, socket: Path, env: dict[str, str]) -> None:
        self._socket = socket
        self._env = env

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [str(TMUX), "-S", self._socket, "-f", "/dev/null", *words],
            env=self._env, capture_output=True, check=True, text=True,
        )  # fmt: skip
        return done.stdout

    @property
    def shown(self) -> str:
        return self.run("capture-pane", "-p", "-t", "t")

    def shows(self, *words: str) -> str:
        until(lambda: all(word in self.shown for word in words))
        return self.shown


@pytest.fixture
def tmux(initialized: Path, shared_daemon: processes.Daemon, tmp_path: Path) -> Iterator[Tmux]:
    env = {
        **CLEAN, "HOME": str(initialized), "INTERCORE_SOCKET": shared_daemon.socket,
        "INTERCORE_LOCK_DIR": str(tmp_path / "locks"), "TERM": "xterm-256color",
    }  # fmt: skip
    socket = Path(shared_daemon.socket).with_name(f"tmux-{os.getpid()}")  # a path that is short
    found = Tmux(socket, env)
    line = f"cd {initialized}; {processes.door}/icctl top --project=.; echo ended with $?; sleep 60"
    found.run("new-session", "-d", "-x", "80", "-y", "24", "-s", "t", line)
    yield found
    found.run("kill-server")


def test_it_is_drawn_at_80_columns_follows_the_log_and_leaves_the_terminal_as_it_was(
    tmux, initialized, shared_daemon
):
    with Client(initialized, socket=shared_daemon.socket) as client:
        shown = tmux.shows("● live", "No events yet", "q quit")
        client.events.record(source="ci", type="built", reason="[red]in tmux[/red]")
        tmux.shows("built", "[red]in tmux[/red]")
        client.run.create(goal="Parse the log", project=str(initialized))
        tmux.run("send-keys", "-t", "t", "2")
        tmux.shows("1/9 brainstorm", "a advance")
        tmux.run("resize-window", "-t", "t", "-x", "120", "-y", "30")
        tmux.shows("2 Runs", "3 Dispatches", "9 Failures", "LACKS")
        tmux.run("send-keys", "-t", "t", "q")

    assert max(map(len, shown.splitlines())) <= 80
    assert "2 Runs" not in tmux.shows("ended with 0")
