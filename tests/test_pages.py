"""Pages for newcomers happen as they are written: the quickstart and every recipe, in a fresh home."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import comparison, pages, picture
from tests.support.processes import BIN, CLEAN, Daemon, icctl

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART = (DOCS / "quickstart.md").read_text(encoding="utf-8")
COOKBOOK = (DOCS / "cookbook.md").read_text(encoding="utf-8")
RECIPES = {title: body for title, body in pages.sections(COOKBOOK).items() if pages.steps(body)}
COMMON = pages.files(pages.sections(COOKBOOK)["Before you start"])


# Without a daemon each line of a recipe starts a Python.
@pytest.fixture(params=["daemon", pytest.param("direct", marks=pytest.mark.long)])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The environment of a new user: an empty home, and a daemon or none."""
    home = tmp_path / "home"
    home.mkdir()
    fresh = {**CLEAN, "HOME": str(home), "INTERCORE_LOCK_DIR": str(tmp_path / "locks")}
    if request.param == "direct":
        return {**fresh, "INTERCORE_MODE": "direct"}
    daemon: Daemon = request.getfixturevalue("shared_daemon")
    return {**fresh, "INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": daemon.socket}


# --- the cookbook ---------------------------------------------------------------------------


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_happens_as_shown(title: str, project: Path, env: dict[str, str]):
    pages.write(project, COMMON | pages.files(RECIPES[title]))
    session = [("icctl init >/dev/null\n", ""), *pages.steps(RECIPES[title])]

    pages.play(session, project, env)


def test_the_cookbook_has_what_hook_authors_need():
    assert len(RECIPES) >= 10


@pytest.mark.parametrize("name", [name for name in pages.files(COOKBOOK) if name not in COMMON])
def test_a_hook_blocks_no_agent_where_there_is_no_database(name: str, project: Path):
    pages.write(project, pages.files(COOKBOOK))
    event = '{"session_id":"a","transcript_path":"t","tool_input":{"file_path":"/no/such/file"}}'
    env = {**CLEAN, "HOME": str(project), "INTERCORE_MODE": "direct"}
    env["INTERCORE_LOCK_DIR"] = str(project / "locks")

    ran = subprocess.run(
        [project / name], cwd=project, env=env, input=event, capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_settings_of_the_cookbook_name_every_hook_with_its_event():
    (block,) = pages.blocks(COOKBOOK, "json")
    settings = json.loads(block)
    registered = {
        re.sub(r'"\$CLAUDE_PROJECT_DIR"/', "", hook["command"]): event
        for event, groups in settings["hooks"].items()
        for group in groups
        for hook in group["hooks"]
    }
    status = settings["statusLine"]["command"].removeprefix('"$CLAUDE_PROJECT_DIR"/')

    shown = dict(re.findall(r"^# (\S+\.sh) \((\w+)", COOKBOOK, re.MULTILINE))
    assert {**registered, status: "statusLine"} == shown


def test_the_contents_of_the_cookbook_are_complete():
    listed = re.findall(r"^- \[(.+)\]\(#", COOKBOOK, re.MULTILINE)

    assert listed == list(pages.sections(COOKBOOK))


def test_the_scripts_of_the_cookbook_are_clean(tmp_path: Path):
    shown = pages.files(COOKBOOK)
    pages.write(tmp_path, shown)

    # event.sh is sourced, and defines `session`; `$? -eq 1` is the clearest way to say it.
    ran = subprocess.run(
        [BIN / "shellcheck", "--shell=bash", "--exclude=SC1091,SC2154,SC2034,SC2181", *shown],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout == ""


# --- the quickstart -------------------------------------------------------------------------


@pytest.fixture
def newcomer(tmp_path: Path) -> dict[str, str]:
    """A home that is empty, and a PATH without intercore; pip finds packages, but no network."""
    home, programs = tmp_path / "home", tmp_path / "programs"
    home.mkdir()
    programs.mkdir()
    (programs / "python3").symlink_to(os.path.realpath(sys.executable))
    return {
        "HOME": str(home),
        "PATH": f"{home}/.local/bin:{programs}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(ROOT / ".venv" / "packages"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "INTERCORE_SOCKET": str(tmp_path / "icd.sock"),
        "INTERCORE_LOCK_DIR": str(tmp_path / "locks"),
    }


def checkout(target: Path) -> Path:
    hidden = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
    return Path(shutil.copytree(ROOT, target, ignore=hidden))


def paste(title: str, where: Path, env: dict[str, str]) -> None:
    """What a section tells to type, as it is written."""
    for block in pages.blocks(pages.sections(QUICKSTART)[title], "sh"):
        ran = subprocess.run(
            ["bash", "-ec", block], cwd=where, env=env, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr


def stop(session: str, project: Path, env: dict[str, str]) -> tuple[int, str, str]:
    """What Claude Code does with the settings when a turn ends."""
    settings = json.loads((project / ".claude" / "settings.json").read_text())
    ((group,),) = settings["hooks"].values()
    (hook,) = group["hooks"]
    event = {
        "session_id": session,
        "transcript_path": f"{env['HOME']}/.claude/projects/x/{session}.jsonl",
        "cwd": str(project),
        "permission_mode": "default",
        "hook_event_name": "Stop",
        "stop_hook_active": False,
    }
    ran = subprocess.run(
        ["sh", "-c", hook["command"]],
        cwd=project,
        env={**env, "CLAUDE_PROJECT_DIR": str(project)},
        input=json.dumps(event),
        capture_output=True,
        text=True,
        timeout=hook["timeout"] * 6,  # a loaded machine is no failure
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_quickstart_ends_with_a_working_guard(newcomer, project, tmp_path):
    assert shutil.which("icctl", path=newcomer["PATH"]) is None
    told = (2, "", "Run the tests, and mend what fails, before you stop.\n")
    install, *rest, attempt, _faster, _next = pages.sections(QUICKSTART)

    paste(install, checkout(tmp_path / "checkout"), newcomer)
    for title in rest:
        paste(title, project, newcomer)
    pages.play(pages.steps(pages.sections(QUICKSTART)[attempt]), project, newcomer)

    assert stop("3f1c", project, newcomer) == told
    assert stop("3f1c", project, newcomer) == (0, "", "")
    daemon = Daemon(env=newcomer, command=[f"{newcomer['HOME']}/.local/bin/icd"])
    try:
        through = {
            **newcomer,
            "INTERCORE_SOCKET": daemon.start().socket,
            "INTERCORE_MODE": "daemon",
        }
        assert stop("9a2e", project, through) == told
        assert stop("3f1c", project, through) == (0, "", "")
    finally:
        daemon.close()


def test_the_quickstart_keeps_settings_that_exist(newcomer, project):
    settings = project / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")

    paste("4. Tell Claude Code", project, newcomer)

    assert settings.read_text() == "{}"


# --- the agents -----------------------------------------------------------------------------

AGENTS = (DOCS / "agents.md").read_text(encoding="utf-8")


def test_the_session_with_an_agent_happens_as_shown(project: Path, env: dict[str, str]):
    pages.play(pages.steps(AGENTS), project, env)


@pytest.mark.parametrize(
    ("title", "words", "file"),
    [
        ("Claude Code", "claude", ".claude/settings.json"),
        ("Codex", "codex", ".codex/hooks.json"),
        ("Gemini CLI", "gemini", ".gemini/settings.json"),
        ("Cursor", "cursor", ".cursor/hooks.json"),
    ],
)
def test_the_file_of_an_agent_is_as_shown(title, words, file, project, tmp_path):
    (shown,) = pages.blocks(pages.sections(AGENTS)[title], "json")

    icctl("setup", words, "--project", cwd=project, env={"HOME": str(tmp_path)})

    assert (project / file).read_text() == shown


# --- the README -----------------------------------------------------------------------------


def test_the_picture_is_what_the_program_shows_today():
    drawn = picture.draw(picture.record())

    assert picture.PICTURE.read_text(encoding="utf-8") == drawn, "run make picture"


@pytest.mark.parametrize("path", comparison.PAGES, ids=lambda path: path.name)
def test_every_figure_of_the_comparison_was_measured(path: Path):
    text = path.read_text(encoding="utf-8")

    assert text == comparison.page(text), "run make docs"
    _table, rest = text.split(comparison.END)
    assert not re.search(r"\d ?ms\b", rest.replace("100 ms", "")), "a figure outside the table"


def test_the_readme_leads_to_every_page():
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", README))

    assert {page.name for page in DOCS.glob("*.md")} - linked == set()


def test_the_readme_has_four_groups_of_links():
    documentation = pages.sections(README)["Documentation"]

    groups = re.findall(r"^\*\*(\w+)\*\*$", documentation, re.MULTILINE)
    assert groups == ["Start", "Concepts", "Reference", "Inside"]


# Made from the program, or quoting it: `tests/test_house.py` counts these words there.
MADE = {"cli.md", "protocol.md", "performance.md", "secrets.md", "troubleshooting.md"}


@pytest.mark.parametrize("page", sorted({page.name for page in DOCS.glob("*.md")} - MADE))
def test_a_page_says_who_acts(page: str):
    text = re.sub(r"\]\([^)]*\)", "]", (DOCS / page).read_text(encoding="utf-8"))

    assert re.findall(r"(?i)\b(?:whoever|somebody|nobody)\b", text) == []


def test_the_glossary_is_sorted_and_each_word_stands_once():
    glossary = pages.sections((DOCS / "concepts.md").read_text(encoding="utf-8"))["Glossary"]
    words = re.findall(r"^\| \*\*(.+?)\*\*", glossary, re.MULTILINE)

    assert len(words) >= 20
    assert words == sorted(set(words), key=str.lower)
