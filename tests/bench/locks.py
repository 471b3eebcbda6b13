"""How late a refusal is, of a lock that is held for longer than the caller wants to wait."""

import os
import subprocess

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 30
WAIT_MS = 100
# The promise is 50 ms; starting the program counts.
MOST = (WAIT_MS + 50) / WAIT_MS


def run(table: Table) -> None:
    with place.project(rows=0, guards=0) as setting:
        setting.env["INTERCORE_LOCK_DIR"] = str(setting.root / "locks")
        times = _interleaved(setting)
    what = f"refused lock acquire --timeout={WAIT_MS}ms / sleep {WAIT_MS / 1000}"
    table.ratio(
        what, times["refused"], times["sleep"], unit="ms", most=MOST,
        meaning="A refusal comes when the caller's patience ends, not later.",
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
