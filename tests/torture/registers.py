"""What was acknowledged, what was refused, and whether the database agrees.

A register is written by one client only, one value after the other; a counter likewise.  Of each
the ledger knows what it may hold: what was acknowledged last, or one of the values whose outcome
nobody knows.  What was refused must not be there; a counter that is too high was counted twice.

While a file is another one, or a damaged one, an acknowledgement is about that file: the ledger
takes it as an unknown outcome.
"""

import threading
import time
from dataclasses import dataclass, field

from tests.torture.suite import Broken


@dataclass
class Window:
    """A time in which calls may fail in the ways that are named."""

    fault: str
    allowed: frozenset[str]
    is_void: bool
    began: float = field(default_factory=time.monotonic)
    ended: float = float("inf")


class Ledger:
    """One for all clients of a suite."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: list[Window] = []
        self._registers: dict[str, set[int | None]] = {}
        self._counters: dict[str, tuple[int, int]] = {}
        self.attempts = 0
        self.acknowledged = 0
        self.refused = 0
        self.problems: list[str] = []

    # --- what is being done to the database ---

    def open(self, fault: str, allowed: frozenset[str], *, is_void: bool) -> Window:
        with self._lock:
            self._windows.append(Window(fault, allowed, is_void))
            return self._windows[-1]

    def close(self, window: Window) -> None:
        with self._lock:
            window.ended = time.monotonic()

    # --- what clients are told ---

    def wrote(self, register: str, value: int, outcome: str, *, since: float) -> None:
        """`outcome`: "" acknowledged, "unknown", or the name of an error."""
        with self._lock:
            known = self._registers.setdefault(register, {None})
            if self._is_sure(f"{register} = {value}", outcome, since):
                self._registers[register] = {value}
            elif outcome in ("", "unknown"):
                known.add(value)

    def counted(self, counter: str, outcome: str, *, since: float) -> None:
        with self._lock:
            low, high = self._counters.get(counter, (0, 0))
            if self._is_sure(f"{counter} + 1", outcome, since):
                low, high = low + 1, high + 1
            elif outcome in ("", "unknown"):
                high += 1
            self._counters[counter] = low, high

    def _is_sure(self, what: str, outcome: str, since: float) -> bool:
        """Whether it was acknowledged for good; an error that nothing explains is a problem."""
        self.attempts += 1
        now = time.monotonic()
        around = [w for w in self._windows if w.began <= now and w.ended >= since]
        if outcome:
            self.refused += 1
            allowed = frozenset[str]().union(*(window.allowed for window in around))
            if outcome not in allowed:
                during = ", ".join(window.fault for window in around) or "no fault"
                self.problems.append(f"{what} failed with {outcome!r} during {during}")
            return False
        self.acknowledged += 1
        return not any(window.is_void for window in around)

    # --- what the database says ---

    def compare(self, found: dict[str, int]) -> None:
        """With what all registers and counters hold, while nobody writes."""
        if self.problems:
            raise Broken("; ".join(self.problems[:5]))
        for name, possible in self._registers.items():
            if found.get(name) not in possible:
                raise Broken(
                    f"{name} is {found.get(name)}; acknowledged or unknown: {_shown(possible)}"
                )
        for name, (low, high) in self._counters.items():
            if not low <= found.get(name, 0) <= high:
                raise Broken(
                    f"{name} is {found.get(name, 0)}, of {low} acknowledged "
                    f"and {high - low} unknown increments"
                )
        self._registers = {name: {found.get(name)} for name in self._registers}
        self._counters = {name: (found.get(name, 0),) * 2 for name in self._counters}


def _shown(possible: set[int | None]) -> str:
    return ", ".join(sorted(map(str, possible)))
