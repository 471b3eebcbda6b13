"""Crash: `kill -9` at named failpoints; whatever was acknowledged must be there, and nothing by half.

Several daemons live at once, each with a project of its own.  A life begins with asking again, under
the same id, for whatever the death before left unknown; then several clients keep the daemon busy
until it reaches its failpoint (see failing.py), while direct calls use the same database, some of
which are killed, too.  After each death a copy of the database is compared with the ledger; backups
and mirrored files must be whole.  Other lives migrate old databases and are killed over it.

A project ends with a daemon that nobody kills: everything that was unknown is asked again, and the
mirror must catch up.
"""

import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.processes import PATIENCE, Daemon, until
from tests.torture import failing
from tests.torture.code import ROOT
from tests.torture.ledger import DIRECT, Ledger, Operation
from tests.torture.suite import Broken, Run
from tests.torture.upgrades import Template, Templates, Upgrade, content
from tests.torture.workload import Workload

# More would only wait for each other: starting a daemon takes most of the time.
DAEMONS = 3
CLIENTS = 3
# A ledger is compared as a whole after each death, so it must not grow for ever.
LIVES = 20
MOST_PASSES = {
    "before_commit": 30, "during_commit": 30, "after_commit": 30, "before_reply": 60,
    "before_checkpoint": 2, "during_checkpoint": 2, "after_checkpoint": 2, "backup": 90,
    "mirror": 12, "migration": 90, "before_preflight": 1, "before_exec": 1, "after_exec": 1,
}  # fmt: skip
# A commit takes some 50 µs, a checkpoint a few hundred.
MOST_DELAY_US = {"during_commit": 150, "during_checkpoint": 1500}
DIRECT_SHARE = 0.25


def run(run: Run, points: Sequence[str] = failing.NAMES) -> None:
    shared = _Shared(run, points)

    def work(number: int, seed: int) -> None:
        try:
            _Worker(shared, number, random.Random(seed)).work()
        except BaseException:
            shared.stop.set()
            raise

    with ThreadPoolExecutor(DAEMONS) as pool:
        seeds = [run.rng.getrandbits(64) for _ in range(DAEMONS)]
        for done in [pool.submit(work, number, seed) for number, seed in enumerate(seeds)]:
            done.result()


class _Shared:
    """What the workers have in common."""

    def __init__(self, run: Run, points: Sequence[str]) -> None:
        self.run = run
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._all = points
        self._points: list[str] = []
        (run.directory / "templates").mkdir()
        self._templates = Templates(run.directory / "templates")

    @property
    def is_over(self) -> bool:
        return self.run.is_over or self.stop.is_set()

    def point(self, rng: random.Random) -> str:
        """Each in its turn, in an order of its own."""
        with self._lock:
            if not self._points:
                self._points = rng.sample(self._all, len(self._all))
            return self._points.pop()

    def template(self, rng: random.Random) -> Template:
        with self._lock:
            return self._templates.choose(rng)

    def count(self, what: str, count: int = 1) -> None:
        with self._lock:
            self.run.figures[what] += count


class _Worker:
    """One daemon after the other, on one project after the other."""

    def __init__(self, shared: _Shared, number: int, rng: random.Random) -> None:
        self._shared = shared
        self._run = run = shared.run
        self._rng = rng
        self._directory = run.directory / f"worker-{number}"
        self._upgrades: list[Upgrade] = []
        self._made = 0
        path = f"{run.code.root}:{ROOT}"
        self._env = {"PYTHONPATH": path, "INTERCORE_IDLE_SECONDS": "0.05"}

    def work(self) -> None:
        self._directory.mkdir()
        while not self._shared.is_over:
            project = _Project(self._new_directory(), self._rng)
            daemon = self._run.code.daemon(env=self._env, module="tests.torture.failing")
            daemon.env["INTERBAND_ROOT"] = str(project.band)
            try:
                for _ in range(LIVES):
                    if self._shared.is_over:
                        break
                    self._live(daemon, project)
                self._end(daemon, project)
            finally:
                daemon.close()
                project.close()
            self._shared.count("operations", len(project.ledger.operations))
            shutil.rmtree(project.directory)

    def _new_directory(self) -> Path:
        self._made += 1
        return self._directory / str(self._made)

    def _live(self, daemon: Daemon, project: "_Project") -> None:
        point = self._shared.point(self._rng)
        spec = self._spec(point)
        daemon.env[failing.VARIABLE] = spec
        if point == "migration":
            old = self._shared.template(self._rng)
            self._upgrades.append(Upgrade(self._new_directory(), old))
        daemon.start()
        calls = self._call_directly(project)
        try:
            project.keep_busy(daemon, point, [upgrade.directory for upgrade in self._upgrades])
        finally:
            for call in calls:
                self._shared.count("kills", call.ended() == -signal.SIGKILL)
        status = daemon.process.wait(PATIENCE) if daemon.process else 0
        if status != -signal.SIGKILL:
            raise Broken(f"icd ended with {status}: {daemon.log.read_text()[-2000:]}")
        self._shared.count("kills")
        try:
            project.check()
            self._check_upgrades(project)
        except Broken as exc:
            raise Broken(f"killed at {spec}: {exc}") from exc

    def _spec(self, point: str) -> str:
        number = self._rng.randint(1, MOST_PASSES[point])
        return f"{point}:{number}:{self._rng.randint(0, MOST_DELAY_US.get(point, 0))}"

    def _call_directly(self, project: "_Project") -> "list[_DirectCall]":
        if self._rng.random() > DIRECT_SHARE or not project.is_made:
            return []
        env = {**self._run.code.env, **self._env, "INTERCORE_MODE": "direct"}
        if self._rng.random() < 0.5:
            env[failing.VARIABLE] = f"{self._rng.choice(failing.COMMITS)}:1:50"
        self._shared.count("direct calls")
        return [_DirectCall(project, f"{self._rng.getrandbits(64):016x}", env)]

    def _check_upgrades(self, project: "_Project") -> None:
        """Those that are done are done with."""
        left = []
        for upgrade in self._upgrades:
            if upgrade.check(_copy(upgrade.database, project.aside)):
                shutil.rmtree(upgrade.directory)
                self._shared.count("migrations")
            else:
                left.append(upgrade)
        self._upgrades = left

    def _end(self, daemon: Daemon, project: "_Project") -> None:
        """Nobody kills this one: everything is asked again, and the mirror catches up."""
        daemon.env[failing.VARIABLE] = ""
        daemon.start()
        for upgrade in self._upgrades:
            daemon.call("db.init", cwd=str(upgrade.directory))
        project.settle(daemon)
        until(project.is_mirrored)
        status = daemon.stop()
        if status:
            raise Broken(f"icd ended with {status}: {daemon.log.read_text()[-2000:]}")
        project.check()
        self._check_upgrades(project)
        if self._upgrades or project.ledger.unknown:
            raise Broken(f"not even now: {self._upgrades} {project.ledger.unknown}")


class _Project:
    """A database, what was asked of it, and those who ask."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        (directory / ".git").mkdir(parents=True)
        self.database = directory / ".clavain" / "intercore.db"
        self.aside = directory / "aside.db"
        self.band = directory / "band"
        self.ledger = Ledger()
        self._workloads = [Workload(rng, self.ledger, str(lane)) for lane in range(CLIENTS)]
        self._rng = rng
        self._peers: list[socket.socket] = []
        self._daemon: Daemon | None = None

    @property
    def where(self) -> dict[str, str]:
        return {"cwd": str(self.directory)}

    @property
    def is_made(self) -> bool:
        """Only a daemon that dies before its first answer leaves a database that is not."""
        return any(known.outcome for known in self.ledger.operations)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self._peers = []

    def keep_busy(self, daemon: Daemon, point: str, upgrades: list[Path]) -> None:
        """Until it dies; that it does not is an error."""
        deadline = time.monotonic() + PATIENCE
        self._daemon = daemon
        try:
            self._peers = [daemon.connect() for _ in range(CLIENTS)]
            self._initialize([*upgrades, self.directory])
            self._again(self._peers[0])
            turn = 0
            while time.monotonic() < deadline:
                turn += 1
                self._rounds(daemon, point, turn)
        except ConnectionError:
            return
        finally:
            self.close()
        raise Broken(f"the failpoint {point} was never reached; log: {daemon.log.read_text()}")

    def settle(self, daemon: Daemon) -> None:
        with daemon.connect() as peer:
            daemon.call("db.init", **self.where)
            self._again(peer)

    def _initialize(self, directories: list[Path]) -> None:
        for number, directory in enumerate(directories):
            call = Operation(f"init-{number}", "db.init", {})
            self._exchange([(self._peers[0], [call])], cwd=str(directory))

    def _again(self, peer: socket.socket) -> None:
        """In the order in which they were asked first."""
        unknown = [known for known in self.ledger.unknown if known.params.get("key") != DIRECT]
        for start in range(0, len(unknown), 8):
            self._exchange([(peer, unknown[start : start + 8])], **self.where)

    def _rounds(self, daemon: Daemon, point: str, turn: int) -> None:
        """What brings a daemon to its failpoint, besides calls."""
        bursts = zip(self._peers, self._workloads, strict=True)
        self._exchange([(peer, load.burst()) for peer, load in bursts], **self.where)
        if point == "backup" and turn % 3 == 0:
            backup = Operation(f"backup-{turn}", "backup.create", {})
            self._exchange([(self._peers[0], [backup])], **self.where)
        elif point in failing.REEXEC and turn == 2:
            daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        elif point in (*failing.CHECKPOINTS, "mirror") and turn % 3 == 0:
            self._rest(0.2)
        elif point == "migration":
            daemon.kill()  # it had fewer statements than that
            raise ConnectionError

    def _rest(self, seconds: float) -> None:
        """The daemon tidies up and mirrors while nobody asks; unless it dies over it."""
        self._peers[0].settimeout(seconds)
        try:
            if not self._peers[0].recv(1):
                raise ConnectionResetError
        except TimeoutError:
            pass
        finally:
            self._peers[0].settimeout(PATIENCE)

    def _exchange(self, bursts: list[tuple[socket.socket, list[Operation]]], **where: Any) -> None:
        """Everybody asks, then everybody is answered; all answers that arrived are read."""
        gone = False
        for peer, operations in bursts:
            try:
                peer.sendall(b"".join(known.request(**where) for known in operations))
            except ConnectionError:
                gone = True
        for peer, operations in bursts:
            gone |= not read_answers(peer, operations)
        if gone:
            raise ConnectionResetError

    def check(self) -> None:
        copy = _copy(self.database, self.aside)
        if not copy.exists() or not (self.is_made or content(copy)[0]):
            return
        there = self.ledger.check(copy)
        for known in self.ledger.unknown:
            if known.params.get("key") == DIRECT:  # nobody asks again: it stays as it is
                known.outcome = {"result": None} if known.id in there else {}
        for backup in sorted(self.database.parent.glob("intercore.db.backup-*"))[-1:]:
            content(backup)
        for file in self.band.glob("interphase/bead/*.json"):
            shown = json.loads(file.read_bytes())["payload"]["op"]
            if shown not in there:
                raise Broken(f"{file} shows {shown}, which was never committed")

    def is_mirrored(self) -> bool:
        """Whether the files show what the rows hold."""
        rows = {}
        for known in self.ledger.operations:
            if known.params.get("key") == "bead" and known.outcome:
                version = known.outcome["result"]["version"]
                name = known.params["scope_id"]
                rows[name] = max(rows.get(name, (0, "")), (version, known.id))
        files = {
            file.stem: json.loads(file.read_bytes())["payload"]["op"]
            for file in self.band.glob("interphase/bead/*.json")
        }
        return files == {name: id_ for name, (_, id_) in rows.items()}


class _DirectCall:
    """A row that is written without the daemon."""

    def __init__(self, project: _Project, id_: str, env: dict[str, str]) -> None:
        params = {"key": DIRECT, "scope_id": id_}
        self._operation = project.ledger.add(Operation(id_, "state.set", params))
        words = ["direct", "--timeout=30s", "state", "set", DIRECT, id_, '--value={"by": "hand"}']
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.failing", *words],
            cwd=project.directory,
            env={**env, "HOME": str(project.directory)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def ended(self) -> int:
        _, stderr = self._process.communicate(timeout=PATIENCE)
        status = self._process.returncode
        if status == 0:
            self._operation.outcome = {"result": None}
        elif status != -signal.SIGKILL:
            raise Broken(f"a direct call ended with {status}: {stderr.decode()}")
        return status


def read_answers(peer: socket.socket, operations: list[Operation]) -> bool:
    """Whether all have arrived; a part of a line is no answer."""
    asked = {known.id: known for known in operations}
    data = b""
    while asked:
        try:
            chunk = peer.recv(1 << 16)
        except ConnectionError:
            return False
        if not chunk:
            return False
        *lines, data = (data + chunk).split(b"\n")
        for line in lines:
            response = json.loads(line)
            asked.pop(response["id"]).settle(response)
    return True


def _copy(database: Path, aside: Path) -> Path:
    """With its log, so that opening it recovers it and the daemon must do so, too."""
    for old in aside.parent.glob(f"{aside.name}*"):
        old.unlink()
    for suffix in ("", "-wal"):
        file = database.with_name(database.name + suffix)
        if file.exists():
            shutil.copy(file, f"{aside}{suffix}")
    return aside
