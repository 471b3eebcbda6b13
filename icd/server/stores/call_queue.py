"""The calls that wait for one database; each gets its answer once, and in time.

Used in the event loop only.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from icd.app.call import Answer, Call
from icd.errors import DeadlineExceeded, IcError, UnknownOutcome
from icd.server import limits

Deliver = Callable[[list[Answer]], None]
# Given calls instead, some of whose answers say that their database is another one by now.
Moved = Callable[[list[Call], list[Answer], Deliver], None]


class Ticket:
    """Calls that were submitted together; their answers are delivered together.

    `size` is what the answers hold in memory until then.
    """

    __slots__ = ("_deliver", "_missing", "_moved", "answers", "calls", "size")

    def __init__(self, calls: list[Call], deliver: Deliver, moved: Moved | None) -> None:
        self.calls = calls
        self.answers: list[Answer | None] = [None] * len(calls)
        self.size = 0
        self._missing = len(calls)
        self._deliver = deliver
        self._moved = moved

    def answer(self, index: int, answer: Answer) -> None:
        if self.answers[index] is not None:
            return
        self.size += answer.size
        self.answers[index] = answer
        self._missing -= 1
        if not self._missing:
            found = [answer for answer in self.answers if answer is not None]
            if self._moved is not None and [answer for answer in found if answer.moved]:
                self._moved(self.calls, found, self._deliver)
            else:
                self._deliver(found)


class Waiter(msgspec.Struct, gc=False):
    """One call of a ticket."""

    call: Call
    ticket: Ticket
    index: int

    @property
    def is_for_later(self) -> bool:
        """Those that were submitted with it are enough for now."""
        return self.call.may_wait and self.ticket.size > limits.PIECE_CHARACTERS

    def answer(self, answer: Answer) -> None:
        self.ticket.answer(self.index, answer)


class CallQueue:
    """The calls that wait, in the order in which they came; `path` is what sentences name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.pending: deque[Waiter] = deque()  # those whose turn has not come
        self._in_flight: list[Waiter] = []

    @property
    def unanswered(self) -> int:
        return len(self.pending) + len(self._in_flight)

    def calls(self) -> list[Call]:
        return [waiter.call for waiter in self.pending]

    def add(self, calls: list[Call], deliver: Deliver, moved: Moved | None = None) -> None:
        ticket = Ticket(calls, deliver, moved)
        for index, call in enumerate(calls):
            self.pending.append(Waiter(call, ticket, index))

    def take(self, most: int) -> list[Call]:
        """The calls whose turn it is; `hand_out` ends it."""
        size = min(len(self.pending), most)
        self._in_flight = [self.pending.popleft() for _ in range(size)]
        return [waiter.call for waiter in self._in_flight]

    def hand_out(self, answers: list[Answer | None]) -> None:
        """Deliver the answers of a turn.  None: not reached, it is the first of the next turn."""
        batch, self._in_flight = self._in_flight, []
        left = []
        large = False
        for waiter, answer in zip(batch, answers, strict=True):
            if answer is None:
                left.append(waiter)
            else:
                waiter.ticket.answer(waiter.index, answer)
                large |= waiter.ticket.size > limits.PIECE_CHARACTERS
        if left:
            self.pending.extendleft(reversed(left))
        if large:
            self._put_off()

    def _put_off(self) -> None:
        """Answer `later` to calls of peers that have enough to read: they ask again."""
        some = [waiter for waiter in self.pending if waiter.is_for_later]
        if some:
            self.pending = deque(w for w in self.pending if not w.is_for_later)
        for waiter in some:
            waiter.answer(Answer(later=True))

    def refuse(self, error: IcError, *, until: float) -> None:
        """Answer those whose turn has not come and whose deadline is not after `until`."""
        refused = [waiter for waiter in self.pending if waiter.call.deadline <= until]
        if refused:
            self.pending = deque(w for w in self.pending if w.call.deadline > until)
        for waiter in refused:
            waiter.answer(Answer(error=error))

    def settle(self, *, overdue: float) -> None:
        """Answer calls that are overdue because the thread hangs, with what is known."""
        for waiter in self._in_flight:
            if waiter.call.deadline < overdue:
                waiter.answer(Answer(error=self._overdue(waiter.call)))
        self.refuse(DeadlineExceeded(f"{self._path} did not start the call in time"), until=overdue)

    def _overdue(self, call: Call) -> IcError:
        """How a write ended is unknown; a read has changed nothing, however it ended."""
        sentence = f"{self._path} did not answer in time"
        if call.method.writes or call.method.runs.whole:
            return UnknownOutcome(f"unknown_outcome: {sentence}")
        return DeadlineExceeded(sentence)

    def turn_away(self) -> None:
        """Answer `moved` to all that wait: nothing is served here any more."""
        while self.pending:
            self.pending.popleft().answer(Answer(moved=True))
