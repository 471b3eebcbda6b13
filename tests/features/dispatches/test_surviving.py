"""No end gets lost: whatever happens to daemons, databases and disks meanwhile."""

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.features.dispatches.conftest import Agents, is_gone
from tests.support import mounts
from tests.support.processes import CLEAN, Daemon, icctl, running, until

MANY = 20
SPOOL = Path(".clavain", "dispatches")


def start_many(agents: Agents) -> dict[str, int]:
    """Agents that end when told to, half by half, each with a status of its own."""
    codes = range(1, MANY + 1)

    def start(code: int) -> str:
        gate = f"go{code % 2}"
        return agents.sh(f"until [ -e {gate} ]; do sleep 0.1; done; exit {code}")

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(pool.map(start, codes), codes, strict=True))


def statuses(agents: Agents, started: dict[str, int]) -> dict[str, int]:
    return {each["id"]: each.get("exit_code") for each in agents.every() if each["id"] in started}


def reload(daemon: Daemon) -> None:
    before = daemon.log.read_text().count('"listening"')
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: daemon.log.read_text().count('"listening"') > before)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_all_agents_end_with_their_status_though_the_daemon_is_killed_restarted_and_reloaded(
    agents, door
):
    with running() as daemon:
        agents.env |= {"INTERCORE_SOCKET": daemon.socket}
        started = start_many(agents)
        daemon.kill()
        daemon.start()
        reload(daemon)
        (agents.project / "go0").touch()
        daemon.kill()  # while some of them are recorded
        daemon.start()
        (agents.project / "go1").touch()
        reload(daemon)

        until(lambda: statuses(agents, started) == started)

        states = {each["status"] for each in agents.every()}
        assert states == {"failed"}
        until(lambda: os.listdir(agents.project / SPOOL) == [])


@pytest.mark.long
@pytest.mark.timeout(300)
def test_all_agents_end_with_their_status_without_any_daemon(agents):
    started = start_many(agents)

    (agents.project / "go0").touch()
    (agents.project / "go1").touch()

    until(lambda: statuses(agents, started) == started)
    until(lambda: os.listdir(agents.project / SPOOL) == [])


def test_an_end_waits_in_the_spool_until_the_database_is_back(agents):
    dispatch_id = agents.sh("until [ -e go ]; do sleep 0.05; done; exit 3")
    runner = agents.show(dispatch_id)["runner_pid"]
    away = agents.project / "away.db"
    (agents.project / ".clavain" / "intercore.db").rename(away)

    (agents.project / "go").touch()
    spooled = agents.project / SPOOL / f"{dispatch_id}.json"
    until(spooled.exists)
    assert spooled.stat().st_mode & 0o777 == 0o600
    assert spooled.parent.stat().st_mode & 0o777 == 0o700
    assert Path(f"/proc/{runner}").exists()  # it goes on trying
    away.rename(agents.project / ".clavain" / "intercore.db")

    assert agents.ended(dispatch_id)["exit_code"] == 3
    assert not spooled.exists()


def test_what_a_killed_runner_left_in_the_spool_is_found(agents):
    dispatch_id = agents.sh("until [ -e go ]; do sleep 0.05; done; exit 3")
    runner = agents.show(dispatch_id)["runner_pid"]
    away = agents.project / "away.db"
    (agents.project / ".clavain" / "intercore.db").rename(away)
    (agents.project / "go").touch()
    until((agents.project / SPOOL / f"{dispatch_id}.json").exists)
    os.kill(runner, signal.SIGKILL)
    away.rename(agents.project / ".clavain" / "intercore.db")

    done = agents.run("wait", dispatch_id)

    assert done.returncode == 1
    assert agents.show(dispatch_id)["exit_code"] == 3


def test_an_end_is_recorded_though_the_spool_was_removed_meanwhile(agents):
    dispatch_id = agents.sh("until [ -e go ]; do sleep 0.05; done; exit 3")
    away = agents.project / "away"
    shutil.copytree(agents.project / ".clavain", away)
    (agents.project / ".clavain" / "intercore.db").unlink()
    (agents.project / "go").touch()
    until((agents.project / SPOOL / f"{dispatch_id}.json").exists)

    (agents.project / ".clavain").rename(agents.project / "old")
    away.rename(agents.project / ".clavain")

    assert agents.ended(dispatch_id)["exit_code"] == 3
    assert list((agents.project / SPOOL).glob("*")) == []


def test_a_spool_file_can_be_read_whatever_the_umask_of_the_caller(agents):
    (agents.project / SPOOL).mkdir()
    spawn = "icctl dispatch spawn -- sh -c 'until [ -e go ]; do sleep 0.05; done'"
    done = subprocess.run(
        ["bash", "-c", f"umask 777; {spawn}"], cwd=agents.project,
        env={**CLEAN, **agents.env}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    spooled = agents.project / SPOOL / f"{done.stdout.decode().strip()}.json"
    (agents.project / ".clavain" / "intercore.db").rename(agents.project / "away.db")

    (agents.project / "go").touch()
    until(spooled.exists)

    assert spooled.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("host", ["daemon", "direct"])
def test_a_runner_whose_dispatch_was_forgotten_meanwhile_leaves(agents, door, host):
    with running() as daemon:
        if host == "daemon":
            agents.env |= {"INTERCORE_SOCKET": daemon.socket}
        dispatch_id = agents.sh("until [ -e go ]; do sleep 0.05; done")
        runner = agents.show(dispatch_id)["runner_pid"]
        with contextlib.closing(sqlite3.connect(agents.project / ".clavain/intercore.db")) as conn:
            conn.execute("DELETE FROM dispatches")
            conn.commit()

        (agents.project / "go").touch()

        until(lambda: is_gone(runner))
        assert os.listdir(agents.project / SPOOL) == []


@pytest.mark.parametrize("host", ["daemon", "direct"])
@pytest.mark.parametrize("obstacle", ["a file", "a link"])
def test_without_a_place_for_the_spool_an_end_is_recorded_all_the_same(
    agents, door, host, obstacle
):
    if obstacle == "a file":
        (agents.project / SPOOL).write_text("in the way")
    else:
        (agents.project / SPOOL).symlink_to("/nonexistent/somewhere")

    with running() as daemon:
        if host == "daemon":
            agents.env |= {"INTERCORE_SOCKET": daemon.socket}
        found = agents.ended(agents.sh("exit 3"))

    assert (found["status"], found["exit_code"]) == ("failed", 3)


def test_a_locked_database_delays_an_end_and_loses_nothing(agents):
    dispatch_id = agents.sh("until [ -e go ]; do sleep 0.05; done; exit 3")
    lock = agents.project / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(
        ["flock", lock, "sh", "-c", "echo held; exec cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout.readline() == b"held\n"

    (agents.project / "go").touch()
    until((agents.project / SPOOL / f"{dispatch_id}.json").exists)
    holder.communicate()

    assert agents.ended(dispatch_id)["exit_code"] == 3


def test_a_full_disk_delays_an_end_and_loses_nothing(agents):
    with mounts.small("1m") as small:
        assert icctl("init", cwd=small, env=agents.env).returncode == 0
        project, agents.project = agents.project, small
        gate = project / "go"
        dispatch_id = agents.sh(
            f"until [ -e {gate} ]; do sleep 0.05; done; exit 3", f"--project={project}",
            f"--output={project}/out",
        )  # fmt: skip
        runner = agents.show(dispatch_id)["runner_pid"]
        filler = small / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)

        (agent,) = children(runner)
        gate.touch()
        attempts: set[str] = set()
        until(lambda: attempts.update(children(runner)) or len(attempts - {agent}) >= 3)
        assert os.listdir(small / SPOOL) == []  # there is no room for a file either
        filler.unlink()

        assert agents.ended(dispatch_id)["exit_code"] == 3
        agents.project = project


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_runner_lasts_though_its_project_is_removed_and_ends_its_agent_when_told(agents):
    dispatch_id = agents.sh("cd /; exec sleep 1000")
    found = agents.show(dispatch_id)
    (agents.project / ".clavain").rename(agents.project / "moved")

    os.kill(found["runner_pid"], signal.SIGTERM)
    until(lambda: not Path(f"/proc/{found['pid']}").exists())
    (agents.project / "moved").rename(agents.project / ".clavain")

    assert agents.ended(dispatch_id)["status"] == "cancelled"
