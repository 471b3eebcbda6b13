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
        refused, floor = _interleaved(setting)
    what = f"refused lock acquire --timeout={WAIT_MS}ms / sleep {WAIT_MS / 1000}"
    table.ratio(
        what,
        refused,
        floor,
        unit="ms",
        most=MOST,
        meaning="A refusal comes when the caller's patience ends, not later; least of 30 runs.",
    )


def _interleaved(setting: place.Setting) -> tuple[float, float]:
    """The best times: others are about the machine."""
    acquire = [str(place.BIN / "icctl"), "lock", "acquire", "bench", "s"]
    us = f"--owner={os.getpid()}:{os.uname().nodename}"
    subprocess.run([*acquire, us], env=setting.env, cwd=setting.root, check=True)
    commands = [[*acquire, f"--timeout={WAIT_MS}ms"], ["sleep", str(WAIT_MS / 1000)]]
    best = [float("inf")] * len(commands)
    for _ in range(RUNS):
        for number, command in enumerate(commands):
            best[number] = min(best[number], place.quiet(command, setting.env, setting.root))
    return best[0], best[1]
