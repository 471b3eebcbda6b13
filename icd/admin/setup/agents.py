"""The agents that `icctl setup` knows: their files, and what we put there.

What we add is the least that helps: the daemon is there when a session begins, and Claude Code
shows the status line if it has none.  A hook that could block an agent is never
installed, only shown as a template.
"""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from shutil import which
from typing import Any

from msgspec import Struct

from icd.admin.setup.documents import PROGRAM, SERVER, Document, Entry, Json, Kind, Toml

# `service ensure` waits at most a second; more is for a machine that is very busy.
SECONDS = 10
ENSURE = "service ensure"
# A prompt waits for its status line, and the usual deadline is 5 seconds.
STATUSLINE_TIMEOUT = "2s"


class Agent(Struct, frozen=True, kw_only=True):
    """`directory` is in the home directory, or what `variable` says instead."""

    name: str
    title: str
    programs: tuple[str, ...]
    directory: str
    variable: str = ""
    hooks_file: str
    event: str
    # What a hook runs, its handler's fields, and where `command` stands among them.
    words: str = ENSURE
    handler: dict[str, Any]
    is_flat: bool = False  # handlers stand in the event's list, not in groups
    # What the agent wants beside the hooks.
    needs: dict[str, Any] = {}
    has_statusline: bool = False
    # The file that lists the MCP servers, and the fields of ours besides its command.
    servers: Callable[["Agent", "Scope"], str]
    server: dict[str, Any] = {}
    # The event before a tool is used, and the tools that edit, for the template of reservations.
    before: str = "PreToolUse"
    edits: str
    # The event at which the agent has finished its answer, for the template of a guard.
    stop: str = "Stop"
    # What its user has to know afterwards.
    note: str = ""


class Scope(Struct, frozen=True):
    """Whose configuration: `root` is the project's directory, None for the user's own."""

    env: Mapping[str, str]
    home: str
    root: str | None = None

    def base(self, agent: Agent) -> str:
        """The directory of the agent's files."""
        if self.root is not None:
            return os.path.join(self.root, agent.directory)
        given = self.env.get(agent.variable, "")
        return given if os.path.isabs(given) else os.path.join(self.home, agent.directory)


class Target(Struct, frozen=True):
    """A file, all that may be ours in it, and what was asked for; None: nothing."""

    path: str
    document: Document
    wanted: Document | None


def _in_directory(name: str) -> Callable[[Agent, Scope], str]:
    return lambda agent, scope: os.path.join(scope.base(agent), name)


def _claude_servers(agent: Agent, scope: Scope) -> str:
    """Claude Code keeps them apart from its settings."""
    if scope.root is not None:
        return os.path.join(scope.root, ".mcp.json")
    base = scope.base(agent)
    is_moved = base != os.path.join(scope.home, agent.directory)
    return os.path.join(base if is_moved else scope.home, ".claude.json")


_ROWS = [
    Agent(
        name="claude",
        title="Claude Code",
        programs=("claude",),
        directory=".claude",
        variable="CLAUDE_CONFIG_DIR",
        hooks_file="settings.json",
        event="SessionStart",
        handler={"type": "command", "command": "", "timeout": SECONDS},
        has_statusline=True,
        servers=_claude_servers,
        server={"type": "stdio"},
        edits="Edit|MultiEdit|Write|NotebookEdit",
    ),
    Agent(
        name="codex",
        title="Codex",
        programs=("codex",),
        directory=".codex",
        variable="CODEX_HOME",
        hooks_file="hooks.json",
        event="SessionStart",
        handler={"type": "command", "command": "", "timeout": SECONDS},
        servers=_in_directory("config.toml"),
        note="Codex runs new hooks only after you trust them: type /hooks in Codex",
        edits="apply_patch",
    ),
    Agent(
        name="gemini",
        title="Gemini CLI",
        programs=("gemini",),
        directory=".gemini",
        hooks_file="settings.json",
        event="SessionStart",
        # Its unit is the millisecond.
        handler={"name": SERVER, "type": "command", "command": "", "timeout": SECONDS * 1000},
        servers=_in_directory("settings.json"),
        stop="AfterAgent",
        before="BeforeTool",
        edits="write_file|replace",
    ),
    Agent(
        name="cursor",
        title="Cursor",
        programs=("cursor", "cursor-agent"),
        directory=".cursor",
        hooks_file="hooks.json",
        event="sessionStart",
        # Cursor wants JSON from every hook, and `service ensure` prints nothing.
        words=f"{ENSURE}; echo {{}}",
        handler={"command": ""},  # without a timeout: a minute, by default
        is_flat=True,
        needs={"version": 1},
        servers=_in_directory("mcp.json"),
        stop="stop",
        before="preToolUse",
        edits="Write",
    ),
]
AGENTS = {agent.name: agent for agent in _ROWS}


def found(env: Mapping[str, str], home: str) -> list[Agent]:
    """The agents of this machine: those with a directory or a program."""
    scope = Scope(env, home)
    return [agent for agent in AGENTS.values() if _is_there(agent, scope)]


def _is_there(agent: Agent, scope: Scope) -> bool:
    path = scope.env.get("PATH", os.defpath)
    return os.path.isdir(scope.base(agent)) or any(which(p, path=path) for p in agent.programs)


def targets(agent: Agent, scope: Scope, program: str, *, mcp: bool) -> list[Target]:
    """The agent's files, each once; the MCP server is in one of them if `mcp` asks for it."""
    hooks = os.path.join(scope.base(agent), agent.hooks_file)
    servers = agent.servers(agent, scope)
    ours = list(_hooks(agent, program))
    server = _server(agent, servers, program)
    if servers == hooks:
        whole = Json([*ours, server], agent.needs)
        return [Target(hooks, whole, whole if mcp else Json(ours, agent.needs))]
    listed = Toml(server) if servers.endswith(".toml") else Json([server])
    first = Json(ours, agent.needs)
    return [Target(hooks, first, first), Target(servers, listed, listed if mcp else None)]


def _hooks(agent: Agent, program: str) -> Iterator[Entry]:
    kind: Kind = "flat" if agent.is_flat else "nested"
    what = f"'{PROGRAM} {ENSURE}' at {agent.event}"
    yield Entry(what, ("hooks", agent.event), program, agent.words, agent.handler, kind)
    if agent.has_statusline:
        fields = {"type": "command"}
        words = f"--timeout={STATUSLINE_TIMEOUT} statusline --from={agent.name}"
        yield Entry("the status line", ("statusLine",), program, words, fields, "member")


def _server(agent: Agent, path: str, program: str) -> Entry:
    names = ("mcp_servers",) if path.endswith(".toml") else ("mcpServers", SERVER)
    return Entry(f"the MCP server {SERVER!r}", names, program, "mcp", agent.server, "server")


def guard(agent: Agent, program: str) -> dict[str, Any]:
    """A template: a check of the user's own, once per session, when the agent has finished."""
    command = f"{shlex.quote(program)} hook --once --name=stop-guard -- YOUR-CHECK"
    handler = {k: v for k, v in agent.handler.items() if k not in ("name", "timeout")}
    handler["command"] = command
    return {agent.stop: [handler if agent.is_flat else {"hooks": [handler]}]}


def reservations(agent: Agent, program: str) -> dict[str, Any]:
    """A template: what the agent edits is reserved for its session, until it has answered."""
    found = {}
    for event, words, fields in (
        (agent.before, "hook reserve", {"matcher": agent.edits}),
        (agent.stop, "hook release", {}),
    ):
        handler = {k: v for k, v in agent.handler.items() if k not in ("name", "timeout")}
        handler["command"] = f"{shlex.quote(program)} {words}"
        found[event] = [handler | fields if agent.is_flat else {**fields, "hooks": [handler]}]
    return found
