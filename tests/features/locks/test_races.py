"""Two implementations hammer one lock, and are killed at random: never two holders.

Each holder appends `enter` and `leave` to a file; the kernel orders what is appended.  A holder that
was killed does not leave: then, and only then, another may enter without that.  Instead of
releasing the lock, some often let its owner die, for all others to break it at once; and some are
stopped for a while, wherever they are.
"""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.lock_crew import KINDS, Crew, check, entered
from tests.support.processes import PATIENCE, icctl, until

pytestmark = pytest.mark.long

SECONDS = 5.0
# Every so often somebody is killed: at random, or whoever holds the lock.
BETWEEN_KILLS = 0.12

CREW = ["library"] * 6 + ["python"] * 6 + ["command"] * 2 + ["hold"] * 2


@pytest.fixture
def env(project: Path) -> dict[str, str]:
    return {"INTERCORE_LOCK_DIR": str(project / "locks"), "HOME": str(project)}


@pytest.mark.parametrize("seed", [1])
def test_a_lock_never_has_two_holders_whoever_is_killed(
    project: Path, env: dict[str, str], seed: int
) -> None:
    chance = random.Random(seed)
    journal = project / "journal"
    crew = Crew(project, env, CREW)
    try:
        until(lambda: journal.exists() and len(entered(journal)) > 20)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends or not check(journal, crew.killed):
            assert time.monotonic() < ends + PATIENCE, "nobody was killed while it held the lock"
            time.sleep(BETWEEN_KILLS)
            crew.kill(chance.randrange(6, 12)) if chance.random() < 0.3 else crew.kill_holder()
            if chance.random() < 0.2:
                crew.kill(chance.randrange(len(CREW)))
            if chance.random() < 0.3:
                crew.stop(chance.randrange(len(CREW)))
        until(lambda: set(KINDS) <= {kind for kind, _ in entered(journal)})
        orphaned = check(journal, crew.killed)  # before all are killed, one after the other
    finally:
        crew.end()

    assert orphaned > 0
    assert crew.gave_up == [], (project / "said").read_text()
    assert Counter(kind for kind, _ in entered(journal)).keys() == KINDS.keys()
    # Everybody is dead, and so is every claim.
    until(lambda: icctl("lock", "acquire", "n", "s", cwd=project, env=env).returncode == 0)


def test_the_checker_notices_two_holders(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("enter a 1\nenter b 2\nleave a 1\nleave b 2\n")

    with pytest.raises(AssertionError, match="line 2: 1 and 2"):
        check(journal, set())
    with pytest.raises(AssertionError, match="line 3: 1 left, 2 is inside"):
        check(journal, {1})
