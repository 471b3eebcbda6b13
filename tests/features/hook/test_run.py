"""icctl hook -- COMMAND: when it runs, what it gets, and what its agent gets."""

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, icctl, until

LOG = ".local/state/intercore/hook.log"


# --- what passes through --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 2, 7])
def test_output_and_exit_status_are_those_of_the_command(status, hook, door):
    done = hook("--", "sh", "-c", f"cat; echo told >&2; exit {status}", stdin=b"not JSON")

    assert (done.returncode, done.stdout, done.stderr) == (status, b"not JSON", b"told\n")


@pytest.mark.parametrize("options", ["", "--serial=x"])
def test_a_command_that_is_killed_is_told_by_a_shell(options, door, initialized, world):
    line = f"'{door}/icctl' hook {options} -- sh -c 'kill -KILL $$' </dev/null; exit $?"

    done = subprocess.run(["sh", "-c", line], cwd=initialized, env={**CLEAN, **world}, check=False)

    assert done.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("door", ["native"], indirect=True)
def test_who_ends_the_native_hook_ends_its_command(door, initialized, world):
    """An agent kills a hook that takes too long."""
    running = subprocess.Popen(
        [door / "icctl", "hook", "--", "sh", "-c", "echo $$; exec sleep 100"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=initialized, env={**CLEAN, **world},
    )  # fmt: skip
    assert running.stdout is not None
    command = int(running.stdout.readline())

    running.kill()

    assert running.wait(PATIENCE) == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{command}").exists())
    running.stdout.close()


def test_a_signal_is_passed_on(door, initialized, world):
    script = 'trap "exit 9" TERM; echo ready; while :; do sleep 0.05; done'
    running = subprocess.Popen(
        [door / "icctl", "hook", "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=initialized, env={**CLEAN, **world},
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == b"ready\n"

    running.terminate()

    assert running.wait(PATIENCE) == 9
    running.stdout.close()


@pytest.mark.parametrize("size", [100_000, 9 * 1024 * 1024])
@pytest.mark.parametrize("script", ["wc -c", "exit 0", "exec <&-; exit 0"])
def test_a_long_input_arrives_and_hangs_no_one(size, script, hook, door):
    done = hook("--", "sh", "-c", script, stdin=b"x" * size)

    assert done.returncode == 0
    assert done.stdout.strip() == (str(size).encode() if script == "wc -c" else b"")


def test_a_long_input_is_taken_even_if_the_command_does_not_run(hook, door):
    done = hook("--when=tool=Edit", "--", "echo", "no", stdin=b"x" * 9 * 1024 * 1024)

    assert (done.returncode, done.stdout) == (0, b"")


def test_a_terminal_is_not_read(door, initialized, world):
    ours, theirs = pty.openpty()

    done = subprocess.run(
        [door / "icctl", "hook", "--", "sh", "-c", "test -t 0 && echo tty"],
        stdin=theirs, capture_output=True, timeout=PATIENCE, check=False,
        cwd=initialized, env={**CLEAN, **world},
    )  # fmt: skip

    assert done.stdout == b"tty\n"
    os.close(ours)
    os.close(theirs)


def test_a_command_that_cannot_be_started_is_a_sentence_and_exit_1(hook, door):
    for option in ("--name=n", "--serial=x", "--once"):
        done = hook(option, "--", "/nonexistent/program")

        told = b"hook run: cannot run /nonexistent/program: No such file or directory"
        assert done.returncode == 1
        assert told in done.stderr
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--bogus", "--", "true"], ["--once"], ["--"], [], ["--once", "--every=1m", "--", "true"],
        ["--skip", "--", "true"], ["--every=soon", "--", "true"], ["--when=", "--", "true"],
        ["--when=tol=Edit", "--", "true"], ["--when=tool=", "--", "true"],
        ["--scope=moon", "--", "true"], ["--serial=a/b", "--", "true"], ["true"],
        ["block"], ["--timeout=x", "--", "true"],
    ],
)  # fmt: skip
def test_a_wrong_line_is_exit_1_and_never_2(words, initialized, door):
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}

    done = icctl("hook", *words, cwd=initialized, env=env, stdin=b"{}")

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.count(b"\n") == 1


# --- when -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "runs"),
    [
        ("tool=Edit", True), ("tool=Write,Edit", True), ("tool=Write", False), ("tool=E*t", True),
        ("path=*.py", True), ("path=a.py", True), ("path=*/a.py", True), ("path=*.rs", False),
        ("tool=Edit path=*.rs", False), ("tool=Ed?t  path=?.py", True), ("tool=[A-F]dit", True),
        ("event=PostToolUse agent=claude", True), ("event=Stop", False), ("tool=*", True),
        ("path=*a*a*.py*", True), ("path=**", True), ("tool=edit", False),
    ],
)  # fmt: skip
def test_all_conditions_must_hold(when, runs, hook, door, world):
    assert hook(f"--when={when}", "--", "echo", "ran").stdout == (b"ran\n" if runs else b"")


def test_what_an_event_does_not_tell_fits_nothing(hook, door):
    done = hook("--when=tool=*", "--", "echo", "ran", tool_name="")

    assert (done.returncode, done.stdout) == (0, b"")


# --- once, every ----------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--once", "--every=10m", "--every=300"])
def test_a_hook_runs_once_per_session_and_then_says_nothing(option, hook, door):
    one = hook(option, "--", "echo", "ran")
    two = hook(option, "--", "echo", "ran")
    other = hook(option, "--", "echo", "ran", session_id="s2")

    assert [d.stdout for d in (one, two, other)] == [b"ran\n", b"", b"ran\n"]
    assert [(d.returncode, d.stderr) for d in (one, two, other)] == [(0, b"")] * 3


@pytest.mark.parametrize(
    ("scope", "same", "others"),
    [
        ("session", {"tool_input": {"file_path": "/b"}}, {"session_id": "s2"}),
        ("project", {"session_id": "s2"}, None),
        ("user", {"session_id": "s2", "cwd": "/"}, None),
        ("file", {"session_id": "s2"}, {"tool_input": {"file_path": "/b"}}),
    ],
)
def test_a_scope_says_who_is_counted_together(scope, same, others, hook, door):
    words = ("--once", f"--scope={scope}", "--", "echo", "ran")

    assert hook(*words).stdout == b"ran\n"
    assert hook(*words, **same).stdout == b""
    assert others is None or hook(*words, **others).stdout == b"ran\n"


@pytest.mark.parametrize(
    "session", ["x" * 5000, "a b", "../..", "-", "é", "a\tb", "", "--interval=9"]
)
def test_an_odd_session_is_one_all_the_same(session, hook, door):
    one = hook("--once", "--", "echo", "ran", session_id=session)
    two = hook("--once", "--", "echo", "ran", session_id=session)

    assert (one.stdout, two.stdout) == (b"ran\n", b"")


def test_both_doors_count_alike(hook, initialized, monkeypatch):
    if not (processes.DOORS / "native" / "icctl").exists():
        pytest.skip("no C compiler: the native client was not built")
    said = []
    odd = {"session_id": "a b", "tool_input": {"file_path": "é.py"}}
    for words in (
        ["--once"], ["--once", "--scope=file"], ["--every=1h", "--scope=project"],
        ["--once", "--name=n"], ["--debounce=1ms", "--once", "--name=m"],
    ):  # fmt: skip
        for door in ("native", "python"):
            monkeypatch.setattr(processes, "door", processes.DOORS / door)
            said.append(hook(*words, "--", "echo", "x", **odd).stdout)

    assert said == [b"x\n", b""] * 5


def test_the_project_is_that_of_the_event(hook, door, initialized, tmp_path):
    below = initialized / "src"
    below.mkdir()
    (tmp_path / "none").mkdir()

    found = hook("--once", "--", "echo", "ran", cwd=str(below))
    elsewhere = hook("--once", "--", "echo", "ran", cwd=str(tmp_path / "none"))
    claude = hook("--once", "--", "echo", "ran", cwd="gone", session_id="s2",
                  env={"CLAUDE_PROJECT_DIR": str(initialized)})  # fmt: skip

    assert [d.stdout for d in (found, elsewhere, claude)] == [b"ran\n", b"", b"ran\n"]


# --- failures of ours -----------------------------------------------------------------------------


@pytest.fixture(params=["no database", "no database file", "broken database", "strange socket"])
def broken(request: pytest.FixtureRequest, initialized: Path) -> dict[str, str]:
    """What may go wrong with us."""
    database = initialized / ".clavain" / "intercore.db"
    if request.param == "no database":
        database.rename(initialized / "aside.db")
    elif request.param == "no database file":
        database.unlink()
        database.mkdir()
    else:
        database.write_bytes(b"x" * 20_000)
    if request.param == "strange socket":
        return {"INTERCORE_SOCKET": str(database)}
    return {}


def test_a_failure_of_ours_blocks_no_agent(broken, hook, door, initialized):
    done = hook("--once", "--name=n", "--", "echo", "ran", env=broken)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    (line,) = (initialized / LOG).read_text().splitlines()
    assert " hook n: " in line
    assert (initialized / LOG).stat().st_mode & 0o777 == 0o600


def test_a_failure_of_ours_blocks_where_it_is_asked_to(broken, hook, door, initialized):
    done = hook("--once", "--name=n", "--fail-closed", "--", "echo", "ran", env=broken)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"icctl: hook n fails closed: ")
    assert done.stderr.count(b"\n") == 1
    assert not (initialized / LOG).exists()


def test_without_an_option_that_throttles_nothing_of_ours_fails(broken, hook, door):
    done = hook("--when=tool=Edit", "--", "echo", "ran", env=broken)

    assert (done.returncode, done.stdout) == (0, b"ran\n")


def test_a_program_that_is_gone_blocks_no_agent(initialized, tmp_path, event):
    native = processes.DOORS / "native" / "icctl"
    if not native.exists():
        pytest.skip("no C compiler: the native client was not built")
    alone = tmp_path / "icctl"  # without icctl-python beside it
    alone.write_bytes(native.read_bytes())
    alone.chmod(0o755)
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}
    sent = json.dumps(event).encode()

    claimed = icctl("hook", "--once", "--name=n", "--", "echo", "x", cwd=initialized, env=env,
                    stdin=sent, program=alone)  # fmt: skip
    handed = icctl("hook", "--debounce=1ms", "--", "echo", "x", cwd=initialized, env=env,
                   stdin=sent, program=alone)  # fmt: skip

    closed = icctl("hook", "--fail-closed", "--debounce=1ms", "--", "echo", "x", cwd=initialized,
                   env=env, stdin=sent, program=alone)  # fmt: skip

    assert (claimed.returncode, claimed.stdout, claimed.stderr) == (0, b"", b"")
    assert (closed.returncode, closed.stdout) == (2, b"")
    assert " hook n: " in (initialized / LOG).read_text()
    assert (handed.returncode, handed.stdout) == (1, b"")


def test_a_daemon_that_is_stopped_blocks_no_agent(initialized, daemon, door, event):
    env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_LOCK_DIR": str(initialized / "locks")}
    os.kill(daemon.pid, signal.SIGSTOP)

    done = icctl("hook", "--once", "--", "echo", "ran", cwd=initialized, env=env,
                 stdin=json.dumps(event).encode())  # fmt: skip

    os.kill(daemon.pid, signal.SIGCONT)
    assert done.returncode == 0
    assert done.stdout in (b"", b"ran\n")  # the Python client claims without it
    assert done.stderr == b""


def test_a_daemon_that_is_stopped_keeps_no_agent_waiting_for_a_lock(
    initialized, daemon, door, event
):
    env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_LOCK_DIR": str(initialized / "locks")}
    os.kill(daemon.pid, signal.SIGSTOP)

    done = icctl("hook", "--serial=n", "--", "echo", "ran", cwd=initialized, env=env,
                 stdin=json.dumps(event).encode(), timeout=60)  # fmt: skip

    os.kill(daemon.pid, signal.SIGCONT)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


def test_a_daemon_that_died_is_not_needed(initialized, daemon, door, event):
    env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_LOCK_DIR": str(initialized / "locks")}
    daemon.kill()

    done = icctl("hook", "--once", "--serial=x", "--", "echo", "ran", cwd=initialized, env=env,
                 stdin=json.dumps(event).encode())  # fmt: skip

    assert (done.returncode, done.stdout) == (0, b"ran\n")


def test_the_log_follows_no_link_and_stays_short(hook, door, initialized):
    (initialized / ".clavain" / "intercore.db").unlink()
    log = initialized / LOG
    log.parent.mkdir(parents=True)
    victim = initialized / "victim"
    victim.write_text("mine")
    log.symlink_to(victim)

    hook("--once", "--", "echo", "ran")
    log.unlink()
    log.write_bytes(b"x" * 1024 * 1024)
    hook("--once", "--", "echo", "ran")

    assert victim.read_text() == "mine"
    assert not log.exists()
    assert log.with_name("hook.log.1").stat().st_size > 1024 * 1024


def test_an_event_that_cannot_be_read_is_no_way_around_a_guard(hook, door):
    words = ("--when=tool=Bash", "--fail-closed", "--", "echo", "guarded")

    for sent in (b"{", b"x" * 9 * 1024 * 1024):
        assert hook(*words, stdin=sent).returncode == 2
    assert hook(*words, stdin=b"").returncode == 0


# --- serial ---------------------------------------------------------------------------------------


def test_who_skips_does_not_wait(hook, door, initialized):
    with_lock = ["--serial=x", "--skip", "--"]

    done = hook(*with_lock, "sh", "-c", f'"{door}/icctl" hook --serial=x --skip -- echo inner')

    assert (done.returncode, done.stdout) == (0, b"")
    assert hook(*with_lock, "echo", "again").stdout == b"again\n"


def test_who_waits_for_too_long_fails_open(hook, door, initialized):
    inner = f'"{door}/icctl" hook --serial=x --name=i --timeout=20ms -- echo inner'

    done = hook("--serial=x", "--", "sh", "-c", inner)

    assert (done.returncode, done.stdout) == (0, b"")
    assert " hook i: lock hook-x/p-" in (initialized / LOG).read_text()


def test_who_is_throttled_gives_its_lock_back(hook, door, initialized, world):
    for _ in range(2):
        hook("--once", "--serial=x", "--", "true")

    assert icctl("lock", "list", cwd=initialized, env=world).stdout == b""


def test_a_killed_hook_keeps_its_lock_as_long_as_its_command_runs(door, initialized, world, hook):
    running = subprocess.Popen(
        [door / "icctl", "hook", "--serial=x", "--", "sh", "-c", "echo $$; exec sleep 100"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=initialized, env={**CLEAN, **world},
    )  # fmt: skip
    assert running.stdout is not None
    command = int(running.stdout.readline())
    running.kill()
    running.wait(PATIENCE)

    held = hook("--serial=x", "--skip", "--", "echo", "ran").stdout
    os.kill(command, signal.SIGKILL)

    assert held == b""
    until(lambda: hook("--serial=x", "--skip", "--", "echo", "ran").stdout == b"ran\n")
    running.stdout.close()
