"""What /proc tells about processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from icd import procfs
from tests.support.processes import until

NAMED = """
import sys
with open('/proc/self/comm', 'w') as file:
    file.write(') Z 1 (')
print(1, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child():
    with subprocess.Popen(
        [sys.executable, "-c", NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_name_may_hold_anything(child):
    found = procfs.stat(child.pid)

    assert found.name == ") Z 1 ("
    assert found.threads == 1
    assert not found.has_ended


def test_a_process_that_was_stopped_is_told_from_one_that_runs(child):
    before = procfs.stat(child.pid).is_stopped

    child.send_signal(signal.SIGSTOP)

    until(lambda: procfs.stat(child.pid).is_stopped)
    assert not before


def test_a_process_started_after_the_boot_and_not_after_now(child):
    ticks = os.sysconf("SC_CLK_TCK")

    began = procfs.booted_at() + procfs.stat(child.pid).start / ticks

    assert procfs.booted_at() < began < time.time() + 5


@pytest.mark.parametrize("pid", [0, -1, 2**70, "self/nothing", "process"])
def test_of_what_is_no_process_nothing_is_told(pid):
    assert procfs.stat(pid) is None
