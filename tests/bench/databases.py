"""A hundred databases in one daemon: what each costs while nobody uses it."""

import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import setting as place
from tests.bench.statusline import call
from tests.bench.table import Table

COUNT = 100
# Those that were just used are looked at more often; this long after, all are at rest.
SETTLE_SECONDS = 75.0
# Each is looked at once in this time.
WATCH_SECONDS = 60.0
ROWS = 200


def run(table: Table) -> None:
    with ExitStack() as stack:
        projects = [
            stack.enter_context(place.project(rows=ROWS, guards=ROWS)) for _ in range(COUNT)
        ]
        host = projects[0]
        daemon = stack.enter_context(place.daemon(host))
        call(host, "state.get", db=host.path, key="bench", scope_id="s1")
        before = resident_kib(daemon.pid)
        for project in projects[1:]:
            call(host, "state.set", db=project.path, key="bead", scope_id="s1", payload={"i": 1})
        time.sleep(SETTLE_SECONDS)
        after = resident_kib(daemon.pid)
        used = _cpu_seconds(daemon.pid)
        time.sleep(WATCH_SECONDS)
        used = _cpu_seconds(daemon.pid) - used
        assert len(call(host, "icd.status")["databases"]) == COUNT
    each = (after - before) / (COUNT - 1) / 1024
    table.ratio(
        "memory of an idle open database / 1 MiB",
        each,
        1,
        unit="MiB",
        most=2,
        meaning="The proportional share of 99 databases more, divided by 99.",
    )
    table.ratio(
        f"CPU of a daemon with {COUNT} idle databases / 1 % of a core",
        used / WATCH_SECONDS * 100,
        1,
        unit="%",
        most=0.1,
        meaning="Processor time in a minute, a minute after the last call.",
    )


def resident_kib(pid: int) -> int:
    """What would be free without it, as far as the kernel can tell: its proportional share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise LookupError("Pss")


def _cpu_seconds(pid: int) -> float:
    """Of all threads, in nanoseconds from the scheduler: the clock of `stat` ticks too slowly."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9
