"""`make bench`: what calls cost, as ratios against a floor measured in the same run.

Machines are shared and noisy, so nothing here is compared with a number from another day.  Rows
marked `miss` are beyond the limit that the project set itself; the exit status says so, too.
A complete run writes docs/performance.md; one of some suites, given by name, prints only.
A suite that breaks off is told, and the others run all the same.
"""

import signal
import sys
import time
import traceback
from types import ModuleType

from tests.bench import (
    databases,
    days,
    growth,
    hook,
    instructions,
    launch,
    library,
    locks,
    peers,
    push,
    python,
    release,
    report,
    reservations,
    runs,
    scale,
    search,
    statusline,
    submissions,
    throughput,
)
from tests.bench.table import Table

SUITES: dict[str, tuple[ModuleType, str, str]] = {
    "launch": (launch, "One call", "A hook starts a program for every call: this is its price."),
    "hook": (hook, "Hooks of agents", "What an agent pays at each of its events."),
    "peers": (peers, "What one would use instead",
        "The same three tasks, done with what is at hand: a guard, a value, a lock."),
    "library": (library, "The library for bash", "What a whole hook script costs."),
    "instructions": (instructions, "Instructions",
        "The hot path of the native client, counted instead of timed: stable on any machine."),
    "statusline": (statusline, "Statusline and mirror", "What is shown all the time."),
    "locks": (locks, "Locks", "What a lock costs, and how late a refusal is."),
    "reservations": (reservations, "Reservations", "What is asked before and after each edit."),
    "runs": (runs, "Runs", "Everything about a run in one call, and in five."),
    "throughput": (throughput, "Many calls", "Over the socket, as fast as they can be asked."),
    "python": (python, "The Python client", "What a call of a Python program costs."),
    "push": (push, "Push", "From a commit to those who watch."),
    "scale": (scale, "A million rows", "The hot statements on a large database and a small one."),
    "growth": (growth, "How cost grows", "By rows, clients, databases, payload and events."),
    "search": (search, "Search", "Embeddings compared by the daemon."),
    "submissions": (submissions, "Submissions", "Many discoveries from a file."),
    "databases": (databases, "Many databases",
        "What each costs while nobody uses it, and what a call costs while all are used."),
    "release": (release, release.TITLE,
        "Both installed, in turn; a row may be five percent slower, which is less than noise."),
    "day": (days, "Growth of a day",
        ("One person, one project, eight hours, played with a clock of its own; "
        "the file after prune and checkpoint.")),
}  # fmt: skip


# The longest takes two and a half minutes; what hangs must not take the others with it.
SUITE_SECONDS = 300


def _give_up(*_: object) -> None:
    raise TimeoutError(f"not done after {SUITE_SECONDS} s")


def main() -> int:
    only = set(sys.argv[1:])
    unknown = only - set(SUITES)
    if unknown:
        print(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
        return 3
    signal.signal(signal.SIGALRM, _give_up)
    table = Table()
    for name, (suite, title, about) in SUITES.items():
        if not only or name in only:
            _run(table, name, suite, title, about)
    if not only:
        report.write(table)
        print(f"written: {report.PAGE.relative_to(report.ROOT)}")
    return table.close()


def _run(table: Table, name: str, suite: ModuleType, title: str, about: str) -> None:
    table.section(title, about)
    began = time.monotonic()
    signal.alarm(SUITE_SECONDS)
    try:
        suite.run(table)
    except Exception as exc:  # noqa: BLE001 -- one suite does not take the others with it
        traceback.print_exc()
        table.failed(f"{type(exc).__name__}: {exc}")
    finally:
        signal.alarm(0)
    print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
