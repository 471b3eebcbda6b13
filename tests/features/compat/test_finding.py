"""Which legacy files there are."""

import os

import pytest

from icd.errors import UnreadableInput
from icd.features.compat.legacy.finding import find, shown


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
