"""Agents whose starter died half way, or could not write down what it did."""

import sys
from pathlib import Path

import pytest

from icd.features.dispatches.calls import Create
from icd.features.dispatches.launch import Launched, Program, launch, order
from tests.features.dispatches.conftest import Agents, is_gone
from tests.support import processes
from tests.support.processes import Daemon, running, until


def test_an_agent_whose_starter_was_killed_is_recorded_by_its_runner(agents, as_client):
    with running() as daemon:
        job, row = _job(
            agents, daemon, ["sh", "-c", "until [ -e go ]; do sleep 0.05; done; exit 7"]
        )
        launched = job()

        launched.leave()  # without a word, as the kernel does for whoever is killed

        until(lambda: agents.show(row)["status"] == "running")
        found = agents.show(row)
        assert (found["pid"], found["pid_start"]) == (
            launched.running.agent.pid,
            launched.running.agent.start,
        )
        assert found["runner_pid"] == launched.running.runner.pid
        assert (found["boot"], found["pidns"]) == (
            launched.running.agent.boot,
            launched.running.agent.pidns,
        )
        (agents.project / "go").touch()
        assert agents.ended(row)["exit_code"] == 7


@pytest.mark.parametrize("code", [1, 2])  # of a Python without its packages; of a locked database
def test_a_start_and_an_end_are_recorded_once_that_is_possible_again(
    agents, as_client, client, code
):
    with running() as daemon:
        job, row = _job(
            agents, daemon, ["sh", "-c", "until [ -e go ]; do sleep 0.05; done; exit 7"]
        )
        client.fail(code)
        launched = job()
        launched.leave()
        client.tried(2)
        assert agents.show(row)["status"] == "spawned"
        client.repair()
        until(lambda: agents.show(row)["status"] == "running")
        assert not is_gone(launched.running.agent.pid)

        client.fail(code)
        (agents.project / "go").touch()
        client.tried(2)
        client.repair()

        found = agents.ended(row)
        assert (found["status"], found["exit_code"]) == ("failed", 7)


def test_an_agent_that_was_cancelled_while_it_was_started_is_ended(agents, as_client):
    with running() as daemon:
        job, row = _job(agents, daemon, ["sleep", "1000"])
        agents.env |= {"INTERCORE_SOCKET": daemon.socket}
        assert agents.run("kill", row).stdout == b"killed\n"

        launched = job()
        launched.leave()

        until(lambda: is_gone(launched.running.agent.pid) and is_gone(launched.running.runner.pid))
        assert agents.show(row)["status"] == "cancelled"


@pytest.fixture
def as_client(agents, monkeypatch):
    """Give this process the environment of a client."""
    for name, value in agents.env.items():
        monkeypatch.setenv(name, value)


class Client:
    """What runners call, in the place of the real one; it can be broken."""

    def __init__(self, directory: Path) -> None:
        self._failure = directory / "failure"
        self._attempts = directory / "attempts"
        self.program = directory / "icctl"
        self.program.write_text(
            f"#!/bin/sh\n"
            f"code=$(cat {self._failure} 2>/dev/null)\n"
            f'[ -n "$code" ] || exec {processes.door}/icctl "$@"\n'
            f"echo >> {self._attempts}\n"
            f"echo 'ModuleNotFoundError: dispatch record' >&2\n"
            f"exit $code\n"
        )
        self.program.chmod(0o755)

    def fail(self, code: int) -> None:
        self._attempts.write_text("")
        self._failure.write_text(str(code))

    def repair(self) -> None:
        self._failure.unlink()

    def tried(self, times: int) -> None:
        until(lambda: len(self._attempts.read_bytes()) >= times)


@pytest.fixture
def client(monkeypatch, tmp_path_factory) -> Client:
    found = Client(tmp_path_factory.mktemp("client"))
    monkeypatch.setattr(sys, "argv", [str(found.program)])
    return found


def _job(agents: Agents, daemon: Daemon, argv: list[str]):
    """A row and its job, as a client would make them just before it dies."""
    row = daemon.call(
        "dispatch.create", cwd=str(agents.project), project_dir=str(agents.project),
        runner={"pid": 2**22, "start": 1},
    )["id"]  # fmt: skip
    output = str(agents.project / "out.md")
    project = str(agents.project)
    program = Program(argv, project, output)
    database = str(agents.project / ".clavain" / "intercore.db")

    def job() -> Launched:
        return launch(order(row, Create(project, output_file=output), program, output, database))

    return job, row
