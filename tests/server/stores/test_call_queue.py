"""The queue of one database."""

import weakref
from functools import partial

import pytest

from icd.app import registry
from icd.app.call import Answer, Call
from icd.db.paths import Where
from icd.errors import Locked
from icd.server import limits
from icd.server.stores.call_queue import CallQueue
from icd.values.processes import Writer

LIST = registry.find("state.list")
INCR = registry.find("state.incr")


def call(deadline: float, **options: bool) -> Call:
    return Call(LIST, LIST.params(key="k"), Where("/"), Writer(), deadline, **options)


def write(deadline: float) -> Call:
    return Call(INCR, INCR.params(key="k", scope_id="s"), Where("/"), Writer(), deadline)


@pytest.fixture
def waiting() -> CallQueue:
    return CallQueue("/db")


def test_answers_come_in_the_order_of_the_calls_once_all_are_there(waiting: CallQueue) -> None:
    told: list[list[Answer]] = []
    waiting.add([call(1), call(2)], told.append)

    waiting.take(2)
    waiting.hand_out([Answer(result="a"), None])
    assert told == []
    assert len(waiting.take(2)) == 1
    waiting.hand_out([Answer(result="b")])

    assert [answer.result for answer in told[0]] == ["a", "b"]


def test_a_call_that_was_not_reached_is_the_first_of_the_next_turn(waiting: CallQueue) -> None:
    for deadline in (1, 2, 3):
        waiting.add([call(deadline)], lambda _: None)

    waiting.take(2)
    waiting.hand_out([Answer(), None])

    assert [found.deadline for found in waiting.pending] == [2, 3]


def test_only_those_whose_time_is_over_are_refused(waiting: CallQueue) -> None:
    refused: list[Answer] = []
    for deadline in (1, 5, 2, 6):
        waiting.add([call(deadline)], refused.extend)

    waiting.refuse(Locked("held"), until=2)

    assert len(refused) == 2
    assert [found.deadline for found in waiting.pending] == [5, 6]


def test_whoever_is_overdue_hears_whether_its_call_may_have_run(waiting: CallQueue) -> None:
    heard: list[str] = []
    for deadline in (1, 2, 9):
        waiting.add([write(deadline)], lambda answers: heard.append(answers[0].error.name))
    waiting.take(1)

    waiting.settle(overdue=3)

    assert heard == ["unknown_outcome", "deadline_exceeded"]
    assert waiting.unanswered == 2


def test_the_outcome_of_a_read_is_never_unknown(waiting: CallQueue) -> None:
    heard: list[str] = []
    waiting.add([call(1)], lambda answers: heard.append(answers[0].error.name))
    waiting.take(1)

    waiting.settle(overdue=3)

    assert heard == ["deadline_exceeded"]


def test_after_large_answers_the_rest_of_the_same_peer_is_put_off(waiting: CallQueue) -> None:
    told: list[list[Answer]] = []
    waiting.add([call(9), *(call(9, may_wait=True) for _ in range(3))], told.append)
    waiting.add([call(9)], told.append)
    waiting.take(3)

    waiting.hand_out([Answer(size=1), Answer(size=limits.PIECE_CHARACTERS), None])

    assert [[answer.later for answer in answers] for answers in told] == [
        [False, False, True, True]
    ]
    assert len(waiting.pending) == 1


def test_what_cannot_be_put_off_is_answered_however_large_the_others_are(
    waiting: CallQueue,
) -> None:
    told: list[list[Answer]] = []
    waiting.add([call(9), call(9)], told.append)
    waiting.take(2)

    waiting.hand_out([Answer(size=2 * limits.PIECE_CHARACTERS), None])

    assert told == []
    assert len(waiting.pending) == 1


def test_an_answer_that_comes_after_all_is_not_delivered_twice(waiting: CallQueue) -> None:
    heard: list[list[Answer]] = []
    waiting.add([call(1)], heard.append)
    waiting.take(1)
    waiting.settle(overdue=3)

    waiting.hand_out([Answer(result="late")])

    assert len(heard) == 1


def test_whoever_is_left_is_turned_away(waiting: CallQueue) -> None:
    heard: list[Answer] = []
    waiting.add([call(1), call(2)], heard.extend)

    waiting.turn_away()

    assert [answer.moved for answer in heard] == [True, True]


def test_a_ticket_that_is_done_keeps_no_call_alive(waiting: CallQueue) -> None:
    """The garbage collector does not see calls, so nothing would ever free a circle of them."""

    class Held:
        pass

    def ask() -> "weakref.ref[Held]":
        held, calls = Held(), [call(1), call(2)]
        waiting.add(calls, partial(lambda *_: None, held, calls))
        waiting.take(2)
        waiting.hand_out([Answer(), Answer()])
        return weakref.ref(held)

    assert ask()() is None


def test_answers_of_several_tickets_reach_each_its_own(waiting: CallQueue) -> None:
    told: dict[str, list[object]] = {}
    for name, size in (("a", 3), ("b", 1), ("c", 2)):
        calls = [call(9) for _ in range(size)]
        waiting.add(calls, lambda found, name=name: told.update({name: [x.result for x in found]}))

    waiting.take(5)
    waiting.hand_out([Answer(result=number) for number in range(5)])
    assert told == {"a": [0, 1, 2], "b": [3]}
    waiting.take(5)
    waiting.hand_out([Answer(result=5)])

    assert told["c"] == [4, 5]
