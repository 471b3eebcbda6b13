"""Those who follow, in the suite `watch`: each remembers what it was shown, from round to round."""

import contextlib
import json
import math
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE
from tests.torture.shown import Shown, in_order
from tests.torture.stage import LOOK_SECONDS, PAUSE_SECONDS, Stage
from tests.torture.suite import Broken

LIVES_SECONDS = (0.2, 1.5)  # of a process that follows, until it is killed


class Stream:
    """`events.watch`, again and again after the last event that it has."""

    def __init__(self, stage: Stage) -> None:
        self.shown = Shown("stream", stage.acked, stage.witness.confirm)
        self._stage = stage

    def follow(self, _rng: random.Random) -> None:
        shown = self.shown
        while not self._is_over():
            for news in _watch(self._stage, "events.watch", self._is_over, since=shown.last):
                in_order(news["events"], shown.name, shown.last)
                for event in news["events"]:
                    shown.take(event)

    def _is_over(self) -> bool:
        return self._stage.is_over(self.shown.last)


class Manual:
    """`events.consume`: a program that dies before it acknowledges has dealt with nothing."""

    def __init__(self, stage: Stage) -> None:
        self.shown = Shown("manual", stage.acked, stage.witness.confirm)
        self._stage = stage

    def follow(self, rng: random.Random) -> None:
        acked = None
        while not self._stage.is_over(self.shown.last):
            given = {} if acked is None else {"acked": acked}
            found = self._stage.ask("events.consume", consumer="manual", limit=50, **given)
            events = found["events"] if found else []
            in_order(events, self.shown.name)
            if not events or rng.random() < 0.3:
                acked = None
                time.sleep(PAUSE_SECONDS)
                continue
            for event in events:
                self.shown.take(event)
            acked = events[-1]["seq"]


class Caller:
    """`events tail --consumer` as scripts use it, through a door that loses replies."""

    def __init__(self, stage: Stage) -> None:
        self.shown = Shown("caller", stage.acked, stage.witness.confirm)
        self._stage = stage

    def follow(self, _rng: random.Random) -> None:
        words = ["events", "tail", "--all", "--consumer=caller", "--limit=500"]
        while not self._stage.is_over(self.shown.last):
            process = _start(self._stage, *words, address=self._stage.door.address)
            with _killed(self._stage, process, math.inf, self._stage.failed.is_set):
                _take(process, self.shown)
            if process.returncode and not self._stage.failed.is_set():
                said = _errors(self._stage).read_text()[-1000:]
                raise Broken(f"events tail failed, exit {process.returncode}: {said}")


class Follower:
    """`events tail --consumer -f`, which is killed at any time.

    Whatever the process has written counts as shown, also if it was killed right then.
    """

    def __init__(self, stage: Stage) -> None:
        self.shown = Shown("follower", stage.acked, stage.witness.confirm)
        self._stage = stage

    def follow(self, rng: random.Random) -> None:
        words = ["events", "tail", "--all", "--follow", "--consumer=follower"]
        while not self._is_over():
            process = _start(self._stage, *words, address=self._stage.daemon.socket)
            with _killed(self._stage, process, rng.uniform(*LIVES_SECONDS), self._is_over):
                _take(process, self.shown)

    def _is_over(self) -> bool:
        return self._stage.is_over(self.shown.last)


class RowStream:
    """`state.watch`: of a row that is counted up, each version once, whoever tells it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._value = 0
        self._known: dict[str, int] = {}

    def follow(self, _rng: random.Random) -> None:
        given = {"key": "watched", "known": self._known}
        while not self._is_over():
            for news in _watch(self._stage, "state.watch", self._is_over, **given):
                for row in news["rows"]:
                    self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        if row["payload"] <= self._value or row["version"] <= self._known.get("s", 0):
            raise Broken(f"the row was shown as {row} after {self._value}, {self._known}")
        self._value, self._known["s"] = row["payload"], row["version"]

    def _is_over(self) -> bool:
        return self._stage.is_over(self._value, self._stage.counted)


class RowFollower:
    """`icctl state watch`, killed at any time; each process begins with what the row is."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._value = 0

    def follow(self, rng: random.Random) -> None:
        while not self._is_over():
            words = ["state", "watch", "watched", "s"]
            process = _start(self._stage, *words, address=self._stage.daemon.socket)
            with _killed(self._stage, process, rng.uniform(*LIVES_SECONDS), self._is_over):
                self._take(process)

    def _take(self, process: "subprocess.Popen[bytes]") -> None:
        least = self._value  # what was shown before may be shown once more, at first
        for line in _lines(process):
            value = int(line) if line.strip() else 0
            if value < least:
                raise Broken(f"state watch showed {value}, and before that {self._value}")
            least, self._value = value + 1, max(value, self._value)

    def _is_over(self) -> bool:
        return self._stage.is_over(self._value, self._stage.counted)


def _watch(
    stage: Stage, method: str, is_over: Callable[[], bool], **params: Any
) -> Iterator[dict[str, Any]]:
    """What a subscription tells, until it ends, whyever."""
    given = {"cwd": str(stage.project), **params}
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
    data = b""
    with contextlib.suppress(OSError), stage.daemon.connect() as sock:
        sock.sendall(json.dumps(request).encode() + b"\n")
        sock.settimeout(LOOK_SECONDS)
        while not is_over():
            try:
                chunk = sock.recv(1 << 20)
            except TimeoutError:
                continue
            if not chunk:
                break
            *lines, data = (data + chunk).split(b"\n")
            for line in map(json.loads, lines):
                if "params" not in line:  # it has ended, and the next one may be asked for
                    return
                yield line["params"]
    time.sleep(PAUSE_SECONDS)


def _errors(stage: Stage) -> Path:
    return stage.project / "readers.err"


def _start(stage: Stage, *words: str, address: str) -> "subprocess.Popen[bytes]":
    env = {**stage.run.code.env, "HOME": str(stage.project), "INTERCORE_SOCKET": address}
    with _errors(stage).open("ab") as errors:
        return subprocess.Popen(
            stage.run.code.client(*words, f"--timeout={PATIENCE:.0f}s"),
            cwd=stage.project, env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip


@contextlib.contextmanager
def _killed(
    stage: Stage,
    process: "subprocess.Popen[bytes]",
    lives_seconds: float,
    is_over: Callable[[], bool],
) -> Iterator[None]:
    """After its time, or when its reader has seen everything."""
    kill_at = time.monotonic() + lives_seconds

    def end() -> None:
        while process.poll() is None:
            if is_over() or time.monotonic() > kill_at:
                process.kill()
            time.sleep(0.01)

    killer = threading.Thread(target=end)
    killer.start()
    try:
        yield
    except BaseException:
        process.kill()
        raise
    finally:
        killer.join(PATIENCE)
    stage.run.figures["killed readers"] += process.returncode == -signal.SIGKILL


def _take(process: "subprocess.Popen[bytes]", shown: Shown) -> None:
    last = 0
    for line in _lines(process):
        event = json.loads(line)
        in_order([event], shown.name, last)
        last = event["seq"]
        shown.take(event)


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """Whole ones: the last may be cut off, if it was killed while it wrote."""
    assert process.stdout is not None
    with process.stdout as lines:
        yield from (line for line in lines if line.endswith(b"\n"))
    process.wait(PATIENCE)
