"""Agents of a run: started by whoever moves it on, ended by whoever takes it back."""

import json

import pytest

from tests.features.dispatches.conftest import Agents, is_gone
from tests.support.processes import icctl

SCRIPT = """
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift ;; esac; shift; done
echo $$ > "$out"; exec sleep 1000
"""


@pytest.fixture(params=["daemon", "direct"])
def host(request: pytest.FixtureRequest, agents: Agents) -> str:
    """The daemon, or nobody."""
    if request.param == "daemon":
        agents.env["INTERCORE_SOCKET"] = request.getfixturevalue("daemon").socket
    return str(request.param)


@pytest.fixture
def executing(agents: Agents, host: str):
    """A run that is about to enter its executing phase, with an agent that has a prompt."""
    prompts = agents.project / ".ic" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "fixer.md").write_text("fix it\n")
    script = agents.project / "dispatch.sh"
    script.write_text(SCRIPT)
    agents.env["CLAVAIN_DISPATCH_SH"] = str(script)

    def made(*flags: str) -> str:
        chain = '--phases=["planned","executing","done"]'
        run_id = ic(agents, "run", "create", "--goal=g", chain, *flags).stdout.decode().strip()
        ic(agents, "run", "agent", "add", run_id, "--name=fixer")
        return run_id

    return made


def ic(agents: Agents, *argv: str, exit: int = 0):  # noqa: A002 -- what it is
    done = icctl(*argv, cwd=agents.project, env=agents.env)
    assert done.returncode == exit, done.stderr
    return done


def test_an_advance_into_executing_starts_the_agents_once(agents, executing, door):
    run_id = executing("--auto-spawn")

    done = ic(agents, "run", "advance", run_id, "--disable-gates")

    (started,) = agents.every()
    assert done.stdout == "planned → executing\n".encode()
    assert done.stderr.decode() == f"[event] auto-spawn: agent fixer started: {started['id']}\n"
    assert (started["run_id"], started["status"]) == (run_id, "running")


@pytest.mark.parametrize("flags", [("--no-auto-spawn",), ()])
def test_an_advance_starts_nothing_that_nobody_asked_for(agents, executing, flags):
    run_id = executing(*flags)

    done = ic(agents, "run", "advance", run_id, "--disable-gates")

    assert (agents.every(), done.stderr) == ([], b"")


def test_a_blocked_advance_starts_nothing(agents, executing):
    run_id = executing("--auto-spawn")

    ic(agents, "run", "advance", run_id, "--priority=0", exit=1)

    assert agents.every() == []


def test_the_settings_may_ask_for_it(agents, executing, host):
    """Those of the host: a daemon has a home of its own here, without any."""
    config = agents.project / ".config" / "intercore"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("auto_spawn = true\n")
    run_id = executing()

    shown = json.loads(ic(agents, "run", "status", run_id, "--json").stdout)

    assert shown.get("auto_spawn", False) is (host == "direct")


def test_a_rollback_ends_the_agents_of_the_run(agents, executing, door):
    run_id = executing("--auto-spawn")
    ic(agents, "run", "advance", run_id, "--disable-gates")
    (started,) = agents.every()

    done = ic(agents, "run", "rollback", run_id, "--to-phase=planned", "--reason=wrong")

    assert json.loads(done.stdout)["cancelled_dispatches"] == 1
    assert done.stderr == b""
    assert is_gone(started["pid"])
    assert agents.ended(started["id"])["status"] == "cancelled"
