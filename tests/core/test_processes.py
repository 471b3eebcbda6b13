"""Whether a process is there."""

import os
import subprocess
import sys

import pytest

from icd.core.processes import PID_MAX, is_alive


def test_a_process_that_runs_is_alive():
    assert is_alive(os.getpid())
    assert is_alive(1)


def test_a_process_that_has_ended_is_not():
    done = subprocess.Popen(["true"])
    done.wait()

    assert not is_alive(done.pid)


def test_a_zombie_is_not_alive():
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody took note

    assert not is_alive(child.pid)

    child.wait()
    child.stdout.close()


def test_a_name_full_of_parentheses_misleads_nobody():
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; open('/proc/self/comm','w').write(') Z ('); print(1, flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    child.stdout.readline()

    assert is_alive(child.pid)

    child.communicate()


@pytest.mark.parametrize("pid", [0, -1, PID_MAX + 1, 2**31, 2**70])
def test_what_is_no_pid_is_not_alive(pid):
    assert not is_alive(pid)
