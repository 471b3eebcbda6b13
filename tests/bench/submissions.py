"""Many submissions from a file, each compared with all before it: time, memory, and growth.

Time is that of the processor: a client that works by itself shares the machine with anybody.
"""

import base64
import json
import os
import subprocess
from pathlib import Path

from icd.core.arrays import np
from tests.bench import setting as place
from tests.bench.table import Table

DIMENSION = 1024
LINES = 10_000
ROUNDS = 3  # seconds each, of the processor: little noise


def run(table: Table) -> None:
    half, whole, mebibytes = [], [], 0
    for _ in range(ROUNDS):
        half.append(_submit(LINES // 2)[0] * 2 * 1e3)
        took, mebibytes = _submit(LINES)
        whole.append(took * 1e3)
    table.ratio(
        f"submit --from, {LINES:,} x {DIMENSION} with dedup / twice {LINES // 2:,}",
        whole, half, unit="ms", most=1.5,
        meaning="Twice as many take about twice the processor time, though each is compared with all.",
    )  # fmt: skip
    table.note("the memory that it took", f"{mebibytes} MiB")


def _submit(count: int) -> tuple[float, int]:
    """Seconds of the processor and MiB of memory that so many lines take."""
    with place.project(rows=10, guards=10) as setting:
        _write(setting.root / "lines", count)
        words = ["discovery", "submit", "--from=lines", "--source=s", "--dedup-threshold=0.95"]
        process = subprocess.Popen(
            [place.BIN / "icctl", *words, "--timeout=5m", "--no-daemon"],
            cwd=setting.root, env=setting.env, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
    return used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def _write(path: Path, count: int) -> None:
    chance = np.random.default_rng(1)
    with path.open("w") as file:
        for number in range(count):
            vector = chance.standard_normal(DIMENSION, np.float32).tobytes()
            line = {
                "source_id": str(number),
                "title": "t",
                "embedding": base64.b64encode(vector).decode(),
            }
            file.write(json.dumps(line) + "\n")
