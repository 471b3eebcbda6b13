"""Which databases the user trusts: this very file, as recorded by nobody but the user."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from icd import trust


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "home"
    found.mkdir()
    return found


@pytest.fixture
def path(project: Path) -> str:
    (project / ".clavain").mkdir(mode=0o700)
    return make(project / ".clavain" / "intercore.db")


def make(file: Path, text: str = "rows") -> str:
    file.write_text(text)
    file.chmod(0o600)
    return str(file)


def record(home: Path, path: str) -> Path:
    return home / trust.SHARE / hashlib.sha256(path.encode()).hexdigest()


def test_nothing_is_trusted_until_it_is_granted_and_after_it_is_revoked(home, path):
    seen = [trust.allows(str(home), path)]
    trust.grant(str(home), path)
    seen.append(trust.allows(str(home), path))
    was = [trust.revoke(str(home), path), trust.revoke(str(home), path)]
    seen.append(trust.allows(str(home), path))

    assert seen == [False, True, False]
    assert was == [True, False]


@pytest.mark.parametrize("nowhere", [None, "", "relative"])
def test_without_a_home_nothing_is_trusted(nowhere, path):
    with pytest.raises(trust.Unfit):
        trust.grant(nowhere, path)

    assert not trust.allows(nowhere, path)
    assert not trust.revoke(nowhere, path)
    assert trust.entries(nowhere) == []


def test_the_record_is_private_and_names_this_very_file(home, path):
    trust.grant(str(home), path)

    found = json.loads(record(home, path).read_bytes())
    assert found["path"] == path
    assert found["inode"] == os.stat(path).st_ino
    assert found["born_ns"] == trust.born_ns(path)
    assert record(home, path).stat().st_mode & 0o777 == 0o600
    assert record(home, path).parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(record(home, path).parent) == [record(home, path).name]


def test_a_birth_is_what_the_system_says_it_is(path):
    told = subprocess.run(["stat", "-c", "%W", path], capture_output=True, check=True).stdout

    found = trust.born_ns(path)

    assert (found or 0) // 1_000_000_000 == int(told)


def test_another_file_under_the_same_name_is_not_trusted(home, path):
    trust.grant(str(home), path)
    shutil.copy2(path, f"{path}.new")
    os.replace(f"{path}.new", path)

    assert trust.objection(str(home), path) == "it is not the file that was trusted"


def test_a_file_that_got_the_same_inode_is_not_trusted(home, path):
    """File systems give a number away again, often to the very next file."""
    trust.grant(str(home), path)
    found = json.loads(record(home, path).read_bytes())
    record(home, path).write_text(json.dumps(found | {"born_ns": found["born_ns"] - 1}))

    assert not trust.allows(str(home), path)


def test_the_record_of_another_path_counts_for_nothing(home, path, project):
    trust.grant(str(home), path)
    other = str(project / ".clavain" / "other.db")
    os.link(path, other)
    shutil.copy2(record(home, path), record(home, other))

    assert not trust.allows(str(home), other)


def test_what_is_written_to_the_file_changes_nothing(home, path):
    trust.grant(str(home), path)

    Path(path).write_text("other rows")

    assert trust.allows(str(home), path)


def test_a_path_is_trusted_however_it_is_spelled(home, path, tmp_path):
    trust.grant(str(home), path)
    (tmp_path / "link").symlink_to(Path(path).parents[1])

    assert trust.allows(str(home), str(tmp_path / "link" / ".clavain" / "intercore.db"))


@pytest.mark.parametrize("mode", [0o620, 0o602])
@pytest.mark.parametrize("what", ["file", "directory", "record"])
def test_what_others_can_write_to_is_not_trusted(home, path, mode, what):
    trust.grant(str(home), path)
    files = {"file": Path(path), "directory": Path(path).parent, "record": record(home, path)}

    files[what].chmod(mode | 0o100)

    assert not trust.allows(str(home), path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["file", "directory", "record"])
def test_what_belongs_to_another_user_is_not_trusted(home, path, what):
    trust.grant(str(home), path)
    files = {"file": path, "directory": os.path.dirname(path), "record": record(home, path)}

    os.chown(files[what], 12345, 12345)

    assert not trust.allows(str(home), path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"path": 1}', '{"path": "x", "inode": 1}', "[" * 100_000]
)
def test_a_record_that_makes_no_sense_counts_as_none(home, path, text):
    trust.grant(str(home), path)
    record(home, path).write_text(text)

    assert not trust.allows(str(home), path)
    assert trust.entries(str(home)) == []


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_record_that_is_no_plain_file_counts_as_none(home, path, kind):
    trust.grant(str(home), path)
    there = record(home, path)
    there.rename(home / "aside")
    if kind == "link":
        there.symlink_to(home / "aside")
    elif kind == "pipe":
        os.mkfifo(there)
    else:
        there.mkdir()

    assert not trust.allows(str(home), path)
    assert trust.entries(str(home)) == []


@pytest.mark.parametrize("kind", ["gone", "link", "directory"])
def test_only_a_plain_file_can_be_trusted(home, path, kind):
    Path(path).rename(f"{path}.aside")
    if kind == "link":
        Path(path).symlink_to(f"{path}.aside")
    elif kind == "directory":
        Path(path).mkdir()

    with pytest.raises(trust.Unfit):
        trust.grant(str(home), path)

    assert not trust.allows(str(home), path)


def test_all_that_is_trusted_is_listed_by_path(home, path, project):
    other = make(project / ".clavain" / "a.db")
    for each in (path, other):
        trust.grant(str(home), each)

    assert [each.path for each in trust.entries(str(home))] == [other, path]


def test_what_is_made_anew_keeps_the_scripts_that_were_accepted(home, path, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    trust.grant(str(home), path, scripts={"/s.sh": "00"})

    assert trust.made(path) == ""
    assert trust.entries(str(home))[0].scripts == {"/s.sh": "00"}


def test_where_nothing_can_be_recorded_that_is_told(home, path, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    (home / ".local").write_text("in the way")

    assert trust.made(path) == f"cannot write to ~/{trust.SHARE}: Not a directory"
    monkeypatch.delenv("HOME")
    assert "HOME is not set" in trust.made(path)


def test_records_of_databases_that_are_gone_are_forgotten_when_there_are_too_many(
    home, path, project, monkeypatch
):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(trust, "RECORDS", 2)
    gone, stays = (make(project / ".clavain" / name) for name in ("gone.db", "stays.db"))
    for each in (gone, stays):
        trust.grant(str(home), each)
    os.unlink(gone)

    trust.made(path)

    assert [each.path for each in trust.entries(str(home))] == [path, stays]


def test_a_path_that_is_not_text_can_be_trusted(home, project):
    odd = os.fsdecode(os.fsencode(project) + b"/\xff")
    os.mkdir(odd, mode=0o700)
    path = make(Path(odd, "intercore.db"))

    trust.grant(str(home), path)

    assert trust.allows(str(home), path)


def test_a_script_is_trusted_with_its_content_and_for_its_database(home, path, tmp_path):
    script = make(tmp_path / "dispatch.sh")
    trust.grant(str(home), path, scripts={script: trust.script_digest(script)})
    seen = [trust.allows_script(str(home), path, script)]
    seen.append(trust.allows_script(str(home), f"{path}x", script))
    Path(script).write_text("other")
    seen.append(trust.allows_script(str(home), path, script))

    assert seen == [True, False, False]


def test_a_script_of_any_size_is_judged_at_once(tmp_path):
    script = make(tmp_path / "dispatch.sh")
    os.truncate(script, 2**40)

    with pytest.raises(trust.Unfit, match="bytes"):
        trust.script_digest(script)
