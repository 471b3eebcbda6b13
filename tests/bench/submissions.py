"""Many submissions from a file, each compared with all before it: time, memory, and growth.

Time is that of the processor: a client that works by itself shares the machine with anybody.
"""

import base64
import json
import subprocess
import sys
from pathlib import Path

from icd.features.discoveries.similarity import np
from tests.bench import setting as place
from tests.bench.table import Table

DIMENSION = 1024
LINES = 10_000
# A small process in between: to the kernel, a program's largest size is at least that of whoever
# started it, and here that may have been a bench full of vectors.
STARTER = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
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
    with place.project(rows=10, guards=10) as setting:
        _write(setting.root / "lines", count)
        words = ["discovery", "submit", "--from=lines", "--source=s", "--dedup-threshold=0.95"]
        command = [str(place.BIN / "icctl"), *words, "--timeout=5m", "--no-daemon"]
        return used(command, cwd=setting.root, env=setting.env)


def used(command: list[str], *, cwd: Path, env: dict[str, str]) -> tuple[float, int]:
    """Seconds of the processor and MiB of memory that a program takes."""
    words = [sys.executable, "-c", STARTER, *command]
    done = subprocess.run(words, cwd=cwd, env=env, stdout=subprocess.PIPE, check=True)
    seconds, kibibytes = done.stdout.split()
    return float(seconds), int(kibibytes) // 1024


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
