"""Which database a caller means, judged in the caller's directory and by `stat` alone."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from icd.db import paths
from icd.db.paths import Where
from icd.errors import BadPath, IcError, NoDatabase, PermissionRefused, SymlinkRefused


@pytest.fixture
def make():
    """Write a file as large as a real database, with the directories above it."""

    def file(path, text="x" * 32768):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    return file


@pytest.fixture
def sub(project):
    """A directory two levels below the project's root."""
    path = project / "src" / "deep"
    path.mkdir(parents=True)
    return path


# --- discovery ------------------------------------------------------------------------------


def test_a_file_that_lost_its_content_is_told_apart_from_one_that_never_was(project, sub, make):
    path = make(project / ".clavain" / "intercore.db", "")

    with pytest.raises(NoDatabase, match="is empty") as told:
        paths.resolve(Where(str(sub)))

    assert path in told.value.message
    assert "icctl restore FILE" in told.value.hint


def test_the_database_of_the_directory_is_found(project, make):
    path = make(project / ".clavain" / "intercore.db")

    assert paths.resolve(Where(str(project))) == path


def test_the_database_of_a_directory_above_is_found(project, sub, make):
    path = make(project / ".clavain" / "intercore.db")

    assert paths.resolve(Where(str(sub))) == path


def test_the_nearest_database_wins(project, sub, make):
    make(project / ".clavain" / "intercore.db")
    nearest = make(project / "src" / ".clavain" / "intercore.db")

    assert paths.resolve(Where(str(sub))) == nearest


def test_discovery_goes_beyond_the_project(project, tmp_path, make):
    path = make(tmp_path / ".clavain" / "intercore.db")

    assert paths.resolve(Where(str(project))) == path


def test_an_empty_file_does_not_shadow_the_database_above(project, sub, make):
    path = make(project / ".clavain" / "intercore.db")
    make(sub / ".clavain" / "intercore.db", "")

    assert paths.resolve(Where(str(sub))) == path


def test_a_database_without_tables_does_not_shadow_the_database_above(project, sub, make):
    """Any command of the original opens with create and switches to WAL, which writes a header."""
    path = make(project / ".clavain" / "intercore.db")
    (sub / ".clavain").mkdir()
    with closing(sqlite3.connect(sub / ".clavain" / "intercore.db")) as conn:
        conn.execute("PRAGMA journal_mode = WAL")

    assert paths.resolve(Where(str(sub))) == path


def test_without_a_database_the_caller_hears_how_to_get_one(project):
    with pytest.raises(NoDatabase, match=r"no .clavain/intercore.db in .* or above it") as absent:
        paths.resolve(Where(str(project)))

    assert "icctl init" in absent.value.hint


def test_looking_for_a_database_creates_nothing(project):
    before = sorted(project.rglob("*"))

    with pytest.raises(NoDatabase):
        paths.resolve(Where(str(project)))
    paths.target(Where(str(project)))

    assert sorted(project.rglob("*")) == before


def test_a_directory_that_is_gone_has_no_database(project):
    with pytest.raises(NoDatabase):
        paths.resolve(Where(str(project / "gone" / "deeper")))


@pytest.mark.parametrize(
    "cwd", ["", "."], ids=["a caller that did not say where it is", "a relative directory"]
)
def test_the_directory_of_this_process_is_never_looked_at(project, make, monkeypatch, cwd):
    make(project / ".clavain" / "intercore.db")
    monkeypatch.chdir(project)

    with pytest.raises(IcError):
        paths.resolve(Where(cwd))


# --- links ----------------------------------------------------------------------------------


def test_a_symlinked_directory_is_refused(project, tmp_path, make):
    make(tmp_path / "elsewhere" / "intercore.db")
    (project / ".clavain").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SymlinkRefused, match=r"\.clavain is a symlink"):
        paths.resolve(Where(str(project)))
    with pytest.raises(SymlinkRefused):
        paths.target(Where(str(project)))


def test_a_symlinked_file_is_refused(project, make):
    make(project / "real.db")
    (project / ".clavain").mkdir()
    (project / ".clavain" / "intercore.db").symlink_to(project / "real.db")

    with pytest.raises(SymlinkRefused, match=r"intercore\.db is a symlink"):
        paths.resolve(Where(str(project)))


def test_a_link_to_nowhere_is_not_created_through(project, tmp_path):
    (project / ".clavain").mkdir()
    (project / ".clavain" / "intercore.db").symlink_to(tmp_path / "planted.db")

    with pytest.raises(SymlinkRefused):
        paths.target(Where(str(project)))


@pytest.mark.parametrize("name", [".clavain", ".clavain/intercore.db"])
def test_a_link_to_nowhere_does_not_lead_to_a_database_above(project, make, tmp_path, name):
    make(project / ".clavain" / "intercore.db")
    link = project / "inner" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "nowhere")

    with pytest.raises(SymlinkRefused):
        paths.resolve(Where(str(project / "inner")))


@pytest.mark.parametrize("name", [".clavain/x.db", ".clavain/intercore.db"])
def test_an_explicit_path_through_a_symlinked_directory_is_refused(project, tmp_path, name):
    (tmp_path / "elsewhere" / ".clavain").mkdir(parents=True)
    (project / ".clavain").symlink_to(tmp_path / "elsewhere" / ".clavain")

    with pytest.raises(SymlinkRefused):
        paths.explicit(Where(str(project), name))


def test_an_explicit_path_below_a_symlinked_directory_is_refused(project, tmp_path):
    (tmp_path / "elsewhere" / ".clavain" / "sub").mkdir(parents=True)
    (project / ".clavain").symlink_to(tmp_path / "elsewhere" / ".clavain")

    with pytest.raises(SymlinkRefused):
        paths.explicit(Where(str(project), ".clavain/sub/x.db"))


def test_an_explicit_path_to_a_symlinked_file_is_refused(project, make):
    make(project / "real.db")
    (project / "link.db").symlink_to(project / "real.db")

    with pytest.raises(SymlinkRefused):
        paths.resolve(Where(str(project), "link.db"))


def test_a_project_that_is_itself_reached_through_a_link_is_fine(project, tmp_path, make):
    make(project / ".clavain" / "intercore.db")
    (tmp_path / "link").symlink_to(project)
    cwd = str(tmp_path / "link")

    found = [paths.resolve(Where(cwd)), paths.resolve(Where(cwd, ".clavain/intercore.db"))]

    assert {paths.canonical(path) for path in found} == {str(project / ".clavain/intercore.db")}


# --- explicit paths -------------------------------------------------------------------------


def test_a_link_into_a_project_leads_to_its_database(project, sub, tmp_path, make):
    """As `$PWD` of a shell names it: above the link, there is no project."""
    path = make(project / ".clavain" / "intercore.db")
    (tmp_path / "link").symlink_to(sub)

    assert paths.resolve(Where(str(tmp_path / "link"))) == path


def test_a_flag_wins_over_the_environment_and_that_over_discovery(project, make):
    found = make(project / ".clavain" / "intercore.db")
    env = make(project / "env.db")
    flag = make(project / "flag.db")
    cwd = str(project)

    chosen = [
        paths.resolve(Where(cwd)),
        paths.resolve(Where(cwd, env_db="env.db")),
        paths.resolve(Where(cwd, db="flag.db", env_db="env.db")),
    ]

    assert chosen == [found, env, flag]


def test_an_empty_variable_is_no_variable(project, make):
    found = make(project / ".clavain" / "intercore.db")

    assert paths.resolve(Where(str(project), env_db="")) == found


def test_an_empty_flag_is_a_mistake_and_not_the_default(project, make):
    make(project / ".clavain" / "intercore.db")

    with pytest.raises(BadPath):
        paths.resolve(Where(str(project), db=""))


@pytest.mark.parametrize("name", ["x.sqlite", "x", ".clavain/", "x.db.bak", "x.DB"])
def test_a_database_has_the_extension_db(project, name):
    with pytest.raises(BadPath, match=r"db path must have \.db extension: "):
        paths.explicit(Where(str(project), name))


@pytest.mark.parametrize("name", ["\n.db", "a\tb.db", ".clavain/\x1b[31m.db"])
def test_a_name_with_control_characters_is_refused(project, name):
    """It would be printed as something else."""
    with pytest.raises(BadPath, match="control characters"):
        paths.target(Where(str(project), db=name))


@pytest.mark.parametrize("name", ["../x.db", "a/../../x.db", "../.clavain/x.db"])
def test_a_path_that_climbs_out_is_refused(project, name):
    with pytest.raises(BadPath, match=r"db path must not contain '\.\.': "):
        paths.explicit(Where(str(project), name))


def test_a_path_that_climbs_and_comes_back_is_that_path(project):
    assert paths.explicit(Where(str(project), "a/../x.db")) == str(project / "x.db")


def test_two_dots_in_a_name_do_not_climb(project):
    assert paths.explicit(Where(str(project), "v1..2.db")) == str(project / "v1..2.db")


def test_a_file_outside_the_project_is_refused(project, tmp_path, make):
    path = make(tmp_path / "other" / "x.db")

    with pytest.raises(BadPath, match=r"db path must be inside the project .* directory"):
        paths.resolve(Where(str(project), path))


def test_a_project_whose_name_begins_like_ours_is_outside(project, tmp_path, make):
    path = make(tmp_path / "project2" / "x.db")

    with pytest.raises(BadPath):
        paths.resolve(Where(str(project), path))


def test_a_directory_that_leads_outside_is_refused(project, tmp_path, make):
    make(tmp_path / "other" / "sub" / "x.db")
    (project / "inside").symlink_to(tmp_path / "other")

    with pytest.raises(BadPath):
        paths.resolve(Where(str(project), "inside/sub/x.db"))


def test_a_clavain_directory_elsewhere_is_allowed(project, tmp_path, make):
    path = make(tmp_path / "other" / ".clavain" / "x.db")

    assert paths.resolve(Where(str(project), path)) == path


def test_a_directory_that_only_resembles_clavain_is_not(project, tmp_path, make):
    path = make(tmp_path / "other" / "my.clavain" / "x.db")

    with pytest.raises(BadPath):
        paths.resolve(Where(str(project), path))


def test_an_explicit_path_that_does_not_exist_is_no_database(project):
    with pytest.raises(NoDatabase, match="no database at "):
        paths.resolve(Where(str(project), "x.db"))


def test_an_explicit_directory_is_no_database(project):
    (project / "x.db").mkdir()

    with pytest.raises(NoDatabase):
        paths.resolve(Where(str(project), "x.db"))


@pytest.mark.parametrize("name", ["x\0.db", "a\0b/x.db"])
def test_a_path_with_a_nul_is_a_bad_path(project, name):
    with pytest.raises(BadPath):
        paths.target(Where(str(project), name))


# --- from sub-directories -------------------------------------------------------------------


def test_a_relative_variable_works_from_the_root_and_from_below(project, sub, make):
    path = make(project / ".clavain" / "intercore.db")

    found = {
        paths.resolve(Where(str(cwd), env_db=".clavain/intercore.db")) for cwd in (project, sub)
    }

    assert found == {path}


def test_an_absolute_variable_works_from_the_root_and_from_below(project, sub, make):
    path = make(project / "data" / "x.db")

    found = {paths.resolve(Where(str(cwd), env_db=path)) for cwd in (project, sub)}

    assert found == {path}


def test_a_relative_path_means_the_callers_directory_first(project, sub, make):
    make(project / "x.db")
    nearer = make(sub / "x.db")

    assert paths.resolve(Where(str(sub), "x.db")) == nearer


def test_what_does_not_exist_anywhere_is_named_in_the_callers_directory(project, sub):
    assert paths.target(Where(str(sub), "x.db")) == str(sub / "x.db")


def test_the_root_of_a_project_without_git_is_where_its_clavain_is(tmp_path):
    (tmp_path / "p" / ".clavain").mkdir(parents=True)
    (tmp_path / "p" / "sub").mkdir()

    assert paths.project_root(str(tmp_path / "p" / "sub")) == str(tmp_path / "p")


def test_the_root_of_a_project_is_the_git_top_level_even_below_another_clavain(project, sub):
    (project / "src" / ".clavain").mkdir()

    assert paths.project_root(str(sub)) == str(project)


def test_a_directory_without_any_mark_is_its_own_project(tmp_path):
    assert paths.project_root(str(tmp_path)) == str(tmp_path)


# --- callers who do not say where they are --------------------------------------------------


def test_without_a_directory_a_relative_path_is_refused():
    with pytest.raises(BadPath, match="must be absolute when no directory is given"):
        paths.explicit(Where("", "x.db"))


def test_without_a_directory_an_absolute_path_must_be_in_a_clavain(tmp_path, make):
    good = make(tmp_path / ".clavain" / "x.db")
    bad = make(tmp_path / "x.db")

    assert paths.resolve(Where("", good)) == good
    with pytest.raises(BadPath, match=r"must be inside a \.clavain directory"):
        paths.resolve(Where("", bad))


# --- init -----------------------------------------------------------------------------------


def test_init_creates_where_the_caller_is(project, sub):
    assert paths.target(Where(str(sub))) == str(sub / ".clavain" / "intercore.db")


def test_init_completes_what_is_there_already(project, sub, make):
    path = make(project / ".clavain" / "intercore.db")

    assert paths.target(Where(str(sub))) == path


def test_init_takes_an_explicit_path(project):
    assert paths.target(Where(str(project), "a/b.db")) == str(project / "a" / "b.db")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
@pytest.mark.parametrize("db", [None, ".clavain/intercore.db"], ids=["found", "named"])
def test_init_refuses_what_is_no_file(project, make, db):
    """It blamed the disk, and left a lock behind."""
    (project / ".clavain").mkdir()
    make(project / ".clavain" / "intercore.db")

    with pytest.raises(BadPath, match="is not a regular file"):
        paths.target(Where(str(project), db))


# --- worktrees ------------------------------------------------------------------------------


@pytest.fixture
def worktree(tmp_path, monkeypatch):
    """A main checkout and a worktree of it, made by git itself."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    main, tree = tmp_path / "main", tmp_path / "trees" / "feature"
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (
        ["init", "-q", str(main)],
        ["-C", str(main), *identity, "commit", "-q", "--allow-empty", "-m", "first"],
        ["-C", str(main), "worktree", "add", "-q", str(tree)],
    ):
        subprocess.run(["git", *words], check=True, capture_output=True)
    return main, tree


@pytest.mark.parametrize("with_a_way_back", [False, True])
def test_a_clone_cannot_pass_for_a_worktree_of_another_project(
    with_a_way_back, worktree, tmp_path, make
):
    """It brings a `.git` and a directory of git's that lead to the main checkout of another."""
    main, _ = worktree
    make(main / ".clavain" / "intercore.db")
    clone = tmp_path / "clone"
    make(clone / ".git", "gitdir: its-own")
    make(clone / "its-own" / "commondir", str(main / ".git"))
    if with_a_way_back:
        make(clone / "its-own" / "gitdir", str(clone / ".git"))

    assert paths.discover(str(clone)) is None


def test_a_worktree_uses_the_database_of_the_main_checkout(worktree, make):
    main, tree = worktree
    (tree / "src").mkdir()
    path = make(main / ".clavain" / "intercore.db")

    found = {paths.resolve(Where(str(cwd))) for cwd in (tree, tree / "src")}

    assert found == {path}


def test_a_worktree_with_a_database_of_its_own_uses_that(worktree, make):
    main, tree = worktree
    make(main / ".clavain" / "intercore.db")
    own = make(tree / ".clavain" / "intercore.db")

    assert paths.resolve(Where(str(tree))) == own


def test_a_worktree_of_a_checkout_without_a_database_has_none(worktree):
    _, tree = worktree

    with pytest.raises(NoDatabase):
        paths.resolve(Where(str(tree)))


def test_an_empty_database_of_the_main_checkout_is_none(worktree, make):
    main, tree = worktree
    make(main / ".clavain" / "intercore.db", "")

    with pytest.raises(NoDatabase):
        paths.resolve(Where(str(tree)))


def test_a_symlinked_clavain_of_the_main_checkout_is_refused(worktree, tmp_path, make):
    main, tree = worktree
    make(tmp_path / "elsewhere" / "intercore.db")
    (main / ".clavain").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(SymlinkRefused):
        paths.resolve(Where(str(tree)))


def test_a_worktree_is_a_project_of_its_own_for_explicit_paths(worktree, make):
    main, tree = worktree
    path = make(main / "x.db")

    with pytest.raises(BadPath):
        paths.resolve(Where(str(tree), path))


@pytest.mark.parametrize("text", ["", "gitdir: /gone", "gitdir: ../.git/modules/x", "a\0b"])
def test_a_git_file_that_is_no_worktree_leads_nowhere(tmp_path, make, text):
    make(tmp_path / "sub" / ".git", text)

    with pytest.raises(NoDatabase):
        paths.resolve(Where(str(tmp_path / "sub")))


# --- one spelling ---------------------------------------------------------------------------


def test_one_file_has_one_spelling(project, tmp_path, make):
    path = make(project / ".clavain" / "intercore.db")
    (tmp_path / "link").symlink_to(project)

    assert paths.canonical(str(tmp_path / "link" / ".clavain" / "intercore.db")) == path
    assert paths.canonical(f"{project}/./.clavain//intercore.db") == path


def test_a_database_that_somebody_else_planted_above_is_refused_unless_it_is_named() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o755)
        inner = place / "inner"
        inner.mkdir()
        (place / ".clavain").mkdir()
        planted = place / ".clavain" / "intercore.db"
        planted.write_bytes(b"x" * 5000)
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            os._exit(_judged(inner, planted))

        _, status = os.waitpid(child, 0)

        assert os.waitstatus_to_exitcode(status) == 0
        assert paths.resolve(Where(str(inner))) == str(planted), "root may"
    finally:
        shutil.rmtree(place)


def _judged(inner: Path, planted: Path) -> int:
    """0 if the planted database is refused, passed over by init, and accepted by name."""
    own = str(inner / ".clavain" / "intercore.db")
    try:
        paths.resolve(Where(str(inner)))
    except PermissionRefused:
        named = paths.resolve(Where(str(inner), db=str(planted)))
        return 0 if (named, paths.target(Where(str(inner)))) == (str(planted), own) else 2
    return 1
