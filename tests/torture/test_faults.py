"""The suite of faults in its short form, and that it notices a broken promise."""

from pathlib import Path

import pytest

from tests.torture import faults
from tests.torture.code import broken
from tests.torture.registers import Ledger
from tests.torture.suite import SHORT_SEED, Broken, Run

SECONDS = 8
NOW = 0.0  # every window is later


@pytest.mark.long
def test_what_was_acknowledged_survives_every_fault(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"seed {run.seed}")

    faults.run(run)

    assert run.figures["acknowledged writes"] > 0


DAMAGES = tuple(name for name, fault in sorted(faults.FAULTS.items()) if fault.may_lose)


@pytest.mark.long
def test_what_was_acknowledged_survives_damage_to_files_or_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)

    faults.run(run, only=DAMAGES)

    assert run.figures["acknowledged writes"] > 0


@pytest.mark.long
def test_a_commit_that_failed_and_is_acknowledged_is_noticed(tmp_path: Path) -> None:
    commit = "answer = self._run(call)\n            self._commit()\n"
    careless = (
        "answer = self._run(call)\n"
        "            try:\n"
        "                self._commit()\n"
        "            except sqlite3.Error:\n"
        "                self._roll_back()\n"
    )
    code = broken(tmp_path, "icd/app/dispatch.py", commit, careless)

    with pytest.raises(Broken, match=r"acknowledged|unknown increments"):
        faults.run(Run(tmp_path, 60, 1, code=code), only=("disk full", "disk failing"))


@pytest.mark.long
def test_companions_that_are_not_compared_are_noticed(tmp_path: Path) -> None:
    compared = "        if not self._is_untouched(companions):\n"
    code = broken(tmp_path, "icd/db/database.py", compared, "        if not companions.path:\n")

    with pytest.raises(Broken, match=r"no call said so|were removed while"):
        faults.run(Run(tmp_path, 60, 1, code=code), only=("cleaned by git", "companions damaged"))


@pytest.fixture
def ledger() -> Ledger:
    """One write was acknowledged, and one increment."""
    found = Ledger()
    found.wrote("r", 1, "", since=NOW)
    found.counted("n", "", since=NOW)
    return found


def test_what_is_as_it_was_told_is_sound(ledger: Ledger) -> None:
    ledger.compare({"r": 1, "n": 1})


@pytest.mark.parametrize("found", [{"n": 1}, {"r": 1}, {"r": 2, "n": 1}, {"r": 1, "n": 2}])
def test_what_is_lost_wrong_or_done_twice_is_noticed(ledger: Ledger, found: dict[str, int]) -> None:
    with pytest.raises(Broken):
        ledger.compare(found)


@pytest.mark.parametrize("outcome", ["", "unknown", "disk_full"])
def test_an_unknown_outcome_may_be_either_and_a_refused_write_is_not_there(
    ledger: Ledger, outcome: str
) -> None:
    window = ledger.open("a fault", frozenset({"unknown", "disk_full"}), is_void=False)
    ledger.wrote("r", 2, outcome, since=window.began)
    ledger.close(window)
    possible = {"": {2}, "unknown": {1, 2}, "disk_full": {1}}[outcome]

    for value in (1, 2):
        if value in possible:
            continue
        with pytest.raises(Broken):
            ledger.compare({"r": value, "n": 1})

    ledger.compare({"r": max(possible), "n": 1})


def test_what_a_file_was_told_that_is_gone_may_be_gone(ledger: Ledger) -> None:
    window = ledger.open("replaced", frozenset(), is_void=True)
    ledger.wrote("r", 2, "", since=window.began)
    ledger.close(window)

    ledger.compare({"r": 1, "n": 1})


@pytest.mark.parametrize("outcome", ["disk_full", "unknown", "internal"])
def test_an_error_that_no_fault_explains_is_noticed(ledger: Ledger, outcome: str) -> None:
    window = ledger.open("a fault", frozenset({outcome}), is_void=False)
    ledger.close(window)
    ledger.wrote("r", 2, outcome, since=window.ended + 1)

    with pytest.raises(Broken, match="during no fault"):
        ledger.compare({"r": 1, "n": 1})


# --- files that were damaged ---


def lost(ledger: Ledger, *calls: tuple[str, float, float]) -> None:
    """The register is as it was never written; `calls`: outcome, begun and ended, after the damage."""
    window = ledger.open("a damage", frozenset({"log_lost"}), is_void=False, may_lose=True)
    window.struck.append(window.began + 10)
    for outcome, since, until in calls:
        times = (window.began + since, window.began + until)
        if outcome:
            window.told.append((*times, outcome))
        else:
            window.acknowledged.append(times)
    ledger.close(window)
    ledger.compare({"n": 1})


def test_a_loss_may_be_told_by_the_first_call_after_the_damage(ledger: Ledger) -> None:
    lost(ledger, ("", 1, 9), ("log_lost", 11, 12), ("", 13, 14))

    assert ledger.losses == 1


def test_a_call_that_was_under_way_during_the_damage_proves_nothing(ledger: Ledger) -> None:
    lost(ledger, ("", 9, 12), ("log_lost", 13, 14))


def test_of_two_calls_at_once_the_refused_one_may_have_been_the_first(ledger: Ledger) -> None:
    lost(ledger, ("", 11, 15), ("log_lost", 12, 16))


@pytest.mark.parametrize(
    "calls",
    [
        (),
        (("", 11, 12),),
        (("", 11, 12), ("log_lost", 13, 14)),
        (("log_lost", 1, 9), ("", 11, 12)),
    ],
)
def test_a_loss_that_is_told_never_or_too_late_is_noticed(
    ledger: Ledger, calls: tuple[tuple[str, float, float], ...]
) -> None:
    with pytest.raises(Broken, match="no call said so"):
        lost(ledger, *calls)


def test_a_file_that_was_away_tells_nothing_about_what_it_lacks(ledger: Ledger) -> None:
    window = ledger.open("moved", frozenset({"no_database"}), is_void=False, may_lose=True)
    window.struck += [window.began, window.began + 10]
    window.told.append((window.began + 1, window.began + 2, "no_database"))
    window.acknowledged.append((window.began + 11, window.began + 12))

    with pytest.raises(Broken, match="no call said so"):
        ledger.compare({"n": 1})


def test_a_value_that_was_never_written_is_noticed_even_if_a_loss_was_told(ledger: Ledger) -> None:
    window = ledger.open("a damage", frozenset({"log_lost"}), is_void=False, may_lose=True)
    window.struck.append(window.began)
    window.told.append((window.began + 1, window.began + 2, "log_lost"))

    with pytest.raises(Broken, match="acknowledged or unknown"):
        ledger.compare({"r": 7, "n": 1})
