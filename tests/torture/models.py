"""How each noun behaves when it is asked one thing at a time: the documentation, as functions.

A call is a tuple that starts with a word of ours; `histories.py` knows the command line of each.
An operation with an unknown outcome (its answer is None) does what it would have done in that
state.  Versions and tokens that nobody was told stand as None, with the largest that was told
before: the next one that is told must be above it.
"""

from typing import Any, NamedTuple

from tests.torture.checker import Operation

# A claim is made at a whole millisecond of a clock that is slewed now and then.
CLOCK_SECONDS = 0.02


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
    """`owner` is None if it is free; `token` as a Row's version."""

    owner: str | None
    token: int | None
    floor: int


class Lease:
    """acquire, renew and release of leases that do not expire meanwhile; the caller is the owner.

    The answer is the token, 0 for a refusal; of release, whether it was not refused.
    """

    start = Held(None, 0, 0)

    def step(self, state: Held, operation: Operation) -> Held | None:
        verb, owner = operation.call
        mine, free = state.owner == owner, state.owner is None
        done = mine or (free and verb != "renew")
        answer = operation.answer
        if answer is not None and bool(answer) != done:
            return None
        if not done:
            return state
        if verb == "release":
            return Held(None, 0, state.floor)
        token = None if free else state.token
        if answer is None:
            return Held(owner, token, state.floor)
        if not _seen(token, state.floor, answer):
            return None
        return Held(owner, answer, max(answer, state.floor))


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
