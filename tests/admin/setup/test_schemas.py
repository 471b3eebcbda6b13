"""What `setup` writes keeps the agents' rules; tests/data/schemas/ says from when they are."""

import json
from pathlib import Path

import pytest

from tests.admin.setup.test_setup import HOOKS, Machine
from tests.support.agent_configurations import CLAUDE
from tests.support.json_schema import violations

SCHEMAS = Path(__file__).parents[2] / "data" / "schemas"
RULES = {
    "claude": "claude-settings.json",
    "codex": "codex-hooks.json",
    "gemini": "gemini-settings.json",
    "cursor": "cursor-hooks.json",
}
SERVERS = {"claude": (".claude.json", ".mcp.json"), "cursor": (".cursor/mcp.json",) * 2}


def rules(name: str) -> dict[str, object]:
    found = json.loads((SCHEMAS / name).read_bytes())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("agent", HOOKS)
def test_a_new_configuration_keeps_the_rules(tmp_path, agent):
    machine = Machine(tmp_path)

    for project in (False, True):
        machine.setup(agent, mcp=True, project=project)

        found = json.loads(machine.file(agent, project=project).read_bytes())
        assert violations(rules(RULES[agent]), found) == []
        if agent in SERVERS:
            root = machine.project if project else machine.home
            servers = json.loads((root / SERVERS[agent][project]).read_bytes())
            assert violations(rules("mcp-servers.json"), servers) == []


@pytest.mark.parametrize("name", ["typical", "a session start of its own", "windows", "servers"])
def test_a_configuration_that_keeps_the_rules_still_does(tmp_path, name):
    machine = Machine(tmp_path)
    path = machine.file("claude")
    path.parent.mkdir()
    content = CLAUDE[name]
    assert content
    path.write_bytes(content)
    assert violations(rules("claude-settings.json"), json.loads(content)) == []

    machine.setup("claude")

    assert violations(rules("claude-settings.json"), json.loads(path.read_bytes())) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"hooks": {"SessionStart": {}}},
        {"hooks": {"sessionStart": []}},
        {"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}},
        {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x", "timeout": 0}]}]}},
        {"hooks": {"Stop": [{"hooks": [], "name": "x"}]}},
        {"statusLine": {"type": "command", "command": 1}},
    ],
    ids=json.dumps,
)
def test_the_rules_notice_what_breaks_them(broken):
    assert violations(rules("claude-settings.json"), broken) != []
