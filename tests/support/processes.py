"""Real daemons and real commands, for tests that want the whole thing."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.forked import Process, forker

BIN = Path(sys.executable).parent
WHEEL_BIN = Path(__file__).parents[2] / ".venv" / "wheel" / "bin"
DOORS = Path(__file__).parents[2] / ".venv" / "doors"
# Generous: a loaded machine is no failure, and what waits in vain fails all the same.
PATIENCE = 45.0

ROOM = 1 << 20  # what a pipe takes before its reader comes

# The directory whose `icctl` is tested; the fixture `door` changes it, and CLEAN with it.
door = BIN

_ORDINARY = [sys.executable, "-m", "icd"]
_ICD = str(Path(__file__).parents[2] / "icd" / "__main__.py")

# Nothing of the machine that the tests run on may show in what commands print.
CLEAN = {"PATH": f"{BIN}:/usr/bin:/bin", "LANG": "C.UTF-8"}


class Daemon:
    """An `icd` of its own, on a socket of its own."""

    def __init__(
        self, *, env: dict[str, str] | None = None, command: list[str] | None = None
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="icd-", dir="/tmp"))
        self.socket = str(self.home / "icd.sock")
        self.log = self.home / "log"
        self.env = {**CLEAN, "HOME": str(self.home), **(env or {})}
        self._command = command or _ORDINARY
        self._given = env or {}
        self.process: subprocess.Popen[bytes] | Process | None = None

    def start(self, **options: Any) -> "Daemon":
        words = ["serve", "--socket", self.socket]
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            if options or not self._is_ordinary():
                self.process = subprocess.Popen(
                    [*self._command, *words],
                    env=self.env, cwd="/", stdin=nothing, stdout=log, stderr=log, **options,
                )  # fmt: skip
            else:
                files = [nothing.fileno(), log.fileno(), log.fileno()]
                self.process = forker("daemon").begin([_ICD, *words], "/", self.env, files)
        until(self.answers)
        return self

    def _is_ordinary(self) -> bool:
        """What Python or the loader read when they start needs a start of its own."""
        return self._command == _ORDINARY and all(n.startswith("INTERCORE_") for n in self._given)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"icd ended: {self.log.read_text()}")
        with contextlib.suppress(OSError), self.connect():
            return True
        return False

    def stop(self) -> int:
        """Ask it to stop; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(PATIENCE)
            sock.connect(self.socket)
        except OSError:
            sock.close()
            raise
        return sock

    def call(self, method: str, **params: Any) -> Any:
        """The result of a typed call; an error is an AssertionError."""
        response = self.respond(method, **params)
        assert "result" in response, response
        return response["result"]

    def respond(self, method: str, **params: Any) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with self.connect() as sock:
            sock.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(read_line(sock))
            return answer


def read_line(sock: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = sock.recv(1 << 20)
        if not chunk:
            break
        data += chunk
    return data


def read_all(sock: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionError):
        while chunk := sock.recv(1 << 20):
            data += chunk
    return data


def until(condition: Any, patience: float = PATIENCE) -> None:
    """Wait for something that is bound to happen; fail if it does not."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience} s for {condition}"
        time.sleep(0.005)


def vanish(directory: Path) -> None:
    """Delete it at once, as a daemon sees it, which may be about to write in there."""
    aside = directory.with_name(f"{directory.name}.vanished")
    directory.rename(aside)
    shutil.rmtree(aside)


@contextlib.contextmanager
def running(**options: Any) -> Iterator[Daemon]:
    daemon = Daemon(**options)
    try:
        yield daemon.start()
    finally:
        daemon.close()


def icctl(
    *arguments: str | bytes,
    cwd: Path,
    env: dict[str, str] | None = None,
    stdin: bytes = b"",
    program: str | Path | None = None,
    timeout: float = PATIENCE,
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [program or door / "icctl", *arguments],
        cwd=cwd,
        env={**CLEAN, "HOME": str(cwd), **(env or {})},
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def forked_icctl(
    *arguments: str | bytes, cwd: Path, env: dict[str, str] | None = None, stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    """As `icctl`, by the Python client, with a daemon or without: for the answers of many commands.

    A tenth of what it costs to start Python for it; see tests/support/forked.py.
    """
    program = [str(BIN / "icctl-python"), *map(os.fsdecode, arguments)]
    env = {**CLEAN, "HOME": str(cwd), **(env or {})}
    with (
        _input(stdin) as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        files = [given, out.fileno(), err.fileno()]
        status = forker("commands").begin(program, str(cwd), env, files).wait(PATIENCE)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


@contextlib.contextmanager
def _input(data: bytes) -> Iterator[int]:
    """A pipe with it, or a file where a pipe is too small."""
    if len(data) <= ROOM:
        given, end = os.pipe()
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, ROOM)
        os.write(end, data)
        os.close(end)
    else:
        given = os.memfd_create("stdin")
        with open(given, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(given, 0, os.SEEK_SET)
    yield given
    os.close(given)


def links(pid: int) -> list[str]:
    """What the descriptors of a process are."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(fd.readlink()))
        except FileNotFoundError:
            continue
    return found


def watched_processes(pid: int) -> set[int]:
    """Whose end a process is told of, by their pidfds."""
    found = set()
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            lines = dict(
                line.split(":", 1) for line in file.read_text().splitlines() if ":" in line
            )
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.add(int(lines.get("Pid", -1)))
    return found


def watches(pid: int) -> bool:
    """Whether it is told of changes of files."""
    return any("inotify" in link for link in links(pid))
