"""What others left behind."""

import os

import pytest

from icd.admin.doctor.context import Repair
from icd.admin.doctor.environment import legacy
from icd.admin.doctor.project import gitignore, unfinished
from tests.conftest import NOW_MS

LONG_AGO = NOW_MS // 1000 - 7200


def leave(path: str, content: bytes = b"", *, at: int = LONG_AGO) -> str:
    with open(path, "wb") as file:
        file.write(content)
    os.utime(path, (at, at))
    return path


@pytest.fixture
def beside(database):
    return lambda suffix, content=b"", **options: leave(database.path + suffix, content, **options)


def repairs(findings):
    return [finding.repair for finding in findings if finding.repair]


def test_a_copy_that_was_never_finished_can_be_removed(scene, database, beside):
    dead = [
        beside(".unfinished", b"x"),
        beside(".unfinished-journal", b"x"),
        beside(".restore", b"x"),
    ]

    found = repairs(unfinished(scene(), database.path))

    assert found == [Repair("remove", name) for name in dead]


def test_what_is_complete_or_young_or_a_persons_stays(scene, database, beside):
    beside(".backup-20260101-000000", b"complete")
    beside(".backup-20260101-000000-journal", b"of whoever opened it")
    beside(".restore", b"x", at=NOW_MS // 1000 - 60)
    beside(".backup-of-mine")
    beside(".lock")

    assert repairs(unfinished(scene(), database.path)) == []


def test_a_missing_gitignore_can_be_written(scene, database):
    file = os.path.join(os.path.dirname(database.path), ".gitignore")
    assert repairs(gitignore(scene(), database.path)) == []
    os.unlink(file)

    assert repairs(gitignore(scene(), database.path)) == [Repair("write gitignore", file)]


def test_legacy_files_are_counted_and_what_is_mirrored_is_not(scene, project, told):
    assert told(legacy(scene())) == []
    leave(str(project / "clavain-stop-s1"))
    leave(str(project / "clavain-dispatch-7.json"), b"{}")
    band = project / ".interband" / "interphase" / "bead"
    band.mkdir(parents=True)
    leave(str(band / "s.json"), b'{"version":"1.0.0","source":"intercore","payload":{}}')

    assert told(legacy(scene())) == [("legacy", "note", "2 legacy files are left (dispatch, stop)")]
