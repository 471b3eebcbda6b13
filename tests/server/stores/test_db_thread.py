"""Watching a thread at work."""

import logging

import anyio
import anyio.lowlevel
import pytest

from icd.server import limits
from icd.server.stores.db_thread import HangDetector
from tests.support.processes import PATIENCE


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """What was logged, with limits that a test can wait for."""
    monkeypatch.setattr(limits, "GRACE_SECONDS", 0.01)
    monkeypatch.setattr(limits, "HUNG_SECONDS", 0.05)
    monkeypatch.setattr(logging.getLogger("icd"), "propagate", True)
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.anyio
async def test_what_ends_in_time_is_not_mentioned(told) -> None:
    watch = HangDetector("/db", lambda: None)
    with watch:
        assert watch.is_working
        await anyio.lowlevel.checkpoint()

    assert not watch.is_working
    assert watch.hung_since is None
    assert told() == []


@pytest.mark.anyio
async def test_what_hangs_is_mentioned_once_and_once_when_it_is_back(told) -> None:
    checks = []
    watch = HangDetector("/db", lambda: checks.append(watch.hung_since))

    with anyio.fail_after(PATIENCE), watch:
        while len(checks) < 3 or checks[-3] is None:  # noqa: ASYNC110 -- knows no events
            await anyio.sleep(0.005)

    assert watch.hung_since is None
    assert checks[0] is None
    assert told() == ["database hangs", "database responds again"]


@pytest.mark.anyio
async def test_somebody_is_told_to_look_only_while_the_thread_works(told) -> None:
    checks: list[int] = []
    watch = HangDetector("/db", lambda: checks.append(1))
    with watch:
        await anyio.sleep(0.05)
    found = len(checks)

    await anyio.sleep(0.05)

    assert len(checks) - found == 0
