"""`make bench`: what calls cost, as ratios against a floor measured in the same run.

Machines are shared and noisy, so nothing here is compared with a number from another day.  Rows
marked `miss` are beyond the limit that the project set itself; the exit status says so, too.
"""

import sys

from tests.bench import (
    databases,
    launch,
    library,
    locks,
    push,
    runs,
    scale,
    search,
    statusline,
    submissions,
    throughput,
)
from tests.bench.table import Table


def main() -> int:
    table = Table()
    only = set(sys.argv[1:])
    suites = {
        "launch": launch,
        "library": library,
        "statusline": statusline,
        "locks": locks,
        "runs": runs,
        "throughput": throughput,
        "push": push,
        "scale": scale,
        "search": search,
        "submissions": submissions,
        "databases": databases,
    }
    for name, suite in suites.items():
        if not only or name in only:
            suite.run(table)
    return table.close()


if __name__ == "__main__":
    sys.exit(main())
