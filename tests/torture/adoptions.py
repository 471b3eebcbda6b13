"""A later database of the original, taken over by a client that is killed over it.

Whenever that is, the path names the original, with all that was in it, or ours, complete; the
original is never lost; and whoever asks again gets it done, with nothing left behind.
"""

import math
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.data import later
from tests.support.processes import PATIENCE
from tests.torture import failing
from tests.torture.code import ROOT, Code
from tests.torture.projects import copied
from tests.torture.suite import Broken
from tests.torture.upgrades import Content, content

DIRECT = {"INTERCORE_MODE": "direct"}
WORDS = ("init", "--adopt", "--timeout=30s")
# It takes some 60 ms, on a busy machine ten times as long; each magnitude gets its share.
DELAYS_US = (1000, 1_000_000)


class Adoptions:
    """What the original holds, in part still in its log, and what ours must hold then."""

    def __init__(self, directory: Path, code: Code) -> None:
        self._code = code
        self._directory = directory
        directory.mkdir(parents=True)
        with closing(later.create(str(directory / "later.db"))):
            # As a program that was killed leaves it.
            self._template = copied(directory / "later.db", directory / "killed.db")
        self._before = self._dump(self._template)
        done = self._new_project("expected")
        _finish(Code(), done)
        self._after: Content = content(_database(done))

    def _dump(self, file: Path) -> list[str]:
        with closing(sqlite3.connect(copied(file, self._directory / "aside.db"))) as conn:
            return list(conn.iterdump())

    def _new_project(self, name: str) -> Path:
        project = self._directory / name
        (project / ".git").mkdir(parents=True)
        (project / ".clavain").mkdir(mode=0o700)
        copied(self._template, _database(project))
        return project

    def attempt(self, rng: random.Random) -> bool:
        """One that is killed, and one that is not; whether the first was killed."""
        project = self._new_project(f"{rng.getrandbits(64):016x}")
        delay_us = math.exp(rng.uniform(*map(math.log, DELAYS_US)))
        spec = f"{failing.ADOPTION}:1:{delay_us:.0f}"
        status = self._killed(project, spec)
        try:
            self._check(project)
            _finish(self._code, project)
            self._check_done(project)
        except Broken as exc:
            raise Broken(f"killed at {spec}: {exc}") from exc
        shutil.rmtree(project)
        return status == -signal.SIGKILL

    def _killed(self, project: Path, spec: str) -> int:
        path = f"{self._code.root}:{ROOT}"
        env = {**self._code.env, **DIRECT, "PYTHONPATH": path, failing.VARIABLE: spec}
        done = subprocess.run(
            [sys.executable, "-m", "tests.torture.failing", "direct", *WORDS],
            cwd=project, env={**env, "HOME": str(project)}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=2 * PATIENCE, check=False,
        )  # fmt: skip
        if done.returncode not in (0, -signal.SIGKILL):
            raise Broken(f"{WORDS} ended with {done.returncode}: {done.stderr.decode()}")
        return done.returncode

    def _check(self, project: Path) -> None:
        database = _database(project)
        if not database.exists():
            raise Broken(f"{database} is gone")
        if self._dump(database) == self._before:
            return
        if content(copied(database, self._directory / "aside.db")) != self._after:
            raise Broken(f"{database} is neither the original nor what becomes of it")
        self._check_kept(project)

    def _check_kept(self, project: Path) -> None:
        kept = list(_database(project).parent.glob("*.original-*"))
        if len(kept) != 1 or self._dump(kept[0]) != self._before:
            raise Broken(f"of the original, there is {kept}, of which none is what it was")

    def _check_done(self, project: Path) -> None:
        self._check_kept(project)
        if content(copied(_database(project), self._directory / "aside.db")) != self._after:
            raise Broken(f"{project} was not taken over the second time")
        if left := list(_database(project).parent.glob("*.adopt*")):
            raise Broken(f"left behind: {left}")


def _database(project: Path) -> Path:
    return project / ".clavain" / "intercore.db"


def _finish(code: Code, project: Path) -> None:
    done = code.icctl(*WORDS, cwd=project, env=DIRECT)
    if done.returncode:
        raise Broken(f"asked again, it failed with {done.returncode}: {done.stderr.decode()}")
