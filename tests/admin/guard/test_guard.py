"""The guard of commits, with real git: worktrees, hooksPath, hooks that were there, merge, rebase."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from icd.app.call import Answer
from icd.app.invocation import Output
from icd.app.planner import run_errand
from tests.support.processes import BIN, CLEAN, icctl

HOOK, CHAINED = "pre-commit", "pre-commit.before-intercore"
ENV = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@x",
       "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@x", "INTERCORE_MODE": "direct",
       "GIT_CONFIG_GLOBAL": os.devnull, "GIT_EDITOR": "true"}  # fmt: skip


class Checkout:
    """A project, and what a session does in it."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path, self.home = path, home

    def env(self, session: str, more: dict[str, str]) -> dict[str, str]:
        path = f"{BIN}:{os.environ['PATH']}"
        mine = {"HOME": str(self.home), "PATH": path, "INTERCORE_SESSION": session}
        return {**CLEAN, **ENV, **mine, **more}

    def git(self, *words, session="ann", **more):
        return subprocess.run(
            ["git", "-c", "init.defaultBranch=main", *words],
            cwd=self.path, env=self.env(session, more), capture_output=True, text=True, check=False,
        )  # fmt: skip

    def icctl(self, *words, session="ann", **more):
        done = self.tried(*words, session=session, **more)
        assert done.returncode in (0, 1), done.stderr
        return done

    def tried(self, *words, session="ann", **more):
        done = icctl(*words, cwd=self.path, env=self.env(session, more))
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        return done

    def commit(self, *names, text="x", session="ann", words=(), **more):
        for name in names:
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text)
            assert self.git("add", name).returncode == 0
        return self.git("commit", "-m", "m", *words, session=session, **more)

    def reserve(self, pattern, session="bob"):
        done = self.icctl("coordination", "reserve", f"--pattern={pattern}", session=session)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def checkout(tmp_path):
    found = Checkout(tmp_path / "p", tmp_path)
    found.path.mkdir()
    found.git("init")
    (found.path / ".gitignore").write_text(".clavain\n")
    found.icctl("init")
    assert found.commit("src/a.py", "README", ".gitignore").returncode == 0
    return found


@pytest.fixture
def guarded(checkout):
    checkout.icctl("guard", "install")
    checkout.reserve("src/**")
    return checkout


def test_a_commit_of_what_another_session_holds_is_refused_and_told(guarded):
    refused = guarded.commit("src/a.py", text="y")
    own = guarded.commit("README", text="y", words=("--", "README"))
    theirs = guarded.commit("src/a.py", text="z", session="bob")

    assert (refused.returncode, own.returncode, theirs.returncode) == (1, 0, 0)
    assert "src/a.py: src/** is held exclusively by bob" in refused.stderr
    assert "INTERCORE_GUARD=off git commit" in refused.stderr


def test_a_file_that_is_held_by_its_name_is_named_once(guarded):
    guarded.reserve("README")

    refused = guarded.commit("README", text="y")

    assert "\n  README is held exclusively by bob" in refused.stderr


def test_the_override_commits_and_is_recorded(guarded):
    done = guarded.commit("src/a.py", text="y", INTERCORE_GUARD="off")

    told = guarded.icctl("events", "tail", "--all", "--source=guard").stdout.splitlines()
    said = json.loads(told[-1])
    assert done.stderr.endswith("recorded\n"), done.stderr
    assert (done.returncode, said["type"]) == (0, "overridden")
    assert said["payload"]["paths"] == [str(guarded.path / "src" / "a.py")]
    assert said["payload"]["owner"] == "ann"


def test_a_deletion_a_rename_and_an_odd_name_are_judged(guarded):
    guarded.git("mv", "src/a.py", "elsewhere.py")
    assert guarded.git("commit", "-m", "m").returncode == 1
    guarded.git("reset", "-q", "--hard")

    assert guarded.commit("src/ä\n*[.py").returncode == 1


def test_a_fault_of_ours_lets_the_commit_pass(guarded):
    (guarded.path / ".clavain" / "intercore.db").write_bytes(b"no database at all" * 1000)

    done = guarded.commit("src/a.py", text="y")

    assert done.returncode == 0
    assert "the commit was not judged" in done.stderr


def test_a_hook_that_was_there_runs_after_it_and_comes_back(checkout):
    hook = checkout.path / ".git" / "hooks" / HOOK
    hook.write_text("#!/bin/sh\necho ran >>../ran\nexit 3\n")
    hook.chmod(0o751)
    before = hook.read_bytes(), hook.stat().st_mode, hook.stat().st_mtime_ns

    for _ in range(2):
        assert "runs after it" in checkout.icctl("guard", "install").stdout
    assert checkout.commit("README", text="y").returncode == 1
    assert (checkout.path.parent / "ran").read_text() == "ran\n"

    assert "is back" in checkout.icctl("guard", "uninstall").stdout
    assert (hook.read_bytes(), hook.stat().st_mode, hook.stat().st_mtime_ns) == before
    assert not hook.with_name(CHAINED).exists()
    assert checkout.icctl("guard", "uninstall").stdout == "not installed\n"


def test_without_an_older_hook_nothing_stays_behind(checkout):
    hooks = checkout.path / ".git" / "hooks"
    before = sorted(hooks.iterdir())

    checkout.icctl("guard", "install")
    checkout.icctl("guard", "uninstall")

    assert sorted(hooks.iterdir()) == before


def test_a_framework_that_keeps_our_hook_does_not_run_it_for_ever(guarded):
    """As pre-commit does: it renames the hook that it finds, and runs it first."""
    hooks = guarded.path / ".git" / "hooks"
    framework = '#!/bin/sh\n"$(dirname "$0")/pre-commit.legacy" "$@" || exit 1\necho f >>../f\n'
    (hooks / CHAINED).write_text(framework)
    (hooks / CHAINED).chmod(0o755)
    (hooks / HOOK).rename(hooks / "pre-commit.legacy")
    (hooks / HOOK).write_text(framework)
    (hooks / HOOK).chmod(0o755)

    assert guarded.commit("README", text="y").returncode == 0
    assert guarded.commit("src/a.py", text="y").returncode == 1

    guarded.icctl("guard", "uninstall")
    assert not (hooks / CHAINED).exists()


def test_what_a_hook_commits_in_another_project_is_judged(guarded, tmp_path):
    """A guard that has judged one commit must not pass for the judge of another."""
    inner = Checkout(tmp_path / "inner", tmp_path)
    inner.path.mkdir()
    inner.git("init")
    inner.icctl("init")
    assert inner.commit("a").returncode == 0
    inner.icctl("guard", "install")
    inner.reserve("a")
    hook = guarded.path / ".git" / "hooks" / CHAINED
    hook.write_text(
        "#!/bin/sh\nunset $(git rev-parse --local-env-vars)\n"
        f"cd {inner.path} && echo y >a && git commit -qam inner\n"
    )
    hook.chmod(0o755)

    done = guarded.commit("README", text="y")

    assert done.returncode == 1
    assert "a is held exclusively by bob" in done.stderr


def test_a_guard_that_was_changed_by_hand_is_neither_replaced_nor_removed(checkout):
    checkout.icctl("guard", "install")
    hook = checkout.path / ".git" / "hooks" / HOOK
    with hook.open("a") as file:
        file.write("echo mine\n")
    changed = hook.read_bytes()

    for verb in ("install", "uninstall"):
        done = checkout.tried("guard", verb)
        assert done.returncode == 2
        assert f"changed by hand; move your lines to {CHAINED}" in done.stderr

    assert hook.read_bytes() == changed


def test_a_hook_that_only_bears_our_mark_is_not_ours(checkout):
    hook = checkout.path / ".git" / "hooks" / HOOK
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n# intercore-guard\nexit 3\n")

    assert checkout.tried("guard", "install").returncode == 2
    assert checkout.tried("guard", "uninstall").returncode == 2

    assert hook.read_text() == "#!/bin/sh\n# intercore-guard\nexit 3\n"


def test_hooks_path_of_the_user_is_respected(checkout, tmp_path):
    (tmp_path / "config").write_text(f"[core]\n\thooksPath = {tmp_path}/hooks\n")
    user = {"GIT_CONFIG_GLOBAL": str(tmp_path / "config")}

    checkout.icctl("guard", "install", **user)
    checkout.reserve("src/**")

    assert (tmp_path / "hooks" / HOOK).is_file()
    assert checkout.commit("src/a.py", text="y", **user).returncode == 1


def test_hooks_path_of_the_project_is_respected(checkout):
    checkout.git("config", "core.hooksPath", ".githooks")
    checkout.icctl("guard", "install")
    checkout.reserve("src/**")

    assert (checkout.path / ".githooks" / HOOK).is_file()
    assert checkout.commit("src/a.py", text="y").returncode == 1


def test_a_worktree_is_guarded_and_has_files_of_its_own(guarded, tmp_path):
    guarded.git("worktree", "add", "-b", "other", str(tmp_path / "w"))
    there = Checkout(tmp_path / "w", tmp_path)

    assert there.commit("src/a.py", text="y").returncode == 0
    there.reserve("src/a.py")
    assert there.commit("src/a.py", text="z").returncode == 1


def test_an_amend_judges_what_it_adds(guarded):
    assert guarded.git("commit", "--amend", "-m", "again").returncode == 0
    assert guarded.commit("src/a.py", text="y", words=("--amend",)).returncode == 1


def test_a_merge_judges_what_is_resolved_by_hand(checkout):
    checkout.git("checkout", "-q", "-b", "side")
    checkout.commit("src/a.py", "src/b.py", "c", text="side")
    checkout.git("checkout", "-q", "main")
    checkout.commit("c", text="main")
    checkout.icctl("guard", "install")
    checkout.reserve("src/**")

    assert checkout.git("merge", "side").returncode == 1  # c is in conflict
    assert checkout.commit("c", text="both").returncode == 0

    checkout.git("reset", "-q", "--hard", "HEAD~1")
    checkout.reserve("c")
    checkout.git("merge", "side")
    assert checkout.commit("c", text="both").returncode == 1


def test_a_rebase_is_not_judged_again(checkout):
    checkout.git("checkout", "-q", "-b", "side")
    checkout.commit("src/a.py", text="side")
    checkout.git("checkout", "-q", "main")
    checkout.commit("src/a.py", text="main")
    checkout.git("checkout", "-q", "side")
    checkout.icctl("guard", "install")
    checkout.reserve("src/**")

    assert checkout.git("rebase", "main").returncode == 1
    (checkout.path / "src" / "a.py").write_text("both")
    checkout.git("add", "src/a.py")
    done = checkout.git("rebase", "--continue")

    assert done.returncode == 0, done.stderr


def test_a_commit_of_five_thousand_files_is_judged(guarded):
    blob = guarded.git("hash-object", "-w", "README").stdout.strip()
    lines = "".join(f"100644 {blob}\tmany/{n}\n" for n in range(5000))
    done = subprocess.run(
        ["git", "update-index", "--index-info"], input=lines, text=True, cwd=guarded.path,
        env=guarded.env("ann", {}), check=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert guarded.icctl("guard", "check").returncode == 0

    guarded.reserve("many/*7")

    found = guarded.icctl("guard", "check")
    assert found.returncode == 1
    assert "500 files" in found.stderr


# --- a project's directory is a stranger's --------------------------------------------------------


def test_a_hooks_path_that_leads_out_of_the_project_is_refused(checkout, tmp_path):
    checkout.git("config", "core.hooksPath", str(tmp_path / "victim"))

    done = checkout.tried("guard", "install")

    assert done.returncode == 2
    assert "leads out of the project" in done.stderr
    assert not (tmp_path / "victim").exists()


def test_no_link_is_followed_to_the_hooks(checkout, tmp_path):
    (tmp_path / "victim").mkdir()
    hooks = checkout.path / ".git" / "hooks"
    hooks.rename(hooks.with_name("hooks-before"))
    hooks.symlink_to(tmp_path / "victim")

    done = checkout.tried("guard", "install")

    assert done.returncode == 2
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_hook_that_is_a_link_is_kept_as_a_link(checkout, tmp_path):
    (tmp_path / "victim").write_text("#!/bin/sh\n")
    hook = checkout.path / ".git" / "hooks" / HOOK
    hook.symlink_to(tmp_path / "victim")

    checkout.icctl("guard", "install")
    assert (tmp_path / "victim").read_text() == "#!/bin/sh\n"

    checkout.icctl("guard", "uninstall")
    assert hook.is_symlink()


def test_a_hook_that_is_kept_is_never_overwritten(checkout):
    hooks = checkout.path / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / HOOK).write_text("#!/bin/sh\n# new\n")
    (hooks / CHAINED).write_text("#!/bin/sh\n# kept\n")

    refused = checkout.tried("guard", "install")

    assert refused.returncode == 2
    assert "is still there" in refused.stderr
    assert (hooks / CHAINED).read_text() == "#!/bin/sh\n# kept\n"


def test_five_thousand_files_are_one_call(invoke, project):
    env = {**ENV, "HOME": str(project)}
    blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # of an empty file
    for words, lines in (
        (("init",), ""),
        (("hash-object", "-w", "--stdin"), ""),
        (
            ("update-index", "--index-info"),
            "".join(f"100644 {blob}\tmany/{n}\n" for n in range(5000)),
        ),
    ):
        subprocess.run(["git", *words], input=lines, text=True, cwd=project, env=env, check=True)
    asked = []

    def answer(call):
        asked.append((call.method.name, len(call.params.paths)))
        return Answer(result=[])

    done = run_errand(invoke("guard", "check", env=env), answer)

    assert done == Output(0)
    assert asked == [("coordination.check_many", 5000)]
