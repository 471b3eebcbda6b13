"""The suite of intruders in its short form, and that it notices a door left open."""

import os
from pathlib import Path

import pytest

from tests.torture import intruders
from tests.torture.code import broken
from tests.torture.suite import SHORT_SEED, Broken, Run

pytestmark = pytest.mark.long


def test_whoever_should_not_get_in_does_not(tmp_path: Path) -> None:
    run = Run(tmp_path, 0, SHORT_SEED)
    print(f"seed {run.seed}")

    intruders.attempts(run)

    if os.geteuid() != 0:
        pytest.skip("one attempt was left out: only root can become another user")


def test_a_daemon_that_lets_everybody_in_is_noticed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    code = broken(tmp_path, "icd/server/net/listener.py", "if uid != os.geteuid():", "if uid < 0:")

    with pytest.raises(Broken, match="another user was answered"):
        intruders.attempts(Run(tmp_path, 0, 1, code=code), only=("another user at the socket",))
