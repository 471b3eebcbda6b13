"""The queue of one database."""

import pytest

from icd.core.state import Writer
from icd.db.paths import Where
from icd.errors import Locked
from icd.rpc import methods
from icd.rpc.method import Answer, Call
from icd.server.waiting import Waiting

LIST = methods.find("state.list")


def call(deadline: float) -> Call:
    return Call(LIST, LIST.params(key="k"), Where("/"), Writer(), deadline)


@pytest.fixture
def waiting() -> Waiting:
    return Waiting("/db")


def test_answers_come_in_the_order_of_the_calls_once_all_are_there(waiting: Waiting) -> None:
    told: list[list[Answer]] = []
    waiting.add([call(1), call(2)], told.append)

    waiting.take(2)
    waiting.hand_out([Answer(result="a"), None])
    assert told == []
    assert len(waiting.take(2)) == 1
    waiting.hand_out([Answer(result="b")])

    assert [answer.result for answer in told[0]] == ["a", "b"]


def test_a_call_that_was_not_reached_is_the_first_of_the_next_turn(waiting: Waiting) -> None:
    for deadline in (1, 2, 3):
        waiting.add([call(deadline)], lambda _: None)

    waiting.take(2)
    waiting.hand_out([Answer(), None])

    assert [found.deadline for found in waiting.calls()] == [2, 3]


def test_only_those_whose_time_is_over_are_refused(waiting: Waiting) -> None:
    refused: list[Answer] = []
    for deadline in (1, 5, 2, 6):
        waiting.add([call(deadline)], refused.extend)

    waiting.refuse(Locked("held"), until=2)

    assert len(refused) == 2
    assert [found.deadline for found in waiting.calls()] == [5, 6]


def test_whoever_is_overdue_hears_whether_its_call_may_have_run(waiting: Waiting) -> None:
    heard: list[str] = []
    for deadline in (1, 2, 9):
        waiting.add([call(deadline)], lambda answers: heard.append(answers[0].error.name))
    waiting.take(1)

    waiting.settle(overdue=3)

    assert heard == ["unknown_outcome", "deadline_exceeded"]
    assert waiting.unanswered == 2


def test_an_answer_that_comes_after_all_is_not_delivered_twice(waiting: Waiting) -> None:
    heard: list[list[Answer]] = []
    waiting.add([call(1)], heard.append)
    waiting.take(1)
    waiting.settle(overdue=3)

    waiting.hand_out([Answer(result="late")])

    assert len(heard) == 1


def test_whoever_is_left_is_turned_away(waiting: Waiting) -> None:
    heard: list[Answer] = []
    waiting.add([call(1), call(2)], heard.extend)

    waiting.turn_away()

    assert [answer.moved for answer in heard] == [True, True]
