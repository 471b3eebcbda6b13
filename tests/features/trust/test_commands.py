"""`icctl trust`: what a database would do outside of itself, shown and accepted."""

import hashlib
import json
import os

import pytest

from icd import trust
from icd.features.dispatches.launch import SCRIPT
from icd.features.state import store as state
from icd.values.processes import Writer
from tests.conftest import NOW_MS

TEXT = "echo hello\n"
SHA256 = hashlib.sha256(TEXT.encode()).hexdigest()


@pytest.fixture
def env(tmp_path):
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def script(project):
    path = project / SCRIPT
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o755)
    path.write_text(TEXT)
    path.chmod(0o644)
    return path


@pytest.fixture
def run_id(stdout, env, conn):
    """With an agent whose name no command of ours would have taken."""
    chain = '--phases=["planned","executing","done"]'
    made = stdout("run", "create", "--goal=g", chain, "--auto-spawn", env=env).strip()
    stdout("run", "agent", "add", made, "--name=fixer", env=env)
    conn.execute("UPDATE run_agents SET name = ?", ("fix\x1b[2Jer",))
    return made


def allowed(env, database):
    return trust.allows(env["HOME"], database.path)


def test_what_it_would_do_is_shown_without_accepting_it(stdout, env, script, run_id, database):
    project, conn = script.parents[3], database.connection()
    state.set(conn, "dispatch", "s1", "{}", writer=Writer(), now_ms=NOW_MS)
    hooks = project / ".clavain" / "hooks"
    hooks.mkdir(mode=0o755)
    (hooks / "on-event").touch(mode=0o755)

    shown = stdout("trust", "--dry-run", env=env).splitlines()

    prompt = f"{project}/.ic/prompts/fix\\x1b[2Jer.md"
    untrusted = (
        "untrusted: it was not created here, or was created by an earlier version of intercore"
    )
    assert shown == [
        f"database\t{database.path}\t{untrusted}",
        f"script\t{script}\tuntrusted, sha256 {SHA256}",
        f"agent\tfix\\x1b[2Jer\tof run {run_id}, prompt {prompt}",
        "mirror\tdispatch\t1 rows to ~/.interband/clavain/dispatch",
        "hook\ton-event\tuntrusted",
    ]
    assert not allowed(env, database)


def test_it_is_accepted_with_the_script_that_lies_there(stdout, env, database, script):
    shown = stdout("trust", env=env).splitlines()

    assert shown == [
        f"database\t{database.path}\ttrusted",
        f"script\t{script}\ttrusted, sha256 {SHA256}",
    ]
    assert allowed(env, database)
    assert trust.allows_script(env["HOME"], database.path, str(script))


def test_it_is_shown_as_json(stdout, env, database, project, run_id):
    shown = json.loads(stdout("trust", "--json", env=env))

    prompt = f"{project}/.ic/prompts/fix\x1b[2Jer.md"
    agent = {"run_id": run_id, "name": "fix\x1b[2Jer", "project": str(project), "prompt": prompt}
    assert shown == {
        "path": database.path, "trusted": True, "problem": "", "scripts": [],
        "agents": [agent | {"sandbox": ""}], "mirrored": [], "hooks": [],
    }  # fmt: skip


def test_agents_of_runs_that_start_none_are_not_shown(stdout, env, database):
    made = stdout("run", "create", "--goal=g", "--no-auto-spawn", env=env).strip()
    stdout("run", "agent", "add", made, "--name=a", env=env)

    assert len(stdout("trust", env=env).splitlines()) == 1


def test_a_script_that_others_can_change_is_not_accepted_but_the_database_is(
    stdout, env, database, script
):
    script.chmod(0o666)

    shown = stdout("trust", env=env)

    assert f"script\t{script}\t{script} is writable by other users; run chmod go-w\n" in shown
    assert allowed(env, database)
    assert not trust.allows_script(env["HOME"], database.path, str(script))


def test_a_database_that_others_can_change_cannot_be_accepted(ic, env, database):
    os.chmod(database.path, 0o666)

    output = ic("trust", env=env)

    assert (output.exit, output.stdout) == (2, b"")
    assert b"is writable by other users; run chmod go-w; a trusted file must be" in output.stderr


def test_a_script_that_is_gone_is_forgotten(stdout, env, database, script):
    stdout("trust", env=env)
    script.unlink()

    stdout("trust", env=env)

    assert trust.entries(env["HOME"])[0].scripts == {}


def test_all_that_is_trusted_is_listed(stdout, env, database, project):
    stdout("trust", env=env)
    other = project / ".clavain" / "other\n.db"
    other.touch(mode=0o600)
    trust.grant(env["HOME"], str(other))
    other.unlink()

    shown = stdout("trust", "--list", env=env)
    as_json = json.loads(stdout("trust", "--list", "--json", env=env))

    odd = f"{project}/.clavain/other\\n.db"
    gone = f"{odd} cannot be inspected: No such file or directory"
    assert shown.splitlines() == [f"{database.path}\ttrusted", f"{odd}\t{gone}"]
    assert [(e["path"], e["scripts"]) for e in as_json] == [(database.path, {}), (str(other), {})]


def test_trust_can_be_revoked_once(stdout, ic, env, database):
    stdout("trust", env=env)

    first, second = ic("trust", "--revoke", env=env), ic("trust", "--revoke", env=env)

    assert (first.exit, first.stdout.decode()) == (0, f"{database.path}\n")
    assert (second.exit, second.stdout) == (1, b"")
    assert not allowed(env, database)


def test_trust_in_a_database_that_is_gone_can_be_revoked(stdout, ic, env, database):
    stdout("trust", env=env)
    os.rename(database.path, f"{database.path}.aside")

    assert ic("trust", "--revoke", "--json", env=env).exit == 0


def test_a_database_that_cannot_be_opened_is_not_accepted(ic, env, project, database):
    database.close()
    (project / ".clavain" / "intercore.db").write_bytes(b"nonsense" * 1000)

    output = ic("trust", env=env)

    assert output.exit == 2
    assert trust.entries(env["HOME"]) == []


@pytest.mark.parametrize("flags", [("--list", "--revoke"), ("--dry-run", "--list")])
def test_one_thing_at_a_time(ic, env, database, flags):
    assert ic("trust", *flags, env=env).exit == 3


@pytest.mark.parametrize("home", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_there_is_no_trust(ic, database, home):
    output = ic("trust", env=home)

    assert output.exit == 2
    assert output.stderr.endswith(b": trust is recorded in the home directory; set HOME\n")


def test_a_home_that_cannot_be_written_is_told(ic, env, database, tmp_path):
    (tmp_path / "home" / ".local").write_text("in the way")

    output = ic("trust", env=env)

    assert output.exit == 2
    assert b"cannot record the trust in " in output.stderr
