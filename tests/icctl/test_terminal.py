"""A person's terminal, a real one, through both doors: what is told of it, and what is seen on it."""

import fcntl
import os
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import CLEAN, DOORS, Daemon
from tests.support.scripted import fields, scripted, through

INDIA = "IST-5:30"  # as POSIX writes it, whatever zones are installed


def seen(*argv: str, cwd: Path, columns: int = 80, door: Path | None = None, **env: str) -> str:
    """What a person sees."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    words = [str((door or processes.door) / "icctl"), *argv]
    surroundings = {**CLEAN, "TERM": "xterm", "TZ": INDIA, **env}
    running = subprocess.Popen(
        words, cwd=cwd, env=surroundings, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    data = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while chunk := _read(terminal.fileno()):
            data += chunk
    running.wait()
    return data.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # what Linux says when the last one has closed the other end
        return b""


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, b"w93 19800 1"),
        ({"TERM": "dumb", "CLICOLOR_FORCE": "0"}, b"w93 19800 0"),
        ({"TERM": "", "CLICOLOR_FORCE": "1"}, b"w93 19800 1"),
    ],
)
def test_both_doors_tell_the_same_of_a_terminal_and_nothing_of_a_pipe(env, told, tmp_path):
    for name in ("native", "python"):
        if not (DOORS / name / "icctl").exists():
            continue
        with scripted(tmp_path, b"0 0 0\n") as server:
            given = {**through(tmp_path), **env}
            seen("run", "list", cwd=tmp_path, columns=93, door=DOORS / name, **given)
        with scripted(tmp_path, b"0 0 0\n") as piped:
            subprocess.run(
                [DOORS / name / "icctl", "run", "list"], cwd=tmp_path, capture_output=True,
                check=True, env={**CLEAN, **through(tmp_path), **env, "TZ": INDIA},
            )  # fmt: skip

        assert [f for f in fields(server.frames[0]) if f[:1] == b"w"] == [told], name
        assert [f for f in fields(piped.frames[0]) if f[:1] == b"w"] == [], name


@pytest.mark.usefixtures("door")
def test_a_person_sees_a_screen_and_a_script_gets_what_it_always_got(daemon: Daemon, tmp_path):
    env = {"INTERCORE_SOCKET": daemon.socket, "HOME": str(tmp_path)}

    def typed(*argv: str, **more: str) -> str:
        return seen(*argv, cwd=tmp_path, **{**env, **more})

    def piped(*argv: str) -> str:
        door = processes.door / "icctl"
        found = subprocess.run([door, *argv], cwd=tmp_path, env={**CLEAN, **env}, text=True,
                               capture_output=True, check=True)  # fmt: skip
        return found.stdout

    piped("init")
    assert typed("run", "list") == (
        "\x1b[2mNo runs here. Start one: icctl run create --goal='what is to be done'\x1b[0m\n"
    )
    run = piped("run", "create", "--goal=日本 \x1b[31m" + "x" * 200).strip()

    plain = typed("run", "list", NO_COLOR="1").split("\n")
    assert plain[0].split() == ["RUN", "STATE", "PHASE", "UPDATED", "GOAL"]
    assert re.fullmatch(rf"{run}  ● active  brainstorm  (now|\d+s ago) +日本 .*…", plain[1])
    assert len(plain[1]) <= 80 - 2  # two characters of it take two cells each
    coloured = typed("run", "list")
    assert f"{run}  \x1b[36m● active\x1b[0m  " in coloured
    assert coloured.count("\x1b") == coloured.count("\x1b[") == 2 * 6  # five headings, one state
    assert "(UTC+5:30)" in typed("run", "list", "--absolute", COLUMNS="120")
    assert typed("run", "list", "--no-daemon", NO_COLOR="1").split("\n")[0] == plain[0]
    for flag in ("--plain", "--json"):
        assert typed("run", "list", flag) == piped("run", "list", flag)
    assert piped("run", "list", "--plain") == piped("run", "list")
