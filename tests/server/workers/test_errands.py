"""What a daemon does in a caller's place, in steps."""

import asyncio
import math
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from icd.app.invocation import Errand, Need, Output, Served
from icd.features.locks import owners
from icd.features.locks.owners import Pause
from icd.server.workers.errands import Errands, Visit
from tests.support.processes import PATIENCE


def waiting(directory: Path, steps: Generator[Any, Any, Output]) -> Errand:
    served = Served(str(directory), lambda: True, lambda: steps)
    return Errand(lambda _: Output(0), lambda *_: None, "lock.acquire", "icctl", served=served)


@pytest.mark.anyio
async def test_a_caller_that_leaves_during_the_first_step_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "LOOK_AGAIN_SECONDS", math.inf)
    loop, visit, errands = asyncio.get_running_loop(), Visit(), Errands()

    def steps() -> Generator[Pause, None, Output]:
        left = threading.Event()
        loop.call_soon_threadsafe(lambda: (visit.leave(), left.set()))
        assert left.wait(PATIENCE)
        while True:
            yield Pause(loop.time() + 2 * PATIENCE, str(tmp_path), "lock")

    with anyio.fail_after(PATIENCE):
        found = await errands.run(waiting(tmp_path, steps()), visit, ask=None)
    errands.close()

    assert found == Need("local")
