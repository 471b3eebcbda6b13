"""`icctl setup` as it is typed: through both clients, on a terminal, and two at once."""

import contextlib
import json
import os
import pty
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, icctl, running

SETTINGS = b'{\n  // mine\n  "model": "opus"\n}\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_bytes(SETTINGS)
    return tmp_path


def test_the_round_trip_through_both_clients(door, home):
    settings = home / ".claude/settings.json"

    diff = icctl("setup", "claude", "--dry-run", cwd=home)
    assert (diff.returncode, diff.stderr) == (0, b"")
    assert b'+    "command": "' in diff.stdout
    assert settings.read_bytes() == SETTINGS
    assert icctl("setup", "claude", "--check", cwd=home).returncode == 1
    done = icctl("setup", "claude", "--mcp", cwd=home)
    assert (done.returncode, done.stderr) == (0, b"")
    assert str(door / "icctl").encode() in settings.read_bytes()
    checked = icctl("setup", "claude", "--check", "--mcp", "--json", cwd=home)
    assert {row["state"] for row in json.loads(checked.stdout)["entries"]} == {"present"}
    assert icctl("setup", "claude", "--remove", cwd=home).returncode == 0

    assert settings.read_bytes() == SETTINGS
    assert not (home / ".claude.json").exists()


def test_it_is_the_callers_process_that_writes(home):
    """The daemon's home directory is another one, and so may be what it may write to."""
    with running() as daemon:
        done = icctl("setup", "claude", cwd=home, env={"INTERCORE_SOCKET": daemon.socket})

    assert done.returncode == 0
    assert b"service ensure" in (home / ".claude/settings.json").read_bytes()


def test_a_refusal_is_a_sentence_with_its_repair(home):
    (home / ".claude/settings.json").write_bytes(b"{")

    done = icctl("setup", "claude", cwd=home)

    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"icctl: setup: ")
    assert b"line 1" in done.stderr
    assert b"mend the file" in done.stderr


def test_without_a_terminal_it_never_asks(home):
    done = icctl("setup", cwd=home, stdin=b"y\ny\n")

    assert done.stdout == b"found Claude Code; to set it up: icctl setup claude\n"
    assert (home / ".claude/settings.json").read_bytes() == SETTINGS


@pytest.mark.parametrize("answer", ["y", "n", "", "\x04"], ids=["yes", "no", "nothing", "end"])
def test_on_a_terminal_it_asks_for_each_agent_that_is_there(door, home, answer):
    shown, status = on_a_terminal(home, answer if answer == "\x04" else f"{answer}\n", "setup")

    assert shown.count("? [y/N]") == 1
    assert "Set up Claude Code (" in shown
    assert status == 0
    is_changed = (home / ".claude/settings.json").read_bytes() != SETTINGS
    assert is_changed == (answer == "y")


def test_an_interrupt_at_the_question_changes_nothing(door, home):
    shown, status = on_a_terminal(home, "\x03", "setup")

    assert status != 0
    assert "Traceback" not in shown
    assert (home / ".claude/settings.json").read_bytes() == SETTINGS


def on_a_terminal(home: Path, typed: str, *words: str) -> tuple[str, int]:
    """What a person sees who types this when asked, and the exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(home)
        program = str(processes.door / "icctl")
        os.execve(program, [program, *words], {**CLEAN, "HOME": str(home)})
    shown = b""
    while b"[y/N] " not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, typed.encode())
    try:
        while more := os.read(terminal, 4096):
            shown += more
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_killed_at_any_moment_the_file_is_whole_and_the_way_back_is_known(home):
    settings = home / ".claude/settings.json"
    before = b'{\n  "hooks": {\n\n  }\n}\n'  # whose white space only a record can restore
    settings.write_bytes(before)
    began = time.monotonic()
    icctl("setup", "claude", cwd=home)
    takes = time.monotonic() - began
    wholes = {before, settings.read_bytes()}

    for moment in range(16):
        words = ("--remove",) if moment % 2 == 0 else ()
        command = [processes.door / "icctl", "setup", "claude", *words]
        process = subprocess.Popen(
            command, cwd=home, env={**CLEAN, "HOME": str(home)}, stdout=subprocess.DEVNULL
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(takes * (0.4 + moment / 20))
        process.kill()
        process.wait()
        assert settings.read_bytes() in wholes

    icctl("setup", "claude", "--remove", cwd=home)
    assert settings.read_bytes() == before


def test_of_many_at_once_one_writes_and_the_others_find_it_done(home):
    command = [processes.door / "icctl", "setup", "claude", "--mcp"]
    env = {**CLEAN, "HOME": str(home)}
    crowd = [
        subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    told = [one.communicate(timeout=PATIENCE)[0] for one in crowd]

    assert [one.returncode for one in crowd] == [0] * 6
    assert sum("added\t" in text for text in told) == 1
    found = (home / ".claude/settings.json").read_bytes()
    assert found.count(b"service ensure") == 1
    icctl("setup", "claude", "--remove", cwd=home)
    assert (home / ".claude/settings.json").read_bytes() == SETTINGS
