"""Tests hold wherever they are started: under nohup, by cron, behind a shell's `&`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What sends signals, reads from a terminal, or leaves its stdin to a child.
FILES = [
    "tests/admin/service/test_end_to_end.py",
    "tests/features/locks/test_commands.py",
    "tests/icctl/test_client.py",
    "tests/server/subscriptions/test_streams.py",
    "tests/server/test_reload.py",
]
NAMES = "signal or interrupt or terminal or stdin or killed"
# What they inherit there, and cannot undo by themselves.
DEAF = "trap '' HUP INT QUIT TERM USR1 USR2 PIPE; exec \"$@\" <&-"


@pytest.mark.long
def test_tests_hold_where_signals_are_ignored_and_stdin_is_closed() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))}

    done = subprocess.run(
        ["bash", "-c", DEAF, "bash", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         "--timeout=60", "-k", NAMES, "-m", "not long", *FILES],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
