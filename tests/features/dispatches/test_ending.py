"""How agents end, by themselves and otherwise, and what is known of it afterwards."""

import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.features.dispatches.conftest import Agents, is_gone
from tests.support.processes import icctl, running, until

# A process for each way to leave a family: a child, one in a session of its own, one whose parent
# has left, one that does not listen.
FAMILY = """
sleep 1000 & echo $! >child
setsid sh -c 'echo $$ >leader; exec sleep 1000' &
(setsid sh -c 'echo $$ >orphan; trap "" TERM; while :; do sleep 1; done' &)
sh -c 'trap "" TERM; echo $$ >deaf; while :; do sleep 1; done' &
echo $$ >agent
exec sleep 1000
"""
MEMBERS = ("child", "leader", "orphan", "deaf", "agent")


@pytest.fixture
def conn_to(agents):
    """Change rows as nobody else would."""

    def change(statement: str, values: tuple) -> None:
        conn = sqlite3.connect(agents.project / ".clavain" / "intercore.db")
        with conn:
            conn.execute(statement, values)
        conn.close()

    return change


def family(agents: Agents) -> list[int]:
    return [agents.pid(name) for name in MEMBERS]


@pytest.mark.parametrize(
    ("script", "status", "exit_code", "message"),
    [
        ("exit 0", "completed", 0, None),
        ("exit 3", "failed", 3, None),
        ("exit 255", "failed", 255, None),
        ("kill -9 $$", "failed", 137, "was killed by signal 9 (Killed)"),
        ("kill -TERM $$", "failed", 143, "was killed by signal 15 (Terminated)"),
    ],
)
def test_the_true_exit_status_is_recorded_without_any_verdict(
    agents, script, status, exit_code, message
):
    found = agents.ended(agents.sh(script))

    assert (found["status"], found["exit_code"]) == (status, exit_code)
    assert found.get("error_message") == message
    # Seconds that two processes took from one clock, each rounded down at its own moment.
    assert found["completed_at"] + 1 >= found["started_at"] >= found["created_at"] - 1


def test_every_change_of_status_is_an_event(agents):
    dispatch_id = agents.sh("exit 0")
    agents.ended(dispatch_id)

    done = icctl("events", "tail", "--all", cwd=agents.project, env=agents.env)

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(e["subject_id"], e["to_state"]) for e in events] == [
        (dispatch_id, "spawned"), (dispatch_id, "running"), (dispatch_id, "completed"),
    ]  # fmt: skip


def test_the_verdict_and_the_summary_are_taken_over(agents):
    found = agents.ended(
        agents.sh(
            "printf 'STATUS: pass\\nSUMMARY: all good\\n' >out.md.verdict;"
            "echo 'Tokens: 1200 in / 34 out' >out.md.summary",
            "--output=out.md",
        )
    )

    assert (found["verdict_status"], found["verdict_summary"]) == ("pass", "all good")
    assert (found["in_tokens"], found["out_tokens"]) == (1200, 34)
    assert found["verdict_file"] == str(agents.project / "out.md.verdict")


def test_a_verdict_that_another_agent_left_there_does_not_count(agents):
    (agents.project / "out.md.verdict").write_text("STATUS: pass\nSUMMARY: of another\n")
    (agents.project / "out.md.summary").write_text("Tokens: 1 in / 2 out\n")

    found = agents.ended(agents.sh("exit 0", "--output=out.md"))

    assert "verdict_status" not in found
    assert (found["in_tokens"], found["out_tokens"]) == (0, 0)


def test_what_an_agent_counts_is_taken_over(agents):
    script = (
        'echo "{\\"turns\\":3,\\"commands\\":4,\\"messages\\":5}" >/tmp/clavain-dispatch-$$.json'
    )

    found = agents.ended(agents.sh(script))
    Path(f"/tmp/clavain-dispatch-{found['pid']}.json").unlink()

    assert (found["turns"], found["commands"], found["messages"]) == (3, 4, 5)


def test_an_agent_that_ends_by_itself_leaves_alone_what_it_left_running(agents):
    dispatch_id = agents.sh("setsid sleep 1000 & echo $! >left; exit 0")

    found = agents.ended(dispatch_id)

    assert found["status"] == "completed"
    assert not is_gone(agents.pid("left"))


def test_when_its_time_is_up_all_that_it_started_is_ended(agents):
    dispatch_id = agents.sh(FAMILY, "--timeout=5s")
    members = family(agents)

    found = agents.ended(dispatch_id)

    assert [is_gone(pid) for pid in members] == [True] * len(MEMBERS)
    assert (found["status"], found["exit_code"]) == ("timeout", 143)
    assert found["error_message"] == "took longer than 5 s, and was killed"
    assert found["timeout_ms"] == 5000


def test_a_short_limit_of_the_agent_is_none_of_the_call(agents):
    found = agents.ended(agents.sh("sleep 1000", "--timeout=1ms", INTERCORE_MODE="direct"))

    assert (found["status"], found["timeout_ms"]) == ("timeout", 1)


def test_an_agent_may_tidy_up_when_its_time_is_up(agents):
    script = (
        "trap 'sleep 0.2; echo tidy >tidied; exit 9' TERM; echo >ready; while :; do sleep 0.1; done"
    )

    found = agents.ended(agents.sh(script, "--timeout=3s"))

    assert (agents.project / "tidied").exists()
    assert (found["status"], found["exit_code"]) == ("timeout", 9)


def test_a_stopped_agent_is_ended_too(agents):
    found = agents.ended(agents.sh("kill -STOP $$", "--timeout=300ms"))

    assert (found["status"], found["exit_code"]) == ("timeout", 143)


@pytest.mark.parametrize("host", ["daemon", "direct"])
def test_kill_takes_all_that_the_agent_has_started(agents, host):
    with running() as daemon:
        if host == "daemon":
            agents.env |= {"INTERCORE_SOCKET": daemon.socket}
        dispatch_id = agents.sh(FAMILY)
        members = family(agents)

        done = agents.run("kill", dispatch_id)

        assert (done.returncode, done.stdout, done.stderr) == (0, b"killed\n", b"")
        assert [is_gone(pid) for pid in members] == [True] * len(MEMBERS)
        found = agents.ended(dispatch_id)
        assert (found["status"], found["exit_code"]) == ("cancelled", 143)
        assert found["error_message"]


def test_kill_wakes_a_runner_that_was_stopped(agents):
    dispatch_id = agents.sh("(setsid sleep 1000 & echo $! > orphan); exec sleep 1000")
    orphan = agents.pid("orphan")
    os.kill(agents.show(dispatch_id)["runner_pid"], signal.SIGSTOP)

    done = agents.run("kill", dispatch_id)

    assert done.stdout == b"killed\n"
    assert is_gone(orphan)
    assert agents.ended(dispatch_id)["exit_code"] == 128 + signal.SIGTERM


def test_what_is_over_cannot_be_killed(agents):
    completed = agents.sh("exit 0")
    agents.ended(completed)
    cancelled = agents.sh("sleep 1000")
    agents.run("kill", cancelled)

    again = [agents.run("kill", each) for each in (completed, cancelled, "unknown")]

    assert [done.returncode for done in again] == [1, 1, 1]
    assert [done.stdout for done in again] == [b"", b"", b""]
    assert b"icctl: dispatch kill: dispatch is already completed; " in again[0].stderr
    assert b"icctl: dispatch kill: dispatch is already cancelled; " in again[1].stderr
    assert b"icctl: dispatch kill: not found: unknown; " in again[2].stderr


def test_several_are_killed_at_once_whatever_becomes_of_one(agents):
    first, second = agents.sh("sleep 1000"), agents.sh("sleep 1000")

    done = agents.run("kill", first, "unknown", second)

    assert done.returncode == 1
    assert done.stdout == b"killed\nkilled\n"
    assert done.stderr.startswith(b"icctl: dispatch kill: not found: unknown; ")
    assert [agents.ended(each)["status"] for each in (first, second)] == ["cancelled"] * 2


def test_what_is_over_can_be_passed_over(agents):
    over, running_ = agents.sh("exit 0"), agents.sh("sleep 1000")
    agents.ended(over)

    done = agents.run("kill", over, running_, "--if-running")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"killed\n", b"")
    assert agents.run("kill", "unknown", "--if-running").returncode == 1


def test_an_end_can_be_quiet(agents):
    running_ = agents.sh("sleep 1000")

    done = agents.run("kill", running_, "--quiet")
    again = agents.run("kill", running_, "--quiet")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (again.returncode, again.stdout) == (1, b"")
    assert b"dispatch is already cancelled" in again.stderr


def test_an_agent_that_was_cancelled_in_the_database_only_can_still_be_killed(agents, daemon):
    """As a run that is rolled back does with its dispatches."""
    dispatch_id = agents.sh("sleep 1000")
    found = agents.show(dispatch_id)
    daemon.call("dispatch.cancel", cwd=str(agents.project), id=dispatch_id, reason="rolled back")

    done = agents.run("kill", dispatch_id)

    assert (done.returncode, done.stdout) == (0, b"killed\n")
    assert is_gone(found["pid"])
    ended = agents.ended(dispatch_id)
    assert (ended["status"], ended["exit_code"]) == ("cancelled", 143)


def test_kill_in_json(agents):
    one = agents.sh("sleep 1000")

    done = agents.run("kill", one, "--json")

    assert json.loads(done.stdout) == {"id": one, "status": "cancelled"}


def test_an_agent_whose_runner_was_killed_can_be_killed(agents):
    dispatch_id = agents.sh(
        "sleep 1000 & echo $! >child; setsid sleep 1001 & echo $! >leader; wait"
    )
    found = agents.show(dispatch_id)
    members = [found["pid"], agents.pid("child"), agents.pid("leader")]
    os.kill(found["runner_pid"], signal.SIGKILL)
    until(lambda: is_gone(found["runner_pid"]))

    done = agents.run("kill", dispatch_id)

    assert (done.returncode, done.stdout) == (0, b"killed\n")
    until(lambda: all(is_gone(pid) for pid in members))
    assert agents.show(dispatch_id)["status"] == "cancelled"


def test_a_dispatch_whose_runner_and_agent_were_killed_is_found_by_a_poll(agents):
    dispatch_id = agents.sh("sleep 1000")
    found = agents.show(dispatch_id)
    for pid in (found["runner_pid"], found["pid"]):
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: is_gone(pid))

    agents.run("poll", dispatch_id)

    assert (agents.show(dispatch_id)["status"], agents.show(dispatch_id)["exit_code"]) == (
        "failed", -1,
    )  # fmt: skip


def test_a_recycled_number_is_never_killed(agents, conn_to):
    """The numbers of the row are those of a stranger by now."""
    stranger = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    dispatch_id = agents.sh("sleep 1000")
    agents.run("kill", dispatch_id)
    agents.ended(dispatch_id)
    conn_to(
        "UPDATE dispatches SET status = 'running', pid = ?, pid_start = 1, runner_pid = ?,"
        " runner_start = 1",
        (stranger.pid, stranger.pid),
    )

    done = agents.run("kill", dispatch_id)

    assert done.returncode == 0
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_an_agent_of_another_namespace_is_out_of_reach_and_stays_what_it_was(agents, conn_to):
    dispatch_id = agents.sh("sleep 1000")
    conn_to("UPDATE dispatches SET pidns = 'pid:[1]'", ())

    done = agents.run("kill", dispatch_id)

    assert done.returncode == 2
    assert b"cannot be reached; run it where the agent was started" in done.stderr
    assert agents.show(dispatch_id)["status"] == "running"


def test_a_runner_that_is_told_to_end_ends_its_agent_and_says_so(agents):
    """As at the end of a user's session, when all processes are told."""
    dispatch_id = agents.sh("sleep 1000")
    found = agents.show(dispatch_id)

    os.kill(found["runner_pid"], signal.SIGTERM)

    ended = agents.ended(dispatch_id)
    assert (ended["status"], ended["exit_code"]) == ("cancelled", 143)
    assert ended["error_message"] == "was asked to stop"


def test_a_hang_up_does_not_concern_a_runner(agents):
    dispatch_id = agents.sh("until [ -e go ]; do sleep 0.05; done; exit 8")
    found = agents.show(dispatch_id)

    os.kill(found["runner_pid"], signal.SIGHUP)
    (agents.project / "go").touch()

    assert agents.ended(dispatch_id)["exit_code"] == 8
