"""An agent is its caller's: directory, environment, limits; and nothing of its caller holds it."""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.features.dispatches.conftest import Agents, is_gone
from tests.support import processes
from tests.support.processes import icctl, running, until

LOOK = """
import json, os, resource, signal, sys
facts = {
    "cwd": os.getcwd(),
    "environ": dict(os.environ),
    "umask": os.umask(0),
    "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "core": resource.getrlimit(resource.RLIMIT_CORE),
    "leads": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "stdin": sys.stdin.read(),
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": open("/proc/self/status").read().split("SigIgn:")[1].split()[0],
    "argv": sys.argv[1:],
}
with open("facts.new", "w") as file:
    print(json.dumps(facts), file=file)
os.rename("facts.new", "facts")
"""


def look(agents: Agents, *flags: str, words: tuple[str, ...] = (), **options: object) -> dict:
    agents.spawn(*flags, "--", sys.executable, "-c", LOOK, *words, **options)
    return json.loads(agents.written("facts"))


@pytest.fixture(params=["daemon", "direct"])
def host(request, agents: Agents):
    """With a daemon in a world of its own, and without one."""
    if request.param == "direct":
        yield agents
        return
    with running(env={"SECRET": "of the daemon", "LANG": "C"}) as daemon:
        agents.env |= {"INTERCORE_SOCKET": daemon.socket}
        yield agents


def test_an_agent_has_the_directory_and_the_environment_of_its_caller(host, door, clean):
    facts = look(host, PATH=f"{door}:/usr/bin:/bin", NOTE="of the\ncaller")

    expected = {**clean, "HOME": str(host.project), **host.env, "NOTE": "of the\ncaller"}
    extra = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}  # shells, and the Python that looks
    assert {k: v for k, v in facts["environ"].items() if k not in extra} == expected
    assert facts["cwd"] == str(host.project)


def test_a_caller_without_a_locale_gives_its_agent_none(agents):
    agents.spawn("--", "sh", "-c", 'echo "${LC_CTYPE-none}" >locale', LANG="C")

    assert agents.written("locale") == "none\n"


def test_an_agent_has_the_limits_and_the_umask_of_its_caller(agents):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (234, 567))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(0o027)

    subprocess.run(
        [processes.door / "icctl", "dispatch", "spawn", "--", sys.executable, "-c", LOOK],
        cwd=agents.project, env={**processes.CLEAN, **agents.env}, preexec_fn=limit, check=True,
    )  # fmt: skip

    facts = json.loads(agents.written("facts"))
    assert facts["files"] == [234, 567]
    assert facts["core"] == [0, 0]
    assert facts["umask"] == 0o027


def test_an_agent_leads_a_session_of_its_own_with_nothing_open_but_its_output(host):
    facts = look(host)

    assert facts["leads"] == [True, True]
    assert facts["fds"] == [0, 1, 2, 3]  # the last is the listing itself
    assert facts["stdin"] == ""
    assert facts["blocked"] == []
    assert int(facts["ignored"], 16) & (1 << signal.SIGCHLD - 1) == 0


def test_nothing_that_the_caller_has_open_reaches_the_agent_or_its_runner(agents):
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)

    done = subprocess.run(
        [processes.door / "icctl", "dispatch", "spawn", "--", "sleep", "1000"],
        cwd=agents.project, env={**processes.CLEAN, **agents.env}, close_fds=False,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    os.close(writing)

    assert os.read(reading, 1) == b""  # nobody else has it
    os.close(reading)
    assert not is_gone(agents.show(done.stdout.decode().strip())["pid"])


@pytest.mark.parametrize("name", ["SIGCHLD", "SIGHUP", "SIGTERM"])
def test_a_caller_that_ignores_signals_loses_no_exit_status(agents, name):
    number = getattr(signal, name)

    done = subprocess.run(
        [processes.door / "icctl", "dispatch", "spawn", "--", "sh", "-c", "exit 5"],
        cwd=agents.project, env={**processes.CLEAN, **agents.env}, stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(number, signal.SIG_IGN), check=True,
    )  # fmt: skip

    assert agents.ended(done.stdout.decode().strip())["exit_code"] == 5


def test_a_client_that_cannot_count_its_children_starts_agents_all_the_same(agents):
    code = "import sys; from icctl.client import main; sys.exit(main(sys.argv[1:], 'icctl'))"

    done = subprocess.run(
        [sys.executable, "-c", code, "dispatch", "spawn", "--", "sh", "-c", "exit 5"],
        cwd=agents.project, env={**processes.CLEAN, **agents.env}, stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN), check=True,
    )  # fmt: skip

    assert agents.ended(done.stdout.decode().strip())["exit_code"] == 5


def test_the_end_of_the_callers_session_and_group_does_not_concern_the_agent(agents):
    shell = subprocess.Popen(
        ["bash", "-c", f"{processes.door}/icctl dispatch spawn -- sleep 1000; echo; sleep 1000"],
        cwd=agents.project, env={**processes.CLEAN, **agents.env}, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    dispatch_id = shell.stdout.readline().decode().strip()
    shell.stdout.readline()

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL):
        os.killpg(shell.pid, number)
    shell.wait()
    shell.stdout.close()

    found = agents.show(dispatch_id)
    assert found["status"] == "running"
    assert not is_gone(found["pid"])
    assert not is_gone(found["runner_pid"])


def test_the_agent_works_in_the_project_that_is_asked_for(agents):
    (agents.project / "a b;\n$(x)").mkdir()

    dispatch_id = agents.spawn("--project=a b;\n$(x)", "--", "sh", "-c", "pwd >here; exit 0")

    assert agents.ended(dispatch_id)["project_dir"] == f"{agents.project}/a b;\n$(x)"
    assert agents.written("a b;\n$(x)/here") == f"{agents.project}/a b;\n$(x)\n"


def test_a_directory_that_is_not_text_is_no_obstacle(agents):
    odd = Path(os.fsdecode(os.fsencode(agents.project) + b"/\xff\xfe"))
    odd.mkdir()

    dispatch_id = agents.spawn("--", "sh", "-c", "echo here >out", cwd=odd)

    assert agents.ended(dispatch_id)["status"] == "completed"
    assert (odd / "out").read_text() == "here\n"
    assert agents.show(dispatch_id)["project_dir"].endswith(r"\xff\xfe".replace("x", "udc"))


def test_a_command_has_the_prompt_as_its_input_and_its_output_in_the_file(agents):
    prompt = agents.project / "-p $(touch x) ü.md"
    prompt.write_text("do it\n")

    dispatch_id = agents.spawn(
        f"--prompt-file={prompt.name}", "--output=out.md", "--type=cat", "--name=n",
        "--", "sh", "-c", "cat; echo oops >&2",
    )  # fmt: skip

    found = agents.ended(dispatch_id)
    assert (agents.project / "out.md").read_text() == "do it\noops\n"
    assert found["prompt_file"] == str(prompt)
    assert found["prompt_hash"] == hashlib.sha256(b"do it\n").hexdigest()[:16]
    assert found["output_file"] == str(agents.project / "out.md")
    assert (found["agent_type"], found["name"]) == ("cat", "n")
    assert not (agents.project / "x").exists()


def test_output_that_nobody_asked_for_is_private(agents):
    found = agents.ended(agents.sh("echo secret"))

    output = Path(found["output_file"])
    assert output.read_text() == "secret\n"
    assert output.stat().st_mode & 0o777 == 0o600
    assert output.parent == agents.project  # its TMPDIR


def test_words_of_a_command_stay_words(agents):
    words = ("a b", "", "--json", "$(touch x)", "-", "ü\n")

    facts = look(agents, words=words)

    assert facts["argv"] == list(words)


def test_python_settings_of_the_caller_do_not_reach_the_runner(agents, tmp_path):
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("os", "marshal", "_json", "stat", "sitecustomize", "icd", "select"):
        (evil / f"{name}.py").write_text(f"open({str(tmp_path / 'injected')!r}, 'a')\n")

    dispatch_id = agents.sh(
        "exit 4", PYTHONPATH=str(evil), PYTHONHOME="/nonexistent", PYTHONSTARTUP=str(evil / "os.py"),
        PYTHONINSPECT="1", PYTHONUSERBASE=str(evil),
    )  # fmt: skip

    assert agents.ended(dispatch_id)["exit_code"] == 4
    assert not (tmp_path / "injected").exists()


@pytest.mark.parametrize(
    "variable", ["INTERCORE_MODE=daemon", "INTERCORE_DB=.clavain/intercore.db", "INTERCORE_HOOK=x"]
)
def test_what_the_caller_chose_for_its_call_does_not_keep_an_end_from_being_recorded(
    agents, variable
):
    with running() as daemon:
        name, _, value = variable.partition("=")
        env = {"INTERCORE_SOCKET": daemon.socket, name: value}
        dispatch_id = agents.sh("until [ -e go ]; do sleep 0.05; done; exit 6", **env)
    (agents.project / "go").touch()

    assert agents.ended(dispatch_id)["exit_code"] == 6


def test_the_answer_in_json_has_the_pid(agents):
    done = agents.run("spawn", "--json", "--", "sleep", "1000")

    found = json.loads(done.stdout)
    assert found == {"id": agents.every()[0]["id"], "pid": agents.every()[0]["pid"]}
    assert Path(f"/proc/{found['pid']}/comm").read_text() == "sleep\n"


def test_a_program_that_is_not_there_leaves_a_row_that_says_so(host):
    done = host.run("spawn", "--", "no-such-program")

    sentence = "cannot start no-such-program: No such file or directory"
    assert done.returncode == 2
    assert done.stdout == b""
    assert f"icctl: dispatch spawn: {sentence}; ".encode() in done.stderr
    (found,) = host.every()
    assert (found["status"], found["error_message"]) == ("failed", sentence)
    until(lambda: host.left() == [])


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--project=gone",), "cannot enter {}/gone: No such file or directory"),
        (("--output=gone/out",), "cannot open {}/gone/out: No such file or directory"),
        (("--output=.",), "cannot open {}: Is a directory"),
        (("--output=pipe",), "cannot open {}/pipe: No such device or address"),
    ],
)
def test_a_place_that_cannot_be_used_leaves_a_row_that_says_so(agents, flags, sentence):
    os.mkfifo(agents.project / "pipe")

    done = agents.run("spawn", *flags, "--", "true")

    assert done.returncode == 2
    assert agents.every()[0]["error_message"] == sentence.format(agents.project)
    assert agents.every()[0]["status"] == "failed"


@pytest.mark.parametrize("prompt", ["gone.md", ".", "pipe"])
def test_a_prompt_that_cannot_be_read_leaves_nothing(agents, prompt):
    os.mkfifo(agents.project / "pipe")

    done = agents.run("spawn", f"--prompt-file={prompt}")

    assert done.returncode == 2
    assert done.stderr.startswith(b"icctl: dispatch spawn: hash prompt: ")
    assert agents.every() == []


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("word",),
        ("word", "--", "true"),
        ("--prompt-file=x", "word"),
        ("--nonsense", "--", "true"),
        ("--sandbox=x", "--", "true"),
        ("--model=x", "--", "true"),
        ("--dispatch-sh=x", "--", "true"),
    ],
)
def test_a_command_line_that_makes_no_sense_starts_nothing(agents, argv):
    done = agents.run("spawn", *argv)

    assert done.returncode == 3
    assert agents.every() == []


def test_a_prompt_is_not_replaced_by_the_output(agents):
    prompt = agents.project / "fix.md"
    prompt.write_text("fix it")
    (agents.project / "link.md").symlink_to(prompt)

    done = agents.run("spawn", "--prompt-file=fix.md", "--output=link.md", "--", "cat")

    assert (done.returncode, agents.every()) == (3, [])
    assert prompt.read_text() == "fix it"


def test_no_database_no_agent(project: Path):
    done = icctl(
        "dispatch", "spawn", "--", "touch", "started", cwd=project,
        env={"INTERCORE_SOCKET": "/nonexistent/icd.sock"},
    )  # fmt: skip

    assert done.returncode == 2
    assert b"icctl init" in done.stderr
    assert not (project / "started").exists()
