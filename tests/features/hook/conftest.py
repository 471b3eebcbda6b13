"""A hook as an agent starts it: an event on stdin, and a project with a database."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.processes import Daemon, icctl

Hook = Callable[..., "CompletedProcess[bytes]"]
HOSTS = ("daemon", "direct")


@pytest.fixture(params=HOSTS)
def world(request: pytest.FixtureRequest, initialized: Path) -> dict[str, str]:
    """With a daemon, and without one."""
    locks = {"INTERCORE_LOCK_DIR": str(initialized / "locks"), "HOME": str(initialized)}
    if request.param == "direct":
        return {**locks, "INTERCORE_SOCKET": "/nonexistent/icd.sock"}
    found: Daemon = request.getfixturevalue("shared_daemon")
    return {**locks, "INTERCORE_SOCKET": found.socket}


@pytest.fixture
def event(initialized: Path) -> dict[str, object]:
    return {
        "session_id": "s1",
        "cwd": str(initialized),
        "hook_event_name": "PostToolUse",
        "tool_name": "Edit",
        "tool_input": {"file_path": str(initialized / "a.py")},
    }


@pytest.fixture
def hook(initialized: Path, world: dict[str, str], event: dict[str, object]) -> Hook:
    """Run `icctl hook` with an event, of which some fields are others."""

    def run(
        *words: str, stdin: bytes | None = None, env: dict[str, str] | None = None, **other: object
    ) -> "CompletedProcess[bytes]":
        sent = json.dumps(event | other).encode() if stdin is None else stdin
        return icctl("hook", *words, cwd=initialized, env={**world, **(env or {})}, stdin=sent)

    return run
