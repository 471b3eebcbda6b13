"""statusline.get: one call for everything."""

import os

import pytest

from icd.errors import InvalidName


def test_a_session_is_shown_with_the_liveness_of_real_processes(result):
    payload = f'{{"name":"n","pid":{os.getpid()}}}'
    result("state.set", key="dispatch", scope_id="s1", payload=payload)
    result("state.set", key="bead", scope_id="s1", payload='{"id":"x","phase":"done"}')

    line = result("statusline.get", session_id="s1")

    assert line.dispatch.alive is True
    assert (line.bead.id, line.bead.phase, line.bead.age) == ("x", "done", 0)


def test_an_agent_that_is_empty_is_none(result):
    result("state.set", key="coordination", scope_id="p-a", payload='{"text":"t"}')

    assert result("statusline.get", session_id="", agent="").coordination.text == "t"


def test_a_session_with_control_characters_is_refused(call):
    with pytest.raises(InvalidName):
        call("statusline.get", session_id="a\nb")
