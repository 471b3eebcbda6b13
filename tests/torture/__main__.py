"""`make torture [SECONDS=…] [SEED=…] [SUITES="crash watch"]`: try to break what we promise.

The time is divided among the suites.  A suite that finds a broken promise says how to do the same
again; the exit status is then 1, and the directory it worked in is kept.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.torture.suite import Run, Suite
from tests.torture.suites import SUITES


def main() -> int:
    options = _options()
    chosen = [suite for suite in SUITES if not options.suites or suite.name in options.suites]
    shares = sum(suite.share for suite in chosen)
    failed = [
        suite.name
        for suite in chosen
        if not _try(suite, options.seconds * suite.share / shares, options.seed)
    ]
    print(f"broken: {', '.join(failed)}" if failed else "every promise held")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    names = [suite.name for suite in SUITES]
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(names))
    options = parser.parse_args()
    for name in options.suites:
        if name not in names:
            parser.error(f"no suite is called {name!r}; there are: {', '.join(names)}")
    return options


def _try(suite: Suite, seconds: float, seed: int) -> bool:
    directory = Path(tempfile.mkdtemp(prefix=f"torture-{suite.name}-"))
    run = Run(directory, seconds, seed)
    began = time.monotonic()
    print(f"{suite.name}: seed {seed}, {seconds:.0f} s", flush=True)
    try:
        suite.run(run)
    except Exception:  # noqa: BLE001 -- the other suites are tried all the same
        traceback.print_exc()
        print(f"{suite.name}: BROKEN; what it left: {directory}; again with:")
        print(f"  make torture SUITES={suite.name} SEED={seed} SECONDS={seconds:.0f}", flush=True)
        return False
    shutil.rmtree(directory, ignore_errors=True)
    figures = ", ".join(f"{count:,} {what}" for what, count in sorted(run.figures.items()))
    print(f"{suite.name}: held; {figures}; {time.monotonic() - began:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
