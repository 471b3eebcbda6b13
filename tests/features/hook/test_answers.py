"""What a hook answers its agent, by the dialects of docs/agent-hooks.md."""

import json

import pytest

from tests.support.processes import icctl


def specific(name, **fields):
    return {"hookSpecificOutput": {"hookEventName": name, **fields}}


DENY = {"permissionDecision": "deny", "permissionDecisionReason": "no"}
CONTEXT = {"additionalContext": "no"}
ANSWERS = [
    ("claude", "PreToolUse", "context", specific("PreToolUse", **CONTEXT)),
    ("claude", "PreToolUse", "block", specific("PreToolUse", **DENY)),
    ("claude", "PreToolUse", "allow", specific("PreToolUse", permissionDecision="allow",
                                               permissionDecisionReason="no")),
    ("claude", "PermissionRequest", "block",
     specific("PermissionRequest", decision={"behavior": "deny", "message": "no"})),
    ("claude", "PermissionRequest", "allow",
     specific("PermissionRequest", decision={"behavior": "allow"})),
    ("claude", "Stop", "block", {"decision": "block", "reason": "no"}),
    ("claude", "Stop", "context", {"systemMessage": "no"}),
    ("claude", "Stop", "allow", {}),
    ("claude", "SessionStart", "context", specific("SessionStart", **CONTEXT)),
    ("claude", "SessionStart", "block", {"systemMessage": "no"}),
    ("codex", "PreToolUse", "block", specific("PreToolUse", **DENY)),
    ("codex", "PreToolUse", "allow", {}),
    ("codex", "PreCompact", "block", {"systemMessage": "no"}),
    ("claude", "PreCompact", "block", {"decision": "block", "reason": "no"}),
    ("codex", "SubagentStart", "context", specific("SubagentStart", **CONTEXT)),
    ("claude", "PostToolBatch", "context", specific("PostToolBatch", **CONTEXT)),
    ("codex", "Stop", "block", {"decision": "block", "reason": "no"}),
    ("codex", "UserPromptSubmit", "context", specific("UserPromptSubmit", **CONTEXT)),
    ("gemini", "BeforeTool", "block", {"decision": "deny", "reason": "no"}),
    ("gemini", "BeforeTool", "allow", {"decision": "allow"}),
    ("gemini", "BeforeTool", "context", {"systemMessage": "no"}),
    ("gemini", "AfterTool", "context", specific("AfterTool", **CONTEXT)),
    ("cursor", "preToolUse", "block",
     {"permission": "deny", "user_message": "no", "agent_message": "no"}),
    ("cursor", "beforeShellExecution", "allow", {"permission": "allow"}),
    ("cursor", "beforeSubmitPrompt", "block", {"continue": False, "user_message": "no"}),
    ("cursor", "beforeSubmitPrompt", "allow", {"continue": True}),
    ("cursor", "stop", "block", {"followup_message": "no"}),
    ("cursor", "stop", "allow", {}),
    ("cursor", "afterFileEdit", "block", {}),
    ("cursor", "sessionStart", "context", {"additional_context": "no"}),
    ("cursor", "sessionStart", "block", {"continue": False, "user_message": "no"}),
    ("cursor", "preToolUse", "context", {"additional_context": "no"}),
    ("cursor", "afterFileEdit", "context", {}),
    ("", "PreToolUse", "block", specific("PreToolUse", **DENY)),
]  # fmt: skip
SENT = {
    "claude": {"transcript_path": "/x"},
    "codex": {"turn_id": "t", "transcript_path": None},
    "gemini": {"timestamp": "t"},
    "cursor": {"conversation_id": "c"},
    "": {},
}


@pytest.mark.parametrize(("agent", "name", "verb", "said"), ANSWERS)
def test_every_agent_is_answered_in_its_dialect(agent, name, verb, said, ic):
    sent = json.dumps({**SENT[agent], "hook_event_name": name}).encode()

    done = ic("hook", verb, "no", stdin=sent)

    assert done.exit == 0
    assert json.loads(done.stdout) == said


def test_below_a_hook_the_environment_says_whom_to_answer(hook, door, initialized):
    done = hook("--", str(door / "icctl"), "hook", "block", "wait", conversation_id="c")

    assert json.loads(done.stdout) == {}  # Cursor cannot be blocked after a tool was used
    assert done.returncode == 0


def test_an_event_counts_more_than_what_an_agent_above_left_in_the_environment(
    world, door, initialized
):
    sent = json.dumps({**SENT["claude"], "hook_event_name": "PostToolUse"}).encode()
    env = {**world, "INTERCORE_AGENT": "cursor", "INTERCORE_EVENT": "stop"}

    done = icctl("hook", "block", "no", cwd=initialized, env=env, stdin=sent)

    assert json.loads(done.stdout) == {"decision": "block", "reason": "no"}


def test_an_answer_to_no_event_is_one_all_the_same(world, door, initialized):
    done = icctl("hook", "block", "wait", cwd=initialized, env=world)

    assert json.loads(done.stdout) == {"decision": "block", "reason": "wait"}
    assert done.returncode == 0
