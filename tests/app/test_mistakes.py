"""What is wrong with a command line, and what was meant: tests/data/mistakes.txt, line by line."""

import json
from pathlib import Path

import pytest

from icd.app import registry
from icd.app.invocation import Terminal
from icd.app.reference.mistakes import COMMANDS, SYNONYMS, distance, nearest
from tests.support import mistakes
from tests.support.processes import DOORS, Daemon, icctl

MISTAKES = mistakes.mistakes()


ABSENT: dict[str, bytes | str] = {"nowhere.json": "No such file or directory"}


def test_sixty_mistakes_are_told_in_one_line_and_nothing_is_on_stdout(ic, project):
    for one in (one for one in MISTAKES if not one.is_elsewhere):
        output = ic(*one.argv, files=ABSENT)

        told = output.stderr.decode().replace(str(project), "/project")
        assert (output.exit, output.stdout, told) == (one.exit, b"", f"{one.told}\n"), one.line
    assert len({one.line for one in MISTAKES}) >= 60


@pytest.mark.parametrize("door", ["python", "native"])
def test_mistakes_are_told_alike_through_every_door(
    door: str, initialized: Path, tmp_path: Path, daemon: Daemon
) -> None:
    """A sample: what is printed is made in one place."""
    program = DOORS / door / "icctl"
    if not program.exists():
        pytest.skip("no C compiler: the native client was not built")
    host = {"INTERCORE_MODE": "direct"} if door == "python" else {"INTERCORE_MODE": "daemon"}
    env = {**host, "INTERCORE_SOCKET": daemon.socket}

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    for one in [*MISTAKES[::9], *(one for one in MISTAKES if one.is_elsewhere)]:
        cwd = elsewhere if one.is_elsewhere else initialized
        done = icctl("--timeout=60s", *one.argv, cwd=cwd, env=env, program=program)

        told = done.stderr.decode().replace(str(elsewhere), "/elsewhere")
        assert (done.returncode, done.stdout, told) == (one.exit, b"", f"{one.told}\n"), one.line


def test_the_page_shows_every_mistake():
    assert mistakes.PAGE.read_text("utf-8") == mistakes.page(), "run make docs"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("", "", 0),
        ("abc", "", 3),
        ("abc", "abc", 0),
        ("abc", "acb", 1),  # two that changed places are one mistake
        ("abc", "bc", 1),
        ("abc", "abcd", 1),
        ("abc", "axc", 1),
        ("kitten", "sitting", 3),
        ("ca", "abc", 3),
    ],
)
def test_a_distance_counts_letters_that_were_added_dropped_replaced_or_swapped(
    one, other, expected
):
    assert distance(one, other) == distance(other, one) == expected


def test_the_nearest_two_names_are_told_and_none_that_is_far():
    names = ["state", "status", "statusline", "sentinel"]

    assert nearest("stat", names) == ["state", "status"]
    assert nearest("Sentinal", names) == ["sentinel"]
    assert nearest("xyz", names) == []
    assert nearest("s" * 1_000_000, names) == []


def test_what_is_suggested_for_words_of_other_tools_exists():
    nouns = {name.partition(" ")[0] for name in registry.GROUPS}
    known = nouns | set(registry.SINGLES) | set(registry.commands()) | set(registry.GROUPS)
    verbs = {name.rpartition(" ")[2] for name in registry.commands()} | {"--help"}

    assert {name for meant in COMMANDS.values() for name in meant} <= known | {
        "events tail -f",
        "help",
    }
    assert {name for meant in SYNONYMS.values() for name in meant.split()} <= verbs


def test_a_word_of_a_megabyte_is_neither_compared_nor_repeated(invoke):
    """Comparing takes as long as both words are, multiplied: this would take hours."""
    assert len(invoke("state", "x" * 1_000_000).stderr) < 300
    assert len(invoke("x" * 1_000_000).stderr) < 300
    assert len(invoke("state", "get", "k", "s", "--" + "x" * 1_000_000).stderr) < 300


@pytest.mark.parametrize(
    "argv", [["stat"], ["state", "get", "k"], ["--timeout=x", "state", "list"]]
)
def test_an_error_is_json_where_that_is_asked_for(invoke, argv):
    output = invoke(*argv, "--json-errors", program="ic")

    error = json.loads(output.stderr)["error"]
    assert (output.exit, output.stdout, output.stderr.count(b"\n")) == (3, b"", 1)
    assert (error["name"], error["exit"], error["code"]) == ("usage", 3, -32001)
    assert "icctl" not in error["hint"]
    assert error["message"] in invoke(*argv).stderr.decode()


def test_an_error_of_a_call_is_json_with_its_facts(ic):
    output = ic("run", "status", "nope", "--json-errors")

    error = json.loads(output.stderr)["error"]
    assert (output.exit, output.stdout) == (1, b"")
    assert (error["name"], error["command"]) == ("run_not_found", "run status")


def test_without_the_flag_json_output_leaves_errors_as_text(ic):
    """Scripts that ask for --json read the text of errors."""
    assert ic("run", "status", "nope", "--json").stderr.startswith(b"icctl: run status: not found")


def test_what_stands_behind_two_dashes_is_no_flag(invoke):
    output = invoke("state", "get", "k", "s", "--", "--json-errors")

    assert output.stderr.startswith(b"icctl: ")


@pytest.mark.parametrize("argv", [["--version"], ["-V"], ["--json", "--version"]])
def test_the_version_is_an_option_too(invoke, argv):
    assert invoke(*argv).method == "db.schema"


def test_the_program_alone_is_a_screenful_for_a_person_and_everything_for_a_pipe(invoke):
    person = invoke(terminal=Terminal()).stdout.decode()
    pipe = invoke().stdout

    assert pipe == invoke("--help").stdout == invoke("--help", terminal=Terminal()).stdout
    assert len(person.splitlines()) <= 36
    assert all(f"  {noun} " in person for noun in registry.GROUPS if " " not in noun)
    assert "doctor" in person
