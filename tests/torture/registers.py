"""What was acknowledged, what was refused, and whether the database agrees.

A register is written by one client only, one value after the other; a counter likewise.  Of each
the ledger knows what it may hold: what was acknowledged last, or one of the values whose outcome
nobody knows.  What was refused must not be there; a counter that is too high was counted twice.

While a file is another one, or a damaged one, an acknowledgement is about that file: the ledger
takes it as an unknown outcome.

Where files were damaged while they were in use, an acknowledged write may be lost if it was told: a
call that could have come before every later acknowledgement ended with an error that says so.  A
call that began before the damage was over proves nothing: it may have been executed before.
"""

import threading
import time
from dataclasses import dataclass, field

from tests.support.companions import OF_NOW, TELLING
from tests.torture.suite import Broken

# What a command said with exit status 2, as a sentence, counts: its name is not on stderr.
TOLD = TELLING | {"told"}


@dataclass
class Window:
    """A time in which calls may fail in the ways that are named.

    `may_lose`: files were damaged; `struck` is when each damage was done.
    """

    fault: str
    allowed: frozenset[str]
    is_void: bool
    may_lose: bool = False
    began: float = field(default_factory=time.monotonic)
    ended: float = float("inf")
    struck: list[float] = field(default_factory=list)
    acknowledged: list[tuple[float, float]] = field(default_factory=list)  # from, until
    told: list[tuple[float, float, str]] = field(default_factory=list)

    def was_told(self) -> bool:
        """Whether some damage was told before anything was acknowledged after it."""
        return any(self._was_told(moment) for moment in self.struck)

    def _was_told(self, damaged: float) -> bool:
        """That a file is not there tells nothing about what it lacks when it comes back."""
        first = min((end for since, end in self.acknowledged if since >= damaged), default=None)
        is_last = damaged == self.struck[-1]
        return any(
            end >= damaged and (first is None or since <= first)
            for since, end, name in self.told
            if is_last or name not in OF_NOW
        )


class Ledger:
    """One for all clients of a suite."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: list[Window] = []
        self._registers: dict[str, set[int | None]] = {}
        self._ever: dict[str, set[int | None]] = {}  # whatever a register may have held
        self._counters: dict[str, tuple[int, int]] = {}
        self.attempts = 0
        self.acknowledged = 0
        self.refused = 0
        self.losses = 0  # that were told
        self.problems: list[str] = []

    # --- what is being done to the database ---

    def open(
        self, fault: str, allowed: frozenset[str], *, is_void: bool, may_lose: bool = False
    ) -> Window:
        with self._lock:
            self._windows.append(Window(fault, allowed, is_void, may_lose))
            return self._windows[-1]

    def strike(self) -> None:
        """Files were damaged just now."""
        with self._lock:
            self._windows[-1].struck.append(time.monotonic())

    def close(self, window: Window) -> None:
        with self._lock:
            window.ended = time.monotonic()

    # --- what clients are told ---

    def wrote(self, register: str, value: int, outcome: str, *, since: float) -> None:
        """`outcome`: "" acknowledged, "unknown", or the name of an error."""
        with self._lock:
            known = self._registers.setdefault(register, {None})
            ever = self._ever.setdefault(register, {None})
            if outcome in ("", "unknown"):
                ever.add(value)
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

    def looked(self, outcome: str, *, since: float) -> None:
        """A call that writes nothing."""
        with self._lock:
            if outcome and outcome != "unreachable":
                self._is_sure("a look", outcome, since)

    def _is_sure(self, what: str, outcome: str, since: float) -> bool:
        """Whether it was acknowledged for good; an error that nothing explains is a problem."""
        self.attempts += 1
        now = time.monotonic()
        around = [w for w in self._windows if w.began <= now and w.ended >= since]
        for window in around:
            if outcome in TOLD:
                window.told.append((since, now, outcome))
            elif not outcome:
                window.acknowledged.append((since, now))
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
        is_lost = self._compare(found, self._registers, self._counters)
        if is_lost:
            window = self._windows[-1] if self._windows else None
            if window is None or not window.may_lose:
                raise Broken(is_lost)
            if not window.was_told():
                raise Broken(f"{is_lost}; it was lost by {window.fault!r}, and no call said so")
            self.losses += 1
            made_up = self._compare(
                found, self._ever, {name: (0, high) for name, (_, high) in self._counters.items()}
            )
            if made_up:
                raise Broken(made_up)
        self._registers = {name: {found.get(name)} for name in self._registers}
        self._counters = {name: (found.get(name, 0),) * 2 for name in self._counters}

    @staticmethod
    def _compare(
        found: dict[str, int],
        registers: dict[str, set[int | None]],
        counters: dict[str, tuple[int, int]],
    ) -> str:
        """What does not agree; empty: all of it does."""
        for name, possible in registers.items():
            if found.get(name) not in possible:
                return f"{name} is {found.get(name)}; acknowledged or unknown: {_shown(possible)}"
        for name, (low, high) in counters.items():
            if not low <= found.get(name, 0) <= high:
                return (
                    f"{name} is {found.get(name, 0)}, of {low} acknowledged "
                    f"and {high - low} unknown increments"
                )
        return ""


def _shown(possible: set[int | None]) -> str:
    return ", ".join(sorted(map(str, possible)))
