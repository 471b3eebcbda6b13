"""Three ways to the same verbs: the core on an open connection, the direct host, a daemon's socket.

All are processes of the code that is tried, speak JSON-RPC and keep the time that we tell them, so
that a model can say what each must answer.
"""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tests.support.processes import PATIENCE, Daemon
from tests.torture.code import Code
from tests.torture.inside import WALL

INSIDE = Path(__file__).with_name("inside.py")
NAMES = ("core", "direct", "socket")
# The process that dispatches are told of: a daemon that looks finds it alive.
ME = os.getpid()
BEGIN_MS = 1_800_000_000_000
# A loaded machine is no failure: nothing may be refused because it was late.
DEADLINE_MS = 40_000


class Reply(NamedTuple):
    """`error` is the name of why it was refused, or empty."""

    error: str
    result: Any
    message: str = ""


class Wall:
    """The clock of all hosts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = BEGIN_MS
        self.move(0)

    def move(self, ms: int) -> None:
        self.now_ms += ms
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(WALL.pack(self.now_ms))


class Host:
    def __init__(
        self, name: str, reads: BinaryIO, writes: BinaryIO, wall: Wall, directory: Path
    ) -> None:
        self.name = name
        self.wall = wall
        self.calls = 0
        self._reads, self._writes = reads, writes
        self._directory = directory
        self._numbers = itertools.count()
        self.project = directory

    def fresh(self) -> None:
        """A project of its own for what comes now."""
        self.project = self._directory / f"{self.name}-{next(self._numbers)}"
        (self.project / ".git").mkdir(parents=True)
        reply = self.ask("db.init")
        assert not reply.error, reply

    def ask(self, method: str, **params: Any) -> Reply:
        given = {"cwd": str(self.project), "deadline_ms": DEADLINE_MS, **params}
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
        self._writes.write(json.dumps(request).encode() + b"\n")
        self._writes.flush()
        line = self._reads.readline()
        assert line, f"the host {self.name} died of {method} {params}"
        self.calls += 1
        reply = json.loads(line)
        if "error" in reply:
            error = reply["error"]
            return Reply(error["data"]["name"], None, error["message"])
        return Reply("", reply["result"])


@contextlib.contextmanager
def opened(code: Code, directory: Path, names: Sequence[str] = NAMES) -> Iterator[list[Host]]:
    """The hosts of these names, with a common clock."""
    directory.mkdir(parents=True, exist_ok=True)
    wall = Wall(directory / "clock")
    ways = {"core": _piped, "direct": _piped, "socket": _connected}
    with contextlib.ExitStack() as stack:
        yield [
            Host(name, *stack.enter_context(ways[name](code, name, wall)), wall, directory)
            for name in names
        ]


def _command(wall: Wall) -> list[str]:
    # -P: the directory of the script has modules whose names are those of Python's own.
    return [sys.executable, "-P", str(INSIDE), str(wall.path)]


@contextlib.contextmanager
def _piped(code: Code, what: str, wall: Wall) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    home = wall.path.parent / f"home-{what}"
    home.mkdir()
    process = subprocess.Popen(
        [*_command(wall), what],
        env={**code.env, "HOME": str(home), "INTERCORE_MODE": "direct"},
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout, process.stdin
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _connected(code: Code, _what: str, wall: Wall) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    daemon = Daemon(env=code.env, command=_command(wall))
    with contextlib.closing(daemon):
        sock: socket.socket = daemon.start().connect()
        with sock, sock.makefile("rb") as reads, sock.makefile("wb") as writes:
            yield reads, writes
