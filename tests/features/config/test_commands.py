"""`icctl config show`, `icctl config check`."""

import json
import os

import pytest

from icd.app.invocation import Errand
from icd.app.planner import run_errand


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".config" / "intercore").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def run(invoke, home):
    """Run a command of the caller's own process; it must not need a database."""

    def output(*argv, env=None, **world):
        planned = invoke("config", *argv, env={"HOME": str(home), **(env or {})}, **world)
        assert isinstance(planned, Errand)
        return run_errand(planned, lambda call: pytest.fail(f"{call.method.name} was called"))

    return output


@pytest.fixture
def user(home):
    return home / ".config" / "intercore" / "config.toml"


@pytest.fixture
def ours(project):
    (project / ".clavain").mkdir(exist_ok=True)
    return project / ".clavain" / "intercore.toml"


def rows(output):
    assert (output.exit, output.stderr) == (0, b"")
    return [line.split("\t") for line in output.stdout.decode().splitlines()]


def test_show_tells_every_setting_with_its_value(run):
    found = rows(run("show"))

    assert found[:8] == [
        ["durability", '"normal"'], ["idle_seconds", "2.0"], ["close_idle_seconds", "600.0"], ["backups_kept", "5"],
        ["exit_idle_seconds", "3600.0"], ["slow_ms", "250"], ["events_keep_days", "0"], ["events_keep_count", "0"],
    ]  # fmt: skip
    assert ["mirror.channels.lane.retention_seconds", "86400"] in found


def test_show_tells_where_settings_come_from(run, user, ours):
    user.write_text('durability = "full"\n')
    ours.write_text("\nidle_seconds = 3\n")

    found = rows(run("show", "--origin"))

    assert found[:2] == [
        ["durability", '"full"', f"{user}:1"],
        ["idle_seconds", "3.0", f"{ours}:2"],
    ]
    assert {row[2] for row in found[2:]} == {"default"}


def test_show_knows_the_environment_of_the_caller(run, user):
    user.write_text('durability = "normal"\n')

    found = rows(run("show", "--origin", env={"INTERCORE_DURABILITY": "full"}))

    assert found[0] == ["durability", '"full"', "$INTERCORE_DURABILITY"]


@pytest.mark.parametrize("argv, more", [([], {}), (["--origin"], {"origin": "default"})])
def test_show_as_json_tells_the_same(run, argv, more):
    output = run("show", *argv, "--json")

    assert json.loads(output.stdout)[1] == {"name": "idle_seconds", "value": 2.0} | more


def test_show_refuses_a_broken_file(run, user):
    user.write_text("idle_seconds = 0\n")

    output = run("show")

    assert (output.exit, output.stdout) == (2, b"")
    assert output.stderr.startswith(f"icctl: config show: {user}:1: idle_seconds: ".encode())


def test_the_project_is_that_of_the_database_above(run, ours, project, database):
    ours.write_text("idle_seconds = 3\n")
    (project / "sub").mkdir()

    found = rows(run("show", "--origin", cwd=str(project / "sub")))

    assert found[1][2] == f"{ours}:1"


def test_the_project_is_that_of_the_database_that_is_named(run, project, tmp_path):
    other = project / "other" / ".clavain"
    other.mkdir(parents=True)
    (other / "intercore.toml").write_text("idle_seconds = 3\n")

    flag = rows(run("show", "--origin", "--db=other/.clavain/intercore.db"))
    variable = rows(run("show", "--origin", env={"INTERCORE_DB": "other/.clavain/intercore.db"}))

    assert flag[1][2] == variable[1][2] == f"{other}/intercore.toml:1"


def test_check_is_content_without_files(run, project):
    output = run("check")

    assert (output.exit, output.stdout, output.stderr) == (0, b"ok\n", b"")
    assert not os.path.exists(project / ".clavain")
    assert json.loads(run("check", "--json").stdout) == {"problems": []}


def test_check_tells_everything_that_is_wrong_in_both_files_and_the_environment(run, user, ours):
    user.write_text('durability = "soft"\ncolour = 1\n')
    ours.write_text('\n[mirror]\nroot = "/x"\n')

    output = run("check", env={"INTERCORE_IDLE_SECONDS": "soon"})

    assert (output.exit, output.stdout) == (2, b"")
    assert output.stderr.decode().splitlines() == [
        f"icctl: config check: {user}:1: durability: Invalid enum value 'soft'",
        f"icctl: config check: {user}:2: colour is not a setting",
        f"icctl: config check: {ours}:3: mirror.root can only be set for all projects, in ~/.config/intercore/config.toml",
        "icctl: config check: $INTERCORE_IDLE_SECONDS: Expected `float`, got `str`",
    ]


def test_check_as_json_tells_file_line_and_sentence(run, ours):
    ours.write_text("colour = 1\n")

    output = run("check", "--json")

    sentence = {"file": str(ours), "line": 1, "sentence": "colour is not a setting"}
    assert (output.exit, json.loads(output.stdout)) == (2, {"problems": [sentence]})
    assert output.stderr.count(b"\n") == 1


def test_without_a_home_only_the_project_counts(run, ours):
    ours.write_text("idle_seconds = 3\n")

    assert rows(run("show", env={"HOME": ""}))[1] == ["idle_seconds", "3.0"]


@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_path_that_names_no_database_is_an_error(run, verb):
    output = run(verb, "--db=noext")

    assert (output.exit, output.stdout) == (2, b"")
    assert b".db extension" in output.stderr


def test_what_a_project_may_not_set_is_told_with_its_line(run, ours):
    ours.write_text('\n[mirror.channels.bead]\npath = "clavain/dispatch"\n')
    told = f"{ours}:3: ignored: mirror.channels.bead.path, because "

    for command, argv in (("show", ["show", "--origin"]), ("check", ["check"])):
        output = run(*argv)
        assert output.exit == 0
        assert output.stderr.decode().startswith(f"icctl: config {command}: warning: {told}")
    assert run("show").stderr == b""
    assert (
        b'mirror.channels.bead.path\t"interphase/bead"\tdefault' in run("show", "--origin").stdout
    )
    (found,) = json.loads(run("check", "--json").stdout)["ignored"]
    assert (found["file"], found["line"]) == (str(ours), 3)
