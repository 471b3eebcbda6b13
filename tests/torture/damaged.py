"""Damage to a database's files under load: chosen, combined and ordered by chance.

Those who remove or move files do not ask for the lock.  What changes a file in place is done between
two transactions: nobody can tell a log that was cut from one that is being written at that moment.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.support.companions import INDEX, LOCK, LOG, MAIN, Files

if TYPE_CHECKING:
    from tests.torture.faults import Stage

# By name, what is done to some files; the first ones without the lock.
AT_ANY_TIME: dict[str, Callable[..., None]] = {
    "remove": Files.remove,
    "replace by a copy": Files.replace_by_a_copy,
    "replace by an old copy": Files.replace_by_an_old_copy,
    "move away": Files.move_away,
}
IN_PLACE: dict[str, Callable[..., None]] = {
    "empty": Files.empty,
    "halve": Files.halve,
    "overwrite with an old copy": Files.overwrite_with_an_old_copy,
}
WAYS = AT_ANY_TIME | IN_PLACE
COMPANIONS = (LOG, INDEX, LOCK)
MOST = 3  # acts of one fault


@contextmanager
def companions(stage: "Stage") -> Iterator[None]:
    """One to three of them, each to some of the companions; nothing is put back by us."""
    rng, files = stage.run.rng, stage.files
    files.keep()
    stage.last()
    for _ in range(rng.randint(1, MOST)):
        way = rng.choice(sorted(WAYS))
        ends = rng.sample(COMPANIONS, rng.randint(1, len(COMPANIONS)))
        if way in IN_PLACE:
            with _locked(files):
                WAYS[way](files, *(end for end in ends if end != LOCK))
        else:
            WAYS[way](files, *ends)
        stage.ledger.strike()
        stage.run.figures[f"companions: {way}"] += 1
        stage.last()
    yield


@contextmanager
def moved(stage: "Stage") -> Iterator[None]:
    """Some of all files, one by one, and back in another order."""
    rng, files = stage.run.rng, stage.files
    ends = rng.sample((MAIN, *COMPANIONS), rng.randint(1, 4))
    stage.last()
    for end in ends:
        files.move_away(end)
    stage.ledger.strike()
    try:
        stage.last()
        yield
    finally:
        for end in rng.sample(ends, len(ends)):
            files.move_back(end)
        stage.ledger.strike()
    stage.last()


@contextmanager
def directory_moved(stage: "Stage") -> Iterator[None]:
    stage.last()
    stage.files.move_directory_away()
    stage.ledger.strike()
    try:
        yield
    finally:
        stage.files.move_directory_back()
        stage.ledger.strike()
    stage.last()


@contextmanager
def cleaned(stage: "Stage") -> Iterator[None]:
    stage.last()
    stage.files.git_clean()
    stage.ledger.strike()
    yield


@contextmanager
def _locked(files: Files) -> Iterator[None]:
    with files.path(LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
