"""Client and daemon of different versions: who is told, and what."""

import json

import pytest

from icd import __version__
from icd.app import versions
from icd.app.call import Answer
from icd.app.invocation import World
from icd.app.planner import advance, plan
from icd.errors import NoDatabase, SchemaTooNew
from icd.features.statusline.store import Lane, Statusline


def told(client: str, **world: object) -> str:
    found = versions.skew(World([], "/", 0.0, client_version=client, **world))
    return found.line.decode()


@pytest.mark.parametrize("client", ["", __version__])
def test_an_equal_or_unknown_version_is_no_difference(client):
    line = ["state", "get", "k", "s"]

    assert plan(World(line, "/", 0.0, client_version=client)).skew is None


@pytest.mark.parametrize("client", ["99.0", "99.1.2", "0.1000.0", "99.0rc1", "99.0+local"])
def test_a_newer_client_is_told_to_reload_the_daemon(client):
    assert told(client, program="ic") == (
        f"ic: warning: the daemon ({__version__}) is older than this ic ({client});"
        " run 'icctl service reload'\n"
    )


@pytest.mark.parametrize("client", ["0.0.9", "0.1", "0", "0.3.999", "unknown"])
def test_an_older_client_is_told_to_upgrade_itself(client):
    assert told(client) == (
        f"icctl: warning: the daemon ({__version__}) is newer than this icctl ({client});"
        " upgrade this icctl\n"
    )


@pytest.mark.parametrize("client", [f"{__version__}rc1", f"{__version__}+local"])
def test_what_cannot_be_ordered_is_another_version(client):
    assert told(client) == (
        f"icctl: warning: the daemon ({__version__}) is another version than this icctl ({client});"
        " install the same version of both\n"
    )


def test_a_command_that_works_is_silent_unless_a_person_reads_it(ic):
    hook = ic("state", "list", "k", client_version="99.0")
    person = ic("state", "list", "k", client_version="99.0", is_terminal=True)

    assert (hook.exit, hook.stderr) == (0, b"")
    assert (person.exit, person.stdout) == (hook.exit, hook.stdout)
    assert person.stderr.startswith(b"icctl: warning: the daemon (")


def test_an_expected_no_is_silent(ic):
    output = ic("state", "get", "k", "s", client_version="99.0")

    assert (output.exit, output.stderr) == (1, b"")


@pytest.mark.parametrize(
    "argv",
    [
        ["bogus"],
        ["state", "bogus"],
        ["state", "get", "k", "s", "--bogus"],
        ["state", "get"],
        ["--timeout=x", "ping"],
    ],
)
def test_a_command_that_is_not_understood_names_the_difference_after_its_error(ic, argv):
    same = ic(*argv)
    other = ic(*argv, client_version="99.0")

    assert same.exit == other.exit == 3
    assert other.stdout == same.stdout
    assert other.stderr.removeprefix(same.stderr).startswith(b"icctl: warning: the daemon (")


def test_a_database_that_is_too_new_names_the_difference(shown):
    output = shown("health", error=SchemaTooNew("x is too new"), client_version="99.0")
    none = shown("health", error=NoDatabase("there is none"), client_version="99.0")

    assert output.exit == none.exit == 2
    assert b"is older than this icctl (99.0)" in output.stderr
    assert b"warning" not in none.stderr


def test_a_command_that_goes_on_says_it_once(invoke):
    planned = invoke("statusline", "--watch", client_version="99.0", is_terminal=True)
    answer = Answer(result=Statusline(session="s", lane=Lane("core", 0)))

    first, planned = advance(planned, answer)
    second, _ = advance(planned, answer)

    assert first.stderr.startswith(b"icctl: warning: the daemon (")
    assert second.stderr == b""


def test_nothing_is_said_about_help(ic):
    assert ic("state", "get", "--help", client_version="99.0").stderr == b""


def test_version_is_that_of_the_program_that_was_called(ic):
    lines = ic("version", "--verbose", client_version="99.0", door="x").stdout.decode().split("\n")
    plain = ic("version", client_version="99.0").stdout

    assert lines[:1] == ["icctl 99.0"]
    assert lines[2:4] == ["door: x, through the daemon", f"daemon: {__version__}"]
    assert plain.startswith(b"icctl 99.0\nschema: ")


def test_without_the_daemon_its_version_is_not_known(ic):
    text = ic("version", "--verbose", host="direct").stdout
    asked = json.loads(ic("version", "--verbose", "--json").stdout)
    alone = json.loads(ic("version", "--verbose", "--json", host="direct").stdout)

    assert text.endswith(b"daemon: not asked\n")
    assert (asked["daemon"], alone["daemon"]) == (__version__, None)
