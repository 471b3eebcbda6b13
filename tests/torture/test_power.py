"""The suite `power` in its short form, and that it notices what it is there to notice."""

from pathlib import Path

import pytest

from tests.torture import power
from tests.torture.code import Code, broken
from tests.torture.suite import SHORT_SEED, Broken, Run

pytestmark = pytest.mark.long

SYNCHRONOUS = 'conn.execute(f"PRAGMA synchronous = {settings.durability.upper()}")'


def test_a_log_that_is_cut_anywhere_opens_to_a_prefix(tmp_path: Path) -> None:
    run = _run(tmp_path)

    power.cut_log(run, tmp_path / "cut")

    assert run.figures["cuts"] > power.RANDOM_CUTS


@pytest.mark.parametrize("durability", ["normal", "full"])
def test_whatever_was_not_synced_may_be_lost(tmp_path: Path, durability: str) -> None:
    run = _run(tmp_path)

    power.lose_power(run, tmp_path / "project", _recorder(tmp_path), durability)

    assert run.figures["power losses"] > power.BURSTS


def test_full_durability_that_is_none_is_noticed(tmp_path: Path) -> None:
    none = 'conn.execute("PRAGMA synchronous = NORMAL")'
    code = broken(tmp_path, "icd/db/connection.py", SYNCHRONOUS, none)

    with pytest.raises(Broken, match="not synced when"):
        power.lose_power(_run(tmp_path, code), tmp_path / "project", _recorder(tmp_path), "full")


def _run(tmp_path: Path, code: Code | None = None) -> Run:
    seed = SHORT_SEED
    print(f"seed {seed}; again with: make torture SUITES=power SEED={seed} SECONDS=1")
    return Run(tmp_path, 60, seed, code or Code())


def _recorder(tmp_path: Path) -> Path:
    library = power.compiled(tmp_path)
    if library is None:
        pytest.skip("no C compiler: what a daemon syncs cannot be recorded")
    return library
