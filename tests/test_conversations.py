"""Clients of every release are answered as they were; see tests/support/conversations.py."""

import json
import re
from pathlib import Path

import pytest

from icd.app import registry
from tests.support import conversations
from tests.support.conversation_steps import CALLS
from tests.support.conversations import TRANSCRIPTS, ask_frame, ask_json, match_frame, match_json
from tests.support.examples import calls
from tests.support.processes import Daemon

# Answered differently on purpose: an unknown command prints nothing on stdout any more, and an
# option that was unknown has a value that will not do.
CHANGED = {
    r"\x00abogus\x00": r"3 0 «len»\n«any»",
    r"\x00a--context={}\x00": r"2 0 «len»\n«any»",
}
NAMES = sorted(path.name for path in TRANSCRIPTS.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_clients_of_a_release_are_answered_as_they_were(
    name: str, daemon: Daemon, project: Path
) -> None:
    by_frame = not name.endswith("json-rpc")
    ask, match = (ask_frame, match_frame) if by_frame else (ask_json, match_json)
    names = {"project": str(project)}

    for sent, recorded in conversations.read(name):
        old = next((now for line, now in CHANGED.items() if line in sent), recorded)
        new = ask(daemon, sent, names)

        assert match(old, new, names), f"{sent}\n was: {old}\n now: {new}"


def test_every_method_is_in_the_newest_transcript_or_in_the_next_one() -> None:
    """In the next one are the steps, and what only an example calls."""
    newest = [name for name in NAMES if name.endswith("json-rpc")][-1]
    asked = {json.loads(sent)["method"] for sent, _ in conversations.read(newest)}

    comes = {method for method, _, _ in conversations.recorded_calls(CALLS)}
    assert {method.name for method in registry.every()} <= asked | comes


def test_what_examples_call_and_no_step_does_is_recorded() -> None:
    recorded = {method for method, _, _ in conversations.recorded_calls([])}

    assert recorded == {name for name, _ in calls()}


@pytest.mark.parametrize("old, new, same", [
    ("0 8 0\\nallowed\\n", "0 8 0\\nallowed\\n", True),
    ("0 8 0\\nallowed\\n", "1 10 0\\nthrottled\\n", False),
    ("0 «len» 0\\n«time»\\n", "0 11 0\\n1800000000\\n", True),
    ("0 «len» 0\\n«time»\\n", "0 5 0\\nsoon\\n", False),
    ("«run» «run»", "abc abc", True),
    ("«run» «run»", "abc abd", False),
    ("a.c", "abc", False),
])  # fmt: skip
def test_a_frame_is_compared_byte_for_byte_but_for_its_marks(
    old: str, new: str, *, same: bool
) -> None:
    assert match_frame(old, new, {}) is same


@pytest.mark.parametrize("old, new, same", [
    ({"a": 1}, {"a": 1, "b": 2}, True),
    ({"a": 1}, {"b": 1}, False),
    ({"a": 1}, {"a": 2}, False),
    ({"a": 1}, {"a": True}, False),
    ({"a": [1]}, {"a": [1, 2]}, False),
    ({"a": "«any»"}, {"a": None}, True),
    ({"a": "«any»"}, {}, False),
    ({"a": "«time»"}, {"a": 1800000000}, True),
    ({"a": "«time»"}, {"a": "now"}, False),
    ({"a": None}, {"a": 1}, False),
])  # fmt: skip
def test_a_result_may_have_more_members_and_none_that_differs(
    old: object, new: object, *, same: bool
) -> None:
    assert match_json(json.dumps(old), json.dumps(new), {}) is same


def test_an_id_that_was_learnt_is_the_same_ever_after() -> None:
    names: dict[str, str] = {}

    assert match_json('{"id":"«run»"}', '{"id":"r1"}', names)
    assert names == {"run": "r1"}
    assert not match_json('{"id":"«run»"}', '{"id":"r2"}', names)


def test_no_path_of_a_machine_is_in_a_transcript() -> None:
    for name in NAMES:
        text = (TRANSCRIPTS / name).read_text("utf-8")

        assert not re.search(r"/(tmp|home|root|work)/", text), name
