"""A stranger's project starts nothing: what its rows and its files say needs the user's trust."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.features.dispatches.conftest import Agents, is_gone
from tests.support.dispatched import Sleeper, plant, sleepers
from tests.support.processes import forked_icctl, icctl, until

pytestmark = pytest.mark.long

SCRIPT = "hub/clavain/scripts/dispatch.sh"
WHAT_RUNS = """
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift ;; esac; shift; done
touch "$HARM"; echo done > "$out"
"""
PHASES = '--phases=["planned","executing","done"]'


class Clone(Agents):
    """A copy of a stranger's project, in the hands of a user."""

    def __init__(self, project: Path, home: Path) -> None:
        home.mkdir()
        self.harm = home / "harm"
        super().__init__(project, HOME=str(home), HARM=str(self.harm))
        self.database = project / ".clavain" / "intercore.db"

    def ic(self, *argv: str, exit: int = 0) -> "subprocess.CompletedProcess[bytes]":  # noqa: A002
        done = forked_icctl(*argv, cwd=self.project, env=self.env)
        assert done.returncode == exit, done.stderr
        return done

    def advance(self, run_id: str) -> "subprocess.CompletedProcess[bytes]":
        done = icctl("run", "advance", run_id, "--disable-gates", cwd=self.project, env=self.env)
        assert done.returncode == 0, done.stderr
        return done

    def add_run(self) -> str:
        """A run of the user's own, with an agent whose prompt is there."""
        run_id = (
            self.ic("run", "create", "--goal=g", PHASES, "--auto-spawn").stdout.decode().strip()
        )
        self.ic("run", "agent", "add", run_id, "--name=fixer")
        return run_id

    def nothing_started(self) -> bool:
        return not self.harm.exists() and self.every() == [] and self.left() == []


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A project that a stranger made, with a run that starts an agent, and a script that runs it."""
    project = tmp_path / "stranger"
    (project / ".git").mkdir(parents=True)
    (project / ".ic" / "prompts").mkdir(parents=True)
    (project / ".ic" / "prompts" / "fixer.md").write_text("fix it\n")
    script = project / SCRIPT
    script.parent.mkdir(parents=True, mode=0o755)
    script.write_text(WHAT_RUNS)
    script.chmod(0o644)
    script.parent.chmod(0o755)
    theirs = Clone(project, tmp_path / "their-home")
    theirs.ic("init")
    theirs.add_run()
    return project


@pytest.fixture(params=["daemon", "direct"])
def clone(request, stranger: Path, tmp_path: Path) -> Iterator[Clone]:
    """As git, tar or cp makes it: the same bytes in other files."""
    shutil.copytree(stranger, tmp_path / "clone")
    found = Clone(tmp_path / "clone", tmp_path / "home")
    with sqlite3.connect(found.database) as conn:  # what it says of its place is true here, too
        conn.execute("UPDATE runs SET project_dir = ?", (str(found.project),))
    conn.close()
    if request.param == "daemon":
        found.env["INTERCORE_SOCKET"] = request.getfixturevalue("daemon").socket
    yield found
    for pid in found.left():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


@pytest.fixture
def run_id(clone: Clone) -> str:
    return str(json.loads(clone.ic("run", "list", "--json").stdout)[0]["id"])


def test_rows_of_a_clone_start_nothing_and_the_command_that_accepts_them_is_told(clone, run_id):
    done = clone.advance(run_id)

    assert done.stdout == "planned → executing\n".encode()
    assert clone.nothing_started()
    (told,) = done.stderr.decode().splitlines()
    assert told.startswith(f"icctl: auto-spawn: no agent of run {run_id} was started: ")
    assert f"{clone.database} is not trusted: it was not created here" in told
    assert "'icctl trust'" in told


def test_a_run_of_the_users_own_starts_nothing_in_a_clone(clone):
    own = clone.add_run()

    done = clone.advance(own)

    assert clone.nothing_started()
    assert b"'icctl trust'" in done.stderr


def test_one_who_asks_for_the_agents_of_a_clone_is_told_why_none_starts(clone, run_id):
    done = clone.ic("dispatch", "auto-spawn", run_id, "--json")

    (told,) = json.loads(done.stdout)
    assert clone.nothing_started()
    assert (told["name"], told["id"]) == ("fixer", "")
    assert f"{clone.database} is not trusted: " in told["error"]
    assert b"'icctl trust'" in done.stderr


def test_an_advance_without_agents_tells_nothing(clone):
    made = clone.ic("run", "create", "--goal=g", PHASES, "--auto-spawn").stdout.decode().strip()

    assert clone.advance(made).stderr == b""


def test_what_the_user_accepts_starts(clone, run_id):
    clone.ic("trust")

    done = clone.advance(run_id)

    until(clone.harm.exists)
    assert b"auto-spawn: agent fixer started: " in done.stderr


def test_accepted_rows_do_not_accept_a_script_that_changed_since(clone, run_id):
    clone.ic("trust")
    (clone.project / SCRIPT).write_text(f"{WHAT_RUNS}# and more\n")

    done = clone.advance(run_id)

    assert clone.nothing_started()
    assert b"auto-spawn: agent fixer failed: " in done.stderr
    assert b"trust it with 'icctl trust', or pass it with --dispatch-sh" in done.stderr


@pytest.mark.parametrize("how", ["copied over by rename", "deleted and put back", "another place"])
def test_another_file_in_the_place_of_an_accepted_one_starts_nothing(clone, run_id, tmp_path, how):
    clone.ic("trust")
    if how == "another place":
        shutil.copytree(clone.project, tmp_path / "elsewhere")
        clone.project = tmp_path / "elsewhere"
    else:
        fresh = clone.database.with_name("fresh")
        shutil.copy2(clone.database, fresh)
        if how == "deleted and put back":
            clone.database.unlink()
        fresh.rename(clone.database)
        icctl(
            "health", cwd=clone.project, env=clone.env
        )  # a daemon tells once that it was replaced

    done = clone.advance(run_id)

    assert clone.nothing_started()
    assert b"is not trusted: " in done.stderr


def test_what_is_revoked_starts_nothing(clone, run_id):
    clone.ic("trust")
    clone.ic("trust", "--revoke")

    clone.advance(run_id)

    assert clone.nothing_started()


def test_a_retry_of_a_strangers_dispatch_is_refused(clone):
    prompt = str(clone.project / ".ic" / "prompts" / "fixer.md")
    plant(
        clone.project, "d1", status="failed", project_dir=str(clone.project), prompt_file=prompt,
        sandbox="danger-full-access",
    )  # fmt: skip

    refused = [
        clone.ic("dispatch", "retry", "d1", exit=2),
        clone.ic("dispatch", "retry", "d1", "--", "touch", str(clone.harm), exit=2),
    ]

    assert not clone.harm.exists()
    assert all(b"dispatch d1 was not started again: " in each.stderr for each in refused)
    assert [each["id"] for each in clone.every()] == ["d1"]


def test_a_script_in_a_clone_is_not_run_for_a_prompt_of_the_user(clone):
    (clone.project / "own.md").write_text("mine\n")

    done = clone.run("spawn", "--prompt-file=own.md")

    assert done.returncode == 2
    assert clone.nothing_started()
    script = clone.project / SCRIPT
    assert f"icctl: dispatch spawn: {script} is not trusted" in done.stderr.decode()
    assert b"'icctl trust'" in done.stderr


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_script_that_the_user_names_needs_no_trust(clone, way):
    (clone.project / "own.md").write_text("mine\n")
    script = str(clone.project / SCRIPT)
    flags = [f"--dispatch-sh={script}"] if way == "flag" else []
    env = {"CLAVAIN_DISPATCH_SH": script} if way == "variable" else {}

    clone.ended(clone.spawn("--prompt-file=own.md", *flags, **env))

    assert clone.harm.exists()


def test_init_in_a_clone_does_not_trust_what_is_there_already(clone, run_id):
    clone.ic("init")

    clone.advance(run_id)

    assert clone.nothing_started()


def test_an_upgrade_does_not_trust_a_strangers_database(stranger, tmp_path):
    """The file stays the same one, and so does what the user knows about it."""
    clone = Clone(shutil.copytree(stranger, tmp_path / "old"), tmp_path / "home")
    shutil.rmtree(clone.project / ".clavain")
    (clone.project / ".clavain").mkdir(mode=0o700)
    old = Path(__file__).parents[2] / "data" / "databases" / "ours-1004.sql"
    with sqlite3.connect(clone.database) as conn:
        conn.executescript(old.read_text())
    conn.close()
    clone.database.chmod(0o600)
    clone.ic("init")
    before = clone.every()
    own = clone.add_run()

    done = clone.advance(own)

    assert b"is not trusted: " in done.stderr
    assert (clone.every(), clone.harm.exists()) == (before, False)


def test_a_project_that_was_made_here_starts_its_agents_without_a_question(clone):
    shutil.rmtree(clone.project / ".clavain")
    shutil.rmtree(clone.project / "hub")
    script = clone.project.parent / "own.sh"
    script.write_text(WHAT_RUNS)
    clone.env["CLAVAIN_DISPATCH_SH"] = str(script)
    direct = clone.env | {"INTERCORE_MODE": "direct"}
    assert icctl("init", cwd=clone.project, env=direct).stderr == b""
    own = clone.add_run()

    done = clone.advance(own)

    until(clone.harm.exists)
    assert done.stderr.startswith(b"[event] auto-spawn: agent fixer started: ")


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    with sleepers(1) as (found,):
        yield found


@pytest.mark.parametrize("boot", ["", "00000000-0000-0000-0000-000000000000"])
def test_a_strangers_row_ends_no_process_whatever_number_it_names(clone, sleeper, boot):
    """A stranger can guess a number and the moment of a start, but not the name of this boot."""
    known = sleeper.known
    facts = {"pid": known.pid, "pid_start": known.start, "boot": boot, "pidns": ""}
    plant(clone.project, "d1", runner_pid=known.pid, runner_start=known.start, **facts)

    clone.run("kill", "d1")

    assert not is_gone(known.pid)
