"""`icctl setup`: files of agents before and after, and directories that try to trick it."""

import json
import os
import shutil
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.admin.setup import store, verbs
from icd.admin.setup.agents import AGENTS
from icd.admin.setup.verbs import Setup
from icd.app.invocation import Output, World
from icd.errors import AgentConfigChanged, AgentConfigRefused, IcError, Usage
from tests.support.agent_configurations import CLAUDE, REFUSED, TOML, TOML_REFUSED

HOOKS = {
    "claude": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
}


class Machine:
    """A home directory, a project, and `icctl setup` for its user."""

    def __init__(self, root: Path) -> None:
        self.home, self.project = root / "home", root / "project"
        self.bin = root / "bin"
        for directory in (self.home, self.project / ".git", self.bin):
            directory.mkdir(parents=True)
        self.icctl = self.bin / "icctl"
        self.icctl.write_text("#!/bin/sh\n")
        self.icctl.chmod(0o755)
        self.env = {"HOME": str(self.home), "PATH": str(self.bin)}

    def setup(self, agent: str | None = None, **flags: bool) -> Output:
        env = dict(self.env)
        world = World([], str(self.project), time.monotonic() + 60, host="direct", env=env)
        return verbs.setup(world, Setup(agent, **flags))  # type: ignore[arg-type]

    def json(self, agent: str | None = None, **flags: bool) -> dict[str, list[dict[str, str]]]:
        world = World([], str(self.project), 0.0, env=dict(self.env), json=True)
        found = json.loads(verbs.setup(world, Setup(agent, **flags)).stdout)  # type: ignore[arg-type]
        assert isinstance(found, dict)
        return found

    def file(self, agent: str, *, project: bool = False) -> Path:
        return (self.project if project else self.home) / HOOKS[agent]

    def copies(self) -> list[bytes]:
        share = self.home / store.SHARE
        return [
            p.read_bytes() for p in sorted(share.iterdir()) if p.suffix != ".lock" and "-" in p.name
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def written(path: Path, content: bytes | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if content is not None:
        path.write_bytes(content)


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def tree(root: Path) -> dict[str, bytes | None]:
    """Everything below a directory but what we keep for ourselves."""
    found = (p for p in root.rglob("*") if ".local" not in p.parts)
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in found}


# --- the round trip -------------------------------------------------------------------------


@pytest.mark.parametrize("project", [False, True], ids=["user", "project"])
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", CLAUDE)
def test_setup_and_remove_leave_the_file_as_it_was(machine, agent, name, project):
    path = machine.file(agent, project=project)
    written(path, CLAUDE[name])
    before = tree(machine.home), tree(machine.project)

    assert machine.setup(agent, project=project, check=True).exit == 1
    assert machine.setup(agent, project=project, mcp=True).exit == 0
    assert machine.setup(agent, project=project, check=True, mcp=True).exit == 0
    after = tree(machine.home), tree(machine.project)
    machine.setup(agent, project=project, mcp=True)
    assert (tree(machine.home), tree(machine.project)) == after != before
    assert machine.setup(agent, project=project, remove=True).exit == 0

    assert (tree(machine.home), tree(machine.project)) == before


@pytest.mark.parametrize("name", TOML)
def test_the_file_of_codex_servers_is_as_it_was(machine, name):
    path = machine.home / ".codex/config.toml"
    written(path, TOML[name])

    machine.setup("codex", mcp=True)
    assert machine.setup("codex", mcp=True, check=True).exit == 0
    machine.setup("codex", remove=True)

    assert content(path) == TOML[name]


def test_a_file_that_a_user_made_where_ours_was_is_the_users(machine):
    path = machine.file("claude")
    machine.setup("claude")
    shutil.rmtree(path.parent)
    machine.setup("claude", remove=True)
    written(path, b"{}")

    machine.setup("claude")
    machine.setup("claude", remove=True)

    assert content(path) == b"{}"


def test_an_agent_that_was_never_here_leaves_no_trace(machine):
    for agent in AGENTS:
        for project in (False, True):
            machine.setup(agent, project=project, mcp=True)
    assert tree(machine.project).keys() > {".git"}

    for agent in AGENTS:
        for project in (False, True):
            machine.setup(agent, project=project, remove=True)

    assert tree(machine.project) == {".git": None}
    assert tree(machine.home) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["setup", "mcp", "remove", "edit", "unedit"]), max_size=6))
def test_in_any_order_what_is_left_is_the_users(tmp_path_factory, steps):
    machine = Machine(tmp_path_factory.mktemp("machine"))
    path = machine.file("gemini")
    text = '{\n  "theme": "x",\n  "hooks": {\n    "Stop": []\n  }\n}\n'
    written(path, text.encode())

    for step in steps:
        if step == "edit":
            path.write_text(path.read_text().replace('"x"', '"y"'))
        elif step == "unedit":
            path.write_text(path.read_text().replace('"y"', '"x"'))
        else:
            machine.setup("gemini", mcp=step == "mcp", remove=step == "remove")
    machine.setup("gemini", remove=True)

    theme = [step for step in steps if step.endswith("edit")]
    wanted = text.replace('"x"', '"y"') if theme and theme[-1] == "edit" else text
    assert path.read_text() == wanted


def test_changes_of_others_meanwhile_stay(machine):
    path = machine.file("claude")
    written(path, b'{\n  "model": "opus",\n  "hooks": {}\n}\n')
    machine.setup("claude")
    path.write_bytes(path.read_bytes().replace(b'"opus"', b'"sonnet"'))

    machine.setup("claude", remove=True)

    assert json.loads(path.read_bytes()) == {"model": "sonnet"}


def test_a_file_that_we_made_stays_if_others_use_it(machine):
    machine.setup("cursor")
    path = machine.file("cursor")
    found = json.loads(path.read_bytes())
    found["hooks"]["stop"] = [{"command": "./mine"}]
    path.write_text(json.dumps(found, indent=4))

    machine.setup("cursor", remove=True)

    assert json.loads(path.read_bytes()) == {
        "version": 1,
        "hooks": {"stop": [{"command": "./mine"}]},
    }


def test_a_file_that_another_program_formatted_anew_loses_only_our_entries(machine):
    path = machine.file("claude")
    written(path, CLAUDE["typical"])
    machine.setup("claude")
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=7))

    machine.setup("claude", remove=True)

    assert json.loads(path.read_bytes()) == json.loads(CLAUDE["typical"])


def test_a_project_is_undone_on_another_machine(machine, tmp_path):
    path = machine.file("claude", project=True)
    written(path, CLAUDE["typical"])
    machine.setup("claude", project=True)
    other = Machine(tmp_path / "other")
    written(other.file("claude", project=True), path.read_bytes())

    assert other.setup("claude", project=True, check=True).exit == 0
    other.setup("claude", project=True, remove=True)

    assert content(other.file("claude", project=True)) == CLAUDE["typical"]


# --- what is written ------------------------------------------------------------------------


def test_the_users_entries_name_the_program_and_a_projects_do_not(machine):
    machine.setup("claude")
    machine.setup("claude", project=True)

    own = json.loads(machine.file("claude").read_bytes())
    shared = json.loads(machine.file("claude", project=True).read_bytes())
    assert own["statusLine"]["command"] == f"{machine.icctl} --timeout=2s statusline --from=claude"
    assert shared["statusLine"]["command"] == "icctl --timeout=2s statusline --from=claude"
    assert own["hooks"]["SessionStart"][0]["hooks"][0]["command"].endswith("/icctl service ensure")


def test_a_status_line_of_the_users_own_is_left_alone(machine):
    path = machine.file("claude")
    written(path, b'{"statusLine": {"type": "command", "command": "date"}}')

    done = machine.json("claude")

    assert [row["state"] for row in done["entries"]] == ["added", "yours, left alone"]
    assert json.loads(path.read_bytes())["statusLine"]["command"] == "date"
    assert machine.setup("claude", check=True).exit == 0


def test_what_a_user_edited_is_left_and_told(machine):
    path = machine.file("claude")
    machine.setup("claude")
    path.write_bytes(path.read_bytes().replace(b'"timeout": 10', b'"timeout": 60'))
    edited = path.read_bytes()

    assert machine.json("claude")["entries"][0]["state"] == "present, edited by you"
    assert path.read_bytes() == edited
    states = [row["state"] for row in machine.json("claude", remove=True)["entries"]]

    assert states == ["kept, edited by you", "removed"]
    assert json.loads(path.read_bytes())["hooks"]["SessionStart"][0]["hooks"][0]["timeout"] == 60


def test_an_entry_whose_program_has_gone_is_told_and_mended(machine):
    path = machine.file("codex")
    machine.setup("codex")
    path.write_bytes(path.read_bytes().replace(str(machine.bin).encode(), b"/no/such/place"))

    assert machine.setup("codex", check=True).exit == 1
    assert machine.json("codex")["entries"][0]["state"] == "updated"
    assert machine.setup("codex", check=True).exit == 0


def test_the_mode_of_a_file_stays(machine):
    path = machine.file("claude")
    written(path, b"{}")
    path.chmod(0o640)

    machine.setup("claude")

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_is_made_in_the_home_directory_is_private(machine):
    machine.setup("claude")

    assert stat.S_IMODE(machine.file("claude").stat().st_mode) == 0o600
    assert stat.S_IMODE((machine.home / ".claude").stat().st_mode) == 0o700


def test_a_copy_of_what_was_there_is_kept_and_told(machine):
    path = machine.file("claude")
    written(path, CLAUDE["comments"])

    done = machine.json("claude")

    (copy,) = done["copies"]
    assert Path(str(copy)).read_bytes() == CLAUDE["comments"]
    assert tree(machine.home).keys() == {".claude", ".claude/settings.json"}


def test_copies_do_not_pile_up(machine):
    for _ in range(8):
        machine.setup("claude")
        machine.setup("claude", remove=True)

    assert len(machine.copies()) <= store.COPIES


def test_a_link_in_the_home_directory_is_kept(machine):
    real = machine.home / "dotfiles/claude.json"
    written(real, b'{"a": 1}')
    path = machine.file("claude")
    path.parent.mkdir()
    path.symlink_to(real)

    machine.setup("claude")
    assert path.is_symlink()
    assert b"icctl" in real.read_bytes()
    machine.setup("claude", remove=True)

    assert real.read_bytes() == b'{"a": 1}'


def test_the_agents_own_variables_say_where_their_files_are(machine, tmp_path):
    machine.env |= {"CODEX_HOME": str(tmp_path / "cx"), "CLAUDE_CONFIG_DIR": str(tmp_path / "cl")}

    machine.setup("codex", mcp=True)
    machine.setup("claude", mcp=True)

    assert (tmp_path / "cx/hooks.json").exists()
    assert (tmp_path / "cx/config.toml").exists()
    assert (tmp_path / "cl/settings.json").exists()
    assert (tmp_path / "cl/.claude.json").exists()


# --- without writing ------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
def test_a_dry_run_shows_a_diff_and_writes_nothing(machine, agent):
    written(machine.file(agent), CLAUDE["typical"])
    before = tree(machine.home)

    shown = machine.setup(agent, dry_run=True, mcp=True)

    assert tree(machine.home) == before
    assert not (machine.home / ".local").exists()
    assert shown.stdout.startswith(b"--- ")
    assert b"\n+" in shown.stdout


def test_a_dry_run_of_a_removal_shows_the_way_back(machine):
    machine.setup("cursor")

    shown = machine.setup("cursor", remove=True, dry_run=True).stdout.decode()

    assert "+++ /dev/null" in shown
    assert machine.file("cursor").exists()


def test_a_diff_cannot_command_a_terminal(machine):
    written(machine.file("claude"), b'{"a": 1 // \x1b[2J\n}')

    assert b"\x1b" not in machine.setup("claude", dry_run=True).stdout


def test_a_check_says_what_is_missing(machine):
    written(machine.file("claude"), b"{}")

    shown = machine.setup("claude", check=True, mcp=True)

    assert shown.exit == 1
    assert shown.stdout.decode().count("missing\t") == 3
    assert "icctl setup claude --mcp" in shown.stdout.decode()


def test_without_an_agent_it_says_what_it_found_and_what_to_type(machine):
    (machine.home / ".codex").mkdir()
    (machine.bin / "gemini").symlink_to(machine.icctl)

    shown = machine.setup().stdout.decode()

    assert shown == (
        "found Codex; to set it up: icctl setup codex\n"
        "found Gemini CLI; to set it up: icctl setup gemini\n"
    )


def test_a_file_that_is_refused_keeps_no_other_agent_from_being_checked(machine):
    written(machine.file("claude"), b"{")
    written(machine.file("cursor"), b"{}")

    shown = machine.setup(check=True)

    assert shown.exit == 2
    assert "Claude Code: " in shown.stdout.decode()
    assert "missing\t" in shown.stdout.decode()


def test_a_table_in_a_form_of_its_own_is_there_all_the_same(machine):
    path = machine.home / ".codex/config.toml"
    written(path, b'mcp_servers.intercore = {command = "icctl", args = ["mcp"]}\n')

    assert machine.json("codex", mcp=True)["entries"][1]["state"] == "present"
    assert machine.setup("codex", mcp=True, check=True).exit == 0
    refused(machine, "codex", remove=True)


def test_a_machine_without_agents_is_told_in_a_sentence(machine):
    shown = machine.setup()

    assert shown.exit == 1
    assert shown.stdout.startswith(b"found none of Claude Code, Codex, Gemini CLI, Cursor;")


@pytest.mark.parametrize(
    "flags", [{"user": True, "project": True}, {"check": True, "remove": True}]
)
def test_contradictions_are_mistakes(machine, flags):
    with pytest.raises(Usage):
        machine.setup("claude", **flags)


# --- what is not understood, and hostile directories ----------------------------------------


def refused(machine: Machine, agent: str = "claude", **flags: bool) -> IcError:
    before = tree(machine.home), tree(machine.project)
    with pytest.raises(AgentConfigRefused) as told:
        machine.setup(agent, **flags)
    assert (tree(machine.home), tree(machine.project)) == before
    assert told.value.hint
    return told.value


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_not_understood_is_refused_and_left(machine, name):
    written(machine.file("claude"), REFUSED[name])

    told = refused(machine)

    assert "settings.json" in told.message


@pytest.mark.parametrize("name", TOML_REFUSED)
def test_toml_that_is_not_understood_is_refused_before_anything_is_written(machine, name):
    written(machine.home / ".codex/config.toml", TOML_REFUSED[name])

    refused(machine, "codex", mcp=True)


def test_a_link_in_a_project_is_not_followed(machine, tmp_path):
    aim = tmp_path / "aim.json"
    aim.write_bytes(b"{}")
    path = machine.file("claude", project=True)
    path.parent.mkdir()
    path.symlink_to(aim)

    assert "symbolic link" in refused(machine, project=True).message
    assert aim.read_bytes() == b"{}"


def test_a_directory_that_is_a_link_is_not_followed(machine, tmp_path):
    (tmp_path / "aim").mkdir()
    (machine.project / ".claude").symlink_to(tmp_path / "aim")

    assert "symbolic link" in refused(machine, project=True).message
    assert list((tmp_path / "aim").iterdir()) == []


def test_a_dangling_link_in_a_project_makes_no_file(machine, tmp_path):
    path = machine.file("claude", project=True)
    path.parent.mkdir()
    path.symlink_to(tmp_path / "made")

    refused(machine, project=True)
    assert not (tmp_path / "made").exists()


def test_a_pipe_is_not_waited_for(machine):
    path = machine.file("claude", project=True)
    path.parent.mkdir()
    os.mkfifo(path)

    with pytest.raises(AgentConfigRefused, match="not a regular file"):
        machine.setup("claude", project=True)


def test_a_directory_in_the_place_of_the_file_is_refused(machine):
    machine.file("claude", project=True).mkdir(parents=True)

    refused(machine, project=True)


def test_a_huge_file_is_refused(machine):
    written(machine.file("claude", project=True), b'{"a": "' + b"x" * store.MOST_BYTES + b'"}')

    assert "more than" in refused(machine, project=True).message


def test_a_directory_that_all_can_write_to_is_refused(machine):
    machine.file("claude", project=True).parent.mkdir()
    machine.file("claude", project=True).parent.chmod(0o777)

    assert "writable by all users" in refused(machine, project=True).message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(machine):
    path = machine.file("claude", project=True)
    written(path, b"{}")
    os.chown(path, 12345, -1)

    assert "another user" in refused(machine, project=True).message


@pytest.mark.parametrize("place", ["program", "project", "home"])
def test_a_path_that_is_not_utf8_is_refused_with_a_sentence(tmp_path, place):
    strange = Path(os.fsdecode(bytes(tmp_path / "a") + b"\xff"))
    machine = Machine(strange if place != "program" else tmp_path)
    if place == "program":
        machine.bin.rename(strange)
        machine.env["PATH"] = str(strange)
    if place == "project":
        machine.env["HOME"] = str(tmp_path)

    with pytest.raises(AgentConfigRefused) as refused:
        machine.setup("claude", project=place == "project")

    assert refused.value.message.startswith(f"the path {tmp_path}/a\\xff")
    assert refused.value.message.endswith("is not UTF-8, so no configuration can name it")
    assert not list(tmp_path.rglob("settings.json"))


def test_without_a_home_directory_nothing_is_done(machine):
    machine.env["HOME"] = "relative"

    refused(machine)


def test_a_file_that_was_not_asked_for_is_not_looked_at(machine):
    broken = machine.home / ".codex/config.toml"
    written(broken, b"{")

    assert machine.setup("codex").exit == 0
    assert machine.setup("codex", remove=True).exit == 0
    assert broken.read_bytes() == b"{"


def test_a_home_that_cannot_hold_a_copy_is_refused(machine):
    (machine.home / ".local").write_bytes(b"")

    assert ".local" in refused(machine).message


# --- two at once ----------------------------------------------------------------------------


def test_a_file_that_changes_meanwhile_is_left_as_it_is(machine):
    path = machine.file("claude")
    written(path, b"{}")
    place = store.own(str(path))
    seen = store.read(place)
    path.write_bytes(b'{"by": "another"}')

    with pytest.raises(AgentConfigChanged):
        store.write(place, seen, b'{"by": "us"}')
    with pytest.raises(AgentConfigChanged):
        store.delete(place, seen)

    assert path.read_bytes() == b'{"by": "another"}'
    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]


def test_a_file_that_appears_meanwhile_is_left_as_it_is(machine):
    path = machine.file("claude")
    place = store.own(str(path))
    seen = store.read(place)
    written(path, b"{}")

    with pytest.raises(AgentConfigChanged):
        store.write(place, seen, b'{"by": "us"}')

    assert path.read_bytes() == b"{}"


def test_a_failure_between_record_and_file_loses_nothing(machine):
    path = machine.file("gemini")
    written(path, CLAUDE["empty hooks with room"])
    machine.setup("gemini")
    obstacle = path.parent / ".settings.json.intercore-draft"
    obstacle.mkdir()

    refused(machine, "gemini", mcp=True)
    obstacle.rmdir()
    machine.setup("gemini", remove=True)

    assert path.read_bytes() == CLAUDE["empty hooks with room"]


def test_a_draft_of_a_process_that_died_is_no_obstacle(machine):
    path = machine.file("claude")
    written(path, b"{}")
    (path.parent / ".settings.json.intercore-draft").write_bytes(b"half")

    machine.setup("claude")

    assert [p.name for p in path.parent.iterdir()] == ["settings.json"]


def test_a_record_that_is_broken_counts_as_none(machine):
    path = machine.file("claude")
    written(path, CLAUDE["typical"])
    machine.setup("claude")
    for record in (machine.home / store.SHARE).glob("*.json"):
        if "-" not in record.name:
            record.write_bytes(b"{")

    machine.setup("claude", remove=True)

    assert path.read_bytes() == CLAUDE["typical"]
