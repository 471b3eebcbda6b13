"""What a hook may answer its agent, in the dialect of that agent.

Claude Code and Codex want `hookSpecificOutput` or `decision`, Gemini `decision`, and Cursor
`permission`, `continue` or `followup_message`, depending on the event.  Where an event has no room
for an answer, the user is told (`systemMessage`), or, by Cursor, no one.
tests/test_real_agents.py asks Claude Code 2.1.327, Codex 0.169.0 and Gemini CLI 0.61.0; that of
Cursor is from the source of @cursor/sdk 1.0.32, which runs its hooks.
"""

from typing import Any

from msgspec import Struct

Json = dict[str, Any]


class Asked(Struct, frozen=True):
    """Who is answered, and about what; an agent that is not known speaks as Claude Code does."""

    agent: str
    event: str


# Events after which the model reads `additionalContext`.  Claude Code also reads it at Stop and
# SubagentStop, and goes on because of it: that is what `block` is for.
_HEARD = {
    "claude": {
        *("SessionStart", "Setup", "SubagentStart", "UserPromptSubmit"),
        *("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
    },
    "codex": {"SessionStart", "SubagentStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"},
    "gemini": {"SessionStart", "BeforeAgent", "AfterTool"},
    "cursor": {
        *("sessionStart", "beforeSubmitPrompt"),
        *("preToolUse", "postToolUse", "postToolUseFailure"),
    },
}
# Events that cannot be blocked: a reason is for the user.
_UNSTOPPABLE = {
    *("SessionStart", "SessionEnd", "Setup", "Notification", "SubagentStart"),
    *("PostCompact", "PreCompress"),
}
# Events of Cursor's about something that is to be permitted.
_PERMITTED = {
    *("preToolUse", "beforeShellExecution", "beforeMCPExecution"),
    *("beforeReadFile", "beforeTabFileRead", "subagentStart"),
}
# Events of Cursor's after which it goes on, or not.
_CONTINUED = {"sessionStart", "beforeSubmitPrompt"}


def context(asked: Asked, text: str) -> Json:
    """Tell the model something."""
    heard = asked.event in _HEARD.get(asked.agent, _HEARD["claude"])
    if asked.agent == "cursor":
        return {"additional_context": text} if heard else {}
    return _specific(asked, additionalContext=text) if heard else {"systemMessage": text}


def block(asked: Asked, reason: str) -> Json:
    """Stop what is about to happen, and tell the model why."""
    if asked.agent == "cursor":
        return _block_cursor(asked.event, reason)
    if asked.event in _UNSTOPPABLE or (asked.agent, asked.event) == ("codex", "PreCompact"):
        return {"systemMessage": reason}
    if asked.agent == "gemini":
        return {"decision": "deny", "reason": reason}
    if asked.event == "PreToolUse":
        return _specific(asked, permissionDecision="deny", permissionDecisionReason=reason)
    if asked.event == "PermissionRequest":
        return _specific(asked, decision={"behavior": "deny", "message": reason})
    return {"decision": "block", "reason": reason}


def allow(asked: Asked, reason: str) -> Json:
    """Let it happen without asking the user, where that can be said."""
    if asked.agent == "cursor":
        permits = asked.event in _PERMITTED
        lets = {"continue": True} if asked.event in _CONTINUED else {}
        return {"permission": "allow"} if permits else lets
    if asked.agent == "gemini":
        return {} if asked.event in _UNSTOPPABLE else {"decision": "allow"}
    if asked.event == "PermissionRequest":
        return _specific(asked, decision={"behavior": "allow"})
    if asked.event != "PreToolUse" or asked.agent == "codex":  # which refuses "allow" there
        return {}
    why = {"permissionDecisionReason": reason} if reason else {}
    return _specific(asked, permissionDecision="allow", **why)


def _block_cursor(event: str, reason: str) -> Json:
    if event in _PERMITTED:
        return {"permission": "deny", "user_message": reason, "agent_message": reason}
    if event in _CONTINUED:
        return {"continue": False, "user_message": reason}
    return {"followup_message": reason} if event in ("stop", "subagentStop") else {}


def _specific(asked: Asked, **fields: object) -> Json:
    return {"hookSpecificOutput": {"hookEventName": asked.event, **fields}}
