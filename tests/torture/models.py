"""How each noun behaves when it is asked one thing at a time: the documentation, as functions.

A call is a tuple that starts with a word of ours; `histories.py` knows the command line of each.
An operation with an unknown outcome (its answer is None) does what it would have done in that
state.  Versions and tokens that nobody was told stand as None, with the largest that was told
before: the next one that is told must be above it.
"""

import math
from typing import Any, NamedTuple

from tests.torture.checker import Operation
from tests.torture.clocks import CLOCK_SECONDS


class Register:
    """set, get, delete; the state is the value."""

    start: Any = "absent"

    def step(self, state: Any, operation: Operation) -> Any:
        verb, *given = operation.call
        if verb == "set":
            return given[0]
        expected = state if verb == "get" else state != "absent"
        if operation.answer is not None and operation.answer != expected:
            return None
        return "absent" if verb == "delete" else state


class Row(NamedTuple):
    """`version` is None if nobody was told; then it is above `floor`.  0: there is no row."""

    value: Any
    version: int | None
    floor: int


class Versions:
    """set, get and delete with versions: of all who replace a version, one does."""

    start = Row(None, 0, 0)

    def step(self, state: Row, operation: Operation) -> Row | None:
        return getattr(self, f"_{operation.call[0]}")(state, *operation.call[1:], operation.answer)

    def _get(self, state: Row, answer: tuple[Any, int] | None) -> Row | None:
        if answer is None:
            return state
        value, version = answer
        seen = _seen(state.version, state.floor, version)
        return (
            Row(value, version, max(version, state.floor))
            if seen and value == state.value
            else None
        )

    def _swap(self, state: Row, expected: int, value: Any, answer: int | None) -> Row | None:
        """The answer is the new version, or 0 for a refusal."""
        may = _seen(state.version, state.floor, expected)
        if answer is None:
            return self._written(state, value, None) if may else state
        if answer == 0:
            return None if may and state.version is not None else state
        return self._written(state, value, answer) if may else None

    def _set(self, state: Row, value: Any, answer: int | None) -> Row | None:
        return self._written(state, value, answer)

    def _delete(self, state: Row, answer: bool | None) -> Row | None:
        if answer is not None and answer != (state.version != 0):
            return None
        return Row(None, 0, state.floor)

    def _written(self, state: Row, value: Any, version: int | None) -> Row | None:
        if version is None:
            return Row(value, None, state.floor)
        return Row(value, version, version) if version > state.floor else None


def _seen(number: int | None, floor: int, told: int) -> bool:
    """Whether what was told may be the number."""
    return told > floor if number is None else told == number


class Counter:
    """incr and get; the state is the number."""

    start = 0

    def step(self, state: int, operation: Operation) -> int | None:
        after = state + 1 if operation.call[0] == "incr" else state
        return after if operation.answer in (None, after) else None


class Once:
    """check with interval 0, and reset; the state is whether it was claimed."""

    start = False

    def step(self, state: bool, operation: Operation) -> bool | None:
        verb = operation.call[0]
        expected = not state if verb == "check" else state
        return verb == "check" if operation.answer in (None, expected) else None


class Window(NamedTuple):
    """Within which the last claim was made, on the clock of the history."""

    earliest: float
    latest: float


class Throttle:
    """check with an interval: two claims are never closer to each other than that."""

    start = Window(float("-inf"), float("-inf"))

    def __init__(self, interval: float) -> None:
        self._interval = interval

    def step(self, state: Window, operation: Operation) -> Window | None:
        earliest = max(operation.invoked, state.earliest + self._interval - CLOCK_SECONDS)
        may_be_granted = earliest <= operation.returned
        if operation.answer is None:
            return Window(earliest, operation.returned) if may_be_granted else state
        if operation.answer:
            return Window(earliest, operation.returned) if may_be_granted else None
        still_throttles = state.latest + self._interval + CLOCK_SECONDS > operation.invoked
        return state if still_throttles else None


class Held(NamedTuple):
    """`owner` is None if it is free; `token` as a Row's version.

    Nothing more happens before `now`, and the lease ends within the window, on the clock of the
    history; both are wide enough for whatever can have happened.
    """

    owner: str | None
    token: int | None
    floor: int
    now: float
    ends: Window


class Lease:
    """acquire, renew and release of leases that last for `ttl` seconds; the caller is the owner.

    The answer is the token, 0 for a refusal; of release "released", "not held", or 0.

    When an operation took effect is known to lie between its question and its answer, and not
    before that of the operation before it.  So a lease ends at the earliest `ttl` after the first
    of these moments, and at the latest `ttl` after the last; in between it may be held or free,
    whatever explains the answer.  Whoever is stopped for a while only makes windows wider.
    """

    start = Held(None, 0, 0, float("-inf"), Window(float("-inf"), float("-inf")))

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl

    def step(self, state: Held, operation: Operation) -> Held | None:
        verb, owner, *_ = operation.call
        state = state._replace(now=max(state.now, operation.invoked))
        if state.now > operation.returned:
            return None
        held, free = _if_held(state), _if_free(state, operation)
        mine = held if held and held.owner == owner else None
        others = held if held and held.owner != owner else None
        if operation.answer is None:
            return self._unheard(verb, owner, mine, free)
        if verb == "acquire":
            return self._acquire(mine, others, free, operation)
        if verb == "renew":
            return self._renew(mine, others, free, operation)
        return {"released": mine and _ended(mine), "not held": free, 0: others}[operation.answer]

    def _acquire(
        self, mine: Held | None, others: Held | None, free: Held | None, operation: Operation
    ) -> Held | None:
        if not operation.answer:
            return others
        # A token that nobody was told is that of the last claim, or of one that was made just now.
        if mine and mine.token in (None, operation.answer):
            return self._granted(mine, operation)
        return self._granted(free, operation) if free else None

    def _renew(
        self, mine: Held | None, others: Held | None, free: Held | None, operation: Operation
    ) -> Held | None:
        if operation.answer:
            return self._granted(mine, operation) if mine else None
        return others or free

    def _granted(self, state: Held, operation: Operation) -> Held | None:
        _, owner, *_ = operation.call
        token = operation.answer
        if not _seen(state.token if state.owner else None, state.floor, token):
            return None
        ends = Window(state.now + self._ttl, operation.returned + self._ttl)
        return Held(owner, token, max(token, state.floor), state.now, ends)

    def _unheard(self, verb: str, owner: str, mine: Held | None, free: Held | None) -> Held | None:
        """It took effect, at any time; one that changed nothing need not be explained at all."""
        if verb == "release":
            return mine and _ended(mine)
        state = mine or (free if verb == "acquire" else None)
        if state is None:
            return None
        token, floor = state.token if mine else None, state.floor
        if mine and free and verb == "acquire" and token is not None:
            token, floor = None, token - 1  # still the same, or another one
        ends = Window(state.now + self._ttl, math.inf)
        return Held(owner, token, floor, state.now, ends)


def _if_held(state: Held) -> Held | None:
    """As it is if nobody's time is over; None if that cannot be."""
    is_held = state.owner is not None and state.ends.latest + CLOCK_SECONDS > state.now
    return state if is_held else None


def _if_free(state: Held, operation: Operation) -> Held | None:
    """As it is if nobody holds the lease; None if that cannot be."""
    if state.owner is None:
        return state
    now = max(state.now, state.ends.earliest - CLOCK_SECONDS)
    return _ended(state)._replace(now=now) if now <= operation.returned else None


def _ended(state: Held) -> Held:
    return Held(None, 0, state.floor, state.now, Lease.start.ends)


# Which of these patterns have a path in common, written down by hand.
MEETING = {
    "a/b": {"a/b", "a/*", "*/b", "**"},
    "a/*": {"a/b", "a/*", "*/b", "**"},
    "*/b": {"a/b", "a/*", "*/b", "c/b", "**"},
    "c/b": {"*/b", "c/b", "**"},
    "**": {"a/b", "a/*", "*/b", "c/b", "**"},
}


class Reservations:
    """reserve, release and holders of patterns; the state is who holds what, and whether alone."""

    start: frozenset[tuple[str, str, bool]] = frozenset()

    def step(self, state: Any, operation: Operation) -> Any:
        verb, *given = operation.call
        answer, after = getattr(self, f"_{verb}")(state, *given)
        return after if operation.answer in (None, answer) else None

    def _reserve(self, state: Any, owner: str, pattern: str, exclusive: bool) -> tuple[bool, Any]:
        is_free = not any(
            held != owner and other in MEETING[pattern] and (exclusive or alone)
            for held, other, alone in state
        )
        return is_free, state | {(owner, pattern, exclusive)} if is_free else state

    def _release(self, state: Any, owner: str, pattern: str) -> tuple[int, Any]:
        gone = {each for each in state if each[:2] == (owner, pattern)}
        return len(gone), state - gone

    def _holders(self, state: Any, pattern: str) -> tuple[tuple[str, ...], Any]:
        owners = {owner for owner, other, _ in state if other in MEETING[pattern]}
        return tuple(sorted(owners)), state


class Members:
    """sync and members of a lane; the state is what is in it."""

    start: frozenset[str] = frozenset()

    def step(self, state: frozenset[str], operation: Operation) -> frozenset[str] | None:
        verb, *given = operation.call
        after = frozenset(given) if verb == "sync" else state
        told = (sorted(after - state), sorted(state - after)) if verb == "sync" else sorted(state)
        return after if operation.answer in (None, told) else None


class Actions:
    """add, delete and list of the actions of one phase; the state is their commands, in order."""

    start: tuple[str, ...] = ()

    def step(self, state: tuple[str, ...], operation: Operation) -> tuple[str, ...] | None:
        verb, *given = operation.call
        if verb == "list":
            return state if operation.answer in (None, list(state)) else None
        (command,) = given
        is_done = (command in state) == (verb == "delete")
        after = tuple(each for each in state if each != command)
        after = (*after, command) if verb == "add" and is_done else after
        after = after if is_done else state
        return after if operation.answer in (None, is_done) else None


class Run:
    """advance with and without the phase that is expected, and a look; the state is the phase."""

    start = 0

    def __init__(self, last: int) -> None:
        self._last = last

    def step(self, state: int, operation: Operation) -> int | None:
        verb, *expected = operation.call
        if verb == "phase":
            return state if operation.answer in (None, state) else None
        goes_on = state < self._last and expected in ([], [state])
        after = state + 1 if goes_on else state
        # The answer is the phase that it went to, -1 for a refusal.
        return after if operation.answer in (None, after if goes_on else -1) else None
