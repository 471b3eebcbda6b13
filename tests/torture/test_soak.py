"""The soak in its short form, and that it notices what grows."""

from pathlib import Path

import pytest

from tests.torture import soak
from tests.torture.code import broken
from tests.torture.suite import SHORT_SEED, Broken, Run

SECONDS = 3.5


@pytest.mark.long
def test_a_usual_day_leaves_nothing_behind(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"seed {run.seed}")

    soak.run(run)

    assert run.figures["rounds"] > 1


@pytest.mark.long
def test_a_descriptor_left_behind_by_each_connection_is_noticed(tmp_path: Path) -> None:
    admitted = "        self._admitted(connection, pid)\n"
    leak = f"        os.open(os.devnull, os.O_RDONLY)\n{admitted}"
    code = broken(tmp_path, "icd/server/net/listener.py", admitted, leak)

    with pytest.raises(Broken, match="descriptors grew"):
        soak.run(Run(tmp_path, 2.5, 1, code=code))


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([5, 5, 5, 5], 0),
        ([5, 5, 900, 5, 5, 5], 0),
        ([1, 2, 3, 4, 5], 4),
        ([10, 19, 31, 40, 49], 39),
        ([7], 0),
    ],
    ids=["flat", "one slow round", "a line", "nearly a line", "one round"],
)
def test_a_trend_is_what_most_rounds_show(values: list[float], grown: float) -> None:
    assert soak.growth(values) == pytest.approx(grown, abs=1.5)
