"""Clients that write without end, and tell a ledger what they were told.

Most speak to the socket, since a process for each call would be a light load; some run the real
client, which goes on without a daemon where it must.
"""

import json
import random
import re
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.support.processes import CLEAN, PATIENCE, read_line
from tests.torture.registers import Ledger

REGISTERS = 4  # of each client
DEADLINE_MS = int(PATIENCE * 1000)
NO_DATABASE = re.compile(r"no database at |no \S+intercore\.db in ")
# One line, which says what was asked for, what is wrong and what to do.
SENTENCE = re.compile(r"icctl: [^\n]+: [^\n]+; [^\n]+\n")


class Client(threading.Thread):
    """Writes registers and counts, one call after the other, until it is told to end."""

    def __init__(self, name: str, seed: int, ledger: Ledger) -> None:
        super().__init__(name=name, daemon=True)
        self._rng = random.Random(f"{seed} {name}")
        self._ledger = ledger
        self._value = 0
        self._may_go = threading.Event()
        self._may_go.set()
        self._rests = threading.Event()
        self._over = False

    def run(self) -> None:
        while not self._over:
            if not self._may_go.is_set():
                self._rests.set()
                self._may_go.wait()
                self._rests.clear()
                continue
            self._write()

    def pause(self) -> None:
        self._may_go.clear()

    def rest(self) -> None:
        """Until it waits; after `pause`."""
        if not self._rests.wait(2 * PATIENCE):
            raise AssertionError(f"{self.name} got no answer for {2 * PATIENCE} s")

    def go_on(self) -> None:
        self._rests.clear()
        self._may_go.set()

    def end(self) -> None:
        self._over = True
        self._may_go.set()
        self.join(2 * PATIENCE)

    def _write(self) -> None:
        since = time.monotonic()
        try:
            if self._rng.random() < 0.3:
                outcome = self.incr(self.name)
                self._ledger.counted(f"n/{self.name}", outcome, since=since)
            else:
                self._value += 1
                scope = f"{self.name}-{self._rng.randrange(REGISTERS)}"
                outcome = self.set(scope, self._value)
                self._ledger.wrote(f"r/{scope}", self._value, outcome, since=since)
        except Exception as exc:  # noqa: BLE001 -- the suite is told, the thread goes on
            self._ledger.problems.append(f"{self.name}: {exc!r}")
            time.sleep(0.05)

    def set(self, scope: str, value: int) -> str:
        raise NotImplementedError

    def incr(self, scope: str) -> str:
        raise NotImplementedError


class Speaker(Client):
    """Says it in JSON, on a connection for each call."""

    def __init__(self, name: str, seed: int, ledger: Ledger, path: str, project: Path) -> None:
        super().__init__(name, seed, ledger)
        self._path, self._project = path, project

    def set(self, scope: str, value: int) -> str:
        return self._call("state.set", key="r", scope_id=scope, payload=value)

    def incr(self, scope: str) -> str:
        return self._call("state.incr", key="n", scope_id=scope)

    def _call(self, method: str, **params: object) -> str:
        params |= {"cwd": str(self._project), "deadline_ms": DEADLINE_MS}
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(2 * PATIENCE)
            try:
                sock.connect(self._path)
                sock.sendall(json.dumps(request).encode() + b"\n")
            except OSError:  # it was not sent as a whole
                time.sleep(0.01)
                return "unreachable"
            try:
                line = read_line(sock)
            except ConnectionError:
                return "unreachable"  # closed unread: not executed
        if not line:
            return "unknown"
        answer = json.loads(line)
        if "result" in answer:
            return ""
        name = str(answer["error"]["data"]["name"])
        return "unknown" if name == "unknown_outcome" else name


class Commander(Client):
    """Runs the real client; what it prints has to be a sentence."""

    def __init__(
        self, name: str, seed: int, ledger: Ledger, command: list[str], *, cwd: Path,
        env: dict[str, str],
    ) -> None:  # fmt: skip
        super().__init__(name, seed, ledger)
        self._command, self._cwd = command, cwd
        self._env = {**CLEAN, "HOME": str(cwd), **env}

    def set(self, scope: str, value: int) -> str:
        return self._run("state", "set", "r", scope, f"--value={value}")

    def incr(self, scope: str) -> str:
        return self._run("state", "incr", "n", scope)

    def _run(self, *argv: str) -> str:
        process = subprocess.run(
            [*self._command, *argv, f"--timeout={DEADLINE_MS}ms"],
            cwd=self._cwd, env=self._env, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=2 * PATIENCE, check=False,
        )  # fmt: skip
        return outcome(process.returncode, process.stderr.decode())


def outcome(status: int, told: str) -> str:
    """The outcome of a command, for a ledger: its text is a sentence, or is shown as it is."""
    if status == 0:
        return ""
    if status != 2 or not SENTENCE.fullmatch(told) or "internal error" in told:
        return f"exit {status}: {told}"
    if NO_DATABASE.search(told):
        return "no_database"
    return "unknown" if "unknown_outcome" in told else "told"
