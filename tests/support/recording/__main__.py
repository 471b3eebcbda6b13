"""Record the events that agents send to their hooks, into tests/data/events.

    npm install --prefix DIRECTORY @anthropic-ai/claude-code @openai/codex @google/gemini-cli
    .venv/bin/python -m tests.support.recording DIRECTORY [AGENT]...

It needs no account, and nothing but loopback: models.py plays the model.
"""

import json
import os
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.recording import agents, hook
from tests.support.recording.agents import AGENTS, Agent, Place
from tests.support.recording.models import serving

EVENTS = Path(__file__).parents[2] / "data" / "events"
HOME = "/home/me"
# Of several, the one that is kept: an edit of a file.
PREFERRED = ("Edit", "apply_patch", "replace")


def main() -> None:
    installed, *names = sys.argv[1:]
    programs = Path(installed).resolve() / "node_modules" / ".bin"
    for name in names or AGENTS:
        record(AGENTS[name], programs)


def record(agent: Agent, programs: Path) -> None:
    # Codex refuses a home directory below /tmp for some of what it does, and is content with it.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as base:
        place = Place.make(Path(base).resolve())
        kept = Path(base) / "kept"
        kept.mkdir()
        play(agent, programs / agent.program, place, kept)
        keep(agent, version(agent, programs, place), place, kept)


def play(agent: Agent, program: Path, place: Place, kept: Path) -> None:
    """Have the agent do something, so that its hooks are run."""
    hooks = {event: _command(kept, event) for event in agent.events}
    with serving(agent.script(place)) as model:
        agent.configure(place, model, hooks)
        env = agent.environment(place, model, _path(program))
        for words in agent.runs:
            status, said = agents.run([program, *words], place.project, env)
            if status:
                sys.exit(f"{agent.name} {words}: exit {status}\n{said}")
        if agent.dialog:
            agents.converse(
                [program, *agent.dialog], place.project, env,
                lambda: {*agent.awaited} <= {event["event"] for event in _kept(kept)},
            )  # fmt: skip


def version(agent: Agent, programs: Path, place: Place) -> str:
    env = {"HOME": str(place.home), "PATH": _path(programs)}
    _status, said = agents.run([programs / agent.program, "--version"], place.project, env)
    found = re.findall(r"\d+\.\d+\.\d+", said)
    return str(found[-1])


def keep(agent: Agent, release: str, place: Place, kept: Path) -> None:
    """Write the events, and from where they are; an old file of an event that is not there stays."""
    seen: dict[str, dict[str, Any]] = {}
    environment: set[str] = set()
    for event in _kept(kept):
        environment |= {*event["environment"]}
        sent = json.loads(_neutral(event["sent"], place))
        if event["event"] not in seen or sent.get("tool_name") in PREFERRED:
            seen[event["event"]] = sent
    for name, sent in seen.items():
        path = EVENTS / agent.name / f"{name}.json"
        path.write_text(json.dumps(sent, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    missing = sorted({*agent.events} - {*seen})
    print(f"{agent.name} {release}: {len(seen)} events; not: {', '.join(missing) or 'none'}")
    table = EVENTS / "recorded.json"
    told = json.loads(table.read_text("utf-8")) if table.exists() else {}
    told[agent.name] = {
        "version": release,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "events": sorted(seen),
        "environment": sorted(environment - {*agent.env("")}),
    }
    table.write_text(json.dumps(told, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _kept(directory: Path) -> list[dict[str, Any]]:
    """What the hooks have kept, the oldest first."""
    return [json.loads(file.read_text("utf-8")) for file in sorted(directory.glob("*.json"))]


def _neutral(sent: str, place: Place) -> str:
    """Without a trace of the machine; also where a path is part of a name."""
    home = str(place.home)
    sent = sent.replace(home, HOME).replace(_as_name(home), _as_name(HOME))
    return re.sub(r"/tmp/claude-\d+/", "/tmp/claude-1000/", sent)


def _as_name(path: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]", "-", path)


def _command(kept: Path, event: str) -> str:
    return shlex.join([sys.executable, str(Path(hook.__file__)), str(kept), event])


def _path(program: Path) -> str:
    """Where node is, and the programs that agents start."""
    return os.pathsep.join([str(program.parent), os.environ["PATH"]])


if __name__ == "__main__":
    main()
