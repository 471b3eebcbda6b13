"""Looking for databases: bounded, whatever hangs."""

import os
import threading
import time
from pathlib import Path

import anyio
import pytest

from icd import config
from icd.db.paths import Where
from icd.errors import DeadlineExceeded, NoDatabase, Overloaded
from icd.server import limits
from icd.server.stores.resolver import Resolver
from tests.support.processes import PATIENCE


class Gate:
    """Settings that cannot be read before somebody says so."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.open = threading.Event()
        self.readers = 0

    def read(self, _path: str) -> config.Settings:
        self.readers += 1
        self.reached.release()
        self.open.wait(60)
        return config.DEFAULTS


def where(project: Path) -> Where:
    return Where(str(project), None)


def soon() -> float:
    return time.monotonic() + 0.1


def late() -> float:
    return time.monotonic() + PATIENCE


@pytest.mark.anyio
async def test_what_is_found_comes_with_its_settings(initialized: Path) -> None:
    lookups = Resolver(lambda _path: config.Settings(idle_seconds=7))

    path, settings = await lookups.find(where(initialized), create=False, deadline=late())

    assert path == os.path.realpath(initialized / ".clavain" / "intercore.db")  # noqa: ASYNC240
    assert settings.idle_seconds == 7


@pytest.mark.anyio
async def test_what_goes_wrong_is_told_to_whoever_asked(project: Path) -> None:
    lookups = Resolver(lambda _path: config.DEFAULTS)

    with pytest.raises(NoDatabase):
        await lookups.find(where(project), create=False, deadline=late())


@pytest.mark.anyio
async def test_a_place_that_hangs_takes_a_few_threads_and_every_caller_leaves_in_time(
    initialized: Path,
) -> None:
    gate = Gate()
    lookups = Resolver(gate.read)
    refused = 0

    for _ in range(3 * limits.LOOKUPS_AT_ONCE):
        try:
            await lookups.find(where(initialized), create=False, deadline=soon())
        except DeadlineExceeded:
            refused += 1
    assert gate.readers == limits.LOOKUPS_AT_ONCE
    gate.open.set()
    await lookups.find(where(initialized), create=False, deadline=late())
    with anyio.fail_after(PATIENCE):  # the threads that hung come back when they come back
        while lookups._places:  # noqa: ASYNC110 -- nobody tells us
            await anyio.sleep(0.005)

    assert lookups._threads == 0
    assert refused == 3 * limits.LOOKUPS_AT_ONCE


@pytest.mark.anyio
async def test_all_places_together_are_bounded(
    initialized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    monkeypatch.setattr(limits, "LOOKUPS", 1)
    lookups = Resolver(gate.read)

    with pytest.raises(DeadlineExceeded):
        await lookups.find(where(initialized), create=False, deadline=soon())
    with pytest.raises(Overloaded):
        await lookups.find(where(tmp_path), create=False, deadline=soon())
    gate.open.set()
