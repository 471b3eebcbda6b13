"""Whether a history could have happened one operation at a time: after Wing and Gong, and Lowe.

A history is what clients did with one key, with the moments at which each asked and was answered.
It is linearizable if some order of its operations explains every answer, in which no operation
comes before another that had been answered before it was asked.  An operation whose outcome is
unknown may have taken effect at any time after it was asked, or never.

Strategy
    The search puts one operation after the other: any that was asked before the first answer that
    is still missing may be next.  What was tried (which operations are done, and what that made of
    the key) is not tried again.  Of unknown operations that ask for the same, the first to be asked
    comes first: they cannot be told apart.  Keys are judged one by one, which is as good as all
    together, and far cheaper.
"""

import math
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, Protocol

UNKNOWN = math.inf
# So many steps take about ten seconds where leases end; histories of ours take one step for each operation, unless
# they cannot be explained.
STEPS = 200_000


class Operation(NamedTuple):
    """`returned` is UNKNOWN, and the answer None, if nobody heard how it ended."""

    client: str
    call: tuple[Any, ...]
    answer: Any
    invoked: float
    returned: float

    @property
    def is_unknown(self) -> bool:
        return self.returned == UNKNOWN


class Model(Protocol):
    """How a key behaves when it is asked one thing at a time."""

    start: Hashable

    def step(self, state: Any, operation: Operation) -> Hashable | None:
        """What the operation makes of the state; None: it cannot have been answered like that."""


class Undecided(Exception):
    """The search took too long; neither good nor bad is known."""


def is_linearizable(history: Iterable[Operation], model: Model, *, steps: int = STEPS) -> bool:
    operations = sorted(history, key=lambda each: (each.invoked, each.returned))
    search = _Search(operations, model)
    return search.run(steps)


class _Search:
    def __init__(self, operations: list[Operation], model: Model) -> None:
        self._operations = operations
        self._model = model
        self._known = sum(1 << i for i, each in enumerate(operations) if not each.is_unknown)
        self._before = _same_before(operations)

    def run(self, steps: int) -> bool:
        """Depth first, without recursion: histories are longer than Python's stack."""
        tried = {(0, self._model.start)}
        stack = [(0, self._model.start, self._next(0))]
        while stack:
            done, state, candidates = stack[-1]
            if done & self._known == self._known:
                return True
            number = next(candidates, None)
            if number is None:
                stack.pop()
                continue
            after = self._model.step(state, self._operations[number])
            reached = (done | 1 << number, after)
            if after is None or reached in tried:
                continue
            tried.add(reached)
            if len(tried) > steps:
                raise Undecided(f"{len(self._operations)} operations, {steps} steps")
            stack.append((*reached, self._next(reached[0])))
        return False

    def _next(self, done: int) -> Any:
        """What may come next: first what was answered first, unknown ones only then."""
        limit, found = math.inf, []
        for number, operation in enumerate(self._operations):
            if operation.invoked > limit:
                break
            if done >> number & 1:
                continue
            limit = min(limit, operation.returned)
            before = self._before[number]
            if before is None or done >> before & 1:
                found.append(number)
        found.sort(key=lambda each: self._operations[each].returned)
        return iter(found)


def _same_before(operations: list[Operation]) -> list[int | None]:
    """For each unknown operation, the one before it that asks for the same."""
    last: dict[tuple[Any, ...], int] = {}
    found: list[int | None] = [None] * len(operations)
    for number, operation in enumerate(operations):
        if operation.is_unknown:
            found[number] = last.get(operation.call)
            last[operation.call] = number
    return found
