"""What the runner is made of: it lives as long as its agent, and there may be many."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import icd
from icd.features.dispatches import launch
from tests.support.processes import CLEAN, until

ROOT = str(Path(icd.__file__).parents[1])
# All that is not built in, or frozen into the interpreter, is a small library of C.
LIBRARIES = {"__future__", "_json"}
FROZEN = {"_collections_abc", "_stat", "genericpath", "os", "os.path", "posixpath", "stat"}
OWN = {"agent", "main", "output_files", "process_tree", "record"}


def test_a_runner_loads_next_to_nothing():
    code = (
        "import sys; before = set(sys.modules); sys.path.append(sys.argv[1])\n"
        "import icd.features.dispatches.runner.main\n"
        "print(*(set(sys.modules) - before))"
    )

    said = subprocess.check_output([sys.executable, "-I", "-S", "-c", code, ROOT], text=True)

    ours = {
        "icd",
        "icd.procfs",
        "icd.features",
        "icd.features.dispatches",
        "icd.features.dispatches.runner",
        *(f"icd.features.dispatches.runner.{name}" for name in OWN),
    }
    assert set(said.split()) == ours | LIBRARIES | (FROZEN & set(said.split()))


def test_a_runner_is_named_after_its_dispatch(agents):
    dispatch_id = agents.sh("sleep 1000")

    words = (
        Path(f"/proc/{agents.show(dispatch_id)['runner_pid']}/cmdline").read_bytes().split(b"\0")
    )

    assert words[1:3] == [b"-I", b"-S"]
    assert words[-2] == dispatch_id.encode()


def test_a_runner_pins_no_directory_and_holds_nothing_open(agents):
    dispatch_id = agents.sh("sleep 1000")
    proc = Path(f"/proc/{agents.show(dispatch_id)['runner_pid']}")

    def found() -> set[str]:
        return {os.readlink(fd) for fd in (proc / "fd").iterdir()}

    until(lambda: found() == {"/dev/null"})  # it has a pipe while it starts the agent
    assert os.readlink(proc / "cwd") == "/"


def test_a_runner_belongs_to_nobody(agents):
    dispatch_id = agents.sh("sleep 1000")
    runner = agents.show(dispatch_id)["runner_pid"]

    fields = Path(f"/proc/{runner}/stat").read_text().rpartition(")")[2].split()

    parent, group, session, terminal = (int(field) for field in fields[1:5])
    assert parent not in {os.getpid(), runner}
    assert group == session != os.getsid(0)
    assert group != runner  # so that it can never get a terminal
    assert terminal == 0


@pytest.mark.parametrize("program", ["/nonexistent/bin/pytest", sys.argv[0]])
def test_the_client_of_this_installation_is_found_wherever_it_lies(monkeypatch, tmp_path, program):
    monkeypatch.setattr(sys, "argv", [program])

    done = subprocess.run(
        [*launch.client(), "version"], cwd=tmp_path, capture_output=True, check=True,
        env={**CLEAN, "INTERCORE_MODE": "direct", "HOME": str(tmp_path)},
    )  # fmt: skip

    assert icd.__version__.encode() in done.stdout
