"""The suite for a few seconds, and in code that was broken on purpose."""

from pathlib import Path

import pytest

from tests.torture import linearizability
from tests.torture.clients import NATIVE
from tests.torture.code import Change, broken_by
from tests.torture.suite import SHORT_SEED, Broken, Run

pytestmark = pytest.mark.long

SECONDS = 4
# A broken promise shows within a round or two; on a machine that does little at once, later.
BROKEN_SECONDS = 60

# What is broken, where, and how it read before and reads then; several changes are one mutation.
MUTATIONS = {
    "two write at once, and neither waits": [
        ("icd/db/database.py", '"BEGIN IMMEDIATE" if write else "BEGIN"', '"BEGIN"'),
        ("icd/db/lock.py", "if not self._wait(self._fd, deadline):", "if False:"),
    ],
    "the client executes again what may have been executed": [
        (
            "icctl/client.py",
            "        except Lost:\n            unknown = True\n",
            """        except Lost:
            request.id = posix.urandom(12).hex()
            return request.run_here(limit)
""",
        )
    ],
    "the file of the lock is unlinked": [
        (
            "icd/db/lock.py",
            "            fcntl.flock(self._fd, fcntl.LOCK_UN)\n\n    def close",
            "            os.unlink(self.path)\n            self.close()\n\n    def close",
        )
    ],
    "those without a daemon lock another file": [
        (
            "icd/db/database.py",
            'lock.FileLock(path + ".lock", wait)',
            'lock.FileLock(path + (".lock" if careful else ".mine"), wait)',
        )
    ],
    "a sentinel that grants twice": [
        ("icd/features/sentinels/store.py", "WHERE sentinels.once = 0 AND excluded.interval_ms > 0", "WHERE sentinels.once = 1")
    ],
    "a lease is granted to another before it has ended": [
        (
            "icd/features/leases/store.py",
            "return self.expires_ms > now_ms",
            "return self.expires_ms > now_ms + self.ttl_ms // 2",
        )
    ],
    "whoever takes over a lease gets the token of the holder before": [
        (
            "icd/features/leases/store.py",
            "    (token,) = conn.execute(_NEXT).fetchone()\n",
            """    (token,) = conn.execute(_NEXT).fetchone()
    if before is not None and before.expires_ms:
        token = before.token
""",
        )
    ],
    "those who share are in no exclusive holder's way": [
        (
            "icd/features/coordination/store.py",
            "            exclusive=wish.exclusive,\n            now_ms=_EVER,",
            "            exclusive=False,\n            now_ms=_EVER,",
        )
    ],
    "an issue that is told to come into a lane is left out": [
        (
            "icd/features/lanes/store.py",
            "    came = (Member(lane.id, bead, now, None, now_ms) for bead in added)\n",
            "    came = (Member(lane.id, bead, now, None, now_ms) for bead in added[1:])\n",
        )
    ],
    "an action that is told to be deleted and stays": [
        (
            "icd/features/runs/actions.py",
            "    if not conn.execute(_DELETE, (run_id, phase, command)).rowcount:\n",
            "    if not conn.execute(_FIND, (run_id, phase, command)).fetchone():\n",
        )
    ],
    "a release that is told and not made": [
        (
            "icd/features/coordination/store.py",
            "    conn.execute(_DELETE, (lock.id,))\n",
            "    if lock.exclusive:\n        conn.execute(_DELETE, (lock.id,))\n",
        )
    ],
}  # fmt: skip


def test_everything_that_clients_were_told_can_be_explained(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"seed {run.seed}")

    linearizability.run(run)

    assert run.figures["operations of programs with sockets"] > 0
    assert run.figures["operations of the Python client"] > 0
    assert run.figures["operations of the native client"] > 0 or not NATIVE.exists()


@pytest.mark.parametrize("changes", MUTATIONS.values(), ids=MUTATIONS)
def test_it_is_noticed_if(changes: list[Change], tmp_path: Path) -> None:
    code = broken_by(tmp_path, *changes)
    run = Run(tmp_path / "tried", BROKEN_SECONDS, SHORT_SEED, code)
    print(f"seed {run.seed}")

    with pytest.raises(Broken) as found:
        linearizability.run(run)
    print(found.value)
