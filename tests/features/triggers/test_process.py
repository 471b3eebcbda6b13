"""A hook that hangs, forks, floods or cannot start harms nothing."""

import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from icd.features.triggers import process
from icd.features.triggers.process import Outcome
from tests.support.processes import until

EVENT = b'{"id":1}\n'


@pytest.fixture
def run(tmp_path: Path):
    def run(script: str, event: bytes = EVENT, seconds: float = 20, **options) -> Outcome:
        hook = tmp_path / "hook"
        hook.write_text(script)
        hook.chmod(0o700)
        env = {"PATH": "/usr/bin:/bin"}
        return process.run(
            str(hook), event, project=str(tmp_path), env=env, seconds=seconds, **options
        )

    return run


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Its parent may not have looked after it yet.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_hook_gets_the_whole_event_on_stdin_and_the_project_as_its_directory(run, tmp_path):
    event = b'"' + b"x" * 2_000_000 + b'"'

    outcome = run("#!/bin/sh\ncat >got\npwd\n", event)

    assert outcome == Outcome(0, output=f"{tmp_path}\n".encode())
    assert (tmp_path / "got").read_bytes() == event


def test_a_hook_that_does_not_read_its_input_is_not_waited_for(run):
    assert run("#!/bin/sh\nexit 0\n", b"x" * 2_000_000) == Outcome(0)


def test_what_a_hook_says_on_stderr_is_output_too(run):
    outcome = run("#!/bin/sh\necho out\necho err >&2\nexit 3\n")

    assert outcome == Outcome(3, "exited with 3", b"out\nerr\n")


def test_a_hook_that_hangs_is_killed_with_its_children_when_its_time_is_up(run, tmp_path):
    outcome = run("#!/bin/sh\nsleep 1000 & echo $! >child\ntrap '' TERM\nwait\n", seconds=2)

    assert outcome == Outcome(-9, "took longer than 2 s, and was killed")
    child = int((tmp_path / "child").read_text())
    until(lambda: is_gone(child))


def test_a_hook_that_leaves_a_child_with_its_output_open_is_over_when_it_exits(run, tmp_path):
    outcome = run("#!/bin/sh\nsleep 1000 &\necho $! >child\necho done\n")

    assert outcome == Outcome(0, output=b"done\n")
    child = int((tmp_path / "child").read_text())
    until(lambda: is_gone(child))


def test_a_child_that_has_left_the_group_goes_on_and_is_not_waited_for(run, tmp_path):
    script = "#!/bin/sh\nsetsid sh -c 'echo $$ >child; exec sleep 1000' &\n"
    script += "until [ -s child ]; do sleep 0.01; done\n"

    outcome = run(script)

    child = int((tmp_path / "child").read_text())
    assert outcome.problem == ""
    assert not is_gone(child)
    os.kill(child, signal.SIGKILL)


def test_a_hook_that_floods_is_cut_off(run):
    outcome = run("#!/bin/sh\nexec yes\n")

    assert outcome.problem == "was killed by SIGPIPE"
    assert len(outcome.output) == process.OUTPUT_BYTES
    assert outcome.is_cut


def test_of_long_output_the_end_is_kept(run):
    outcome = run("#!/bin/sh\nseq 1 20000\necho the end\n")

    assert outcome.problem == ""
    assert outcome.output.endswith(b"20000\nthe end\n")
    assert outcome.is_cut


def test_a_hook_without_an_interpreter_is_a_failure_and_no_exception(run):
    assert run("no shebang\n") == Outcome(None, "cannot be started: Exec format error")


def test_a_project_that_is_gone_is_a_failure_and_no_exception(tmp_path):
    outcome = process.run("/bin/true", EVENT, project=str(tmp_path / "gone"), env={}, seconds=20)

    assert outcome == Outcome(None, "cannot be started: No such file or directory")


def test_a_machine_without_room_for_a_process_is_no_failure_of_the_hook(run):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used - 1, hard))
    fillers = []
    try:
        with pytest.raises(OSError):
            while True:
                fillers.append(os.dup(0))
        # The file of the hook is written before; only its start is to fail.
        with pytest.raises(process.NotStarted):
            process.run("/bin/true", EVENT, project="/", env={}, seconds=20)
    finally:
        for fd in fillers:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_hook_can_be_stopped_from_outside(run, tmp_path):
    stop = os.eventfd(0)
    os.mkfifo(tmp_path / "started")

    def end_it() -> None:
        (tmp_path / "started").read_bytes()
        os.eventfd_write(stop, 1)

    ending = threading.Thread(target=end_it)
    ending.start()
    outcome = run("#!/bin/sh\necho >started\nexec sleep 1000\n", stop=stop)
    ending.join()
    os.close(stop)

    assert outcome.is_stopped
    assert outcome.status == -9


def test_a_hook_starts_like_any_command_whatever_its_starter_is_like(run, tmp_path):
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    umask = os.umask(0o077)
    try:
        outcome = run(
            "#!/bin/sh\numask\ngrep SigBlk /proc/self/status\necho $(ls /proc/self/fd)\n"
            "cut -d' ' -f6 /proc/$$/stat >sid; echo $$ >pid\n"
        )
    finally:
        os.umask(umask)
        after = signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    assert outcome.output == b"0022\nSigBlk:\t0000000000000000\n0 1 2 3\n"
    assert (tmp_path / "sid").read_text() == (tmp_path / "pid").read_text()
    assert after >= {signal.SIGTERM, signal.SIGHUP}


def test_nothing_is_left_open_after_a_hook(run):
    run("#!/bin/sh\n")  # what is loaded on first use stays open
    before = sorted(os.listdir("/proc/self/fd"))

    run("#!/bin/sh\necho x\n")
    run("#!/bin/sh\nexec yes\n")
    run("no shebang\n")

    assert sorted(os.listdir("/proc/self/fd")) == before
