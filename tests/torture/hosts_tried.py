"""A daemon with another project to serve, and clients of both hosts, let loose on one clone each."""

import contextlib
import json
import os
import re
import select
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.processes import PATIENCE, Daemon, until
from tests.torture.code import Code
from tests.torture.suite import Broken

FORKING = Path(__file__).with_name("forking.py")
GRACE = 1.0  # beyond its deadline
KILL_AFTER = 2.5  # what has not ended by then never does
MEMORY_KB = 200 * 1024
NEIGHBOUR_SECONDS = 0.05
TIMES_BASELINE = 3  # on a machine that is slow all the while
PINGS = 15
BETWEEN_PINGS = 0.02
LOOKS = 20  # whether it computes
BETWEEN_LOOKS = 0.02


class Said(NamedTuple):
    """What a call came to; `exit` is None if it had to be killed."""

    exit: int | None
    seconds: float
    out: bytes
    err: bytes


class Clients:
    """Command lines as real clients run them, without a start of Python for each."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, argv: list[str], cwd: Path, env: dict[str, str], limit: float) -> Said:
        asked = {"argv": argv, "cwd": str(cwd), "env": {**self._code.env, **env}, "limit": limit}
        told = self._ask(asked, limit + PATIENCE)
        out, err = told["out"].encode("latin-1"), told["err"].encode("latin-1")
        return Said(told["exit"], told["seconds"], out, err)

    def settle(self, seconds: float) -> list[str]:
        """The command lines of what was left running after so long; it is ended then."""
        found: list[str] = self._ask({"settle": seconds}, seconds + PATIENCE)
        return found

    def _ask(self, asked: dict[str, Any], patience: float) -> Any:
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        return self._hear(patience)

    def _start(self) -> None:
        # -P: the directory of the script has modules whose names are those of Python's own.
        self._process = subprocess.Popen(
            [sys.executable, "-P", FORKING], env=self._code.env, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        assert self._hear(PATIENCE) == "ready"

    def _hear(self, patience: float) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline, parts = time.monotonic() + patience, []
        while not (parts and parts[-1].endswith(b"\n")):
            ready, _, _ = select.select(
                [self._process.stdout], [], [], max(0.0, deadline - time.monotonic())
            )
            data = os.read(self._process.stdout.fileno(), 1 << 20) if ready else b""
            if not data:
                raise Broken("the clients' process does not answer any more")
            parts.append(data)
        return json.loads(b"".join(parts))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class Served:
    """The daemon; a thread asks it for another project's row all the while."""

    def __init__(self, code: Code, home: Path, other: Path) -> None:
        self._other = other
        self.daemon: Daemon = code.daemon(env={"HOME": str(home), "INTERCORE_IDLE_SECONDS": "0.05"})
        self.daemon.start()
        self.baseline = statistics.median(self.ping() for _ in range(PINGS))
        self._samples: list[float] = []
        self._over = threading.Event()
        self._asker = threading.Thread(target=self._go_on, daemon=True)
        self._asker.start()

    @property
    def limit(self) -> float:
        return max(NEIGHBOUR_SECONDS, TIMES_BASELINE * self.baseline)

    def ping(self) -> float:
        """Seconds until the other project's row is there."""
        began = time.monotonic()
        found = self.daemon.call("state.get", cwd=str(self._other), key="k", scope_id="s")
        assert found["payload"] == "mine", found
        return time.monotonic() - began

    def _go_on(self) -> None:
        while not self._over.wait(BETWEEN_PINGS):
            with contextlib.suppress(OSError, ValueError, AssertionError):
                self._samples.append(self.ping())

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[float]]:
        """How long the other project had to wait in the meantime."""
        found: list[float] = []
        begin = len(self._samples)
        yield found
        found += self._samples[begin:]

    def remeasured(self) -> float:
        """The median of several, with nothing else asked for."""
        try:
            return statistics.median(self.ping() for _ in range(PINGS))
        except (OSError, ValueError, AssertionError):
            return PATIENCE

    def forget_peak(self) -> None:
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.daemon.pid}/clear_refs").write_text("5")

    def peak_kb(self) -> int:
        """Of its memory, since it was forgotten last."""
        text = Path(f"/proc/{self.daemon.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)", text)
        return int(found[1]) if found else 0

    def is_busy(self) -> bool:
        """Whether a thread of it computes all the while, though nobody waits for it any more.

        It wants to run at every look, however little of the processors it gets.
        """
        time.sleep(GRACE)
        running = self._running()
        for _ in range(LOOKS):
            if not running:
                return False
            time.sleep(BETWEEN_LOOKS)
            running &= self._running()
        return True

    def _running(self) -> set[str]:
        found = set()
        for task in Path(f"/proc/{self.daemon.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                    found.add(task.name)
        return found

    def children(self) -> list[str]:
        """Programs that it has started."""
        found = []
        for task in Path(f"/proc/{self.daemon.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for pid in (task / "children").read_text().split():
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(words.decode("utf-8", "replace"))
        return found

    def is_well(self) -> bool:
        return self.daemon.process is not None and self.daemon.process.poll() is None

    def close(self) -> None:
        self._over.set()
        self._asker.join(PATIENCE)
        self.daemon.close()


def wait_until_quiet(path: Path) -> None:
    """Until what the daemon does after a while has been done."""
    seen = [path.stat().st_mtime_ns, 0]

    def is_quiet() -> bool:
        time.sleep(0.2)
        seen.append(path.stat().st_mtime_ns)
        return seen[-1] == seen[-2] == seen[-3]

    until(is_quiet)
