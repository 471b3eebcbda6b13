"""Who calls: scripts by their path, programs by their name, arguments never."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from icd.server.net import callers
from tests.support.processes import until


@pytest.mark.parametrize(
    "words, found",
    [
        ("bash /p/hook.sh arg", "/p/hook.sh"),
        ("/usr/bin/bash -eu hook.sh", "hook.sh"),
        ("-bash hook.sh", "hook.sh"),
        ("sh -x /p/a.sh --token=t", "/p/a.sh"),
        ("/opt/python3.11 -I -S /p/a.py secret", "/p/a.py"),
        ("node /p/a.js secret", "/p/a.js"),
        ("bash -c secret", None),
        ("bash -ec secret", None),
        ("bash -s secret", None),
        ("bash -o posix hook.sh", None),
        ("bash --rcfile secret hook.sh", None),
        ("bash", None),
        ("-bash", None),
        ("bash -", None),
        ("python3 -m secret", None),
        ("python3 -c secret", None),
        ("python3 -W secret a.py", None),
        ("node -e secret", None),
        ("perl -e secret", None),
        ("curl secret", None),
        ("", None),
    ],
)
def test_of_a_command_line_only_the_script_is_told(words, found):
    assert callers.script(words.split(" ")) == found


def test_no_word_after_an_unknown_option_is_ever_told():
    for program in callers._FLAGS:
        for option in ("-c", "-e", "-m", "-o", "-O", "--x", "-", "-Xy"):
            found = callers.script([program, option, "secret"])
            harmless = option[1:] and set(option[1:]) <= set(callers._FLAGS[program])

            assert found == ("secret" if harmless else None), (program, option)


def test_a_running_script_is_found_by_its_path(tmp_path: Path):
    script = tmp_path / "hook.sh"
    script.write_text("read -r _\n")
    running = subprocess.Popen(["bash", script, "secret"], stdin=subprocess.PIPE)

    try:
        until(lambda: callers.name(running.pid) == str(script))
    finally:
        running.communicate(b"\n")


def test_a_program_is_found_by_its_name_and_not_by_its_arguments(tmp_path: Path):
    program = tmp_path / "my\ttool"
    shutil.copy(shutil.which("cat"), program)
    running = subprocess.Popen([program, "-", "secret"], stdin=subprocess.PIPE, stderr=-3)

    try:
        until(lambda: callers.name(running.pid) == "my?tool")
    finally:
        running.communicate(b"")


@pytest.mark.parametrize("pid", [None, 0, -1, 2**22, 2**40])
def test_nobody_is_unknown(pid):
    assert callers.name(pid) == "unknown"


def test_the_name_of_this_process_is_a_line_of_limited_length():
    name = callers.name(os.getpid())

    assert name
    assert len(name) <= callers.NAME_CHARACTERS
    assert "\n" not in name


def test_a_long_path_is_told_by_its_end(tmp_path: Path):
    deep = tmp_path / ("d" * 200) / "hook.py"
    deep.parent.mkdir()
    deep.write_text("input()\n")
    running = subprocess.Popen([sys.executable, deep], stdin=subprocess.PIPE)

    try:
        until(lambda: callers.name(running.pid).endswith("/hook.py"))
        name = callers.name(running.pid)
    finally:
        running.communicate(b"\n")

    assert name.startswith("…")
    assert len(name) == callers.NAME_CHARACTERS
