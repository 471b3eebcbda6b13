"""Leases between real processes: one holder at a time, tokens that only grow; and the example."""

import json
import multiprocessing
import os
import posix
import re
import subprocess
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from icctl import client
from tests.support.processes import CLEAN, Daemon, icctl
from tests.support.restarts import Restarts, mode_of

pytestmark = pytest.mark.long

FORK = multiprocessing.get_context("fork")
PROCESSES, TIMES = 16, 3
PAGE = Path(__file__).parents[3] / "docs" / "leases.md"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["daemon", "direct", "mixed", "restarts"])
def test_sixteen_processes_race_and_one_holds_it_at_a_time(
    mode: str, initialized: Path, daemon: Daemon
) -> None:
    barrier = FORK.Barrier(PROCESSES)
    workers = [
        FORK.Process(target=_work, args=(initialized, daemon.socket, mode_of(mode, n), n, barrier))
        for n in range(PROCESSES)
    ]

    with ExitStack() as stack:
        if mode == "restarts":
            stack.enter_context(Restarts(daemon))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)

    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    _check_log(initialized)


def _work(project: Path, socket: str, mode: str, number: int, barrier: Barrier) -> None:
    """Claim, do what only one may do, and give it back; or, now and then, disappear with it."""
    os.chdir(project)
    env = {"INTERCORE_SOCKET": socket, "INTERCORE_MODE": mode}
    for name, value in {**CLEAN, "HOME": str(project), **env}.items():
        posix.environ[name.encode()] = value.encode()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    barrier.wait(60)
    owner, done, turn = f"--owner={number}", 0, 0
    while done < TIMES:  # however many turns it takes
        turn += 1
        vanishes = turn % 5 == number % 5
        ttl = "--ttl=1ms" if vanishes else "--ttl=1h"
        claimed = client.main(["lease", "acquire", "n", "s", ttl, owner, "--timeout=30s"], "icctl")
        assert claimed in (0, 1)
        if claimed == 0 and not vanishes:
            os.mkdir("only-one")
            os.rmdir("only-one")
            released = client.main(["lease", "release", "n", "s", owner, "--timeout=30s"], "icctl")
            assert released == 0
            done += 1


def _check_log(project: Path) -> None:
    """The log tells of one holder after the other."""
    told = icctl(
        "events", "tail", "--all", "--source=lease", "--limit=10000",
        cwd=project, env={"INTERCORE_MODE": "direct"},
    )  # fmt: skip
    assert told.returncode == 0
    last_token, deadline, holder, released = 0, 0, "", 0
    for event in map(json.loads, told.stdout.splitlines()):
        said = event["payload"]
        if event["type"] in ("acquired", "taken_over"):
            assert said["token"] > last_token
            assert event["at_ms"] >= deadline
            last_token, deadline, holder = said["token"], said["expires_ms"], said["owner"]
            continue
        assert (said["owner"], said["token"]) == (holder, last_token)
        assert event["at_ms"] < deadline
        deadline = 0 if event["type"] == "released" else said["expires_ms"]
        released += event["type"] == "released"
    assert released == PROCESSES * TIMES
    assert last_token >= released


def test_the_example_of_fencing_tokens_happens_as_shown(project: Path) -> None:
    (block,) = re.findall(
        r"^```console\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    steps = [step.splitlines() for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    commands = [
        "\n".join([step[0], *(line[2:] for line in step[1:] if line.startswith("> "))])
        for step in steps
    ]
    promised = [line for step in steps for line in step[1:] if not line.startswith("> ")]

    ran = subprocess.run(
        ["bash", "-c", "icctl init >/dev/null\n" + "\n".join(commands)],
        cwd=project,
        env={**CLEAN, "HOME": str(project), "INTERCORE_MODE": "direct"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr == ""
    assert ran.stdout.splitlines() == promised
