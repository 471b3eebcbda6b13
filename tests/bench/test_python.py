"""The short form of the suite `python`."""

from pathlib import Path
from statistics import median

import pytest

from tests.bench.python import one_by_one
from tests.support.processes import Daemon


@pytest.mark.long
def test_a_call_of_the_client_is_at_most_three_bare_round_trips(
    initialized: Path, daemon: Daemon
) -> None:
    ours, bare, _ = one_by_one(initialized, daemon.socket, daemon.socket, calls=500)

    assert median(ours) <= 3 * median(bare)
