"""Telling who wants to know that a database changed."""

import anyio
import pytest

from icd.core.state import Writer
from icd.db.paths import Where
from icd.rpc import methods
from icd.rpc.method import Call
from icd.server import limits
from icd.server.changes import Changes


def call(name, /, **params):
    method = methods.find(name)
    return Call(method, method.params(**params), Where("/"), Writer(), 0.0)


SET = call("state.set", key="k", scope_id="s", payload=b"1")
GET = call("state.get", key="k", scope_id="s")
CHECK = call("sentinel.check", name="n", scope_id="s", interval=1)
DELETE_ALL = call("state.delete_all", key="k")


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


def test_a_signal_is_set_by_the_next_change_and_not_before():
    async def scene():
        changes = Changes()
        first = changes.signal()
        assert changes.signal() is first
        changes.after([GET], 0)
        assert not first.is_set()
        changes.after([SET], 0)
        assert first.is_set()
        assert not changes.signal().is_set()

    anyio.run(scene)


def test_a_database_is_followed_while_somebody_asks_for_the_next_change(monkeypatch):
    async def scene():
        changes = Changes()
        assert not changes.is_followed
        changes.signal()
        assert changes.is_followed
        monkeypatch.setattr(limits, "FOLLOWED_SECONDS", 0.0)
        assert not changes.is_followed

    anyio.run(scene)


def test_what_others_wrote_while_nobody_listened_is_not_told_later():
    """Whoever begins to listen reads everything anyway."""
    changes, heard = Changes(), []
    changes.after([GET], 3)
    changes.listen(heard.append)

    changes.after([GET], 3)

    assert heard == []
