"""A project with 10,000 state rows and 1,000 sentinels, and a daemon for it."""

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

from icd import config
from icd.db.database import Database
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.values.processes import Writer

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".venv" / "wheel" / "bin"
ROWS = 10_000
SENTINELS = 1_000

Times = dict[str, list[float]]


class Setting:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = str(root / ".clavain" / "intercore.db")
        self.socket = str(root / "run" / "icd.sock")
        self.env = {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "HOME": str(root),
            "INTERCORE_SOCKET": self.socket,
        }

    def open(self) -> Database:
        """The database in this process; the caller closes it again."""
        return Database(self.path, config.DEFAULTS)


@contextlib.contextmanager
def project(*, rows: int = ROWS, guards: int = SENTINELS) -> Iterator[Setting]:
    root = Path(tempfile.mkdtemp(prefix="icbench-"))
    (root / ".git").mkdir()
    (root / "run").mkdir(mode=0o700)
    setting = Setting(root)
    try:
        fill(setting, rows=rows, guards=guards)
        yield setting
    finally:
        shutil.rmtree(root)


def fill(setting: Setting, *, rows: int, guards: int) -> None:
    database = setting.open()
    now_ms = time.time_ns() // 1_000_000
    with database.hold(time.monotonic() + 5, create=True):
        conn = database.connection(create=True)
        conn.execute("BEGIN IMMEDIATE")
        writer = Writer()
        for i in range(rows):
            state.set(conn, "bench", f"s{i}", '{"i":1}', writer=writer, now_ms=now_ms)
        for i in range(guards):
            sentinels.check(conn, "bench", f"s{i}", interval_s=3600, now_ms=now_ms)
        conn.execute("COMMIT")
        database.close()


@contextlib.contextmanager
def daemon(setting: Setting) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [BIN / "icd", "serve"], env=setting.env, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        wait_for(setting.socket)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


@contextlib.contextmanager
def redis() -> Iterator[list[str]]:
    """How to call redis-cli, where there is one; else nothing."""
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="icredis-", dir="/tmp") as root:
        path = f"{root}/redis.sock"
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--dir", root]
        server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            wait_for(path)
            yield [shutil.which("redis-cli") or "", "-s", path]
        finally:
            server.terminate()
            server.wait(10)


def wait_for(path: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)
            return
        time.sleep(0.002)
    raise TimeoutError(path)


def quiet(arguments: list[str], env: dict[str, str], cwd: Path) -> float:
    """Run a program and return the milliseconds it took."""
    began = time.perf_counter()
    subprocess.run(
        arguments,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return (time.perf_counter() - began) * 1000


def interleaved(commands: dict[str, list[str]], setting: Setting, runs: int) -> Times:
    """Milliseconds of every run; programs take turns, so a busy minute is everybody's."""
    times: Times = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(quiet(command, setting.env, setting.root))
    return times


def is_native() -> bool:
    """Whether a C compiler was there to build the client: else it is the one in Python."""
    return (BIN / "icctl").read_bytes().startswith(b"\x7fELF")


def python() -> str:
    return os.path.realpath(BIN / "python")


def cpu_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds from the scheduler: the clock of `stat` ticks too slowly."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9
