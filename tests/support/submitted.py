"""Discoveries for tests, submitted as scanners would."""

import struct

from icd import config
from icd.features.discoveries import lifecycle
from icd.features.discoveries import store as discoveries
from icd.features.discoveries.lifecycle import Submission
from icd.features.discoveries.store import Told
from icd.values.processes import Writer

NOW_MS = 1_800_000_000_000
DAY_MS = 24 * 3600 * 1000


def told(now_ms=NOW_MS):
    return Told(Writer(41, "session-a"), now_ms)


def vector(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def verdict(conn, source_id="1", *, score=0.7, now_ms=NOW_MS, threshold=0.0, among=None, **given):
    given = {"source": "exa", "title": "A title", **given}
    return lifecycle.submit(
        conn,
        Submission(source_id=source_id, relevance=discoveries.millionths(score), **given),
        threshold=threshold,
        among=among,
        settings=config.DEFAULTS,
        told=told(now_ms),
    )


def submit(conn, source_id="1", **given):
    """The id of a new discovery."""
    found = verdict(conn, source_id, **given)
    assert found.verdict == "new"
    return found.id
