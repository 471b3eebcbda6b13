"""The calls that wait for one database; each gets its answer once, and in time.

Used in the event loop only.
"""

from collections import deque
from collections.abc import Callable

from icd.app.call import Answer, Call
from icd.errors import DeadlineExceeded, IcError, UnknownOutcome
from icd.server import limits

Deliver = Callable[[list[Answer]], None]
# Given calls instead, some of whose answers say that their database is another one by now.
Moved = Callable[[list[Call], list[Answer], Deliver], None]


class Ticket:
    """Calls that were submitted together; their answers are delivered together.

    `size` is what the answers hold in memory until then.  The calls know their ticket, and the
    garbage collector does not know calls: so a ticket that is done forgets what knows its calls.
    """

    __slots__ = ("_calls", "_deliver", "_missing", "_moved", "answers", "count", "size")

    def __init__(self, calls: list[Call], deliver: Deliver, moved: Moved | None) -> None:
        self._calls = calls
        self.count = len(calls)
        self.answers: list[Answer | None] = [None] * len(calls)
        self.size = 0
        self._missing = len(calls)
        self._deliver: Deliver = deliver
        self._moved = moved
        for index, call in enumerate(calls):
            call.ticket = self
            call.index = index

    @property
    def is_untouched(self) -> bool:
        return self._missing == self.count

    @property
    def is_large(self) -> bool:
        return self.size > limits.PIECE_CHARACTERS

    def answer(self, index: int, answer: Answer) -> None:
        if self.answers[index] is None:
            self.size += answer.size
            self.answers[index] = answer
            self._missing -= 1
            if not self._missing:
                self._finish([answer for answer in self.answers if answer is not None])

    def answer_all(self, answers: list[Answer]) -> None:
        """Answer all calls, of which none was answered before."""
        self.size = sum([answer.size for answer in answers])
        self.answers[:] = answers
        self._missing = 0
        self._finish(answers)

    def _finish(self, answers: list[Answer]) -> None:
        calls, deliver = self._calls, self._deliver
        self._calls, self._deliver = [], _done
        if self._moved is not None and [answer for answer in answers if answer.moved]:
            self._moved(calls, answers, deliver)
        else:
            deliver(answers)


class CallQueue:
    """The calls that wait, in the order in which they came; `path` is what sentences name."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.pending: deque[Call] = deque()  # those whose turn has not come
        self._in_flight: list[Call] = []

    @property
    def unanswered(self) -> int:
        return len(self.pending) + len(self._in_flight)

    def add(self, calls: list[Call], deliver: Deliver, moved: Moved | None = None) -> None:
        Ticket(calls, deliver, moved)  # the calls know it
        self.pending += calls

    def take(self, most: int) -> list[Call]:
        """The calls whose turn it is; `hand_out` ends it."""
        if len(self.pending) <= most:
            self._in_flight = list(self.pending)
            self.pending.clear()
        else:
            self._in_flight = [self.pending.popleft() for _ in range(most)]
        return self._in_flight

    def hand_out(self, answers: list[Answer | None]) -> None:
        """Deliver the answers of a turn.  None: not reached, it is the first of the next turn."""
        batch, self._in_flight = self._in_flight, []
        left = []
        large = False
        place = 0
        while place < len(batch):
            call, answer = batch[place], answers[place]
            ticket: Ticket = call.ticket
            if found := _whole(ticket, batch, answers, place):
                ticket.answer_all(found)
            elif answer is None:
                left.append(call)
            else:
                ticket.answer(call.index, answer)
            large |= ticket.is_large
            place += len(found) or 1
        if left:
            self.pending.extendleft(reversed(left))
        if large:
            self._put_off()

    def _put_off(self) -> None:
        """Answer `later` to calls of peers that have enough to read: they ask again."""
        self._answer_if(lambda call: call.may_wait and call.ticket.is_large, Answer(later=True))

    def refuse(self, error: IcError, *, until: float) -> None:
        """Answer those whose turn has not come and whose deadline is not after `until`."""
        self._answer_if(lambda call: call.deadline <= until, Answer(error=error))

    def settle(self, *, overdue: float) -> None:
        """Answer calls that are overdue because the thread hangs, with what is known."""
        for call in self._in_flight:
            if call.deadline < overdue:
                call.ticket.answer(call.index, Answer(error=self._overdue(call)))
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
            call = self.pending.popleft()
            call.ticket.answer(call.index, Answer(moved=True))

    def _answer_if(self, holds: Callable[[Call], bool], answer: Answer) -> None:
        """Answer those whose turn has not come and for which it holds."""
        some = [call for call in self.pending if holds(call)]
        if some:
            self.pending = deque(call for call in self.pending if not holds(call))
        for call in some:
            call.ticket.answer(call.index, answer)


def _done(_answers: list[Answer]) -> None:
    """Deliver nothing twice."""


def _whole(
    ticket: Ticket, batch: list[Call], answers: list[Answer | None], place: int
) -> list[Answer]:
    """The answers to all calls of a ticket, if they begin here and nothing is missing."""
    end = place + ticket.count
    if end == place + 1 or end > len(batch) or batch[place].index or not ticket.is_untouched:
        return []
    if batch[end - 1].ticket is not ticket:
        return []
    found = [answer for answer in answers[place:end] if answer is not None]
    return found if len(found) == ticket.count else []
