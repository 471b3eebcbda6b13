"""This code beside an earlier release, each installed, in turn: what has become slower?

RELEASE names the `bin` directory of an installation of the earlier one; without it there is
nothing to compare with.  Each has a project and a daemon of its own.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 150
STARTS = 15
BURSTS = 40
BURST = 500
# What is slower by more than this is looked into; run a miss again before you believe it.
MOST = 1.05

CHECK = ["sentinel", "check", "bench", "s1", "--interval=1"]
COMMANDS = {
    "icctl sentinel check": ["icctl", *CHECK],
    "icctl state get": ["icctl", "state", "get", "bench", "s1"],
    "icctl state set": ["icctl", "state", "set", "bench", "s1", "--value={}"],
    "icctl run list": ["icctl", "run", "list"],
    "icctl events tail": ["icctl", "events", "tail"],
    "icctl-python sentinel check": ["icctl-python", *CHECK],
}
DIRECT = {
    "sentinel check without a daemon": ["icctl", "--no-daemon", *CHECK],
    "run list without a daemon": ["icctl", "--no-daemon", "run", "list"],
}


class Side(Struct):
    """An installation, with a project of its own."""

    bin: Path
    root: Path

    @property
    def env(self) -> dict[str, str]:
        path = f"{self.bin}:/usr/bin:/bin"
        return {"PATH": path, "HOME": str(self.root), "INTERCORE_SOCKET": self.socket}

    @property
    def socket(self) -> str:
        return str(self.root / "run" / "icd.sock")

    def quiet(self, words: list[str]) -> float:
        return place.quiet([str(self.bin / words[0]), *words[1:]], self.env, self.root)


def run(table: Table) -> None:
    release = os.environ.get("RELEASE", "")
    if not release:
        table.note("an earlier release", "not compared: RELEASE names no installation")
        return
    with _side(place.BIN) as ours, _side(Path(release)) as theirs:
        for what, (mine, other) in _measured(ours, theirs).items():
            table.ratio(f"{what} / the release", mine, other, unit="ms", most=MOST)


@contextlib.contextmanager
def _side(installed: Path) -> Iterator[Side]:
    side = Side(installed, Path(tempfile.mkdtemp(prefix="icrelease-")))
    (side.root / ".git").mkdir()
    (side.root / "run").mkdir(mode=0o700)
    try:
        for words in (["init"], ["state", "set", "bench", "s1", "--value={}"]):
            side.quiet(["icctl", "--no-daemon", *words])
        yield side
    finally:
        shutil.rmtree(side.root)


def _measured(ours: Side, theirs: Side) -> dict[str, tuple[list[float], list[float]]]:
    found = {}
    with _daemon(ours), _daemon(theirs):
        for what, words in COMMANDS.items():
            found[what] = _in_turn(ours, theirs, words)
        pairs = [(_burst(ours), _burst(theirs)) for _ in range(BURSTS)]
        found[f"{BURST} pipelined state.get"] = _sides(pairs)
    for what, words in DIRECT.items():
        found[what] = _in_turn(ours, theirs, words)
    pairs = [(_start(ours), _start(theirs)) for _ in range(STARTS)]
    found["a daemon's start, to its first answer"] = _sides(pairs)
    return found


def _in_turn(ours: Side, theirs: Side, words: list[str]) -> tuple[list[float], list[float]]:
    return _sides([(ours.quiet(words), theirs.quiet(words)) for _ in range(RUNS)])


def _sides(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


@contextlib.contextmanager
def _daemon(side: Side) -> Iterator[None]:
    process = subprocess.Popen(
        [side.bin / "icd", "serve"], env=side.env, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        place.wait_for(side.socket)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _start(side: Side) -> float:
    began = time.perf_counter()
    with _daemon(side):
        side.quiet(["icctl", *CHECK])
        return (time.perf_counter() - began) * 1000


def _burst(side: Side) -> float:
    """Milliseconds for many calls that are sent at once."""
    params = f'{{"cwd":"{side.root}","key":"bench","scope_id":"s1"}}'
    line = f'{{"jsonrpc":"2.0","id":1,"method":"state.get","params":{params}}}\n'.encode()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(side.socket)
        began = time.perf_counter()
        sock.sendall(line * BURST)
        replies = 0
        while replies < BURST:
            replies += sock.recv(1 << 20).count(b"\n")
        return (time.perf_counter() - began) * 1000
