"""Which database, why, and which other one may have been meant."""

import os
import subprocess

import pytest

from icd.admin.doctor.project import choose
from icd.db.database import Database
from icd.db.paths import Where
from icd.errors import NoDatabase
from tests.support.processes import icctl


@pytest.fixture
def make():
    """A database in a directory."""

    def made(directory):
        directory.mkdir(parents=True, exist_ok=True)
        done = icctl("init", cwd=directory, env={"INTERCORE_MODE": "direct"})
        assert done.returncode == 0, done
        return str(directory / ".clavain" / "intercore.db")

    return made


def reason(where: Where) -> str:
    path, (found, *_) = choose(where)
    assert (found.check, found.severity) == ("database", "ok")
    return found.message.removeprefix(f"{path}, ")


def test_the_reason_of_the_choice_is_told(database: Database, project):
    inside = project / "a" / "b"
    inside.mkdir(parents=True)

    assert reason(Where(str(project))) == "in the current directory"
    assert reason(Where(str(inside))) == "the nearest one above the current directory"
    assert reason(Where(str(project), db=database.path)) == "named by --db"
    assert reason(Where(str(project), env_db=database.path)) == "named by INTERCORE_DB"


def test_a_worktree_without_a_database_uses_that_of_the_main_checkout(make, tmp_path):
    main, tree = tmp_path / "main", tmp_path / "tree"
    make(main)
    git = ["git", "-C", main, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-qm", "a", "--allow-empty"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", tree], check=True)

    assert reason(Where(str(tree))).startswith("the one of the main checkout")


def test_a_database_that_hides_another_of_the_same_project_is_a_warning(make, project, told):
    outer = make(project)
    inner = project / "sub"
    (inner / ".clavain").mkdir(parents=True)
    subprocess.run(["cp", outer, inner / ".clavain"], check=True)

    _, findings = choose(Where(str(inner)))

    assert told(findings) == [
        ("shadow", "warning", f"it hides {outer} from everything below {inner}")
    ]


def test_a_database_of_a_project_inside_of_another_one_is_worth_a_note(make, project, told):
    outer = make(project)
    inner = project / "sub"
    (inner / ".git").mkdir(parents=True)
    (inner / ".clavain").mkdir()
    subprocess.run(["cp", outer, inner / ".clavain"], check=True)

    _, findings = choose(Where(str(inner)))

    assert told(findings) == [("shadow", "note", f"it hides {outer} from everything below {inner}")]


def test_an_explicit_choice_against_a_nearer_one_is_worth_a_note(make, tmp_path, told):
    near, far = make(tmp_path / "near"), make(tmp_path / "far")

    _, findings = choose(Where(str(tmp_path / "near"), env_db=far))

    assert told(findings) == [("shadow", "note", f"{near} is nearer, but not used here")]


def test_an_empty_file_that_is_passed_over_is_told(make, project, told):
    make(project)
    empty = project / "sub" / ".clavain" / "intercore.db"
    empty.parent.mkdir(parents=True)
    empty.touch()

    _, findings = choose(Where(str(project / "sub")))

    assert told(findings) == [("shadow", "note", f"{empty} has no tables and is ignored")]


def test_no_database_at_all_is_a_warning_that_says_how_to_get_one(project):
    path, (finding,) = choose(Where(str(project)))

    assert (path, finding.check, finding.severity) == (None, "database", "warning")
    assert finding.message == f"no .clavain/intercore.db in {project} or above it"
    assert finding.hint == NoDatabase.hint


def test_a_name_of_nothing_is_an_error_that_says_who_gave_it(project, told):
    missing = str(project / "missing.db")

    _, by_flag = choose(Where(str(project), db=missing))
    _, by_variable = choose(Where(str(project), env_db=missing))

    told_of = "names a database that does not exist: no database at"
    assert told(by_flag) == [("database", "error", f"--db {told_of} {missing}")]
    assert told(by_variable) == [("database", "error", f"INTERCORE_DB {told_of} {missing}")]


def test_what_is_left_of_a_deleted_database_is_told(make, project):
    path = make(project)
    os.unlink(path)

    _, (finding,) = choose(Where(str(project)))

    left = "its companion files are left: intercore.db.lock"
    assert finding.message == f"{path} is gone; {left}"
    assert "icctl restore FILE" in finding.hint
