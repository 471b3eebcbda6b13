"""Clients that do what they are told, one command after the other, and say what they heard.

Each is used by one thread.  `ask` gives a reply, or None if it is unknown how the command ended;
`NotExecuted` says that nobody has executed it.
"""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

from tests.support.processes import CLEAN, DOORS, PATIENCE
from tests.torture.calls import Reply
from tests.torture.code import Code
from tests.torture.suite import Broken

# The native client, with the sanitizers in it; what these find is neither a yes nor a no.
NATIVE = DOORS / "native" / "icctl"
SANITIZERS = {"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "exitcode=99"}
# Some callers do not wait: in this share of calls, for so many seconds at most.
IMPATIENT, IMPATIENCE_SECONDS = 0.01, 0.02
# The client as it is, in a process that runs many commands: it prints into memory.
WORKER = """
import json, posix, sys
from icctl import client

class Told(client.Request):
    def deliver(self, out, err):
        told[0] += out
        told[1] += err
        return True

for line in sys.stdin:
    mode, address, argv = json.loads(line)
    posix.environ.update({b"INTERCORE_MODE": mode.encode(), b"INTERCORE_SOCKET": address.encode()})
    told, gave_up = [b"", b""], ""
    try:
        code = client.run(Told(argv, "icctl", client.world()))
    except client.GiveUp as exc:
        code, gave_up = 2, exc.args[0]
    print(json.dumps([gave_up, code, told[0].decode(), told[1].decode()]), flush=True)
"""


class NotExecuted(Exception):
    """And never will be."""


class Client(Protocol):
    """`repeats`: it asks again, under the same id, for what it did not hear."""

    name: str
    kind: str  # for those who count
    repeats: bool

    def ask(self, argv: list[str]) -> Reply | None: ...

    def close(self) -> None: ...


class Peer:
    """A program that speaks JSON-RPC; it asks once, and does not always wait."""

    kind = "programs with sockets"
    repeats = False

    def __init__(self, name: str, address: str, cwd: Path, rng: random.Random) -> None:
        self.name = name
        self._address = address
        self._cwd = str(cwd)
        self._rng = rng

    def ask(self, argv: list[str]) -> Reply | None:
        hurried = self._rng.random() < IMPATIENT
        patience = self._rng.random() * IMPATIENCE_SECONDS if hurried else PATIENCE
        params = {"argv": argv, "cwd": self._cwd, "deadline_ms": int(PATIENCE * 1000)}
        request = {"jsonrpc": "2.0", "id": 1, "method": "cli.run", "params": params}
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.settimeout(PATIENCE)
                sock.connect(self._address)
            except OSError:
                raise NotExecuted from None
            try:
                sock.sendall(json.dumps(request).encode() + b"\n")
                sock.settimeout(patience)
                with sock.makefile("rb") as lines:
                    line = lines.readline()
            except OSError:
                return None
        return _reply(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        pass


def _reply(line: bytes) -> Reply | None:
    said = json.loads(line)
    if "result" in said:
        found = said["result"]
        return _judged(Reply(found["exit"], found.get("stdout", ""), found.get("stderr", "")))
    if said["error"]["data"]["name"] == "unknown_outcome":
        return None
    raise Broken(f"a call became an error: {said['error']}")


def _judged(reply: Reply) -> Reply | None:
    """The daemon itself may not know."""
    return None if reply.exit == 2 and "unknown_outcome" in reply.stderr else reply


class Worker:
    """`icctl` in a process of its own, which may be killed at any time.

    In mode `direct` it uses the file, in `auto` the daemon or, if there is none, the file.
    """

    kind = "the Python client"

    def __init__(self, name: str, code: Code, address: str, cwd: Path, mode: str) -> None:
        self.name = name
        self.repeats = mode == "auto"
        self._mode = mode
        self._address = address
        self._code = code
        self._cwd = cwd
        self._guard = threading.Lock()
        self._errors = (cwd / f"{name}.err").open("wb")
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", WORKER],
            cwd=self._cwd,
            env={**self._code.env, "HOME": str(self._cwd)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, argv: list[str]) -> Reply | None:
        limit = [f"--timeout={PATIENCE:.0f}s"]
        line = self._say([self._mode, self._address, [*argv, *limit]])
        if not line.endswith("\n"):
            self._again()
            return None
        gave_up, code, out, err = json.loads(line)
        if gave_up in ("unknown", "nonsense", "broken"):
            return None
        if gave_up:
            raise Broken(f"{self.name} gave up on {argv}: {gave_up}")
        return _judged(Reply(code, out, err))

    def _say(self, request: list[object]) -> str:
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        return ""

    def _again(self) -> None:
        """It was killed; whatever else ends it is a bug."""
        code = self.process.wait(PATIENCE)
        if code >= 0:
            said = Path(self._errors.name).read_text()
            raise Broken(f"{self.name} ended by itself, exit {code}: {said[-2000:]}")
        self._hang_up()
        self.process = self._start()

    def kill(self) -> None:
        self.process.kill()

    def _hang_up(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._hang_up()
        self._errors.close()


class Native:
    """The native `icctl`, a process for each command, which may be killed at any time.

    Without a daemon it hands over to the Python client that it was installed with.
    """

    kind = "the native client"
    repeats = True

    def __init__(self, name: str, address: str, cwd: Path) -> None:
        self.name = name
        self._cwd = cwd
        self._env = {**CLEAN, **SANITIZERS, "HOME": str(cwd), "INTERCORE_SOCKET": address}
        self._process: subprocess.Popen[str] | None = None

    def ask(self, argv: list[str]) -> Reply | None:
        self._process = process = subprocess.Popen(
            [NATIVE, *argv, f"--timeout={PATIENCE:.0f}s"], cwd=self._cwd, env=self._env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=2 * PATIENCE)
        except BaseException:
            self.close()
            raise
        left = "the daemon stopped in the middle of its output"
        if process.returncode == -signal.SIGKILL or (process.returncode == 2 and left in err):
            return None
        return _judged(Reply(process.returncode, out, err))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        self.kill()
        if self._process is not None:
            self._process.communicate(timeout=PATIENCE)


class LossyDoor:
    """A socket in front of the daemon's: some replies are lost after the command was executed."""

    def __init__(self, path: Path, behind: str, rng: random.Random, *, loses: float = 0.3) -> None:
        self.address = str(path)
        self.lost = 0
        self._behind = behind
        self._rng = rng
        self._loses = loses
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen(64)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        threads = []
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                loses = self._rng.random() < self._loses
                threads.append(threading.Thread(target=self._carry, args=(caller, loses)))
                threads[-1].start()
        for thread in threads:
            thread.join(PATIENCE)

    def _carry(self, caller: socket.socket, loses: bool) -> None:
        """One request, one reply; without a daemon, the caller has lost both."""
        with caller, socket.socket(socket.AF_UNIX) as daemon, contextlib.suppress(OSError):
            daemon.settimeout(PATIENCE)
            caller.settimeout(PATIENCE)
            daemon.connect(self._behind)
            upward = threading.Thread(target=_pump, args=(caller, daemon))
            upward.start()
            try:
                while data := daemon.recv(65536):
                    if loses:
                        self.lost += 1
                        break
                    caller.sendall(data)
            finally:
                with contextlib.suppress(OSError):
                    caller.shutdown(socket.SHUT_RDWR)
                upward.join(PATIENCE)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)
        os.unlink(self.address)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
