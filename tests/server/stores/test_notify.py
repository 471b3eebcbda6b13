"""Telling who wants to know that a database changed."""

import pytest

from icd.app import registry
from icd.app.call import ANYTHING, EVENTS, STATE, Call
from icd.db.paths import Where
from icd.server.stores.notify import Changes, Signal
from icd.values.processes import Writer


def call(name, /, **params):
    method = registry.find(name)
    return Call(method, method.params(**params), Where("/"), Writer(), 0.0)


SET = call("state.set", key="k", scope_id="s", payload=b"1")
GET = call("state.get", key="k", scope_id="s")
CHECK = call("sentinel.check", name="n", scope_id="s", interval=1)
DELETE_ALL = call("state.delete_all", key="k")
RECORD = call("events.record", source="phase", type="advance")


@pytest.fixture
def told():
    changes, heard = Changes(), []
    changes.listen(heard.append)

    def after(*calls, foreign=0):
        changes.after(list(calls), foreign)
        return heard

    return after


def test_a_write_names_the_rows_that_it_touched(told):
    assert told(SET, GET, SET, CHECK) == [{("k", "s")}]


def test_reads_and_claims_change_no_state(told):
    assert told(GET, CHECK) == []


def test_a_write_to_nobody_knows_which_rows_concerns_all(told):
    assert told(SET, DELETE_ALL) == [None]


def test_a_commit_of_somebody_else_concerns_all_once(told):
    assert told(GET, foreign=1) == [None]
    assert told(GET, foreign=1) == [None]
    assert told(SET, foreign=1) == [None, {("k", "s")}]


def test_a_cursor_that_moves_concerns_the_row_that_it_may_have_been(told):
    acked = call("cursor.ack", consumer="c", seq=1)
    consumed = call("events.consume", consumer="c", run_id="r1")

    assert told(acked, consumed) == [{("cursor", "c"), ("cursor", "c:r1")}]


EVERY_ROW, KEY, ROW = STATE, (*STATE, "k"), (*STATE, "k", "s")
ELSEWHERE = [(*STATE, "k", "t"), (*STATE, "other"), (*STATE, "other", "s")]
TOPICS = [EVERY_ROW, KEY, ROW, *ELSEWHERE, EVENTS, ANYTHING]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("calls", "foreign", "concerned"),
    [
        ([GET, CHECK], 0, []),
        ([SET], 0, [EVERY_ROW, KEY, ROW, ANYTHING]),
        ([SET, DELETE_ALL], 0, [EVERY_ROW, KEY, ROW, *ELSEWHERE, ANYTHING]),
        ([RECORD], 0, [EVENTS, ANYTHING]),
        ([GET], 1, [EVERY_ROW, KEY, ROW, *ELSEWHERE, EVENTS, ANYTHING]),
    ],
)
async def test_a_signal_is_set_by_a_change_that_concerns_it_and_by_no_other(
    calls, foreign, concerned
):
    changes = Changes()
    signals = [Signal(topic) for topic in TOPICS]
    for signal in signals:
        changes.add(signal)

    changes.after(calls, foreign)

    assert [signal.topic for signal in signals if signal.is_set] == concerned


@pytest.mark.anyio
async def test_a_signal_stays_set_until_it_is_renewed():
    changes, signal = Changes(), Signal(STATE)
    changes.add(signal)
    changes.after([SET], 0)
    changes.after([GET], 0)
    assert signal.is_set

    signal.renew()

    assert not signal.is_set


@pytest.mark.anyio
async def test_whoever_needs_the_first_signal_is_told_and_forgotten_with_the_last():
    told = []
    changes = Changes(lambda: told.append(1))
    signals = [Signal(STATE), Signal(STATE), Signal(EVENTS)]
    for signal in signals:
        changes.add(signal)
    assert (told, changes.is_watched) == ([1], True)

    for signal in signals:
        changes.remove(signal)

    assert not changes.is_watched


def test_what_others_wrote_while_nobody_listened_is_not_told_later():
    """Whoever begins to listen reads everything anyway."""
    changes, heard = Changes(), []
    changes.after([GET], 3)
    changes.listen(heard.append)

    changes.after([GET], 3)

    assert heard == []
