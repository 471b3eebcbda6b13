"""hook.begin and hook.end, and what whoever runs hooks asks."""

import pytest

from icd.app.registry import find
from icd.errors import InvalidName
from icd.features.triggers import verbs as hooks
from icd.features.triggers.store import Done


def test_positions_are_the_business_of_the_callers_own_process():
    for name in ("hook.begin", "hook.end"):
        method = find(name)
        assert method is not None
        assert method.runs.local


@pytest.mark.parametrize("name", ["hook.begin", "hook.end"])
def test_a_name_that_no_hook_has_is_refused(result, name):
    with pytest.raises(InvalidName, match="'on-x' is not the name of a trigger"):
        result(name, hooks=["on-x"])


def test_what_is_asked_when_nothing_is_to_be_done_writes_nothing():
    assert not hooks.PENDING.writes
    assert hooks.PENDING.writes is None or not hooks.PENDING.writes.appends


def test_a_step_notes_what_was_delivered_and_tells_what_is_next(result):
    result("hook.begin", hooks=["on-event"])
    for _ in range(2):
        result("events.record", source="x", type="t")
    assert result(hooks.PENDING, hooks=["on-event"])

    first = result(hooks.STEP, hooks=["on-event"])
    second = result(hooks.STEP, hooks=["on-event"], done=Done(first.hook, first.seq))

    assert (first.seq, second.seq, second.redelivery) == (1, 2, False)
    assert result(hooks.STEP, hooks=[], done=Done(second.hook, second.seq)) is None
    assert not result(hooks.PENDING, hooks=["on-event"])
    assert result("hook.end", hooks=["on-event"]).hooks == ["on-event"]
