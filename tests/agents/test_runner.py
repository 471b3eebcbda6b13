"""What the runner is made of: it lives as long as its agent, and there may be many."""

import json
import os
import subprocess
import sys
from pathlib import Path

import icd

ROOT = str(Path(icd.__file__).parents[1])
# Built into the interpreter, frozen into it, or small libraries of C.
FOREIGN = {
    "_collections_abc",
    "_ctypes",
    "_json",
    "_stat",
    "genericpath",
    "os",
    "posixpath",
    "stat",
}
OWN = {f"icd.agents.{name}" for name in ("runner", "recording", "settling", "signals", "traces", "trees")}  # fmt: skip


def test_a_runner_loads_next_to_nothing():
    code = (
        "import sys; before = set(sys.modules); sys.path.append(sys.argv[1])\n"
        "import icd.agents.runner, json\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    only_json = "import sys; before = set(sys.modules); import json; print(json.dumps(sorted(set(sys.modules) - before)))"

    loaded, of_json = (
        set(json.loads(subprocess.check_output([sys.executable, "-I", "-S", "-c", text, ROOT])))
        for text in (code, only_json)
    )

    ours = loaded - (of_json - FOREIGN)
    assert ours - FOREIGN - {"icd", "icd.agents"} == OWN


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

    found = {os.readlink(fd) for fd in (proc / "fd").iterdir()}

    assert found == {"/dev/null"}
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
