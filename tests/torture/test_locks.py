"""The suite for a few seconds, with fewer processes, and in code that was broken on purpose."""

from pathlib import Path

import pytest

from tests.torture import locks
from tests.torture.code import Change, broken_by
from tests.torture.suite import SHORT_SEED, Broken, Run

SECONDS = 5
BROKEN_SECONDS = 30
MEMBERS = 20

MUTATIONS: dict[str, list[Change]] = {
    "the daemon takes the lock of another caller for its own": [
        (
            "icd/features/locks/store.py",
            "lock.owner is not None and lock.owner.request == request\n",
            "lock.owner is not None and bool(lock.owner.request)\n",
        )
    ],
    "a lock is broken although its owner is alive": [
        (
            "icd/features/locks/store.py",
            '    return lock.liveness == "dead"\n',
            "    return lock.owner is not None\n",
        )
    ],
}


@pytest.mark.long
def test_a_lock_never_has_two_holders_with_a_daemon_that_comes_and_goes(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"seed {run.seed}")

    locks.run(run, MEMBERS)

    assert run.figures["entered"] > MEMBERS


@pytest.mark.long
@pytest.mark.parametrize("changes", MUTATIONS.values(), ids=MUTATIONS)
def test_it_is_noticed_if(changes: list[Change], tmp_path: Path) -> None:
    code = broken_by(tmp_path, *changes)
    run = Run(tmp_path / "tried", BROKEN_SECONDS, SHORT_SEED, code)
    print(f"seed {run.seed}")

    with pytest.raises(Broken) as found:
        locks.run(run, MEMBERS)
    print(found.value)
