"""How each agent is started with hooks and with a model of ours, away from its user's own files.

Nothing leaves the machine: the model is on loopback, and the way to anything else is barred.
"""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.recording.models import Call, Model, Script

SECONDS = 120  # for one run of an agent; they need two to ten
KEY = "no-key"
SESSION = "0f1d6f2e-7a51-4c9b-9d3e-5b7c2a8e4f10"  # Claude Code takes one, and else resumes none
PROMPT = "Write the greeting."
COUNT = "Count the lines of src/app.py."
SUMMARY = "Summary: the greeting is there."
_BARRED = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "", "NO_PROXY": "127.0.0.1"}


class Place(NamedTuple):
    """A home directory with a project in it, for one agent."""

    home: Path
    project: Path

    @classmethod
    def make(cls, base: Path) -> "Place":
        place = cls(base / "home", base / "home" / "project")
        (place.project / "src").mkdir(parents=True)
        subprocess.run(["git", "init", "--quiet", place.project], check=True)
        return place


class Agent(NamedTuple):
    """`configure` tells it our model and the hooks, an event's name to its command."""

    name: str
    program: str
    events: Sequence[str]
    configure: Callable[[Place, Model, dict[str, str]], None]
    env: Callable[[str], dict[str, str]]  # the URL of the model is given
    script: Callable[[Place], Script]
    # Arguments of the runs without a terminal, and of one with a terminal and what it waits for.
    runs: Sequence[Sequence[str]]
    dialog: Sequence[str] = ()
    awaited: Sequence[str] = ()

    def environment(self, place: Place, model: Model, path: str) -> dict[str, str]:
        usual = {"HOME": str(place.home), "PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        return usual | _BARRED | self.env(model.url)


def run(argv: Sequence[str | Path], cwd: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run it without a terminal: its exit status and all that it says."""
    with subprocess.Popen(
        [str(word) for word in argv], cwd=cwd, env=env, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as agent:  # fmt: skip
        try:
            said, _ = agent.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
            said = f"{agent.communicate()[0]}\nit did not end within {SECONDS} seconds"
        return agent.returncode, said


def converse(
    argv: Sequence[str | Path], cwd: Path, env: dict[str, str], is_done: Callable[[], bool]
) -> bool:
    """Run it on a terminal until `is_done`, or for too long."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(cwd)
        os.execvpe(argv[0], [str(word) for word in argv], env)
    until = time.monotonic() + SECONDS
    try:
        while not is_done():
            if time.monotonic() > until or not _answer(terminal):
                return is_done()
        return True
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


# What a program asks its terminal, and an answer: where the cursor is, and what it can do.
_ASKED = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62c"}


def _answer(terminal: int) -> bool:
    """Read what it says, and answer its questions as a terminal would; false: it has ended."""
    if not select.select([terminal], [], [], 0.1)[0]:
        return True
    try:
        said = os.read(terminal, 1 << 16)
    except OSError:  # how Linux tells that the other side is gone
        return False
    for question, answer in _ASKED.items():
        os.write(terminal, answer * said.count(question))
    return bool(said)


# --- hooks ----------------------------------------------------------------------------------------


def _groups(hooks: dict[str, str], **fields: Any) -> dict[str, Any]:
    """As all three nest them."""
    return {
        event: [{"hooks": [{"type": "command", "command": command, **fields}]}]
        for event, command in hooks.items()
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


# --- Claude Code ----------------------------------------------------------------------------------


def _configure_claude(place: Place, model: Model, hooks: dict[str, str]) -> None:
    hooks = dict(hooks)
    line = {"statusLine": {"type": "command", "command": hooks.pop("StatusLine", "true")}}
    _write(place.home / ".claude" / "settings.json", {"hooks": _groups(hooks), **line})
    (place.project / "CLAUDE.md").write_text("Greet politely.\n", encoding="utf-8")
    # What it would ask in its first session.
    _write(
        place.home / ".claude.json",
        {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY], "rejected": []},
            "projects": {str(place.project): {"hasTrustDialogAccepted": True}},
        },
    )


def _claude_env(url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _claude_script(place: Place) -> Script:
    file = f"{place.project}/src/app.py"
    spawned = {"description": "Count the lines", "prompt": COUNT}
    return {
        PROMPT: [
            Call("Write", {"file_path": file, "content": "hello\n"}),
            Call("Edit", {"file_path": file, "old_string": "hello", "new_string": "good morning"}),
            Call("Bash", {"command": "echo done", "description": "Say done"}),
            Call("Agent", {**spawned, "subagent_type": "general-purpose"}),
            Call("Bash", {"command": "exit 3", "description": "Fail"}),
            "I wrote the greeting.",
        ],
        COUNT: ["It has one line."],
        "Touch a file.": [Call("Bash", {"command": "touch x", "description": "Touch a file"})],
    }


CLAUDE = Agent(
    name="claude",
    program="claude",
    events=[
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
        *("PostToolUseFailure", "PostToolBatch", "PermissionRequest", "Notification"),
        *("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Stop"),
        *("MessageDisplay", "InstructionsLoaded", "SessionEnd", "StatusLine"),
    ],
    configure=_configure_claude,
    env=_claude_env,
    script=_claude_script,
    runs=[
        ["-p", PROMPT, f"--session-id={SESSION}", "--permission-mode=acceptEdits",
         "--allowedTools=Bash,Agent"],
        ["-p", "/compact", f"--resume={SESSION}"],
    ],
    dialog=["Touch a file.", f"--resume={SESSION}", "--permission-mode=default"],
    awaited=["PermissionRequest", "Notification", "StatusLine"],
)  # fmt: skip


# --- Codex ----------------------------------------------------------------------------------------


def _configure_codex(place: Place, model: Model, hooks: dict[str, str]) -> None:
    _write(place.home / ".codex" / "hooks.json", {"hooks": _groups(hooks)})
    (place.home / ".codex" / "config.toml").write_text(
        f"""\
model = "gpt-6-sol"
model_provider = "loopback"
model_auto_compact_token_limit = 500
check_for_update_on_startup = false
[model_providers.loopback]
name = "loopback"
base_url = "{model.url}/v1"
wire_api = "responses"
[analytics]
enabled = false
[projects."{place.project}"]
trust_level = "trusted"
""",
        encoding="utf-8",
    )


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


def in_code(call: str) -> Call:
    """Newer models of OpenAI call tools from a program."""
    return Call("exec", f"text(JSON.stringify(await tools.{call}));\n")


def _codex_script(place: Place) -> Script:
    add = patch("*** Add File: src/app.py", "+hello")
    change = patch("*** Update File: src/app.py", "@@", "-hello", "+good morning")
    return {
        PROMPT: [
            in_code(f"apply_patch({json.dumps(add)})"),
            in_code(f"apply_patch({json.dumps(change)})"),
            in_code('exec_command({cmd: "echo done"})'),
            Call("collaboration.spawn_agent", {"task_name": "count", "message": COUNT}),
            Call("collaboration.wait_agent", {}, tokens=1000),
            "I wrote the greeting.",
        ],
        COUNT: ["It has one line."],
        "CONTEXT CHECKPOINT": [SUMMARY],
        SUMMARY: ["I wrote the greeting."],
        "Touch a file.": [
            in_code(
                'exec_command({cmd: "touch ../x", sandbox_permissions: "require_escalated", '
                'justification: "Touch a file?"})'
            )
        ],
    }


CODEX = Agent(
    name="codex",
    program="codex",
    events=[
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse"),
        *("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Stop", "SessionEnd"),
    ],
    configure=_configure_codex,
    env=lambda _url: {},
    script=_codex_script,
    runs=[["exec", "--dangerously-bypass-hook-trust", "--sandbox=danger-full-access", PROMPT]],
    dialog=["resume", "--last", "--include-non-interactive", "--dangerously-bypass-hook-trust", "--sandbox=workspace-write",
            "--ask-for-approval=on-request", "Touch a file."],
    awaited=["PermissionRequest"],
)  # fmt: skip


# --- Gemini CLI -----------------------------------------------------------------------------------


def _configure_gemini(place: Place, model: Model, hooks: dict[str, str]) -> None:
    _write(
        place.home / ".gemini" / "settings.json",
        {
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "hooks": _groups(hooks),
        },
    )
    _write(place.home / ".gemini" / "trustedFolders.json", {str(place.project): "TRUST_FOLDER"})


def _gemini_script(place: Place) -> Script:
    file = f"{place.project}/src/app.py"
    change = {"instruction": "Greet better.", "old_string": "hello", "new_string": "good morning"}
    return {
        PROMPT: [
            Call("write_file", {"file_path": file, "content": "hello\n"}),
            Call("replace", {"file_path": file, **change}),
            Call("run_shell_command", {"command": "echo done", "description": "Say done"}),
            "I wrote the greeting.",
        ],
        "Touch a file.": [
            Call("run_shell_command", {"command": "touch x", "description": "Touch"})
        ],
    }


GEMINI = Agent(
    name="gemini",
    program="gemini",
    events=[
        *("SessionStart", "BeforeAgent", "PreCompress", "BeforeModel", "BeforeToolSelection"),
        *("AfterModel", "BeforeTool", "AfterTool", "Notification", "AfterAgent", "SessionEnd"),
    ],
    configure=_configure_gemini,
    env=lambda url: {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url},
    script=_gemini_script,
    runs=[["--model=gemini-2.5-pro", "--approval-mode=yolo", "--prompt", PROMPT]],
    dialog=["--model=gemini-2.5-pro", "--resume=latest", "--prompt-interactive", "Touch a file."],
    awaited=["Notification"],
)

AGENTS = {agent.name: agent for agent in (CLAUDE, CODEX, GEMINI)}
