"""The daemon sees how dispatches end, with real processes."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from icd.features.dispatches.poll import LOST
from icd.server import limits
from icd.values.processes import Process
from tests.support.dispatched import Sleeper, plant, sleepers
from tests.support.processes import Daemon, icctl, read_line, until
from tests.support.restarts import reload

HASTY = "idle_seconds = 0.05\nclose_idle_seconds = 0.15\n"


class Fleet:
    """A project whose dispatches a daemon observes."""

    def __init__(self, daemon: Daemon, root: Path) -> None:
        self.daemon = daemon
        self.root = root

    def call(self, method: str, **params: Any) -> Any:
        return self.daemon.call(method, cwd=str(self.root), **params)

    def start(self, runner: Process | None, agent: Process) -> str:
        made = self.call("dispatch.create", project_dir=str(self.root))
        waits = {} if runner is None else {"runner_pid": runner.pid, "runner_start": runner.start}
        self.call(
            "dispatch.started",
            id=made["id"],
            pid=agent.pid,
            pid_start=agent.start,
            boot=agent.boot,
            pidns=agent.pidns,
            **waits,
        )
        return str(made["id"])

    def get(self, dispatch_id: str) -> Any:
        return self.call("dispatch.get", id=dispatch_id)

    def until_over(self, dispatch_id: str) -> Any:
        until(lambda: self.get(dispatch_id)["status"] not in ("spawned", "running"))
        return self.get(dispatch_id)

    def spool(self, dispatch_id: str, **end: Any) -> Path:
        path = self.root / ".clavain" / "dispatches" / f"{dispatch_id}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"id": dispatch_id, **end}))
        return path

    def is_open(self) -> bool:
        found = self.daemon.call("icd.status")["databases"]
        return any(each["path"].startswith(f"{self.root}/") for each in found)


@pytest.fixture
def fleet(daemon: Daemon, initialized: Path) -> Fleet:
    return Fleet(daemon, initialized)


@pytest.fixture
def pair() -> Iterator[list[Sleeper]]:
    """A runner and an agent."""
    with sleepers(2) as found:
        yield found


def watching(fleet: Fleet, dispatch_id: str) -> Any:
    """A stream of changes, once it has begun."""
    sock = fleet.daemon.connect()
    params = {"id": dispatch_id, "cwd": str(fleet.root)}
    request = {"jsonrpc": "2.0", "id": 1, "method": "dispatch.watch", "params": params}
    sock.sendall(json.dumps(request).encode() + b"\n")
    assert json.loads(read_line(sock))["method"] == "dispatch.changed"
    return sock


def test_an_agent_whose_runner_was_killed_is_observed_until_it_ends(
    fleet: Fleet, pair: list[Sleeper]
) -> None:
    runner, agent = pair
    made = fleet.start(runner.known, agent.known)
    with watching(fleet, made) as watcher:
        runner.reap()
        seen = fleet.call("dispatch.list", active=True)
        agent.kill()
        told = json.loads(read_line(watcher))

    assert [found["id"] for found in seen] == [made]
    ended = fleet.get(made)
    assert (ended["status"], ended["exit_code"]) == ("failed", -1)
    assert ended["error_message"] == LOST
    assert told["params"]["status"] == "failed"


def test_a_zombie_is_no_living_agent(fleet: Fleet, pair: list[Sleeper]) -> None:
    runner, agent = pair
    made = fleet.start(runner.known, agent.known)

    agent.kill()  # and nobody reaps it
    runner.kill()

    assert fleet.until_over(made)["error_message"] == LOST


def test_a_number_that_somebody_else_has_by_now_is_no_living_agent(
    fleet: Fleet, pair: list[Sleeper]
) -> None:
    runner, agent = (structs.replace(each.known, start=each.known.start - 1) for each in pair)

    made = fleet.start(runner, agent)

    assert fleet.until_over(made)["error_message"] == LOST


def test_what_a_killed_runner_left_is_taken_over_and_removed(
    fleet: Fleet, pair: list[Sleeper]
) -> None:
    runner, agent = pair
    made = fleet.start(runner.known, agent.known)
    spool = fleet.spool(made, status="completed", exit_code=0, verdict_status="pass", turns=4)

    runner.kill()

    ended = fleet.until_over(made)
    assert (ended["status"], ended["exit_code"], ended["turns"]) == ("completed", 0, 4)
    assert ended["verdict_status"] == "pass"
    until(lambda: not spool.exists())


def test_an_end_that_the_runner_records_is_not_touched(fleet: Fleet, pair: list[Sleeper]) -> None:
    runner, agent = pair
    made = fleet.start(runner.known, agent.known)
    agent.kill()
    end = {"id": made, "status": "failed", "exit_code": 3}
    recorded = fleet.call("dispatch.record", end=end)

    runner.kill()
    with sleepers(2) as (other, another):  # something that the observer has to do after that
        second = fleet.start(other.known, another.known)
        other.kill()
        another.kill()
        fleet.until_over(second)

    assert fleet.get(made) == recorded["dispatch"]
    assert recorded["dispatch"]["exit_code"] == 3


def test_what_cannot_be_seen_from_here_is_left_alone(fleet: Fleet, pair: list[Sleeper]) -> None:
    elsewhere = [structs.replace(each.known, pidns="pid:[1]") for each in pair]
    hidden = fleet.start(*elsewhere)
    made = fleet.start(pair[0].known, pair[1].known)

    for each in pair:
        each.kill()

    fleet.until_over(made)
    assert fleet.get(hidden)["status"] == "running"


def test_what_ended_while_there_was_no_daemon_is_seen_by_the_next(
    fleet: Fleet, pair: list[Sleeper]
) -> None:
    with sleepers(2) as others:
        lost = fleet.start(*(each.known for each in pair))
        left = fleet.start(*(each.known for each in others))
        fleet.daemon.kill()
        fleet.spool(left, status="timeout", exit_code=143)
        for each in [*pair, *others]:
            each.kill()

        fleet.daemon.start()

        assert fleet.until_over(lost)["error_message"] == LOST
        assert fleet.until_over(left)["exit_code"] == 143


def test_a_reloaded_daemon_goes_on_observing_though_nobody_asks(
    fleet: Fleet, pair: list[Sleeper]
) -> None:
    runner, agent = pair
    made = fleet.start(runner.known, agent.known)
    spool = fleet.spool(made, status="completed", exit_code=0)
    for _ in range(3):  # also one that has not even looked
        reload(fleet.daemon)

    runner.kill()

    until(lambda: not spool.exists())
    assert fleet.get(made)["status"] == "completed"


def test_a_database_stays_open_while_something_runs_and_no_longer(
    daemon: Daemon, initialized: Path, pair: list[Sleeper], tmp_path: Path
) -> None:
    quiet = tmp_path / "quiet"
    (quiet / ".git").mkdir(parents=True)
    icctl("init", cwd=quiet, env={"INTERCORE_MODE": "direct"})
    for root in (initialized, quiet):
        (root / ".clavain" / "intercore.toml").write_text(HASTY)
    fleet, other = Fleet(daemon, initialized), Fleet(daemon, quiet)
    made = fleet.start(*(each.known for each in pair))
    for _ in range(5):  # it is used later, and closed all the same
        other.call("dispatch.list")
        until(lambda: not other.is_open())

    was_open = fleet.is_open()
    spool = fleet.spool(made, status="completed", exit_code=0)
    pair[0].kill()  # whoever asked now would open it himself

    until(lambda: not spool.exists())
    until(lambda: not fleet.is_open())
    assert was_open
    assert fleet.get(made)["status"] == "completed"


def test_what_was_never_started_is_given_up(fleet: Fleet) -> None:
    gone = plant(fleet.root, "neverrun", status="spawned", created_ms=1000)

    assert "nothing was started" in fleet.until_over(gone)["error_message"]


def test_many_are_observed_though_the_kernel_tells_only_of_some(fleet: Fleet) -> None:
    """All share a runner, so this needs no more processes than others."""
    with sleepers(1) as (runner,):
        count = limits.OBSERVED_PROCESSES + 10
        for number in range(count):
            plant(fleet.root, f"many{number:04}", runner=runner.known, agent=runner.known)
        assert len(fleet.call("dispatch.list", active=True)) == count

        runner.kill()

        until(lambda: not fleet.call("dispatch.list", active=True))


def test_descriptors_are_given_back(fleet: Fleet) -> None:
    def pidfds() -> int:
        listed = subprocess.run(
            ["ls", "-l", f"/proc/{fleet.daemon.pid}/fd"], capture_output=True, check=False
        )
        return listed.stdout.count(b"pidfd")

    with contextlib.ExitStack() as stack:
        found = stack.enter_context(sleepers(3))
        made = [fleet.start(each.known, each.known) for each in found]
        until(lambda: pidfds() == 3)
        for each in made:
            fleet.call("dispatch.cancel", id=each)

        until(lambda: pidfds() == 0)
