"""`icctl lock …` and `icctl hold`, in processes of their own: their parents are what counts."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from icd.app.invocation import Errand
from icd.features.locks import verbs as locks
from icd.features.locks.directory import Place
from tests.support import processes
from tests.support.processes import BIN, CLEAN, DOORS, PATIENCE, icctl, until

HOST = os.uname().nodename


@pytest.fixture(params=["direct", "native", pytest.param("python", marks=pytest.mark.long)])
def env(
    request: pytest.FixtureRequest, project: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Without a daemon; or with one, through either client."""
    found = {
        "INTERCORE_LOCK_DIR": str(project / "locks"),
        "INTERCORE_SOCKET": "/nonexistent",
        "HOME": str(project),
    }
    if request.param != "direct":
        monkeypatch.setattr(processes, "door", DOORS / request.param)
        monkeypatch.setitem(CLEAN, "PATH", f"{DOORS / request.param}:/usr/bin:/bin")
        Place(found["INTERCORE_LOCK_DIR"]).make()  # else the first command is run without it
        found["INTERCORE_SOCKET"] = request.getfixturevalue("any_daemon").socket
    return found


@pytest.fixture
def lock(project: Path, env: dict[str, str]):
    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        return icctl(*words, cwd=project, env=env)

    return run


def start(project: Path, env: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, cwd=project, env={**CLEAN, **env},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_locks_are_a_matter_of_the_callers_own_process(invoke) -> None:
    for words in ("lock acquire n s", "lock release n s", "lock list", "hold n s -- true"):
        assert isinstance(invoke(*words.split()), Errand)


def test_the_default_owner_is_the_parent_of_the_command(lock, project, env) -> None:
    script = "icctl lock acquire n s && echo ready && read line"
    with start(project, env, "bash", "-c", script) as shell:
        shell.stdout.readline()

        (held,) = json.loads(lock("lock", "list", "--json").stdout)
        refused = lock("lock", "acquire", "n", "s", "--timeout=10ms")
        shell.kill()
        shell.wait(PATIENCE)
        stale = lock("lock", "stale", "--older-than=0s").stdout.decode()
        taken = lock("lock", "acquire", "n", "s", "--timeout=10ms")

        assert (held["pid"], held["liveness"]) == (shell.pid, "alive")
        assert refused.returncode == 1
        assert f"process {shell.pid} on {HOST}".encode() in refused.stderr
        assert b"which is alive" in refused.stderr
        assert stale.startswith(f"n\ts\t{shell.pid}:{HOST}\t")
        assert taken.returncode == 0


def test_a_command_whose_caller_has_ended_takes_no_lock_for_whoever_adopted_it(
    lock, project, env
) -> None:
    script = "(while [ -e /proc/$$/cwd ]; do sleep 0.01; done; exec icctl lock acquire n s) &"
    with start(project, env, "setsid", "bash", "-c", script) as shell:
        out, err = shell.communicate(timeout=PATIENCE)

    assert out == b""
    assert b"the calling process has ended" in err
    assert lock("lock", "list").stdout == b""


def test_an_owner_that_is_not_running_is_told_so(lock) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()

    done = lock("lock", "acquire", "n", "s", f"--owner={gone.pid}:{HOST}")

    assert done.returncode == 0
    assert b"the next caller gets the lock" in done.stderr


def test_a_word_as_owner_is_enough_to_release_whoever_says_it(lock, project, env) -> None:
    with start(
        project, env, "bash", "-c", "icctl lock acquire n s --owner=sprint; read x"
    ) as first:
        until((project / "locks" / "n" / "s").exists)

        wrong = lock("lock", "release", "n", "s", "--owner=else")
        right = lock("lock", "release", "n", "s", "--owner=sprint")
        first.communicate(timeout=PATIENCE)

    assert (wrong.returncode, right.returncode) == (1, 0)


def test_a_young_stale_lock_is_neither_listed_nor_cleaned_by_default(lock) -> None:
    lock("lock", "acquire", "n", "s", f"--owner=0:{HOST}")

    assert lock("lock", "stale").stdout == b""
    assert lock("lock", "clean").stdout == b"0 cleaned\n"
    assert lock("lock", "clean", "--older-than=0s").stdout == b"1 cleaned\n"
    assert lock("lock", "list").stdout == b""


def test_a_lock_without_an_owner_has_empty_columns(lock, project) -> None:
    lock("lock", "acquire", "n", "s")
    (project / "locks" / "n" / "s" / "owner.json").unlink()

    assert lock("lock", "list").stdout == b"n\ts\t\t\n"


def test_a_directory_that_cannot_be_made_says_which_and_who_names_it(lock, project, env) -> None:
    env["INTERCORE_LOCK_DIR"] = f"{project}/no/such"

    refused = lock("lock", "acquire", "n", "s")

    assert refused.returncode == 2
    assert b"no/such: No such file or directory; check that its parent" in refused.stderr
    assert b"INTERCORE_LOCK_DIR" in refused.stderr


@pytest.mark.parametrize("owner", ["a\tb", "a\nb", "x" * 256])
def test_an_owner_that_no_line_or_file_holds_is_refused(lock, owner: str) -> None:
    refused = lock("lock", "acquire", "n", "s", f"--owner={owner}")

    assert refused.returncode == 2
    assert b"invalid owner" in refused.stderr
    assert lock("lock", "list").stdout == b""


def test_what_other_programs_named_stays_on_its_line(lock, project) -> None:
    lock("lock", "acquire", "n", "s")
    (project / "locks" / "n" / "s").rename(project / "locks" / "n" / "a\nb\tc")
    (project / "locks" / "n" / "a\nb\tc" / "owner.json").unlink()

    assert lock("lock", "list").stdout == b"n\ta\\nb\\tc\t\t\n"


@pytest.mark.parametrize(
    "seconds, text", [(0, "0s"), (7, "7s"), (65, "1m5s"), (3600, "1h0m0s"), (90061, "25h1m1s")]
)
def test_ages_are_written_as_go_does(seconds: int, text: str) -> None:
    assert locks._span(seconds) == text


@pytest.mark.usefixtures("door")
def test_a_refusal_comes_when_the_time_is_over_and_not_before(lock) -> None:
    """How late it is depends on the machine: see tests/bench/locks.py."""
    lock("lock", "acquire", "n", "s", f"--owner={os.getpid()}:{HOST}")
    began = time.monotonic()

    refused = lock("lock", "acquire", "n", "s", "--timeout=300ms")

    assert refused.returncode == 1
    assert time.monotonic() >= began + 0.3


def test_the_time_counts_from_the_start_of_the_native_keyhole(lock, env) -> None:
    lock("lock", "acquire", "n", "s", f"--owner={os.getpid()}:{HOST}")
    now_ms = int(time.monotonic() * 1000)
    ago_ms = min(1_000_000, now_ms // 2)  # the machine may have been started just now
    env["INTERCORE_HANDOVER"] = f"- id 5000 {now_ms - ago_ms + 5000} -1 native-keyhole icctl"

    refused = icctl(
        "lock", "acquire", "n", "s", f"--timeout={ago_ms}ms",
        cwd=Path("/"), env=env, program=BIN / "icctl-python",
    )  # fmt: skip

    assert refused.returncode == 1  # at once: these seconds are over


# --- hold ---


def test_hold_gives_the_lock_back_however_the_command_ends(lock) -> None:
    for command in ("true", "false", "kill -KILL $$", "exit 3"):
        done = lock("hold", "n", "s", "--", "sh", "-c", command)

        assert done.returncode == {"true": 0, "false": 1, "kill -KILL $$": 137}.get(command, 3)
        assert lock("lock", "list").stdout == b""


def test_hold_tells_how_the_command_ended_even_if_the_lock_cannot_be_removed(lock, project) -> None:
    done = lock("hold", "n", "s", "--", "sh", "-c", "chmod 777 locks/n; exit 7")
    (project / "locks" / "n").chmod(0o700)

    assert (done.returncode, done.stderr) == (7, b"")
    assert b"dead" in lock("lock", "list", "--json").stdout
    assert lock("hold", "n", "s", "--timeout=1ms", "--", "true").returncode == 0


def test_hold_waits_for_its_turn(lock, project, env) -> None:
    with start(project, env, "icctl", "hold", "n", "s", "--", "cat") as first:
        until((project / "locks" / "n" / "s").exists)
        with start(
            project, env, "icctl", "hold", "n", "s", "--timeout=40s", "--", "true"
        ) as second:
            refused = lock("hold", "n", "s", "--timeout=10ms", "--", "touch", "never")
            first.communicate(timeout=PATIENCE)

            assert second.wait(PATIENCE) == 0
    assert refused.returncode == 1
    assert b"held by process" in refused.stderr
    assert not (project / "never").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_hold_passes_signals_on_and_releases(lock, project, env, number) -> None:
    script = f"trap 'echo caught; exit 9' {number.value}; echo ready; while :; do sleep 0.01; done"
    with start(project, env, "icctl", "hold", "n", "s", "--", "bash", "-c", script) as held:
        held.stdout.readline()

        held.send_signal(number)
        out, _err = held.communicate(timeout=PATIENCE)

        assert (held.returncode, out) == (9, b"caught\n")
    assert lock("lock", "list").stdout == b""


def test_the_command_keeps_the_lock_when_hold_is_killed(lock, project, env) -> None:
    with start(
        project, env, "icctl", "hold", "n", "s", "--", "sh", "-c", "echo $$; read x"
    ) as held:
        command = int(held.stdout.readline())
        held.kill()
        held.wait(PATIENCE)

        (alive,) = json.loads(lock("lock", "list", "--json").stdout)
        refused = lock("lock", "acquire", "n", "s", "--timeout=10ms")
        os.kill(command, signal.SIGKILL)
        until(lambda: b"dead" in lock("lock", "list", "--json").stdout)
        taken = lock("lock", "acquire", "n", "s", "--timeout=10ms")

        assert (alive["pid"], alive["liveness"]) == (command, "alive")
        assert (refused.returncode, taken.returncode) == (1, 0)


def test_a_hold_that_is_killed_while_it_waits_leaves_no_process(lock, project, env) -> None:
    lock("lock", "acquire", "n", "s", f"--owner={os.getpid()}:{HOST}")
    with start(
        project, env, "icctl", "hold", "n", "s", "--timeout=40s", "--", "touch", "x"
    ) as held:
        children = Path(f"/proc/{held.pid}/task/{held.pid}/children")
        until(lambda: children.read_text().strip())
        child = int(children.read_text())

        held.kill()
        held.wait(PATIENCE)

        until(lambda: not Path(f"/proc/{child}").exists())
    assert not (project / "x").exists()


def test_a_command_that_is_killed_before_its_turn_is_told_as_any_other(lock, project, env) -> None:
    us = f"--owner={os.getpid()}:{HOST}"
    lock("lock", "acquire", "n", "s", us)
    with start(
        project, env, "icctl", "hold", "n", "s", "--timeout=40s", "--", "touch", "x"
    ) as held:
        children = Path(f"/proc/{held.pid}/task/{held.pid}/children")
        if env["INTERCORE_SOCKET"] == "/nonexistent":
            # The native client has a child, too, until it knows that there is no daemon.
            until(lambda: processes.watches(held.pid))
        until(lambda: children.read_text().strip())
        os.kill(int(children.read_text()), signal.SIGKILL)
        lock("lock", "release", "n", "s", us)

        _out, err = held.communicate(timeout=PATIENCE)

        assert (held.returncode, err) == (137, b"")
    assert lock("lock", "list").stdout == b""


def test_the_command_has_the_callers_signals_and_no_descriptors_of_ours(lock) -> None:
    done = lock(
        "hold",
        "n",
        "s",
        "--",
        "sh",
        "-c",
        "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd",
    )

    blocked, ignored, *descriptors = done.stdout.decode().splitlines()
    assert int(blocked.split()[1], 16) == 0
    assert int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0
    assert descriptors == ["0", "1", "2", "3"]  # the last one is ls's own


def test_what_a_command_returns_is_no_failure_of_ours(lock, tmp_path, env) -> None:
    env["INTERCORE_SOCKET"] = str(tmp_path / "icd.sock")

    lock("hold", "n", "s", "--", "sh", "-c", "exit 2")
    without = (tmp_path / "failures").exists()
    lock("hold", "n", "s", "--", "/nonexistent")

    assert not without
    assert (tmp_path / "failures").read_text() == "hold\n"


def test_a_failure_is_counted_by_its_verb_alone_where_a_word_follows(lock, tmp_path, env) -> None:
    env["INTERCORE_SOCKET"] = str(tmp_path / "icd.sock")

    for words in ("hold a/b s -- true", "restore nowhere", "lock acquire a/b s"):
        assert lock(*words.split()).returncode == 2

    assert (tmp_path / "failures").read_text() == "hold\nrestore\nlock.acquire\n"


def test_hold_in_a_directory_that_is_gone_is_counted_as_hold(project, tmp_path, env) -> None:
    env["INTERCORE_SOCKET"] = str(tmp_path / "icd.sock")
    script = "mkdir x; cd x; rmdir ../x; icctl hold n s -- true; echo $?"
    with start(project, env, "bash", "-c", script) as shell:
        out, err = shell.communicate(timeout=PATIENCE)

    assert out == b"2\n"
    assert b"icctl: hold: the current directory no longer exists;" in err
    assert (tmp_path / "failures").read_text() == "hold\n"


def test_locks_need_no_database_and_make_none(lock, project) -> None:
    lock("lock", "acquire", "n", "s")

    assert not (project / ".clavain").exists()
