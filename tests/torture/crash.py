"""Crash: `kill -9` at named failpoints; whatever was acknowledged must be there, and nothing by half.

Several daemons live at once, each with a project of its own.  A life begins with asking again, under
the same id, for whatever the death before left unknown; then several clients keep the daemon busy
until it reaches its failpoint (see failing.py), while direct calls use the same database, some of
which are killed, too.  After each death a copy of the database is compared with the ledger; backups
and mirrored files must be whole.  Other lives migrate old databases and are killed over it; and in
between, later databases of the original are taken over by clients that are killed (adoptions.py).

A project ends with a daemon that nobody kills: everything that was unknown is asked again, and the
mirror must catch up.
"""

import random
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

from tests.support.processes import CLEAN, PATIENCE, Daemon, until
from tests.torture import failing
from tests.torture.adoptions import Adoptions
from tests.torture.clients import NATIVE
from tests.torture.code import ROOT
from tests.torture.projects import DirectCall, Project, copied
from tests.torture.suite import Broken, Run
from tests.torture.upgrades import Template, Templates, Upgrade

# More would only wait for each other: starting a daemon takes most of the time.
DAEMONS = 3
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
# Of those, if there is a native client.
NATIVE_SHARE = 0.3
ADOPTION_SHARE = 0.1


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
        self._points = points
        self._seed = run.rng.getrandbits(64)
        (run.directory / "templates").mkdir()
        self._templates = Templates(run.directory / "templates")

    @property
    def is_over(self) -> bool:
        return self.run.is_over or self.stop.is_set()

    def points(self, number: int) -> Iterator[str]:
        """A worker's part of all failpoints, again and again: by turns everybody gets all of them.

        Whatever the others do meanwhile, the same seed gives a worker the same.
        """
        rng = random.Random(self._seed)
        everybody = cycle(range(DAEMONS))
        while True:
            for point in rng.sample(self._points, len(self._points)):
                if next(everybody) == number:
                    yield point

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
        self._points = shared.points(number)
        self._directory = run.directory / f"worker-{number}"
        self._upgrades: list[Upgrade] = []
        self._adoptions: Adoptions | None = None
        self._made = 0
        path = f"{run.code.root}:{ROOT}"
        self._env = {"PYTHONPATH": path, "INTERCORE_IDLE_SECONDS": "0.05"}

    def work(self) -> None:
        self._directory.mkdir()
        while not self._shared.is_over:
            project = Project(self._new_directory(), self._rng)
            daemon = self._run.code.daemon(env=self._env, module="tests.torture.failing")
            daemon.env["INTERBAND_ROOT"] = str(project.band)
            try:
                for _ in range(LIVES):
                    if self._shared.is_over:
                        break
                    self._live(daemon, project)
                    if self._rng.random() < ADOPTION_SHARE:
                        self._adopt()
                self._end(daemon, project)
            finally:
                daemon.close()
                project.close()
            self._shared.count("operations", len(project.ledger.operations))
            shutil.rmtree(project.directory)

    def _adopt(self) -> None:
        if self._adoptions is None:
            self._adoptions = Adoptions(self._directory / "adoptions", self._run.code)
        self._shared.count("kills", self._adoptions.attempt(self._rng))
        self._shared.count("adoptions")

    def _new_directory(self) -> Path:
        self._made += 1
        return self._directory / str(self._made)

    def _live(self, daemon: Daemon, project: Project) -> None:
        point = next(self._points)
        spec = self._spec(point)
        daemon.env[failing.VARIABLE] = spec
        if point == "migration":
            old = self._shared.template(self._rng)
            self._upgrades.append(Upgrade(self._new_directory(), old))
        daemon.start()
        calls = self._call_directly(project, daemon.socket)
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

    def _call_directly(self, project: Project, address: str) -> list[DirectCall]:
        if self._rng.random() > DIRECT_SHARE or not project.is_made:
            return []
        id_, chance = f"{self._rng.getrandbits(64):016x}", self._rng.random()
        # What is broken on purpose is the Python code.
        if chance < NATIVE_SHARE and NATIVE.exists() and self._run.code.root == ROOT:
            self._shared.count("calls of the native client")
            return [DirectCall(project, id_, {**CLEAN, "INTERCORE_SOCKET": address}, [NATIVE])]
        env = {**self._run.code.env, **self._env, "INTERCORE_MODE": "direct"}
        if self._rng.random() < 0.5:
            env[failing.VARIABLE] = f"{self._rng.choice(failing.COMMITS)}:1:50"
        self._shared.count("direct calls")
        return [DirectCall(project, id_, env)]

    def _check_upgrades(self, project: Project) -> None:
        """Those that are done are done with."""
        left = []
        for upgrade in self._upgrades:
            if upgrade.check(copied(upgrade.database, project.aside)):
                shutil.rmtree(upgrade.directory)
                self._shared.count("migrations")
            else:
                left.append(upgrade)
        self._upgrades = left

    def _end(self, daemon: Daemon, project: Project) -> None:
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
