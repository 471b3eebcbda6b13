"""Starting an agent once more, and starting those of a run."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.features.dispatches.conftest import Agents

SCRIPT = """#!/bin/bash
printf '%s\\n' "$@" >>"args.$$"
echo noise
while [ $# -gt 0 ]; do case $1 in -o) out=$2;; esac; shift; done
echo result >"$out"
printf 'STATUS: pass\\nSUMMARY: done\\n' >"$out.verdict"
"""


@pytest.fixture
def scripted(agents: Agents) -> Agents:
    (agents.project / "dispatch.sh").write_text(SCRIPT)
    (agents.project / "fix.md").write_text("fix it\n")
    agents.env["CLAVAIN_DISPATCH_SH"] = str(agents.project / "dispatch.sh")
    return agents


@pytest.fixture
def sql(agents: Agents):
    def execute(statement: str, *values: object) -> list[tuple]:
        conn = sqlite3.connect(agents.project / ".clavain" / "intercore.db")
        with conn:
            found = conn.execute(statement, values).fetchall()
        conn.close()
        return found

    return execute


@pytest.fixture
def run(agents: Agents, sql) -> str:
    sql(
        "INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full,"
        " auto_advance, auto_spawn, budget_warn_pct, budget_told, created_at, created_ms,"
        " updated_at, updated_ms) VALUES ('run1', ?, 'g', 'active', 'executing', 3, 0, 0, 1, 80,"
        " 0, 1, 1, 1, 1)",
        str(agents.project),
    )
    return "run1"


@pytest.fixture
def add(sql, run):
    def add(agent_id: str, name: str | None, status: str = "active") -> None:
        sql(
            "INSERT INTO run_agents (id, run_id, agent_type, name, status, created_at, updated_at)"
            " VALUES (?, ?, 'codex', ?, ?, 1, 1)",
            agent_id, run, name, status,
        )  # fmt: skip

    return add


def words(agents: Agents, dispatch_id: str) -> list[str]:
    pid = agents.show(dispatch_id)["pid"]
    return (agents.project / f"args.{pid}").read_text().splitlines()


def test_a_script_gets_the_words_of_the_original_and_writes_the_output_itself(scripted):
    dispatch_id = scripted.spawn(
        "--prompt-file=fix.md", "--output=o.md", "--name=n", "--model=m", "--timeout=60s"
    )

    found = scripted.ended(dispatch_id)
    here = scripted.project
    assert words(scripted, dispatch_id) == [
        "-C", str(here), "-o", f"{here}/o.md", "--prompt-file", f"{here}/fix.md",
        "-n", "n", "-m", "m", "--sandbox", "workspace-write",
    ]  # fmt: skip
    assert (here / "o.md").read_text() == "result\n"
    assert (here / "o.md.log").read_text() == "noise\n"
    assert (found["status"], found["verdict_status"]) == ("completed", "pass")
    assert (found["agent_type"], found["sandbox"]) == ("codex", "workspace-write")


def test_a_retry_has_what_the_first_had_and_a_file_of_its_own(scripted):
    first = scripted.spawn(
        "--prompt-file=fix.md", "--name=n", "--model=m", "--sandbox=read-only", "--scope-id=S",
        "--timeout=60s", "--type=codex",
    )  # fmt: skip
    old = scripted.ended(first)

    done = scripted.run("retry", first, "--model=m2")

    new = scripted.ended(done.stdout.decode().strip())
    same = ("prompt_file", "prompt_hash", "name", "sandbox", "scope_id", "timeout_ms", "agent_type", "project_dir")  # fmt: skip
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert (new["parent_id"], new["model"]) == (first, "m2")
    assert new["output_file"] != old["output_file"]
    assert new["status"] == "completed"


def test_only_what_has_ended_is_retried(agents):
    dispatch_id = agents.sh("sleep 1000")

    done = [agents.run("retry", each, "--", "true") for each in (dispatch_id, "unknown")]

    assert [each.returncode for each in done] == [1, 1]
    assert b"has not ended: it is running" in done[0].stderr
    assert len(agents.every()) == 1


def test_a_command_is_not_remembered_and_has_to_be_given_again(agents):
    dispatch_id = agents.sh("exit 1", "--name=n")
    agents.ended(dispatch_id)

    without = agents.run("retry", dispatch_id)
    again = agents.run("retry", dispatch_id, "--", "true")

    assert without.returncode == 3
    assert b"was started with a command; pass it again, after --" in without.stderr
    found = agents.ended(again.stdout.decode().strip())
    assert (found["status"], found["name"], found["agent_type"]) == ("completed", "n", "command")


def test_every_agent_of_a_run_is_started_once(scripted, add, run, sql):
    prompts = scripted.project / ".ic" / "prompts"
    prompts.mkdir(parents=True)
    for name in ("one", "two"):
        (prompts / f"{name}.md").write_text(name)
    add("a1", "one")
    add("a2", "two")
    add("a3", "none")
    add("a4", "over", "completed")
    add("a5", "../../fix")

    first = scripted.run("auto-spawn", run)
    second = scripted.run("auto-spawn", run)

    started = dict(sql("SELECT id, dispatch_id FROM run_agents WHERE dispatch_id IS NOT NULL"))
    assert (first.returncode, first.stdout) == (0, b"")
    assert first.stderr.decode().splitlines() == [
        f"[event] auto-spawn: agent one started: {started['a1']}",
        f"[event] auto-spawn: agent two started: {started['a2']}",
        f"[event] auto-spawn: agent none failed: it has no prompt: {prompts}/none.md does not exist",
        "[event] auto-spawn: agent ../../fix failed: '../../fix' is not a valid name for a prompt",
    ]
    assert set(started) == {"a1", "a2"}
    assert second.stderr.decode().splitlines() == first.stderr.decode().splitlines()[2:]
    rows = {each["id"]: each for each in scripted.every()}
    assert rows.keys() == set(started.values())
    assert {each["run_id"] for each in rows.values()} == {run}
    assert rows[started["a1"]]["prompt_file"] == str(prompts / "one.md")


def test_two_who_start_the_agents_of_a_run_start_each_once(scripted, add, run, sql):
    prompts = scripted.project / ".ic" / "prompts"
    prompts.mkdir(parents=True)
    for number in range(4):
        (prompts / f"n{number}.md").write_text("x")
        add(f"a{number}", f"n{number}")

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: scripted.run("auto-spawn", run, "--json"), range(4)))

    started = [line["agent_id"] for each in done for line in json.loads(each.stdout)]
    assert [each.returncode for each in done] == [0] * 4
    assert sorted(started) == ["a0", "a1", "a2", "a3"]
    assert len(scripted.every()) == 4
    assert len(list(scripted.project.glob("args.*"))) <= 4


def test_an_agent_is_started_as_by_its_last_dispatch(scripted, add, run):
    like = {"model": "gpt-5", "sandbox": "read-only"}
    flags = [f"--{name}={value}" for name, value in like.items()]
    scripted.spawn("--prompt-file=fix.md", "--name=one", f"--run={run}", *flags)
    add("a1", "one")

    scripted.run("auto-spawn", run)

    like["prompt_file"] = str(scripted.project / "fix.md")
    assert [{name: each[name] for name in like} for each in scripted.every()] == [like] * 2


def test_an_agent_that_cannot_be_started_is_not_started_again(agents, add, run, sql):
    prompts = agents.project / ".ic" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "one.md").write_text("x")
    add("a1", "one")

    first, second = (agents.run("auto-spawn", run, PATH="/usr/bin:/bin") for _ in range(2))

    told = b"[event] auto-spawn: agent one failed: cannot start codex: No such file or directory\n"
    assert first.stderr == told
    assert second.stderr == b""
    assert len(agents.every()) == 1


def test_agents_of_an_unknown_run_or_of_one_that_is_over_are_not_started(agents, add, run, sql):
    add("a1", "one")
    sql("UPDATE runs SET status = 'cancelled'")

    done = [agents.run("auto-spawn", each) for each in (run, "unknown")]

    assert [each.returncode for each in done] == [1, 1]
    assert agents.every() == []
