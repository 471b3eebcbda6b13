"""Of all who ask at once, exactly one is allowed: with the daemon, without it, and in between."""

import multiprocessing
import os
import posix
import threading
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from icctl import client
from tests.support.processes import CLEAN, PATIENCE, WHEEL_BIN, Daemon, icctl
from tests.support.restarts import Restarts, mode_of
from tests.support.sizes import size

pytestmark = pytest.mark.long

FORK = multiprocessing.get_context("fork")
PROCESSES = 100
ROUNDS = size(50, 4)
MODES = ["daemon", "direct", "mixed", "restarts"]


@pytest.fixture
def daemon():
    found = Daemon()
    yield found.start()
    found.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", MODES)
def test_a_hundred_processes_race_and_one_wins_each_round(
    mode: str, initialized: Path, daemon: Daemon
) -> None:
    results = _race(mode, initialized, daemon)

    for number in range(ROUNDS):
        outcomes = [exits[number] for exits in results]
        assert set(outcomes) <= {0, 1}, f"round {number}: {outcomes}"
        assert outcomes.count(0) == 1, f"round {number}: {outcomes.count(0)} were allowed"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", MODES)
def test_twenty_commands_race_and_one_wins_each_round(
    mode: str, initialized: Path, daemon: Daemon
) -> None:
    def check(number: int, name: str) -> int:
        env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": mode_of(mode, number)}
        program = WHEEL_BIN / "icctl"
        done = icctl(
            "sentinel",
            "check",
            name,
            "s",
            "--interval=0",
            "--timeout=30s",
            cwd=initialized,
            env=env,
            program=program,
        )
        assert done.stderr == b"", done.stderr
        return done.returncode

    def compete() -> list[list[int]]:
        return [_at_once(lambda n, r=r: check(n, f"round-{r}"), 20) for r in range(5)]

    if mode == "restarts":
        with Restarts(daemon):
            rounds = compete()
    else:
        rounds = compete()

    for outcomes in rounds:
        assert sorted(outcomes) == [0] + [1] * 19


@pytest.mark.timeout(240)
def test_eight_loops_of_mixed_operations_never_fail(initialized: Path, daemon: Daemon) -> None:
    env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "auto"}
    workers = [FORK.Process(target=_loop, args=(initialized, env, n)) for n in range(8)]

    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert [worker.exitcode for worker in workers] == [0] * 8


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["mixed", "restarts"])
def test_every_acknowledged_increment_counts_exactly_once(
    mode: str, initialized: Path, daemon: Daemon
) -> None:
    """A lost reply is asked for again under the same id, by whichever host is there by then."""
    workers = [
        FORK.Process(target=_increment, args=(initialized, _env(daemon, mode_of(mode, n)), 150))
        for n in range(6)
    ]

    if mode == "restarts":
        with Restarts(daemon) as restarts:
            _run(workers)
        assert restarts.count > 1
    else:
        _run(workers)

    assert [worker.exitcode for worker in workers] == [0] * 6
    counted = icctl("state", "get", "n", "s", cwd=initialized, env={"INTERCORE_MODE": "direct"})
    assert counted.stdout == b"900\n"


def _race(mode: str, project: Path, daemon: Daemon) -> list[list[int]]:
    barrier = FORK.Barrier(PROCESSES)
    queue = FORK.SimpleQueue()
    workers = [
        FORK.Process(target=_racer, args=(project, _env(daemon, mode_of(mode, n)), barrier, queue))
        for n in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    if mode == "restarts":
        with Restarts(daemon):
            results = [queue.get() for _ in workers]
    else:
        results = [queue.get() for _ in workers]
    for worker in workers:
        worker.join(PATIENCE)
    return results


def _racer(project: Path, env: dict[str, str], barrier: Barrier, queue) -> None:
    _enter(project, env)
    exits = []
    for number in range(ROUNDS):
        barrier.wait(60)
        exits.append(
            _icctl("sentinel", "check", f"round-{number}", "s", "--interval=0", "--timeout=30s")
        )
    queue.put(exits)


def _loop(project: Path, env: dict[str, str], number: int) -> None:
    _enter(project, env)
    for turn in range(84):  # 8 loops of 84 turns of 3 operations: 2,016
        assert _icctl("state", "set", f"k{number}", f"s{turn}", "--value={}") == 0
        assert _icctl("state", "get", f"k{number}", f"s{turn}") == 0
        assert _icctl("sentinel", "check", "shared", f"s{turn}", "--interval=3600") in (0, 1)


def _increment(project: Path, env: dict[str, str], times: int) -> None:
    _enter(project, env)
    for _ in range(times):
        assert _icctl("state", "incr", "n", "s", "--timeout=20s") == 0


def _run(workers: list) -> None:
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)


def _env(daemon: Daemon, mode: str) -> dict[str, str]:
    return {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": mode}


def _enter(project: Path, env: dict[str, str]) -> None:
    """Be a process of its own: another directory, another environment, output to nowhere."""
    os.chdir(project)
    for name, value in {**CLEAN, "HOME": str(project), **env}.items():
        os.environ[name] = value
        posix.environ[name.encode()] = value.encode()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)


def _icctl(*argv: str) -> int:
    return client.main(list(argv), "icctl")


def _at_once(function, count: int) -> list[int]:
    results: list[int] = [-1] * count

    def run(number: int) -> None:
        results[number] = function(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    for thread in threads:
        thread.join(deadline - time.monotonic())
    return results
