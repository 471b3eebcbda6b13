"""Whether a process is there."""

import os
import subprocess
import sys

import pytest
from msgspec import structs

from icd import procfs
from icd.values.processes import PID_MAX, Process, identify, is_alive, liveness, start_of
from tests.support.processes import until


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


# --- who it was -----------------------------------------------------------------------------

# Its first thread ends; the other waits for stdin to be closed.
HEADLESS = """
import ctypes, os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()
print(1, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def child():
    """A process that lasts until the test ends."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def test_a_process_is_known_by_its_number_start_boot_and_namespace():
    me = identify(os.getpid())

    assert me.pid == os.getpid()
    assert me.start == start_of(os.getpid()) > 0
    assert me.boot == procfs.boot() != ""
    assert me.pidns == os.readlink("/proc/self/ns/pid")


def test_a_process_that_is_not_there_has_no_start():
    done = subprocess.Popen(["true"])
    done.wait()

    assert identify(done.pid).start == 0


def test_a_process_that_was_identified_is_alive_until_it_has_ended(child):
    process = identify(child.pid)
    before = liveness(process)

    child.kill()
    child.wait()

    assert [before, liveness(process)] == ["alive", "dead"]


def test_a_number_alone_is_enough_for_a_process_that_runs(child):
    assert liveness(Process(child.pid)) == "alive"


@pytest.mark.parametrize("later", [-1, 1])
def test_a_process_that_got_the_number_of_another_is_not_taken_for_it(child, later):
    process = identify(child.pid)

    assert liveness(structs.replace(process, start=process.start + later)) == "dead"


def test_no_process_outlives_its_boot(child):
    process = identify(child.pid)

    assert liveness(structs.replace(process, boot="another")) == "dead"
    assert liveness(structs.replace(process, boot="another", pidns="pid:[1]")) == "dead"


def test_of_a_process_in_another_namespace_nothing_is_known(child):
    process = identify(child.pid)

    assert liveness(structs.replace(process, pidns="pid:[1]")) == "unknown"
    assert liveness(Process(PID_MAX + 1, pidns="pid:[1]")) == "unknown"


def test_a_zombie_has_ended_although_its_number_and_start_are_those_of_the_process():
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    process = identify(child.pid)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody took note

    assert identify(child.pid) == process
    assert liveness(process) == "dead"

    child.wait()


def test_a_process_whose_first_thread_has_ended_is_alive():
    with subprocess.Popen(
        [sys.executable, "-c", HEADLESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        until(lambda: procfs.stat(child.pid).state == "Z")

        assert liveness(identify(child.pid)) == "alive"


@pytest.mark.parametrize("pid", [0, -1, PID_MAX + 1, 2**70])
def test_what_is_no_pid_has_no_life(pid):
    assert liveness(Process(pid)) == "dead"
