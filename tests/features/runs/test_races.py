"""Whoever races for a run, or with it: one wins, the others are told, and the log knows it all."""

import contextlib
import json
import multiprocessing
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from icctl import client
from icd.errors import RunOver
from icd.features.events import store as events
from icd.features.runs import phases
from icd.features.runs import store as runs
from icd.values.validation import new_id
from tests.support.folding import fold
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, running
from tests.support.restarts import Restarts
from tests.support.sizes import size

pytestmark = pytest.mark.long

FORK = multiprocessing.get_context("fork")
ROUNDS = size(1000, 200)
KILLED_ROUNDS = size(3000, 1500)  # they must last for some kills
CREATORS = 50
LONG = "--timeout=40s"  # a loaded machine is no failure


@pytest.fixture
def host(request: pytest.FixtureRequest):
    """A daemon, or none."""
    if request.param == "direct":
        yield {"INTERCORE_MODE": "direct"}
        return
    with running() as daemon:
        yield {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": daemon.socket}


both = pytest.mark.parametrize("host", ["daemon", "direct"], indirect=True)


@both
@pytest.mark.timeout(240)
def test_of_fifty_processes_that_create_a_run_for_one_bead_one_wins_and_the_others_name_it(
    initialized: Path, host: dict[str, str]
) -> None:
    def create(number: int) -> Any:
        return icctl(
            "run", "create", f"--goal=g{number}", "--bead=B-1", LONG, cwd=initialized, env=host
        )

    with ThreadPoolExecutor(CREATORS) as pool:
        done = list(pool.map(create, range(CREATORS)))

    exits = [each.returncode for each in done]
    assert sorted(exits) == [0] + [1] * (CREATORS - 1), [each.stderr for each in done]
    winner = next(each for each in done if each.returncode == 0).stdout.decode().strip()
    for loser in (each for each in done if each.returncode == 1):
        assert f"B-1 is taken by run {winner}, created ".encode() in loser.stderr
        assert f", pid {os.getpid()} is alive".encode() in loser.stderr
        assert loser.stdout == b""
    listed = icctl("run", "list", "--scope=B-1", cwd=initialized, env=host).stdout.decode()
    assert [line.split("\t")[0] for line in listed.splitlines()] == [winner]


@both
@pytest.mark.timeout(240)
def test_of_eight_who_advance_from_one_phase_one_does_and_the_others_are_told(
    initialized: Path, host: dict[str, str]
) -> None:
    made = icctl("run", "create", "--goal=g", cwd=initialized, env=host).stdout.decode().strip()

    def advance(_: int) -> Any:
        words = ["run", "advance", made, "--if-phase=brainstorm", "--json", LONG]
        return icctl(*words, cwd=initialized, env=host)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(advance, range(8)))

    replies = [json.loads(each.stdout) for each in done]
    assert sorted(each.returncode for each in done) == [0] + [1] * 7
    assert sorted(reply["event_type"] for reply in replies) == ["advance"] + ["stale"] * 7
    for reply in replies:
        assert reply["advanced"] == (reply["event_type"] == "advance")
        if not reply["advanced"]:
            assert reply["from_phase"] == "brainstorm-reviewed"
            assert "advance from brainstorm to brainstorm-reviewed at " in reply["reason"]
    history = icctl("run", "events", made, "--json", cwd=initialized, env=host).stdout
    assert len(json.loads(history)) == 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [False, True], ids=["undisturbed", "killed"])
def test_an_advance_and_a_cancel_through_the_daemon_end_in_one_of_the_two(
    initialized: Path, kills: bool
) -> None:
    ids_ = _make(initialized, KILLED_ROUNDS if kills else ROUNDS)
    with running() as daemon:
        client = Client(daemon, str(initialized))
        disturbed: Any = Kills(daemon) if kills else contextlib.nullcontext()
        with disturbed, ThreadPoolExecutor(2) as pool:
            barrier = threading.Barrier(2)
            advancing = pool.submit(_each, ids_, barrier, client.advance)
            cancelling = pool.submit(_each, ids_, barrier, client.cancel)
            outcomes = list(zip(advancing.result(), cancelling.result(), strict=True))

    assert not kills or disturbed.count > 2
    _check(initialized, ids_, outcomes)


@pytest.mark.timeout(300)
def test_an_advance_and_a_cancel_without_a_daemon_end_in_one_of_the_two(initialized: Path) -> None:
    ids_ = _make(initialized, ROUNDS)
    barrier = FORK.Barrier(2)
    queues = [FORK.SimpleQueue() for _ in range(2)]
    workers = [
        FORK.Process(target=_directly, args=(initialized, ids_, barrier, verb, queue))
        for verb, queue in zip(("advance", "cancel"), queues, strict=True)
    ]

    for worker in workers:
        worker.start()
    outcomes = list(zip(*(queue.get() for queue in queues), strict=True))
    for worker in workers:
        worker.join(PATIENCE)

    _check(initialized, ids_, outcomes)


class Client:
    """Asks again, with the same id, until it is answered: what was done is done once."""

    def __init__(self, daemon: Daemon, cwd: str) -> None:
        self._daemon = daemon
        self._cwd = cwd

    def advance(self, run_id: str) -> bool:
        return self._ask("run.advance", run_id)

    def cancel(self, run_id: str) -> bool:
        return self._ask("run.cancel", run_id)

    def _ask(self, method: str, run_id: str) -> bool:
        """Whether it was done; if not, because the other was faster."""
        request_id, until = new_id(24), time.monotonic() + PATIENCE
        while True:
            try:
                answer = self._daemon.respond(
                    method, run_id=run_id, cwd=self._cwd, request_id=request_id
                )
            except (OSError, ValueError):  # it was killed
                assert time.monotonic() < until
                time.sleep(0.002)
                continue
            if "error" in answer:
                assert answer["error"]["code"] == RunOver.code, answer
            return "result" in answer


class Kills(Restarts):
    """A daemon that is killed at random moments, and started again."""

    def run(self) -> None:
        while not self._over.wait(random.uniform(0.005, 0.25)):
            self._daemon.kill()
            self.count += 1
            self._daemon.start()


def _make(project: Path, count: int) -> list[str]:
    """Runs that are one advance away from their end."""
    with contextlib.closing(sqlite3.connect(project / ".clavain" / "intercore.db")) as conn, conn:
        conn.executemany(
            "INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full, "
            "auto_advance, auto_spawn, phases, budget_warn_pct, budget_told, created_at, "
            "created_ms, updated_at, updated_ms) "
            "VALUES (?, '/p', 'g', 'active', 'a', 3, 0, 1, 0, '[\"a\",\"b\"]', 80, 0, 1, 1, 1, 1)",
            [(f"r{number:07}",) for number in range(count)],
        )
    return [f"r{number:07}" for number in range(count)]


def _each(ids_: list[str], barrier: Any, act: Callable[[str], bool]) -> list[bool]:
    found = []
    for run_id in ids_:
        barrier.wait(PATIENCE)
        found.append(act(run_id))
    return found


def _directly(project: Path, ids_: list[str], barrier: Any, verb: str, queue: Any) -> None:
    os.chdir(project)
    os.environ.update({**CLEAN, "HOME": str(project), "INTERCORE_MODE": "direct"})
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    done = {0: True, 1: False}

    def act(run_id: str) -> bool:
        return done[client.main(["run", verb, run_id, "--no-daemon", LONG], "icctl")]

    queue.put(_each(ids_, barrier, act))


def _check(project: Path, ids_: list[str], outcomes: list[tuple[bool, bool]]) -> None:
    """Exactly one was done, its row says which, and its log how."""
    wins = {(True, False): "completed", (False, True): "cancelled"}
    with contextlib.closing(sqlite3.connect(project / ".clavain" / "intercore.db")) as conn:
        for run_id, outcome in zip(ids_, outcomes, strict=True):
            run = runs.require(conn, run_id)
            log = events.read(conn, limit=99, run_id=run_id, source="phase")
            assert run.status == wins[outcome], (run, log)
            assert fold(phases.chain(run), log) == (run.status, run.phase)
            assert len(log) == 1
