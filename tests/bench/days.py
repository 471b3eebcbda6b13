"""The growth of a day, as rows: see day.py for what is played and what is counted."""

import multiprocessing

from msgspec import structs

from icd import config
from tests.bench import day
from tests.bench.day import Growth
from tests.bench.table import Table

KEPT_DAYS = 30
FORGETFUL = structs.replace(config.DEFAULTS, events_keep_days=KEPT_DAYS)
VARIANTS = {
    "hooks": (day.HOOKS, config.DEFAULTS),
    "day": (day.RECORDS, config.DEFAULTS),
    "forgetful": (day.RECORDS, FORGETFUL),
    "leases": (day.LEASES, config.DEFAULTS),
}
LARGEST = 3  # tables that are named


def run(table: Table) -> None:
    """Nothing here is about time, so the variants run side by side."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        found = dict(zip(VARIANTS, pool.map(_measure, VARIANTS), strict=True))
    for caller in day.MIX:
        often = f"{caller.per_hour} times an hour" if caller.per_hour else "4 times a day"
        table.note(f"the mix: {caller.name}", f"{often}, calls: {caller.calls}")
    _report(table, found)


def _measure(name: str) -> Growth:
    kinds, settings = VARIANTS[name]
    return day.measure(kinds=kinds, settings=settings)


def _report(table: Table, found: dict[str, Growth]) -> None:
    steady = f"mean of {day.DAYS} days after {day.WARM_DAYS}"
    limit = f"{day.LIMIT_BYTES:,} bytes"
    names = {
        "hooks": (f"hooks and statusline only / {limit}", 1.0,
            ("What the budget was written for: state, sentinels, cursors; all but the guards that "
            "never fire again is forgotten by itself.")),
        "day": (f"the whole day, default settings / {limit}", 1.0,
            ("Runs, artifacts, dispatches, discoveries and events are records, and kept for ever "
            "by default: they are most of it.")),
        "forgetful": (f"the whole day, events_keep_days = {KEPT_DAYS} / {limit}", 1.0,
            "The same, where events are forgotten after a month."),
        "leases": (f"the whole day, a lease at each step, default settings / {limit}", 0.0,
            ("Eight leases more a day, each an event of some 300 bytes that is kept for ever: "
            "above 10 KB, so whoever works like this sets events_keep_days, or lets the file grow.")),
    }  # fmt: skip
    for key, (what, most, meaning) in names.items():
        growth = found[key]
        told = f"Bytes of the file, {steady}. {meaning}"
        table.ratio(what, growth.per_day, day.LIMIT_BYTES, unit="B", most=most, meaning=told)
    whole = found["day"]
    table.note("the first day of a new file", f"{whole.first_day:,} bytes on {whole.empty:,}")
    table.note(
        "the second day",
        f"{whole.second_day:,} bytes; single days differ, since every table grows by whole pages",
    )
    table.note("the largest single day of the mean", f"{whole.largest_day:,} bytes")
    table.note("calls a day, as played", f"{whole.calls_per_day:,}")
    largest = sorted(whole.tables.items(), key=lambda entry: -entry[1])[:LARGEST]
    if largest:
        told = ", ".join(f"{name} {size:,.0f}" for name, size in largest)
        table.note("what grows most, bytes a day", told)
