"""Which project is meant."""

import os
from pathlib import Path

import pytest

from icd.db.paths import Where
from icd.mcp.project import Project, directory_of


@pytest.fixture
def other(tmp_path: Path) -> Path:
    found = tmp_path / "other project"
    (found / ".git").mkdir(parents=True)
    return found


@pytest.mark.usefixtures("database")
def test_the_first_root_that_has_a_database_is_the_project(project, other):
    chosen = Project(Where("/"), None)

    found = chosen.choose(["https://example.com", other.as_uri(), project.as_uri()])

    assert found == Where(str(project))
    assert chosen.known == found


@pytest.mark.usefixtures("database")
def test_a_directory_below_a_project_belongs_to_it(project):
    (project / "src").mkdir()

    assert Project(Where("/"), None).choose([(project / "src").as_uri()]) == Where(
        str(project / "src")
    )


def test_without_a_root_that_has_a_database_it_is_the_working_directory(other):
    chosen = Project(Where("/work"), None)

    assert chosen.choose([other.as_uri()]) == Where("/work")
    assert chosen.known is None, "the database may be made later"


def test_a_database_that_is_refused_is_not_passed_over(project, other):
    (project / ".clavain").symlink_to(other)
    (other / "intercore.db").write_bytes(b"SQLite format 3\0" + bytes(8192))

    assert Project(Where("/"), None).choose([project.as_uri()]) == Where(str(project))


@pytest.mark.usefixtures("database")
def test_the_users_own_words_come_first_and_stay(project):
    for mine, directory, expected in [
        (Where("/p", "/p/.clavain/a.db"), None, Where("/p", "/p/.clavain/a.db")),
        (Where("/work", None, "b.db"), None, Where("/work", None, "b.db")),
        (Where("/work"), "/mine", Where("/mine")),
    ]:
        chosen = Project(mine, directory)
        chosen.forget()

        assert chosen.known == expected


@pytest.mark.usefixtures("database")
def test_roots_that_change_are_asked_for_again(project):
    chosen = Project(Where("/"), None)
    chosen.choose([project.as_uri()])

    chosen.forget()

    assert chosen.known is None


def test_a_root_may_have_any_name(tmp_path):
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a %\xff\n#?"))
    strange.mkdir()

    assert directory_of(strange.as_uri()) == str(strange)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:",
        "file://",
        "file://host/tmp",
        "file:///tmp%00",
        "file:///nowhere/at/all",
        "file://[/tmp",
        "http:///tmp",
        "/tmp",
        "tmp",
        "file:tmp",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_local_directory_is_no_root(uri):
    assert directory_of(uri) is None
