"""Settings: defaults, who wins, and mistakes told with file and line."""

import os

import msgspec
import pytest

from icd import config
from icd.errors import Misconfigured
from icd.features.config import trace


@pytest.fixture
def write(tmp_path):
    def file(text, name="config.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return file


def complaint(path):
    with pytest.raises(Misconfigured) as refused:
        config.load(path)
    return refused.value.message


def test_without_files_everybody_gets_the_defaults(tmp_path):
    settings = config.load(None, str(tmp_path / "absent.toml"))

    assert settings == config.Settings(durability="normal", idle_seconds=2.0)


def test_an_empty_file_changes_nothing(write):
    assert config.load(write("# nothing yet\n")) == config.DEFAULTS


def test_settings_are_read_from_a_file(write):
    path = write('durability = "full"\nidle_seconds = 5\n')

    assert config.load(path) == config.Settings(durability="full", idle_seconds=5.0)


def test_the_file_of_the_project_wins_where_it_says_something(write):
    user = write('durability = "full"\nidle_seconds = 5\n', "user.toml")
    project = write("idle_seconds = 7.5\n", "project.toml")

    assert config.load(user, project) == config.Settings(durability="full", idle_seconds=7.5)


def test_settings_cannot_be_changed_after_they_were_read():
    with pytest.raises(AttributeError):
        config.DEFAULTS.durability = "full"


def test_an_unknown_key_is_a_mistake_with_its_line(write):
    path = write('# one\ndurability = "full"\n\n  colour = "red"\n')

    told = complaint(path)

    assert told.startswith(f"{path}:4: ")
    assert "colour" in told


def test_an_unknown_key_with_a_dash_is_a_mistake_with_its_line(write):
    path = write('durability = "full"\nidle-seconds = 3\n')

    assert complaint(path).startswith(f"{path}:2: ")


def test_an_unknown_table_is_a_mistake_with_its_line(write):
    path = write('durability = "full"\n[daemon]\nidle_seconds = 3\n')

    assert complaint(path).startswith(f"{path}:2: ")


def test_a_value_that_is_not_offered_is_a_mistake_with_its_line(write):
    path = write('idle_seconds = 1\ndurability = "sloppy"\n')

    told = complaint(path)

    assert told.startswith(f"{path}:2: ")
    assert "sloppy" in told


def test_a_value_of_the_wrong_type_is_a_mistake(write):
    path = write('idle_seconds = "soon"\n')

    assert complaint(path).startswith(f"{path}:1: idle_seconds: Expected `float`")


def test_a_value_of_the_wrong_type_is_a_mistake_with_its_line(write):
    path = write('durability = "full"\nidle_seconds = "soon"\n')

    assert complaint(path).startswith(f"{path}:2: ")


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_a_rest_that_is_no_duration_is_a_mistake(write, value):
    complaint(write(f"idle_seconds = {value}\n"))


@pytest.mark.parametrize("value", ["0", "1001", "2.5", '"all"'])
def test_a_number_of_backups_that_makes_no_sense_is_a_mistake(write, value):
    complaint(write(f"backups_kept = {value}\n"))


def test_bad_toml_is_a_mistake_with_its_line(write):
    path = write('durability = "full"\nidle_seconds = = 3\n')

    assert complaint(path).startswith(f"{path}:2: broken TOML: ")


def test_a_document_that_ends_too_early_is_a_mistake_on_its_last_line(write):
    path = write('# one\nmirror = {root = "/x"')

    assert complaint(path).startswith(f"{path}:2: broken TOML: ")


@pytest.mark.parametrize("text", ["x = " + "[" * 20_000, "a" + ".a" * 20_000 + " = 1"])
def test_a_file_that_is_made_to_break_its_reader_is_a_mistake(write, text):
    path = write(text)

    assert complaint(path).startswith(f"{path}:1: ")


def test_a_file_that_is_too_long_is_a_mistake(write):
    path = write("#" * 70_000)

    assert complaint(path) == f"{path}: it is longer than 65536 bytes"


def test_everything_that_is_wrong_in_a_file_is_known_in_the_order_of_its_lines(write):
    path = write(
        'durability = "x"\n'
        "colour = 1\n"
        "[mirror]\n"
        'enabled = "yes"\n'
        "[mirror.channels.note]\n"
        "retention_seconds = -1\n"
        'shape = "round"\n'
        "[mirror.channels]\n"
        "lane = 5\n"
    )

    (file,) = config.read(path, None)

    assert [problem.line for problem in file.problems] == [1, 2, 4, 5, 6, 7, 9]
    assert [problem.sentence for problem in file.problems] == [
        "durability: Invalid enum value 'x'",
        "colour is not a setting",
        "mirror.enabled: Invalid enum value 'yes'",
        "the channel `note` needs a path",
        "mirror.channels.note.retention_seconds: Expected `int` >= 0",
        "mirror.channels.note.shape is not a setting",
        "mirror.channels.lane: Expected `object`, got `int`",
    ]


# --- the environment and flags --------------------------------------------------------------


def test_only_single_values_can_be_given_by_the_environment():
    defaults = msgspec.structs.asdict(config.DEFAULTS)

    assert all(isinstance(defaults[name], str | float) for name in config.VARIABLES)


def test_what_is_given_wins_over_both_files(write):
    user = write('durability = "normal"\nidle_seconds = 5\n', "user.toml")
    project = write("idle_seconds = 7.5\n", "project.toml")
    given = config.from_environment({"INTERCORE_DURABILITY": "full", "INTERCORE_IDLE_SECONDS": "9"})

    assert config.load(user, project, given) == config.Settings("full", 9.0)


def test_a_flag_wins_over_the_environment():
    given = config.from_environment({"INTERCORE_DURABILITY": "full"})
    given |= config.from_flags({"durability": "normal", "idle_seconds": None})

    assert config.load(None, given=given) == config.DEFAULTS


def test_an_empty_variable_counts_as_unset():
    assert config.from_environment({"INTERCORE_DURABILITY": ""}) == {}


@pytest.mark.parametrize("text", ["soon", "0", "nan", "inf", "-1", "\udcff", " "])
def test_a_variable_that_makes_no_sense_is_a_mistake(text):
    with pytest.raises(Misconfigured, match=r"^\$INTERCORE_IDLE_SECONDS: "):
        config.from_environment({"INTERCORE_IDLE_SECONDS": text})


def test_a_flag_that_makes_no_sense_is_a_mistake():
    with pytest.raises(Misconfigured, match=r"^--idle-seconds: "):
        config.from_flags({"idle_seconds": "soon"})


def test_every_variable_that_makes_no_sense_is_known():
    env = {"INTERCORE_DURABILITY": "soft", "INTERCORE_IDLE_SECONDS": "soon"}

    found = config.check_environment(env)

    assert [problem.file for problem in found] == [f"${name}" for name in env]


# --- where settings come from ---------------------------------------------------------------


def origins(*sources):
    return {setting.name: (setting.value, setting.origin) for setting in trace(*sources)}


def test_without_files_everything_comes_from_the_defaults():
    found = origins(None, None, {})

    assert {origin for _value, origin in found.values()} == {"default"}
    assert found["durability"] == ("normal", "default")
    assert found["mirror.channels.dispatch.path"] == ("clavain/dispatch", "default")
    assert found["mirror.channels.bead.session"] == ("scope", "default")


def test_each_setting_knows_the_line_that_won(write):
    user = write(
        'durability = "full"\nidle_seconds = 5\nmirror.channels."a.b" = {path = "x/y"}\n',
        "user.toml",
    )
    project = write("\n[mirror.channels.lane]\nenabled = false\n", "project.toml")

    found = origins(user, project, config.from_environment({"INTERCORE_IDLE_SECONDS": "7"}))

    assert found["durability"] == ("full", f"{user}:1")
    assert found["idle_seconds"] == (7.0, "$INTERCORE_IDLE_SECONDS")
    assert found['mirror.channels."a.b".path'] == ("x/y", f"{user}:3")
    assert found['mirror.channels."a.b".type'] == ("y", "default")
    assert found["mirror.channels.lane.enabled"] == (False, f"{project}:3")
    assert found["mirror.channels.lane.path"] == ("interphase/lane", "default")


def test_the_file_of_the_project_is_the_origin_of_what_both_files_say(write):
    user = write("idle_seconds = 5\n", "user.toml")
    project = write("# ours\nidle_seconds = 5\n", "project.toml")

    assert origins(user, project, {})["idle_seconds"] == (5.0, f"{project}:2")


def test_bytes_that_are_no_text_are_a_mistake_with_their_line(tmp_path):
    """Far into the file, where a reader of blocks would count from the last one."""
    path = tmp_path / "config.toml"
    path.write_bytes(b"# a comment\n" * 1000 + b'durability = "\xff"\n')

    assert complaint(str(path)) == f"{path}:1001: it is not UTF-8"


def test_a_file_may_begin_with_the_mark_of_its_encoding_and_have_lines_of_windows(tmp_path):
    path = tmp_path / "config.toml"
    path.write_bytes(b'\xef\xbb\xbfdurability = "full"\r\nidle_seconds = 5\r\n')

    assert config.load(str(path)) == config.Settings(durability="full", idle_seconds=5.0)


def test_a_link_to_nowhere_is_a_mistake(tmp_path):
    path = tmp_path / "config.toml"
    path.symlink_to("gone")

    assert complaint(str(path)) == f"{path}: No such file or directory"


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path):
    assert complaint(str(tmp_path)).startswith(f"{tmp_path}: ")


def test_the_file_of_the_user_lies_below_its_home():
    assert config.user_file("/home/me") == "/home/me/.config/intercore/config.toml"
    assert config.user_file(None) is None
    assert config.user_file("") is None


def test_the_file_of_the_project_lies_beside_its_database():
    assert config.project_file("/p/.clavain/intercore.db") == "/p/.clavain/intercore.toml"


# --- the mirror -----------------------------------------------------------------------------


def test_the_mirror_is_configured_in_tables(write):
    path = write(
        '[mirror]\nroot = "/band"\n[mirror.channels.note]\npath = "mine/notes"\n'
        "[mirror.channels.lane]\nenabled = false\n"
    )

    mirror = config.load(path).mirror

    assert mirror.root == "/band"
    assert mirror.channels["note"].path == "mine/notes"
    assert not mirror.channels["lane"].enabled


def test_a_project_adds_to_the_tables_of_the_user(write):
    user = write('[mirror]\nroot = "/band"\n[mirror.channels.lane]\nenabled = false\n', "user.toml")
    project = write("[mirror.channels.bead]\nretention_seconds = 5\n", "project.toml")

    mirror = config.load(user, project).mirror

    assert mirror.root == "/band"
    assert mirror.channels.keys() == {"lane", "bead"}


def test_a_project_does_not_say_where_files_are_written(write):
    project = write('[mirror]\nroot = "/home/me/.ssh"\n', "project.toml")

    with pytest.raises(Misconfigured, match=r"mirror\.root can only be set for all projects"):
        config.load(None, project)


@pytest.mark.parametrize("root", ["relative", "~/x"])
def test_the_root_of_the_mirror_must_be_absolute(write, root):
    assert complaint(write(f'[mirror]\nroot = "{root}"\n')).partition(": ")[0].endswith(":2")


@pytest.mark.parametrize(
    "path", ["", "one", "a/b/c", "../b", "a/..", "/a/b", "a/ b", ".a/b", "a/" + "x" * 101]
)
def test_a_channel_is_two_plain_directories(write, path):
    told = complaint(write(f'[mirror]\n[mirror.channels.note]\npath = "{path}"\n'))

    assert told.partition(": ")[0].endswith(":3")


def test_a_key_that_nobody_knows_needs_a_path(write):
    told = complaint(write("[mirror.channels.note]\nretention_seconds = 5\n"))

    assert ":1: the channel `note` needs a path" in told


@pytest.mark.parametrize("name", sorted(config.OF_THE_DAEMON))
def test_a_project_does_not_decide_for_the_daemon_of_all(write, name):
    value = "true" if name == "auto_spawn" else "40"
    user = write(f"{name} = {value}\n", "user.toml")
    project = write(f"\n{name} = {value}\n", "project.toml")

    assert getattr(config.load(user), name) != getattr(config.DEFAULTS, name)
    with pytest.raises(
        Misconfigured, match=f"project.toml:2: {name} can only be set for all projects"
    ):
        config.load(user, project)


# --- a project may come from anywhere --------------------------------------------------------


def told(user, project):
    ignored = [each.sentence for file in config.read(user, project) for each in file.ignored]
    names = [each.removeprefix("ignored: ").partition(",")[0] for each in ignored]
    return config.load(user, project), names


def test_what_is_ignored_is_told_in_one_sentence(write):
    project = write('[mirror.channels.bead]\npath = "a/b"\ntype = "x"\n', "project.toml")
    found = []

    config.load(None, project, tell=found.append)

    (sentence,) = found
    assert sentence.startswith(f"{project}:2: ignored: mirror.channels.bead.path, because ")
    assert sentence.endswith(" (and 1 more)")


def test_what_a_project_says_to_a_terminal_is_spelled_out(write):
    project = write('durability = "\\u001b[31m\\u009b"\n', "project.toml")

    assert complaint(project).endswith(r"Invalid enum value '\x1b[31m\x9b'")


def test_a_project_names_no_place_and_no_key_of_the_mirror(write):
    project = write(
        '[mirror.channels.bead]\npath = "clavain/dispatch"\ntype = "x"\nsession = "writer"\n'
        '[mirror.channels.note]\npath = "clavain/dispatch"\nretention_seconds = 1\n',
        "project.toml",
    )

    settings, ignored = told(None, project)

    assert settings.mirror.channels == {"bead": config.Channel()}
    assert ignored == [
        "mirror.channels.bead.path",
        "mirror.channels.bead.type",
        "mirror.channels.bead.session",
        "mirror.channels.note",
    ]


def test_a_project_says_how_long_its_files_of_a_key_of_the_user_stay(write):
    user = write('[mirror.channels.note]\npath = "mine/notes"\n', "user.toml")
    project = write(
        '[mirror.channels.note]\npath = "clavain/dispatch"\nretention_seconds = 5\n',
        "project.toml",
    )

    settings, ignored = told(user, project)

    assert settings.mirror.channels["note"] == config.Channel(
        path="mine/notes", retention_seconds=5
    )
    assert ignored == ["mirror.channels.note.path"]


def test_a_project_switches_the_mirror_off_and_never_on(write):
    user = write(
        "[mirror]\nenabled = false\n[mirror.channels.lane]\nenabled = false\n", "user.toml"
    )
    on = write("[mirror]\nenabled = true\n[mirror.channels.lane]\nenabled = true\n", "on.toml")
    off = write("[mirror]\nenabled = false\n[mirror.channels.bead]\nenabled = false\n", "off.toml")

    switched_on, ignored = told(user, on)
    switched_off, nothing = told(None, off)

    assert switched_on.mirror == config.load(user).mirror
    assert ignored == ["mirror.enabled", "mirror.channels.lane.enabled"]
    assert switched_off.mirror.enabled is False
    assert not switched_off.mirror.channels["bead"].enabled
    assert nothing == []


@pytest.mark.parametrize(("name", "most"), [("idle_seconds", 3600), ("close_idle_seconds", 86_400)])
def test_a_project_does_not_keep_its_database_open_for_long(write, name, most):
    user = write(f"{name} = {most + 1}\n", "user.toml")
    project = write(f"{name} = {most + 1}\n", "project.toml")
    modest = write(f"{name} = {most}\n", "modest.toml")

    settings, ignored = told(user, project)

    assert getattr(settings, name) == most
    assert ignored == [name]
    assert told(user, modest)[1] == []
    assert getattr(config.load(user), name) == most + 1


def test_the_file_of_a_user_may_be_a_link_and_that_of_a_project_not(write, tmp_path):
    path = tmp_path / "link.toml"
    path.symlink_to(write("idle_seconds = 5\n"))

    assert config.load(str(path)).idle_seconds == 5.0
    with pytest.raises(Misconfigured, match=r"link\.toml: it is a symbolic link"):
        config.load(None, str(path))


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_no_file_is_refused_at_once_and_leaves_nothing_open(write, tmp_path, kind):
    path = tmp_path / "intercore.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path = "/dev/zero"
    before = os.listdir("/proc/self/fd")

    with pytest.raises(Misconfigured):
        config.load(None, str(path))

    assert os.listdir("/proc/self/fd") == before
