"""The history of what was measured beside a release."""

import csv
import subprocess
from pathlib import Path

import pytest

from icd import __version__
from tests.bench import release
from tests.bench.table import Table


def test_what_was_measured_is_added_to_the_history(tmp_path: Path) -> None:
    history = tmp_path / "history.csv"
    table = Table()
    table.section("Another", "")
    table.ratio("a / b", 9, 2, unit="ms")
    table.section(release.TITLE, "")
    table.ratio("state get / 0.4.0", [1.5, 1.0, 2.0], [3.0, 3.0, 3.0], unit="ms", most=1.05)
    table.note("a note", "is not a ratio")

    for date in ("2026-01-31", "2026-02-01"):
        release.record(table.rows, history, date)

    first, second = csv.DictReader(history.read_text().splitlines())
    assert first == {
        "date": "2026-01-31", "version": __version__, "against": "0.4.0", "what": "state get",
        "ratio": "0.5", "p50 ms": "1.5",
    }  # fmt: skip
    assert second == {**first, "date": "2026-02-01"}


@pytest.mark.parametrize("status", [2, 3, 127])
def test_what_one_side_does_not_answer_is_not_compared(status: int) -> None:
    release.require_alike(["icctl", "state", "get"], {Path("ours"): 0, Path("theirs"): 1})

    with pytest.raises(RuntimeError, match="events tail: not answered"):
        release.require_alike(["events", "tail"], {Path("ours"): 0, Path("theirs"): status})


@pytest.mark.long
def test_the_kept_release_is_one_that_can_be_installed(tmp_path: Path) -> None:
    programs = release.install(tmp_path / "release", release.LAST)

    for program in ("icd", "icctl", "icctl-python"):
        done = subprocess.run(
            [programs / program, "--version" if program == "icd" else "version"],
            cwd=tmp_path, env={"HOME": str(tmp_path), "INTERCORE_MODE": "direct", "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert release.LAST in done.stdout, done
