"""`icctl hook reserve`: one session per file, in the dialect of the agent; never in the way itself."""

import json

import pytest

from icd.app.invocation import Output


@pytest.fixture
def edit(ic, project):
    def edited(session, file="src/a.py", verb="reserve", **more):
        event = {"session_id": session, "hook_event_name": "PreToolUse", "cwd": str(project),
                 "tool_name": "Edit", "tool_input": {"file_path": file}, **more}  # fmt: skip
        return ic("hook", verb, stdin=json.dumps(event).encode())

    return edited


def test_the_second_session_is_blocked_and_told_who_holds_the_file(edit, project):
    assert edit("ann") == edit("ann") == Output(0)

    output = edit("bob", str(project / "src" / "a.py"))

    said = json.loads(output.stdout)["hookSpecificOutput"]
    assert (output.exit, said["permissionDecision"]) == (0, "deny")
    assert "src/a.py is held exclusively by ann" in said["permissionDecisionReason"]


def test_what_is_released_at_the_end_of_a_turn_is_free(edit):
    edit("ann")

    assert edit("ann", verb="release", hook_event_name="Stop") == Output(0)

    assert edit("bob") == Output(0)


def test_a_name_with_wildcards_is_a_name(edit):
    edit("ann", "app/[id]/page.tsx")

    assert edit("bob", "app/i/page.tsx") == Output(0)
    assert edit("bob", "app/[id]/page.tsx").stdout


@pytest.mark.parametrize("data", [b"", b"no json", b"{}", b'{"session_id": "s"}'])
def test_an_event_that_says_nothing_blocks_nothing(ic, data):
    assert ic("hook", "reserve", stdin=data) == Output(0)
    assert ic("hook", "release", stdin=data).exit == 0


def test_cursor_gets_json_in_any_case(edit):
    assert edit("ann", conversation_id="ann", hook_event_name="preToolUse").stdout == b"{}\n"


def test_without_a_database_the_edit_goes_on(invoke, tmp_path):
    from icd.app.call import Answer
    from icd.app.planner import finish
    from icd.errors import NoDatabase

    event = json.dumps({"session_id": "s", "tool_input": {"file_path": "a"}}).encode()
    asked = invoke("hook", "reserve", stdin=event)

    assert finish(asked, Answer(error=NoDatabase("none"))) == Output(0)
