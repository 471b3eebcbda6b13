"""What a client that works without a daemon leaves behind in its own process."""

import os
import time
from pathlib import Path

from icctl.direct import answer_here
from icd.app import registry
from icd.app.call import Call
from icd.db.paths import Where
from icd.values.processes import Writer


def test_a_process_that_asks_again_and_again_keeps_nothing_open(initialized: Path) -> None:
    """Whoever followed the log without a daemon kept a descriptor for every look at it."""
    method = registry.find("events.tail")
    where = Where(str(initialized))

    def ask() -> int:
        call = Call(method, method.params(), where, Writer(os.getpid()), time.monotonic() + 30)
        assert answer_here(call, None, {}).error is None
        return len(os.listdir("/proc/self/fd"))

    counts = {ask() for _ in range(5)}

    assert len(counts) == 1
