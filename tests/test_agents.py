"""The examples for agents, run as an agent runs them: by its settings, with its event on stdin.

Both clients, both hosts, and with nothing to work with.  An error of ours never blocks an agent.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
EVENTS = ROOT / "tests" / "data" / "events"
SETTINGS = {
    "claude": "claude-settings.json",
    "codex": "codex-hooks.json",
    "gemini": "gemini-settings.json",
    "cursor": "cursor-hooks.json",
}
PLACE = "/home/me/project"  # in the events
OPEN = "the tests are red"


def hooks(agent: str) -> Iterator[tuple[str, str]]:
    """The events that an agent's settings name, each with its command."""
    settings = json.loads((EXAMPLES / "settings" / SETTINGS[agent]).read_text("utf-8"))
    for event, groups in settings["hooks"].items():
        for group in groups:
            for entry in group.get("hooks", [group]):
                yield event, entry["command"]
    if "statusLine" in settings:
        yield "StatusLine", settings["statusLine"]["command"]


def command(agent: str, example: str) -> tuple[str, str]:
    (found,) = [each for each in hooks(agent) if example in each[1]]
    return found


def session(agent: str) -> str:
    events = (json.loads(file.read_text("utf-8")) for file in (EVENTS / agent).glob("*.json"))
    (found,) = {event.get("session_id", event.get("conversation_id")) for event in events}
    return str(found)


EVERY = [(agent, event, line) for agent in SETTINGS for event, line in hooks(agent)]
# One agent in the shorter matrix: what they do not share is how they spell and answer.
OTHERS = [pytest.param(name, marks=pytest.mark.long) for name in SETTINGS if name != "claude"]
AGENT = pytest.mark.parametrize("agent", ["claude", *OTHERS])
HOST = pytest.mark.parametrize("host", ["daemon", "direct"])


class Machine:
    """A user with the examples in the home directory, and a project."""

    def __init__(self, home: Path, project: Path, env: dict[str, str]) -> None:
        self.project = project
        self.env = {**CLEAN, "HOME": str(home), "TMPDIR": str(home),
                    "INTERCORE_LOCK_DIR": str(home / "locks"), **env}  # fmt: skip
        (home / ".intercore").mkdir(parents=True)
        for script in EXAMPLES.glob("*.sh"):
            shutil.copy(script, home / ".intercore")

    def run(self, agent: str, event: str, line: str, **env: str) -> tuple[int, str, str]:
        sent = (EVENTS / agent / f"{event}.json").read_text("utf-8")
        ran = subprocess.run(
            ["sh", "-c", line], cwd="/", env=self.env | env, timeout=PATIENCE * 3, check=False,
            input=sent.replace(PLACE, str(self.project)), capture_output=True, text=True,
        )  # fmt: skip
        return ran.returncode, ran.stdout, ran.stderr

    def icctl(self, *argv: str) -> str:
        done = icctl(*argv, cwd=self.project, env=self.env)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()


@pytest.fixture
def host(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "daemon"))


@pytest.fixture
def machine(
    tmp_path: Path, initialized: Path, any_daemon: Daemon, door: Path, host: str
) -> Machine:
    reach = {"daemon": {"INTERCORE_SOCKET": any_daemon.socket, "INTERCORE_MODE": "daemon"},
             "direct": {"INTERCORE_MODE": "direct"}}  # fmt: skip
    return Machine(tmp_path / "home", initialized, {**reach[host], "INTERCORE_TIMEOUT": "30s"})


@AGENT
@HOST
def test_the_stop_guard_blocks_once_and_only_for_open_work(machine, agent, host):
    event, line = command(agent, "stop-guard.sh")

    assert machine.run(agent, event, line) == (0, "", "")
    machine.icctl("state", "set", "open-work", session(agent), "--value", json.dumps(OPEN))
    status, out, err = machine.run(agent, event, line)
    again = machine.run(agent, event, line)

    if agent == "cursor":
        assert (status, err) == (0, "")
        assert json.loads(out) == {"followup_message": f'Not finished yet: "{OPEN}"'}
    else:
        assert (status, out, err) == (2, "", f'Not finished yet: "{OPEN}"\n')
    assert again == (0, "", "")


QUIET = {"cursor": "{}\n"}  # which wants JSON from every hook


@AGENT
@HOST
def test_the_claim_lets_one_session_edit_and_names_it_to_another(machine, agent, host):
    event, line = command(agent, "edit-claim.sh")
    held_by_me = (0, QUIET.get(agent, ""), "")

    assert machine.run(agent, event, line) == held_by_me
    assert machine.run(agent, event, line) == held_by_me
    held = machine.icctl("coordination", "list").splitlines()
    assert [each.split("\t")[1:5] for each in held] == [
        [session(agent), "exclusive", ".", "src/app.py"]
    ]

    machine.icctl("coordination", "release", f"--owner={session(agent)}")
    machine.icctl("coordination", "reserve", "--path=src/app.py", "--owner=another", "--ttl=1h")
    status, out, err = machine.run(agent, event, line)

    assert (status, err) == (0, "")
    assert "Another session is editing this file: src/app.py is held" in out
    assert "by another" in out
    assert re.search(r'"(deny|block)"', out), "what the agent takes for a refusal"


@pytest.mark.parametrize("name", ["src/../src/./app.py", "{}//src/app.py", "{}/link/app.py"])
def test_all_names_of_a_file_are_one_claim(machine, name):
    (machine.project / "src").mkdir()
    (machine.project / "link").symlink_to("src")
    _, line = command("claude", "edit-claim.sh")
    sent = {"hook_event_name": "PreToolUse", "session_id": "s1", "cwd": str(machine.project)}
    sent |= {"tool_name": "Edit", "tool_input": {"file_path": name.format(machine.project)}}

    done = subprocess.run(
        ["sh", "-c", line], input=json.dumps(sent), text=True, cwd="/", env=machine.env, check=False
    )

    assert done.returncode == 0
    held = [each.split("\t") for each in machine.icctl("coordination", "list").splitlines()]
    assert ["s1", "src/app.py"] in [[each[1], each[4]] for each in held]


@AGENT
@HOST
def test_the_start_of_a_session_is_told_where_the_project_stands(machine, agent, host, tmp_path):
    event, line = command(agent, "session-start.sh")
    env_file = tmp_path / "env"

    assert machine.run(agent, event, line, CLAUDE_ENV_FILE=str(env_file)) == (0, "", "")
    run = machine.icctl("run", "create", "--goal=x").strip()
    machine.icctl("lease", "acquire", "edit", 'a "b"\\c', "--owner=another", "--ttl=1h")
    machine.icctl("coordination", "reserve", "--pattern=src/", "--owner=another")
    status, out, err = machine.run(agent, event, line)

    told = (
        f"This project works on run {run}, which is in the phase brainstorm.\n"
        'Session another has claimed edit a "b"\\c: leave it alone.\n'
        "Session another is editing src/**: leave it alone."
    )
    assert (status, err) == (0, "")
    if agent == "gemini":
        context = {"hookEventName": "SessionStart", "additionalContext": told}
        assert json.loads(out) == {"hookSpecificOutput": context}
    elif agent == "cursor":
        env = {"INTERCORE_SESSION": session(agent)}
        assert json.loads(out) == {"additional_context": told, "env": env}
    else:
        assert out == told + "\n"
    if agent == "claude":
        assert env_file.read_text() == f"export INTERCORE_SESSION={session(agent)}\n"


@AGENT
def test_formatters_run_one_after_the_other(machine, agent):
    event, line = command(agent, "format-one-at-a-time.sh")
    file = machine.project / "src" / "app.py"
    file.parent.mkdir()
    file.write_text("x")
    program = machine.project / "formatter"
    program.write_text(
        '#!/bin/sh\nmkdir busy || exit 9\nprintf "%s\\n" "$1" >>formatted\nrmdir busy\n'
    )
    program.chmod(0o755)
    sent = (EVENTS / agent / f"{event}.json").read_text("utf-8")

    running = [
        subprocess.Popen(
            ["sh", "-c", f"{line} ./formatter"], cwd="/", env=machine.env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]  # fmt: skip
    ends = [each.communicate(sent.replace(PLACE, str(machine.project))) for each in running]

    assert [each.returncode for each in running] == [0] * 6, ends
    assert ends == [("", "")] * 6
    edited = "src/app.py" if agent == "codex" else str(file)
    assert (machine.project / "formatted").read_text() == f"{edited}\n" * 6


@HOST
def test_the_statusline_of_the_settings_shows_run_and_model(machine, host):
    _event, line = command("claude", "statusline")
    run = machine.icctl("run", "create", "--goal=x", f"--session={session('claude')}").strip()
    own = '"$HOME"/.intercore/statusline.sh'

    shown = machine.run("claude", "StatusLineOfPlan", line, NO_COLOR="1", COLUMNS="100")
    without = machine.run("claude", "StatusLine", line, NO_COLOR="1", COLUMNS="100")

    expected = f"Opus 4.6 | ctx 42% | $0.42 | 5h 24% | 7d 41% | run {run} brainstorm\n"
    assert shown == (0, expected, "")
    assert without == (0, f"Opus 5.5 | ctx 0% | $0.00 | run {run} brainstorm\n", "")
    assert machine.run("claude", "StatusLine", own) == (0, f"run {run} [brainstorm]\n", "")


# --- nothing to work with ---


def no_program(machine: Machine) -> None:
    machine.env["PATH"] = "/usr/bin:/bin"


def no_database(machine: Machine) -> None:
    shutil.rmtree(machine.project / ".clavain")


def broken_database(machine: Machine) -> None:
    for file in (machine.project / ".clavain").glob("intercore.db*"):
        file.unlink()
    (machine.project / ".clavain" / "intercore.db").write_bytes(b"no database" * 1000)


def dead_daemon(machine: Machine) -> None:
    machine.env |= {"INTERCORE_SOCKET": f"{machine.project}/none.sock", "INTERCORE_MODE": "auto"}


def dead_daemon_only(machine: Machine) -> None:
    machine.env |= {
        "INTERCORE_SOCKET": f"{machine.project}/none.sock",
        "INTERCORE_MODE": "daemon",
        "INTERCORE_TIMEOUT": "100ms",
    }


TROUBLES = [no_program, no_database, broken_database, dead_daemon, dead_daemon_only]


@pytest.mark.parametrize("trouble", TROUBLES)
@AGENT
def test_no_trouble_of_ours_blocks_an_agent(machine, agent, trouble):
    trouble(machine)

    for event, line in hooks(agent):
        if "statusline" in line:
            continue
        status, out, _err = machine.run(agent, event, line)
        assert (status in (0, 1), out.strip("{}\n")) == (True, ""), (event, line)


@pytest.mark.parametrize("trouble", [no_database, broken_database, dead_daemon])
def test_the_statusline_has_the_models_part_whatever_happens(machine, trouble):
    _event, line = command("claude", "statusline")
    trouble(machine)

    status, out, _err = machine.run("claude", "StatusLineOfPlan", line, NO_COLOR="1")

    assert (status, out) == (0, "Opus 4.6 | ctx 42% | $0.42 | 5h 24% | 7d 41%\n")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_statusline_of_ones_own_ends_well_whatever_happens(machine, trouble):
    trouble(machine)

    status, out, _err = machine.run("claude", "StatusLine", '"$HOME"/.intercore/statusline.sh')

    assert (status, out.strip()) == (0, "")


# --- every event ---

ALL = sorted(EVENTS.glob("*/*.json"))
# What Claude Code sends to a status line; that of a subscriber tells the limits of the plan, too.
NO_HOOKS = ("StatusLine", "StatusLineOfPlan")
SHOW = 'intercore_event; printf "%s\\n" "$INTERCORE_AGENT" "$INTERCORE_SESSION" "$INTERCORE_EVENT" "$INTERCORE_TOOL" "$INTERCORE_FILE" "$INTERCORE_CWD"'


@pytest.mark.parametrize("file", ALL, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_event_is_understood(file):
    agent, name = file.parent.name, file.stem
    event = json.loads(file.read_text("utf-8"))
    edits = json.dumps(event.get("tool_input", "")) + json.dumps(event.get("edits", ""))

    with file.open("rb") as sent:
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"source {ROOT}/lib-intercore.sh; {SHOW}"],
            stdin=sent, capture_output=True, text=True, check=True, env={"PATH": os.defpath},
        )  # fmt: skip

    found = ran.stdout.split("\n")
    assert ran.stderr == ""
    assert found[0] == agent
    assert found[1] == session(agent)
    assert found[2] == event.get("hook_event_name", "")
    assert found[2] == name or name in NO_HOOKS
    assert found[3] == event.get("tool_name", "")
    expected = event.get("file_path", f"{PLACE}/src/app.py" if "app.py" in edits else "")
    if event.get("tool_name") == "apply_patch":
        expected = "src/app.py"
    assert found[4] == ("" if event.get("tool_name") == "Bash" else expected)
    assert found[5] == PLACE


def test_every_file_is_recorded_or_said_to_be_from_documentation():
    recorded = json.loads((EVENTS / "recorded.json").read_text("utf-8"))
    readme = (EVENTS / "README.md").read_text("utf-8")

    kept = {f"{agent}/{event}" for agent, told in recorded.items() for event in told["events"]}
    others = {f"{file.parent.name}/{file.stem}" for file in ALL} - kept

    assert kept <= {f"{file.parent.name}/{file.stem}" for file in ALL}
    assert {name for name in others if not name.startswith("cursor/")} == set(
        re.findall(r"^- `(\w+/\w+)`", readme, re.MULTILINE)
    )
    assert all(f"| {told['version']} |" in readme for told in recorded.values())


def test_every_event_of_the_settings_is_kept():
    for agent, event, _line in EVERY:
        assert (EVENTS / agent / f"{event}.json").is_file()


def test_every_example_is_in_the_readme():
    described = (EXAMPLES / "README.md").read_text("utf-8")

    shown = {*EXAMPLES.glob("*.sh"), *EXAMPLES.glob("settings/*")}
    assert {str(file.relative_to(EXAMPLES)) for file in shown} <= set(
        re.findall(r"\]\(([^)]+)\)", described)
    )
