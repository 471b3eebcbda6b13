"""The real Codex reads what `setup codex` writes: `make codex` gets it from npm.

No model and no network is needed: its server for editors lists the hooks that it would run, and
`codex mcp list` the servers.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.admin.setup.test_setup import Machine
from tests.support.processes import PATIENCE

CODEX = Path(__file__).parents[3] / ".venv/codex/node_modules/.bin/codex"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not CODEX.exists() and "CI" not in os.environ,
        reason="Codex is not installed: run make codex",
    ),
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def env(machine: Machine) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(machine.home), "LANG": "C.UTF-8"}


def hooks(machine: Machine) -> dict[str, Any]:
    """What Codex says about the hooks of the project."""
    asked = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "t", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [str(machine.project)]}},
    ]
    with subprocess.Popen(
        [CODEX, "app-server"], env=env(machine), cwd=machine.project,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        for request in asked:
            server.stdin.write(json.dumps(request).encode() + b"\n")
        server.stdin.flush()
        answers = (json.loads(line) for line in server.stdout)
        found = next(answer["result"] for answer in answers if answer.get("id") == 2)
        server.terminate()
    (listed,) = found["data"]
    assert isinstance(listed, dict)
    return listed


def servers(machine: Machine) -> list[dict[str, Any]]:
    done = subprocess.run(
        [CODEX, "mcp", "list", "--json"], env=env(machine), cwd=machine.project,
        capture_output=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def test_codex_accepts_the_hook_and_wants_it_trusted(machine):
    machine.setup("codex")

    listed = hooks(machine)

    assert (listed["errors"], listed["warnings"]) == ([], [])
    (hook,) = listed["hooks"]
    assert hook["eventName"] == "sessionStart"
    assert hook["command"] == f"{machine.icctl} service ensure"
    assert hook["timeoutSec"] == 10
    assert hook["enabled"] is True
    # What the note of `setup codex` says.
    assert hook["trustStatus"] == "untrusted"


def test_codex_keeps_the_hooks_that_were_there(machine):
    path = machine.file("codex")
    path.parent.mkdir()
    path.write_text(
        '{"hooks": {"SessionStart": [{"matcher": "startup", "hooks": '
        '[{"type": "command", "command": "true"}]}]}}'
    )
    machine.setup("codex")

    assert [hook["command"] for hook in hooks(machine)["hooks"]] == [
        "true",
        f"{machine.icctl} service ensure",
    ]


def test_codex_lists_the_server(machine):
    path = machine.home / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text('model = "gpt-5"\n\n[mcp_servers.docs]\ncommand = "docs-mcp"')
    machine.setup("codex", mcp=True)

    found = {server["name"]: server["transport"] for server in servers(machine)}

    assert found.keys() == {"docs", "intercore"}
    assert found["intercore"]["command"] == str(machine.icctl)
    assert found["intercore"]["args"] == ["mcp"]


def test_codex_itself_may_change_the_file_in_between(machine):
    machine.setup("codex", mcp=True)
    subprocess.run(
        [CODEX, "mcp", "add", "docs", "--", "docs-mcp"], env=env(machine), cwd=machine.project,
        capture_output=True, timeout=PATIENCE, check=True,
    )  # fmt: skip

    machine.setup("codex", remove=True)

    assert [server["name"] for server in servers(machine)] == ["docs"]
