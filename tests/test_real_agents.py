"""Real agents run what we write: their model is played, on loopback.

`make codex` installs Codex; for the others, INTERCORE_AGENTS is the directory into which
npm has installed them (tests/data/events/README.md).
"""

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from icd.features.hook import answers
from tests.support.processes import DOORS, icctl
from tests.support.recording import agents
from tests.support.recording.agents import AGENTS, Agent, Place
from tests.support.recording.models import Model, serving

ROOT = Path(__file__).parents[1]
INSTALLED = [ROOT / ".venv/codex", Path(os.environ.get("INTERCORE_AGENTS", "/nonexistent"))]
TOOL = {"claude": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool"}
STOP = {"claude": "Stop", "codex": "Stop", "gemini": "AfterAgent"}

pytestmark = pytest.mark.long


class Session:
    """An agent with a home directory of its own, and what became of its task."""

    def __init__(self, agent: Agent, program: Path, base: Path, scratch: Path) -> None:
        self.agent, self.program = agent, program
        self.place = Place.make(base)
        self.env: dict[str, str] = {}
        self.socket = scratch / "icd.sock"
        self.written = self.place.project / "src" / "app.py"

    @contextlib.contextmanager
    def prepared(self, hooks: dict[str, str]) -> Iterator[Model]:
        with serving(self.agent.script(self.place)) as model:
            self.agent.configure(self.place, model, hooks)
            doors = DOORS / "native", self.program.parent, os.environ["PATH"]
            self.env = self.agent.environment(self.place, model, os.pathsep.join(map(str, doors)))
            self.env |= {"INTERCORE_SOCKET": str(self.socket)}
            yield model

    def run(self) -> None:
        words = self.agent.runs[0]
        status, said = agents.run([self.program, *words], self.place.project, self.env)
        assert status == 0, said

    def played(self, hooks: dict[str, str]) -> str:
        """Run it; all that the model was asked."""
        with self.prepared(hooks) as model:
            icctl("init", cwd=self.place.project, env=self.env)
            self.run()
        return json.dumps(model.requests)

    def icctl(self, *argv: str) -> None:
        done = icctl(*argv, cwd=self.place.project, env=self.env)
        assert done.returncode == 0, done.stderr


# Codex comes with `make codex`; who has installed the others says where.
TRIED = sorted(AGENTS) if "INTERCORE_AGENTS" in os.environ else ["codex"]


@pytest.fixture(params=TRIED)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    agent = AGENTS[request.param]
    programs = (each / "node_modules" / ".bin" / agent.program for each in INSTALLED)
    program = next((path for path in programs if path.exists()), None)
    if program is None:
        pytest.skip(f"{agent.name} is not installed: see tests/data/events/README.md")
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as short:  # for a socket
        yield Session(agent, program, tmp_path, Path(short))


def test_what_setup_writes_starts_the_daemon(session):
    with session.prepared({}):
        session.icctl("setup", session.agent.name)
        try:
            session.run()
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(session.socket))
        finally:
            session.icctl("service", "stop")


def test_a_context_reaches_the_model(session):
    fired = {*session.agent.events} - {"Notification", "PermissionRequest", "StatusLine"}
    heard = answers._HEARD[session.agent.name] & fired

    asked = session.played({event: f"icctl hook context 'It is {event}!'" for event in fired})

    assert {event for event in fired if f"It is {event}!" in asked} == heard


def test_a_block_keeps_the_tool_from_running_and_the_model_is_told_why(session):
    asked = session.played({TOOL[session.agent.name]: "icctl hook block 'Not today.'"})

    assert "Not today." in asked
    assert not session.written.exists()


def test_exit_2_is_no_to_a_tool(session):
    tool = TOOL[session.agent.name]
    asked = session.played({tool: "icctl hook -- sh -c 'echo Not so. >&2; exit 2'"})

    assert "Not so." in asked
    assert not session.written.exists()


def test_exit_1_stops_nothing_and_exit_2_has_the_agent_go_on(session):
    name = session.agent.name
    asked = session.played({
        TOOL[name]: "icctl hook -- sh -c 'echo No matter. >&2; exit 1'",
        STOP[name]: "icctl hook --once --name=guard -- sh -c 'echo Go on. >&2; exit 2'",
    })  # fmt: skip

    assert session.written.read_text() == "good morning\n"
    assert ("No matter." in asked, "Go on." in asked) == (False, True)
