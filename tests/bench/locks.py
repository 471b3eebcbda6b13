"""What a lock costs, and how late a refusal is if it is held for longer than one wants to wait."""

import os
import shutil
import subprocess

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 30
WAIT_MS = 100
# The promise is 50 ms; starting the program counts.
MOST = (WAIT_MS + 50) / WAIT_MS
# In one shell, which both start and end: a lock that names its owner, against one system call.
PAIR_MOST = 2.5
PAIR = "icctl lock acquire pair s; icctl lock release pair s; :"
FLOCK = "exec 9>flocked; flock 9; flock -u 9; :"


def run(table: Table) -> None:
    with place.project(rows=0, guards=0) as setting:
        setting.env["INTERCORE_LOCK_DIR"] = str(setting.root / "locks")
        if shutil.which("flock"):
            with place.daemon(setting):
                _pairs(table, setting)
        times = _interleaved(setting)
    what = f"refused lock acquire --timeout={WAIT_MS}ms / sleep {WAIT_MS / 1000}"
    table.ratio(
        what, times["refused"], times["sleep"], unit="ms", most=MOST,
        meaning="A refusal comes when the caller's patience ends, not later.",
    )  # fmt: skip


def _pairs(table: Table, setting: place.Setting) -> None:
    commands = {"lock": ["bash", "-c", PAIR], "flock": ["bash", "-c", FLOCK]}
    subprocess.run(
        commands["lock"], env=setting.env, cwd=setting.root, check=True
    )  # makes the place
    times = place.interleaved(commands, setting, RUNS)
    table.ratio(
        "lock and unlock in one shell, daemon / flock and unlock", times["lock"], times["flock"],
        unit="ms", most=PAIR_MOST,
        meaning="A lock that names its owner and outlives the command, taken and given back.",
    )  # fmt: skip


def _interleaved(setting: place.Setting) -> place.Times:
    acquire = [str(place.BIN / "icctl"), "lock", "acquire", "bench", "s"]
    us = f"--owner={os.getpid()}:{os.uname().nodename}"
    subprocess.run([*acquire, us], env=setting.env, cwd=setting.root, check=True)
    commands = {
        "refused": [*acquire, f"--timeout={WAIT_MS}ms"],
        "sleep": ["sleep", str(WAIT_MS / 1000)],
    }
    return place.interleaved(commands, setting, RUNS)
