"""Limits, settings, the clock, the library, the client and units."""

import resource

import pytest

from icd.admin.doctor import environment as surroundings
from icd.features.shell import PATH


@pytest.fixture
def judged(scene, told):
    return lambda check, **facts: told(getattr(surroundings, check)(scene(**facts)))


def test_this_process_may_open_and_write_enough(judged):
    assert surroundings.too_few_files() is None
    assert judged("limits") == []


def test_a_limit_on_open_files_is_told():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, before[1]))
    try:
        found = surroundings.too_few_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert found is not None
    assert found.severity == "error"
    assert found.message.startswith("this process may open 8 files at once, and ")


def test_a_limit_on_the_size_of_files_is_told(judged):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        ((_, severity, message),) = judged("limits")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert severity == "error"
    assert message.startswith("this process may write 1000000 bytes to a file")


def test_settings_of_the_user_that_are_wrong_are_all_told(judged, project):
    (project / ".config" / "intercore").mkdir(parents=True)
    (project / ".config" / "intercore" / "config.toml").write_text("colour = 1\nsound = 2\n")
    env = {"HOME": str(project), "INTERCORE_DURABILITY": "some"}

    found = judged("settings", env=env)

    assert [severity for _, severity, _ in found] == ["error"] * 3
    texts = [message for _, _, message in found]
    assert "config.toml:1: colour is not a setting" in texts[0]
    assert "config.toml:2: sound is not a setting" in texts[1]
    assert "$INTERCORE_DURABILITY" in texts[2]


def test_settings_of_the_project_that_are_wrong_are_told(scene, database, project, told):
    check = surroundings.settings_of_project
    assert told(check(scene(), database.path)) == []
    (project / ".clavain" / "intercore.toml").write_text("\nidle_seconds = -1\n")

    ((name, severity, message),) = told(check(scene(), database.path))

    assert (name, severity) == ("settings", "error")
    assert "intercore.toml:2: idle_seconds" in message


@pytest.mark.parametrize(("now_ms", "count"), [(1_000_000_000_000, 1), (1_800_000_000_000, 0)])
def test_a_clock_that_was_never_set_is_an_error(judged, now_ms, count):
    assert [severity for _, severity, _ in judged("clock", now_ms=now_ms)] == ["error"] * count


def test_the_installed_library_is_fine(judged):
    installed = surroundings.version_of(PATH)

    assert installed is not None
    assert judged("library", library=PATH, env={"INTERCORE_LIB_VERSION": installed}) == []


@pytest.mark.parametrize(
    ("variable", "value", "part"),
    [
        ("INTERCORE_LIB_VERSION", "0.1.0", "has loaded lib-intercore.sh 0.1.0"),
        ("INTERCORE_BIN", "/nonexistent/icctl", "which cannot be executed"),
    ],
)
def test_a_library_that_does_not_fit_is_told(judged, variable, value, part):
    ((check, severity, message),) = judged("library", library=PATH, env={variable: value})

    assert (check, severity) == ("library", "warning")
    assert part in message


def test_the_slower_client_is_worth_a_note(judged):
    assert judged("client", door="native client") == []
    assert [severity for _, severity, _ in judged("client", door="python client")] == ["note"]


@pytest.mark.parametrize(
    ("found", "severity", "message"),
    [
        ("missing", "note", "icd.service: not installed, so nothing starts the daemon"),
        ("outdated", "warning", "icd.service: written by another installation or version"),
        ("foreign", "note", "icd.service: not written by icctl, which does not change it"),
    ],
)
def test_units_that_are_not_ours_are_told(judged, found, severity, message):
    units = {"icd.socket": "current", "icd.service": found}

    assert judged("units", units=lambda: units) == [("units", severity, message)]
    assert judged("units") == []


def test_settings_of_the_project_that_are_ignored_are_noted(scene, database, project, told):
    settings = "[mirror.channels.bead]\npath = 'clavain/dispatch'\n"
    (project / ".clavain" / "intercore.toml").write_text(settings)

    ((name, severity, message),) = told(surroundings.settings_of_project(scene(), database.path))

    assert (name, severity) == ("settings", "note")
    assert "intercore.toml:2: ignored: mirror.channels.bead.path" in message
