"""Reservations against a sentinel: a check, and a reservation that is released again."""

import resource
import sqlite3
from contextlib import closing

from icd.features.coordination import names, store
from icd.features.coordination.names import Place
from icd.features.coordination.records import Wish
from icd.values.processes import Writer
from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 150
FEW, MANY = 100, 10_000
HERE = Place("/p", "/p")
# What people reserve: files, directories, and names anywhere.
SHAPES = (
    "src/m{0}/file{0}.py",
    "src/m{0}/*.py",
    "lib/{0}/**",
    "**/test_{0}.py",
    "docs/page{0}*.md",
)


def run(table: Table) -> None:
    for count, most in ((FEW, 1.2), (MANY, 1.5)):
        with place.project() as setting:
            _fill(str(setting.root / ".clavain" / "intercore.db"), count)
            with place.daemon(setting) as daemon:
                times, spent = _interleaved(_commands(), setting, daemon.pid)
        _rows(table, count, most, times, "")
        _rows(table, count, most, spent, ", processor time")


def _rows(table: Table, count: int, most: float, times: place.Times, what: str) -> None:
    table.ratio(
        f"coordination check among {count:,}{what} / sentinel check", times["check"],
        times["sentinel"], unit="ms", most=most,
        meaning="Whether another session holds a file, asked before each edit.",
    )  # fmt: skip
    both = [sum(pair) for pair in zip(times["reserve"], times["release"], strict=True)]
    table.ratio(
        f"coordination reserve and release among {count:,}{what} / sentinel check", both,
        times["sentinel"], unit="ms", most=2.5,
        meaning="What a hook before an edit and one after it cost.",
    )  # fmt: skip


def _interleaved(
    commands: dict[str, list[str]], setting: place.Setting, daemon: int
) -> tuple[place.Times, place.Times]:
    """Milliseconds of every run, and those of a processor, in the client and in the daemon."""
    times: place.Times = {name: [] for name in commands}
    spent: place.Times = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            before = _used(daemon)
            times[name].append(place.quiet(command, setting.env, setting.root))
            spent[name].append(_used(daemon) - before)
    return times, spent


def _used(daemon: int) -> float:
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (ours.ru_utime + ours.ru_stime + place.cpu_seconds(daemon)) * 1000


def _commands() -> dict[str, list[str]]:
    icctl = str(place.BIN / "icctl")
    mine = ["--owner=me", "--path=src/m7/another.txt"]
    return {
        "sentinel": [icctl, "sentinel", "check", "bench", "s1", "--interval=1"],
        "check": [icctl, "coordination", "check", "--path=src/m7/another.txt"],
        "reserve": [icctl, "coordination", "reserve", *mine, "--ttl=15m"],
        "release": [icctl, "coordination", "release", *mine],
    }


def _fill(database: str, count: int) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as conn:
        conn.execute("BEGIN")
        for number in range(count):
            text = SHAPES[number % len(SHAPES)].format(number)
            wish = Wish(f"owner{number % 50}", ".", names.pattern(text, HERE), exclusive=False)
            found, blocker = store.reserve(conn, wish, actor=Writer(), now_ms=1)
            assert found is not None, blocker
        conn.execute("COMMIT")
