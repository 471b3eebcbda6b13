"""`dispatch wait`, `poll` and `list` by real clients, with a daemon and without one."""

import contextlib
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from icd.features.dispatches.poll import LOST
from icd.features.dispatches.runner.output_files import PROGRESS
from icd.values.processes import identify
from tests.support.dispatched import Sleeper, plant, sleepers
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, until
from tests.support.restarts import reload
from tests.support.streams import command


@pytest.fixture(params=["daemon", "direct"])
def host(request: pytest.FixtureRequest, any_daemon: Daemon) -> dict[str, str]:
    if request.param == "daemon":
        return {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": any_daemon.socket}
    return {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}


@pytest.fixture
def pair() -> Iterator[list[Sleeper]]:
    """A runner and an agent."""
    with sleepers(2) as found:
        yield found


@pytest.fixture
def running(initialized: Path, pair: list[Sleeper]) -> str:
    runner, agent = pair
    return plant(initialized, "running1", runner=runner.known, agent=agent.known)


def write_end(project: Path, dispatch_id: str, status: str, exit_code: int) -> str:
    path = project / "end.json"
    path.write_text(json.dumps({"id": dispatch_id, "status": status, "exit_code": exit_code}))
    return str(path)


@pytest.mark.parametrize(
    ("status", "exit_code"), [("completed", 0), ("cancelled", 0), ("failed", 1), ("timeout", 1)]
)
def test_wait_returns_when_an_end_is_recorded(
    initialized: Path, running: str, host: dict[str, str], status: str, exit_code: int
) -> None:
    end = write_end(initialized, running, status, 7)
    with command("dispatch", "wait", running, cwd=initialized, env=host) as waiting:
        recorded = icctl("dispatch", "record", running, f"--end={end}", cwd=initialized, env=host)
        out, err = waiting.communicate(timeout=PATIENCE)

    assert (recorded.returncode, recorded.stdout) == (0, f"{status}\n".encode())
    assert (waiting.returncode, err) == (exit_code, b"")
    assert f"Status:  {status}\n" in out.decode()
    assert out.count(b"Status:") == 1


def test_wait_exits_1_when_its_time_is_up_and_says_so(
    initialized: Path, running: str, host: dict[str, str], door: Path
) -> None:
    began = time.monotonic()

    done = icctl("dispatch", "wait", running, "--timeout=1s", cwd=initialized, env=host)

    assert time.monotonic() - began >= 1
    assert done.returncode == 1
    assert b"Status:  running\n" in done.stdout
    told = f"icctl: dispatch wait: timed out; dispatch {running} is still running\n"
    assert done.stderr == told.encode()


def test_wait_needs_no_more_than_to_read(
    initialized: Path, running: str, host: dict[str, str]
) -> None:
    with contextlib.closing(sqlite3.connect(initialized / ".clavain" / "intercore.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        done = icctl("dispatch", "wait", running, "--timeout=1s", cwd=initialized, env=host)

    assert (done.returncode, b"Status:  running\n" in done.stdout) == (1, True)
    assert b"timed out" in done.stderr


def test_wait_sees_an_end_that_nobody_recorded(
    initialized: Path, running: str, pair: list[Sleeper], host: dict[str, str]
) -> None:
    runner, agent = pair
    with command("dispatch", "wait", running, "--json", cwd=initialized, env=host) as waiting:
        runner.kill()
        agent.kill()
        out, _ = waiting.communicate(timeout=PATIENCE)

    shown = json.loads(out)
    assert (waiting.returncode, shown["status"], shown["exit_code"]) == (1, "failed", -1)
    assert shown["error_message"] == LOST


def test_wait_takes_over_what_a_killed_runner_left(
    initialized: Path, running: str, pair: list[Sleeper], host: dict[str, str]
) -> None:
    spool = initialized / ".clavain" / "dispatches" / f"{running}.json"
    spool.parent.mkdir()
    spool.write_text(json.dumps({"id": running, "status": "completed", "exit_code": 0}))
    with command("dispatch", "wait", running, cwd=initialized, env=host) as waiting:
        pair[0].kill()
        out, _ = waiting.communicate(timeout=PATIENCE)

    assert (waiting.returncode, b"Status:  completed\n" in out) == (0, True)
    until(lambda: not spool.exists())


def test_a_wait_outlives_a_reload(
    initialized: Path, running: str, daemon: Daemon, door: Path
) -> None:
    env = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": daemon.socket}
    end = write_end(initialized, running, "completed", 0)
    with command("dispatch", "wait", running, cwd=initialized, env=env) as waiting:
        until(lambda: daemon.call("icd.status")["subscribers"] == 1)
        reload(daemon)
        icctl("dispatch", "record", running, f"--end={end}", cwd=initialized, env=env)
        out, err = waiting.communicate(timeout=PATIENCE)

    assert (waiting.returncode, err, out.count(b"Status:")) == (0, b"", 1)


def test_poll_and_list_see_an_end_that_nobody_recorded(
    initialized: Path, pair: list[Sleeper], host: dict[str, str]
) -> None:
    runner, agent = pair
    first = plant(initialized, "first000", runner=runner.known, agent=agent.known)
    for each in pair:
        each.reap()

    polled = icctl("dispatch", "poll", first, cwd=initialized, env=host)
    plant(initialized, "second00", runner=runner.known, agent=agent.known)
    until(
        lambda: b"second00\tfailed" in icctl("dispatch", "list", cwd=initialized, env=host).stdout
    )

    assert f"Error:   {LOST}\n".encode() in polled.stdout
    active = icctl("dispatch", "list", "--active", cwd=initialized, env=host)
    assert (active.returncode, active.stdout) == (0, b"")


def test_without_a_daemon_a_list_tells_what_it_has_just_seen(
    initialized: Path, pair: list[Sleeper]
) -> None:
    runner, agent = pair
    plant(initialized, "running1", runner=runner.known, agent=agent.known)
    for each in pair:
        each.reap()

    done = icctl("dispatch", "list", cwd=initialized, env={"INTERCORE_MODE": "direct"})

    assert done.stdout == b"running1\tfailed\tcodex\t\n"


def test_a_list_tells_what_is_known_while_nothing_can_be_recorded(
    initialized: Path, pair: list[Sleeper]
) -> None:
    runner, agent = pair
    plant(initialized, "running1", runner=runner.known, agent=agent.known)
    for each in pair:
        each.reap()

    with contextlib.closing(sqlite3.connect(initialized / ".clavain" / "intercore.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        env = {"INTERCORE_MODE": "direct"}
        done = icctl("dispatch", "list", "--timeout=1s", cwd=initialized, env=env)

    assert (done.returncode, done.stdout) == (0, b"running1\trunning\tcodex\t\n")


def test_poll_reads_what_a_living_agent_counts(
    initialized: Path, running: str, pair: list[Sleeper], host: dict[str, str]
) -> None:
    path = PROGRESS.format(pid=pair[1].known.pid)
    with open(path, "x", encoding="utf-8") as file:
        file.write('{"turns":3,"commands":5,"messages":8}')
    try:
        done = icctl("dispatch", "poll", running, cwd=initialized, env=host)
    finally:
        os.unlink(path)

    assert b"Stats:   3 turns, 5 commands, 8 messages\n" in done.stdout


def test_an_end_of_a_runner_that_is_recorded_by_hand_needs_no_daemon(
    initialized: Path, running: str, pair: list[Sleeper], host: dict[str, str]
) -> None:
    end = write_end(initialized, running, "failed", 3)

    first = icctl("dispatch", "record", running, f"--end={end}", cwd=initialized, env=host)
    end = write_end(initialized, running, "completed", 0)
    second = icctl("dispatch", "record", running, f"--end={end}", cwd=initialized, env=host)

    assert [(d.returncode, d.stdout) for d in (first, second)] == [(0, b"failed\n")] * 2


def test_a_runner_that_records_the_end_and_leaves_is_not_taken_for_a_killed_one(
    initialized: Path, pair: list[Sleeper], host: dict[str, str]
) -> None:
    """All agents are gone already: only their runners keep them from being given up."""
    gone, count = pair[1].known, 8
    pair[1].reap()
    with contextlib.ExitStack() as stack:
        runners = []
        for number in range(count):
            made, end = f"runner{number:02}", initialized / f"{number}.json"
            end.write_text(json.dumps({"id": made, "status": "failed", "exit_code": number + 1}))
            record = f"read -r _; exec icctl dispatch record {made} --end={end}"
            runner = stack.enter_context(
                subprocess.Popen(
                    ["bash", "-c", record], cwd=initialized, stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, env={**CLEAN, "HOME": str(initialized), **host},
                )
            )  # fmt: skip
            runners.append(runner)
            plant(initialized, made, runner=identify(runner.pid), agent=gone)
        for runner in runners:
            assert runner.stdin is not None
            runner.stdin.write(b"\n")
            runner.stdin.close()
        until(lambda: not icctl("dispatch", "list", "--active", cwd=initialized, env=host).stdout)

    listed = icctl("dispatch", "list", "--json", cwd=initialized, env=host).stdout
    assert {found["id"]: found["exit_code"] for found in json.loads(listed)} == {
        f"runner{number:02}": number + 1 for number in range(count)
    }
