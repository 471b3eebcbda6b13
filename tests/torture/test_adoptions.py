"""What the suite `crash` does with databases of the original, and that it notices a loss."""

import random
from pathlib import Path

import pytest

from tests.torture.adoptions import Adoptions
from tests.torture.code import Code, broken
from tests.torture.suite import SHORT_SEED, Broken

pytestmark = pytest.mark.long

ATTEMPTS = 4
# A broken one shows in every second or third; on a busy machine more often.
BROKEN_ATTEMPTS = 40


def test_whoever_is_killed_over_an_adoption_leaves_the_original_or_ours(tmp_path: Path) -> None:
    rng = random.Random(SHORT_SEED)
    adoptions = Adoptions(tmp_path / "tried", Code())

    killed = [adoptions.attempt(rng) for _ in range(ATTEMPTS)]

    assert any(killed)


def test_an_original_that_is_out_of_its_place_meanwhile_is_noticed(tmp_path: Path) -> None:
    build = (
        "            taken, left = _build(\n                old, fresh, path, bring,"
        " now_ms=now_ms, deadline=deadline, tell=tell\n            )\n"
    )
    away = '            os.rename(path, path + ".away")\n'
    back = '            os.rename(path + ".away", path)\n'
    code = broken(tmp_path, "icd/db/original/adopt.py", build, away + build + back)
    rng = random.Random(SHORT_SEED)
    adoptions = Adoptions(tmp_path / "tried", code)

    with pytest.raises(Broken, match="is gone"):
        for _ in range(BROKEN_ATTEMPTS):
            adoptions.attempt(rng)
