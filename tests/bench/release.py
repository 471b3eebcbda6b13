"""This code beside the last release, each installed, in turn: what has become slower?

The release is installed from the archive that the tests keep, with the same Python and the same
packages as ours; RELEASE names the `bin` directory of another installation.  Each has a project and
a daemon of its own.  What was found is added to docs/performance/history.csv, a line for each row,
so that a little more in each change is seen, too.
"""

import compileall
import contextlib
import csv
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from icd import __version__
from tests.bench import setting as place
from tests.bench.table import Row, Table, figure

LAST = "0.4.0"
TITLE = "Beside the last release"
RELEASES = place.ROOT / "tests" / "data" / "releases"
HISTORY = place.ROOT / "docs" / "performance" / "history.csv"
COLUMNS = ("date", "version", "against", "what", "ratio", "p50 ms")
# As icctl/build.py has them; warnings of an old code are no news.
FLAGS = ("-std=c11", "-O2", "-s", "-fPIE", "-fstack-protector-strong", "-U_FORTIFY_SOURCE",
    "-D_FORTIFY_SOURCE=3", "-static-pie")  # fmt: skip
RUNS = 150
STARTS = 15
BURSTS = 40
BURST = 500
# What is slower by more than this is looked into; run a miss again before you believe it.
MOST = 1.05
FAILURE = 2  # exit statuses from here on are no answer

CHECK = ["sentinel", "check", "bench", "s1", "--interval=1"]
COMMANDS = {
    "icctl sentinel check": ["icctl", *CHECK],
    "icctl state get": ["icctl", "state", "get", "bench", "s1"],
    "icctl state set": ["icctl", "state", "set", "bench", "s1", "--value={}"],
    "icctl run list": ["icctl", "run", "list"],
    "icctl events tail": ["icctl", "events", "tail", "--all"],  # 0.4.0 refuses it without
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

    def status(self, words: list[str]) -> int:
        command = [self.bin / words[0], *words[1:]]
        done = subprocess.run(
            command, env=self.env, cwd=self.root, capture_output=True, check=False
        )
        return done.returncode


def run(table: Table) -> None:
    with _installed() as (name, release):
        with _side(place.BIN) as ours, _side(release) as theirs:
            for what, (mine, other) in _measured(ours, theirs).items():
                table.ratio(f"{what} / {name}", mine, other, unit="ms", most=MOST)
        record(table.rows, HISTORY, time.strftime("%Y-%m-%d", time.gmtime()))


def record(rows: list[Row], history: Path, date: str) -> None:
    """Add what was measured beside a release; a line that is there stays."""
    is_new = not history.exists()
    with history.open("a", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        if is_new:
            lines.writerow(COLUMNS)
        for row in rows:
            if row.section == TITLE and row.ratio is not None:
                ratio, p50 = figure(row.ratio), figure(row.measured.p50)
                lines.writerow((date, __version__, row.against, row.name, ratio, p50))


@contextlib.contextmanager
def _installed() -> Iterator[tuple[str, Path]]:
    """The release, by name, and its programs."""
    given = os.environ.get("RELEASE", "")
    if given:
        yield "the release", Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="icrelease-") as directory:
        yield LAST, install(Path(directory) / "release", LAST)


def install(target: Path, version: str) -> Path:
    """A copy of our own installation, with the release's code in the place of ours."""
    shutil.copytree(place.BIN.parent, target, symlinks=True)
    source, programs = target / "source", target / "bin"
    with tarfile.open(RELEASES / f"{version}.tar.xz") as archive:
        archive.extractall(source, filter="data")
    (packages,) = target.glob("lib/python*/site-packages")
    for package in ("icd", "icctl"):
        shutil.rmtree(packages / package)
        shutil.copytree(source / package, packages / package)
    compileall.compile_dir(packages, quiet=2)
    shutil.copy(source / "icctl" / "bin" / "icctl-python", programs)
    service = programs / "icd"
    service.write_text(service.read_text().replace(str(place.BIN), str(programs)))
    compiler = shutil.which("cc") or "gcc"
    about = f'-DINTERCORE_VERSION="{version}"'
    client = sorted((source / "icctl").glob("*.c"))
    subprocess.run([compiler, *FLAGS, about, *client, "-o", programs / "icctl"], check=True)
    return programs


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
    require_alike(words, {side.bin: side.status(words) for side in (ours, theirs)})
    return _sides([(ours.quiet(words), theirs.quiet(words)) for _ in range(RUNS)])


def require_alike(words: list[str], statuses: dict[Path, int]) -> None:
    """A mistake is told faster than an answer: only what both sides answer is compared."""
    if max(statuses.values()) >= FAILURE:
        raise RuntimeError(f"{' '.join(words)}: not answered: {statuses}")


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
