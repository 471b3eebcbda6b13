"""What contributors rely on: decisions, releases, targets of make, hooks of git."""

import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from icd import __version__

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Consequences", "What would change our mind"]
# Words that we no longer use for people and things; CONTRIBUTING.md has those that we use.
RETIRED = re.compile(r"\b(whoever|nobody|somebody|keyhole)\b", re.IGNORECASE)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- decisions ------------------------------------------------------------------------------


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(page.name[:4]) for page in DECISIONS]

    assert numbers == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name[:4])
def test_a_decision_has_the_style_of_all(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    number = int(page.name[:4])

    assert re.fullmatch(rf"# {number}\. [A-Z].*[^.]", lines[0])
    assert [line[3:] for line in lines if line.startswith("## ")] == SECTIONS
    assert lines[1:3] == ["", "## Context"]


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name[:4])
def test_a_decision_uses_no_retired_word(page: Path) -> None:
    assert not RETIRED.findall(page.name + page.read_text(encoding="utf-8"))


def test_the_index_of_decisions_has_one_line_for_each() -> None:
    listed = re.findall(
        r"^\| (\d+) \| \[(.+)\]\((.+)\) \| .+ \|$", read("docs/adr/README.md"), re.MULTILINE
    )

    titles = [page.read_text(encoding="utf-8").splitlines()[0] for page in DECISIONS]
    assert [f"# {number}. {title}" for number, title, _ in listed] == titles
    assert [name for _, _, name in listed] == [page.name for page in DECISIONS]


# --- releases -------------------------------------------------------------------------------


def test_the_changelog_has_releases_newest_first() -> None:
    heads = re.findall(r"^## (.*)$", read("CHANGELOG.md"), re.MULTILINE)

    assert heads[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", h) for h in heads[1:]]
    assert all(released)
    versions = [tuple(map(int, found.groups())) for found in released if found]
    assert all(newer > older for newer, older in pairwise(versions))


def test_the_citation_names_a_version_that_the_changelog_knows() -> None:
    about = yaml.safe_load(read("CITATION.cff"))

    assert {"cff-version", "message", "title", "authors", "license", "version"} <= about.keys()
    assert about["version"] == __version__


# --- make -----------------------------------------------------------------------------------


def make(*words: str) -> str:
    done = subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))},
    )  # fmt: skip
    return done.stdout


def test_make_help_lists_every_target_with_a_sentence() -> None:
    phony = re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)
    listed = re.findall(r"^  (\w+) +([A-Z].*\.)$", make("help"), re.MULTILINE)

    assert sorted(" ".join(phony).split()) == [name for name, _ in listed]
    assert "without one: test" in make("help")


def test_make_run_installs_no_test_tools() -> None:
    planned = make("--dry-run", "--always-make", "run")

    assert "-r requirements.txt" not in planned
    assert "-c requirements.txt --no-build-isolation -e ." in planned
    assert "In a second terminal" in planned
    assert planned.rstrip().endswith("icd serve")


def test_ci_runs_every_test_once_and_make_test_the_shorter_ones() -> None:
    def tests_of(target: str) -> list[str]:
        return [line for line in make("--dry-run", target).splitlines() if "-m pytest" in line]

    (shorter,), (first, then) = tests_of("test"), tests_of("check")

    assert read(".ci/run").endswith("\nmake check\n")
    assert shorter.rstrip().endswith(' -m "not long"')
    assert first == f"{shorter.rstrip()} --cov --cov-report= --cov-fail-under=0"
    assert " -m long --cov " in then
    assert not re.search("--(last-failed|lf|reruns)", read("Makefile"))


# --- git and GitHub -------------------------------------------------------------------------


def test_hooks_of_git_use_only_what_make_installs() -> None:
    config = yaml.safe_load(read(".pre-commit-config.yaml"))

    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    for hook in config["repos"][0]["hooks"]:
        if hook["language"] == "system":
            assert (BIN / Path(hook["entry"].split()[0]).name).exists()


@pytest.mark.parametrize(
    "subject, accepted",
    [
        ("state: refuse intervals over 300 years", True),
        ("docs, make: say it once\n\nA body may be longer than the subject, by as much as it needs.", True),
        ("Merge branch 'x'", True),
        ("Refuse intervals", False),
        ("state: " + "x" * 70, False),
    ],
)  # fmt: skip
def test_a_subject_has_an_area_and_at_most_72_characters(
    subject: str, accepted: bool, tmp_path: Path
) -> None:
    message = tmp_path / "message"
    message.write_text(subject + "\n")
    shutil.copy(ROOT / ".pre-commit-config.yaml", tmp_path)
    git = ["git", "-C", tmp_path]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "."], check=True)

    done = subprocess.run(
        [BIN / "pre-commit", "run", "--hook-stage=commit-msg", f"--commit-msg-filename={message}"],
        cwd=tmp_path, capture_output=True, check=False,
        env={**os.environ, "HOME": str(tmp_path), "PRE_COMMIT_HOME": str(tmp_path / "cache")},
    )  # fmt: skip

    assert (done.returncode == 0) == accepted, done.stdout.decode()


def test_templates_of_github_can_be_read() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))

    assert [form.name for form in forms] == ["bug.yml", "config.yml", "idea.yml"]
    for form in forms:
        about = yaml.safe_load(form.read_text(encoding="utf-8"))
        assert form.name == "config.yml" or {"name", "description", "body"} <= about.keys()


# --- coding agents --------------------------------------------------------------------------


def test_agents_are_told_of_files_and_targets_that_exist() -> None:
    told = read("AGENTS.md")

    assert read("CLAUDE.md").strip() == "@AGENTS.md"
    for name in re.findall(r"`((?:icd|icctl|tests|docs|systemd)/[\w./-]*)`", told):
        assert (ROOT / name).exists(), name
    listed = set(re.findall(r"^  (\w+) ", make("help"), re.MULTILINE))
    assert set(re.findall(r"make (\w+)", told)) <= listed
