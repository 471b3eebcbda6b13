"""The table of legacy files."""

import os

import pytest

from icd.errors import UnreadableInput
from icd.features.compat.files import CHANNELS, FILES, KEYS, Pattern, find, shown
from icd.values import validation

BY_KEY = {pattern.key: pattern for pattern in FILES}


@pytest.mark.parametrize(
    "key, name, scope",
    [
        ("dispatch", b"clavain-dispatch-4711.json", b"4711"),
        ("dispatch", b"clavain-dispatch-a.json.json", b"a.json"),
        ("dispatch", b"clavain-dispatch-.json", b""),
        ("dispatch", b"clavain-dispatch-4711.json.tmp", None),
        ("dispatch", b"clavain-dispatch", None),
        ("stop", b"clavain-stop-s1", b"s1"),
        ("stop", b"clavain-stop-", b""),
        ("stop", b"Xclavain-stop-s1", None),
        ("compound_throttle", b"clavain-compound-last-s1", b"s1"),
        ("drift_throttle", b"clavain-drift-last-s1", b"s1"),
        ("handoff", b"clavain-handoff-s1", b"s1"),
        ("autopub", b"clavain-autopub.lock", b"global"),
        ("autopub", b"clavain-autopub-x.lock", b"-x"),
        ("catalog_remind", b"clavain-catalog-remind-s1.lock", b"s1"),
        ("discovery_brief", b"clavain-discovery-brief-_home_me.cache", b"_home_me"),
        ("bead", b"clavain-bead-s1.json", b"s1"),
    ],
)
def test_the_scope_is_what_stands_for_the_star(key, name, scope):
    assert BY_KEY[key].scope(name) == scope


def test_prefix_and_suffix_do_not_overlap():
    assert Pattern("k", b"ab", b"bc").scope(b"abc") is None


@pytest.mark.parametrize("key", ["stop", "handoff", "catalog_remind"])
def test_guards_of_a_session_are_once_only(key):
    assert BY_KEY[key].interval_s == 0


@pytest.mark.parametrize("key, interval", [("compound_throttle", 300), ("drift_throttle", 600), ("autopub", 60)])  # fmt: skip
def test_throttles_have_the_interval_that_their_hooks_ask_with(key, interval):
    assert BY_KEY[key].interval_s == interval


@pytest.mark.parametrize("key", KEYS)
def test_every_key_may_be_a_key_of_state(key):
    validation.check_key(key)


def test_no_name_means_two_keys():
    for pattern in FILES:
        name = pattern.prefix + b"s1" + pattern.suffix

        assert [other.key for other in FILES if other.scope(name) is not None] == [pattern.key]


def test_all_keys_are_listed_sorted():
    assert sorted({*BY_KEY, *CHANNELS}) == KEYS


# --- Which legacy files there are -----------------------------------------------------------------


def names(files):
    return [os.path.basename(file.path) for file in files]


def test_files_are_found_newest_first(found, write):
    write("clavain-stop-old", mtime_ms=1000)
    write("clavain-dispatch-new.json", mtime_ms=3000)
    write("clavain-stop-mid", mtime_ms=2000)

    assert names(found()) == [b"clavain-dispatch-new.json", b"clavain-stop-mid", b"clavain-stop-old"]  # fmt: skip


def test_other_files_are_none_of_our_business(found, write):
    write("clavain-other-s1")
    write("stop")
    write("clavain-stop-s1.due-1700000000")

    assert found() == []


def test_one_key_may_be_asked_for(found, write, band):
    write("clavain-stop-s1")
    write("clavain-dispatch-1.json")
    (band / "clavain" / "dispatch").mkdir(parents=True)
    (band / "clavain" / "dispatch" / "2.json").touch()

    assert sorted(names(found("dispatch"))) == [b"2.json", b"clavain-dispatch-1.json"]


def test_envelopes_are_found_by_their_channel(found, band):
    (band / "interlock" / "coordination").mkdir(parents=True)
    (band / "interlock" / "coordination" / "p-a.json").touch()
    (band / "interlock" / "coordination" / ".interband-tmp.json").touch()
    (band / "interlock" / "elsewhere").mkdir()
    (band / "interlock" / "elsewhere" / "x.json").touch()

    (file,) = found()

    assert (file.pattern.key, file.scope) == ("coordination", b"p-a")


def test_the_interband_root_may_be_elsewhere(tmp_path, folder):
    place = tmp_path / "band" / "interstat" / "budget"
    place.mkdir(parents=True)
    (place / "s1.json").touch()

    env = {"INTERCORE_LEGACY_DIR": str(folder), "INTERBAND_ROOT": "band", "HOME": "/nonexistent"}

    assert names(find(env, str(tmp_path))) == [b"s1.json"]


def test_without_a_home_there_are_no_envelopes(folder):
    assert find({"INTERCORE_LEGACY_DIR": str(folder)}, "/") == []


def test_a_directory_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(
        UnreadableInput, match=r"cannot read the directory .*/missing: No such file"
    ):
        find({"INTERCORE_LEGACY_DIR": "missing"}, str(tmp_path))


@pytest.mark.parametrize(
    "path, text",
    [
        (b"/tmp/plain name", "/tmp/plain name"),
        ("/tmp/ünï".encode(), "/tmp/ünï"),
        (b"/tmp/a\tb\nc\x1b[31m\x7f", "/tmp/a\\tb\\nc\\x1b[31m\\x7f"),
        (b"/tmp/\xff\xfe", "/tmp/\\xff\\xfe"),
        ("/tmp/\u202egnp".encode(), "/tmp/\\u202egnp"),
    ],
)
def test_a_path_is_shown_on_one_line_whatever_it_is_made_of(path, text):
    assert shown(path) == text
    shown(path).encode()
