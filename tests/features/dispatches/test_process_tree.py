"""Processes that belong together are found; strangers are not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from icd import procfs
from icd.features.dispatches.runner import process_tree
from tests.support.processes import until


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[int, dict[str, int]]]:
    """A leader with a child, a child that leads a session, and an orphan of its session."""
    script = (
        "sleep 1000 & echo $! >child; setsid sleep 1000 & echo $! >own;"
        "(sleep 1000 & echo $! >orphan); echo >ready; exec sleep 1000"
    )
    leader = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, start_new_session=True)
    until((tmp_path / "ready").exists)
    names = ("child", "own", "orphan")
    pids = {name: int((tmp_path / name).read_text()) for name in names}
    until(lambda: os.getsid(pids["own"]) == pids["own"])
    yield leader.pid, pids
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    leader.kill()
    leader.wait()


def start(pid: int) -> int:
    found = procfs.stat(pid)
    assert found is not None
    return found.start


def test_what_a_leader_has_started_is_around_it(family):
    leader, pids = family

    found = {each.pid for each in process_tree.session(leader, start(leader))}

    assert found == {leader, *pids.values()}


def test_below_is_what_descends_and_not_the_process_itself(family):
    leader, pids = family

    found = {each.pid for each in process_tree.descendants(leader)}

    assert found == {pids["child"], pids["own"]}


def test_nobody_is_around_a_leader_that_is_another_by_now(family):
    leader, _ = family

    assert process_tree.session(leader, start(leader) - 1) == []
    assert process_tree.session(2**22, 1) == []


def test_a_signal_reaches_only_the_process_that_was_seen():
    process = subprocess.Popen(["sleep", "1000"])
    seen = procfs.stat(process.pid)
    assert seen is not None

    seen.start -= 1
    process_tree.send(seen, signal.SIGKILL)
    assert process.poll() is None
    seen.start += 1
    process_tree.send(seen, signal.SIGKILL)

    assert process.wait() == -signal.SIGKILL
    process_tree.send(seen, signal.SIGKILL)  # nobody is there any more


def test_a_name_may_hold_anything(tmp_path: Path):
    program = tmp_path / ") Z 1 (x"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "1000"])
    try:
        until(lambda: b") Z 1 (x" in Path(f"/proc/{process.pid}/comm").read_bytes())

        found = procfs.stat(process.pid)

        assert found is not None
        assert found.parent == os.getpid()
        assert not found.has_ended
    finally:
        process.kill()
        process.wait()


def test_whoever_does_not_listen_is_killed_after_the_grace(tmp_path: Path):
    script = "trap '' TERM; echo >ready; while :; do sleep 0.1; done"
    deaf = subprocess.Popen(["sh", "-c", script], cwd=tmp_path, start_new_session=True)
    until((tmp_path / "ready").exists)
    born = start(deaf.pid)

    is_gone = process_tree.terminate(lambda: process_tree.session(deaf.pid, born), grace=0.2)

    assert is_gone
    assert deaf.wait() == -signal.SIGKILL


def test_a_process_whose_first_thread_has_ended_is_ended_too(tmp_path: Path):
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    leader = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    since = start(leader.pid)
    until(lambda: Path(f"/proc/{leader.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")

    is_gone = process_tree.terminate(lambda: process_tree.session(leader.pid, since))

    status = leader.poll()
    leader.kill()
    leader.wait()
    assert (is_gone, status) == (True, -signal.SIGTERM)
