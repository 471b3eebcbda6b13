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


PATCH = """*** Begin Patch
*** Add File: new.py
+x
*** Update File: src/a.py
*** Move to: src/b.py
@@
-x
+y
*** Delete File: old.py
*** End Patch
"""


@pytest.mark.parametrize("file", ["new.py", "src/a.py", "src/b.py", "old.py"])
def test_a_patch_reserves_all_its_files(edit, file):
    edit("ann", tool_name="apply_patch", tool_input={"command": PATCH})

    assert f"{file} is held exclusively by ann" in edit("bob", file).stdout.decode()


def test_a_patch_of_which_another_session_holds_one_file_reserves_none(edit):
    edit("ann", "old.py")

    output = edit("bob", tool_name="apply_patch", tool_input={"command": PATCH})

    assert "one of these files: old.py is held exclusively by ann" in output.stdout.decode()
    assert edit("cy", "new.py") == edit("cy", "src/a.py") == Output(0)


def test_a_link_reserves_what_it_leads_to(edit, project):
    (project / "CLAUDE.md").symlink_to("AGENTS.md")

    edit("ann", "CLAUDE.md")

    assert "AGENTS.md is held exclusively by ann" in edit("bob", "AGENTS.md").stdout.decode()
    assert "CLAUDE.md is held exclusively by ann" in edit("bob", "CLAUDE.md").stdout.decode()


def test_a_list_of_edits_reserves_all_its_files(edit):
    edits = [{"file_path": "a"}, {"file_path": "b"}, {"old_string": "x"}, "c", {"file_path": 1}]

    edit("ann", tool_name="MultiEdit", tool_input={"edits": edits, "file_path": "a"})

    assert edit("bob", "b").stdout
    assert edit("bob", "c") == Output(0)


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


def test_the_database_that_the_environment_names_is_the_one(hook, initialized, initialize):
    other = initialized / "other"
    (other / ".git").mkdir(parents=True)
    initialize(other, initialized)
    mine = {"INTERCORE_DB": str(other / ".clavain" / "intercore.db")}

    assert hook("reserve", env=mine, session_id="ann").stdout == b""

    assert b"by ann" in hook("reserve", env=mine, session_id="bob").stdout
    assert hook("reserve", session_id="bob").stdout == b""


@pytest.mark.parametrize(
    ("size", "is_read"), [(3 * 1024 * 1024, True), (3 * 1024 * 1024 + 2, False)]
)
def test_a_large_event_reserves_and_one_that_is_too_large_is_in_no_ones_way(
    hook, event, size, is_read
):
    written = event | {"tool_name": "Write"}
    written["tool_input"] = {**event["tool_input"], "content": ""}
    filling = "x" * (size - len(json.dumps(written)))
    written["tool_input"]["content"] = filling

    done = hook("reserve", stdin=json.dumps(written).encode())

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert bool(hook("reserve", session_id="another").stdout) is is_read
