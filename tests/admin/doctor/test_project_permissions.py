"""Who may touch what."""

import os

import pytest

from icd.admin.doctor.context import Repair, user
from icd.admin.doctor.project import permissions


@pytest.fixture
def judged(scene, database, told):
    def findings(uid=None):
        return told(permissions(scene(uid=uid or os.geteuid()), database.path))

    return findings


def test_what_init_makes_is_right(judged):
    assert judged() == []


@pytest.mark.parametrize(
    ("suffix", "mode", "expected"),
    [
        ("", 0o644, ("warning", "other users may read")),
        ("", 0o660, ("warning", "other users may change")),
        ("", 0o400, ("error", "its owner may not read and write")),
        (".lock", 0o666, ("warning", "other users may change")),
        ("-wal", 0o000, ("error", "its owner may not read and write")),
        (".backup-20260101-000000", 0o604, ("warning", "other users may read")),
    ],
)
def test_files_are_private(judged, database, suffix, mode, expected):
    file = database.path + suffix
    with open(file, "ab"):
        pass
    os.chmod(file, 0o600)
    assert judged() == []
    os.chmod(file, mode)

    severity, what = expected
    sentence = f"{what} {file} (mode {mode:04o} instead of 0600)"
    assert judged() == [("permissions", severity, sentence)]


@pytest.mark.parametrize(
    ("mode", "severity", "what"),
    [
        (0o755, "note", "other users may look into"),
        (0o770, "warning", "other users may change"),
        (0o500, "error", "its owner may not read and write"),
    ],
)
def test_the_directory_is_private(judged, database, mode, severity, what):
    directory = os.path.dirname(database.path)
    os.chmod(directory, mode)

    assert judged() == [
        ("permissions", severity, f"{what} {directory} (mode {mode:04o} instead of 0700)")
    ]


def test_a_mode_can_be_repaired(scene, database):
    os.chmod(database.path, 0o644)

    (finding,) = permissions(scene(uid=os.geteuid()), database.path)

    assert finding.repair == Repair("chmod", database.path, 0o600)


def test_files_of_another_user_are_named_with_their_owner(judged, database):
    found = judged(uid=os.geteuid() + 1)

    ours, wanted = user(os.geteuid()), user(os.geteuid() + 1)
    sentence = f"{database.path} belongs to {ours}, not {wanted}"
    assert ("permissions", "error", sentence) in found


def test_a_link_in_place_of_a_companion_is_an_error(judged, database):
    link = f"{database.path}-journal"
    os.symlink("/etc/passwd", link)

    assert judged() == [("symlinks", "error", f"{link} is a symlink (refusing to use it)")]


def test_the_directory_of_a_database_elsewhere_is_not_judged(scene, tmp_path, told):
    path = tmp_path / "mine.db"
    path.touch(mode=0o600)
    tmp_path.chmod(0o755)

    assert told(permissions(scene(uid=os.geteuid()), str(path))) == []
