"""What a suite of `make torture` is given, and how it says what it found.

A suite is a function of a `Run`: it tries to break one promise until its time is over, counts what
it did, and raises `Broken` when the promise did not hold.  Whatever it does by chance, it does with
`run.rng`, so that the same seed tries the same things again.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.torture.code import Code

# Of the short forms: whether a change lands must not depend on what is tried by chance that day.
# Whoever looks for something new runs `make torture`, whose seed is another one every time.
SHORT_SEED = 2026


class Broken(AssertionError):
    """A promise did not hold; the text says what was seen."""


@dataclass
class Run:
    """`directory` is the suite's own; `figures` is what it did."""

    directory: Path
    seconds: float
    seed: int
    code: Code = field(default_factory=Code)
    figures: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._ends_at: float | None = None

    @property
    def is_over(self) -> bool:
        """Never when it is asked for the first time: getting ready does not count."""
        if self._ends_at is None:
            self._ends_at = time.monotonic() + self.seconds
        return time.monotonic() >= self._ends_at


class Suite(NamedTuple):
    """`share` is its part of the time, of all shares together."""

    name: str
    run: Callable[[Run], None]
    share: float = 1.0
