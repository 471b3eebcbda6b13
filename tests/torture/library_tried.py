"""Every function of the bash library, in one shell, as a hook in a clone would call them."""

import re
import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes import DOORS
from tests.torture.code import CLIENT, ROOT, Code
from tests.torture.commands_tried import DEADLINE
from tests.torture.hosts_tried import Said

# What a function is given; one that is not here is given `OTHERS`.
ARGUMENTS: dict[str, list[str]] = {
    "intercore_available": [],
    "intercore_state_set": ["dispatch", "s9", "1"],
    "intercore_state_get": ["dispatch", "s1"],
    "intercore_state_incr": ["n", "s"],
    "intercore_state_delete_all": ["gone"],
    "intercore_sentinel_check": ["n", "s", "60"],
    "intercore_sentinel_check_many": ["n:s:60", "m:s:60"],
    "intercore_sentinel_check_or_legacy": ["n", "s", "60", ".clavain/legacy"],
    "intercore_check_or_die": ["once", "s", "0"],
    "intercore_sentinel_reset_or_legacy": ["n", "s"],
    "intercore_sentinel_reset_all": ["n"],
    "intercore_cleanup_stale": [],
    "intercore_events_tail_all": [],
    "intercore_events_cursor_get": ["reader"],
    "intercore_events_cursor_set": ["reader", "1", "1"],
    "intercore_events_cursor_reset": ["reader"],
    "intercore_lock": ["n", "s", "1"],
    "intercore_unlock": ["n", "s"],
    "intercore_lock_clean": [],
    "intercore_lease_acquire": ["n", "s", "60s", "me"],
    "intercore_lease_renew": ["n", "s", "60s", "me"],
    "intercore_lease_release": ["n", "s", "me"],
    "intercore_lease_list": [],
    "intercore_run_create": ["--goal=g"],
    "intercore_run_list": [],
    "intercore_run_current": [],
    "intercore_run_agent_update": ["agent001", "--status=completed"],
    "intercore_run_skip": ["run00001", "d", "why"],
    "intercore_run_agent_add": ["run00001", "codex", "planted"],
    "intercore_run_artifact_add": ["run00001", "a", "beside.txt"],
    "intercore_run_rollback": ["run00001", "a"],
    "intercore_run_rollback_dry": ["run00001", "a"],
    "intercore_gate_override": ["run00001", "why"],
    "intercore_dispatch_status": ["disp0001"],
    "intercore_dispatch_wait": ["disp0001", "1s"],
    "intercore_dispatch_list_active": [],
    "intercore_dispatch_kill": ["disp0001"],
    "intercore_dispatch_tokens": ["disp0001", "1", "1"],
}
OTHERS = ["run00001"]
# It starts what its caller names: that is the caller's own wish.
ASKED_FOR = {"intercore_dispatch_spawn"}
# They may end the shell that calls them.
ENDING = {"intercore_check_or_die"}
# What bash says of itself when a script is wrong.
WRONG = (b"syntax error", b"unbound variable", b"bad substitution", b"command not found")
SECONDS_EACH = 3 * DEADLINE
STARTS = 3  # of Python in one function, at most: a client, its handover, an owner that is asked for
# These end processes, and wait for that.
PATIENCE = {"intercore_run_rollback": 20.0, "intercore_dispatch_kill": 20.0}


def functions(library: Path) -> list[str]:
    return re.findall(r"(?m)^(intercore_\w+)\(\)", library.read_text("utf-8"))


class Library:
    """`scratch` is where what is printed goes."""

    def __init__(self, code: Code, scratch: Path) -> None:
        self._library = code.root / "lib-intercore.sh"
        self._code = code
        self._scratch = scratch
        scratch.mkdir(parents=True)
        self._program = self._client()
        self.names = [name for name in functions(self._library) if name not in ASKED_FOR]

    def _client(self) -> Path:
        """The native one, unless the code is a copy; then a Python that finds it."""
        native = DOORS / "native" / "icctl"
        if self._code.root == ROOT and native.exists():
            return native
        found = self._scratch / "icctl"
        found.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{CLIENT}" "$@"\n')
        found.chmod(0o755)
        return found

    def run(self, clone: Path, env: dict[str, str], start: float) -> list[tuple[list[str], Said]]:
        """What each function came to; `start` is what a Python takes to start on this machine."""
        script = ['source "$1"', 'exec 6>"$2/status"']
        for number, name in enumerate(self.names):
            words = " ".join([name, *(f"'{word}'" for word in ARGUMENTS.get(name, OTHERS))])
            line = f'{words} >"$2/{number}.out" 2>"$2/{number}.err"'
            line = f"( {line} )" if name in ENDING else line
            script += ["a=$EPOCHREALTIME", f"{line}; s=$?", 'echo "$s $a $EPOCHREALTIME" >&6']
        world = {
            **self._code.env, **env, "INTERCORE_BIN": str(self._program),
            "INTERCORE_TIMEOUT": f"{DEADLINE:.0f}s", "ASAN_OPTIONS": f"log_path={self._scratch}/asan",
        }  # fmt: skip
        ended = self._bash("\n".join(script), clone, world)
        return self._told(ended, start * STARTS)

    def _bash(self, script: str, clone: Path, env: dict[str, str]) -> float:
        """The seconds that it took, which are more than there are if it was killed."""
        for old in self._scratch.glob("*.*"):
            old.unlink()
        patience = SECONDS_EACH * len(self.names) + sum(PATIENCE.values())
        began = time.monotonic()
        process = subprocess.Popen(
            ["/bin/bash", "-c", script, "bash", self._library, self._scratch],
            cwd=clone, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return time.monotonic() - began

    def _told(self, seconds: float, free: float) -> list[tuple[list[str], Said]]:
        found = []
        lines = (self._scratch / "status").read_text().splitlines()
        for number, name in enumerate(self.names):
            out = self._printed(f"{number}.out")
            err = self._printed(f"{number}.err")
            if number >= len(lines):  # it did not come back from this one
                found.append(([name], Said(None, seconds, out, err)))
                break
            status, began, ended = lines[number].split()
            took = float(ended) - float(began) - PATIENCE.get(name, 0.0) - free
            found.append(([name], Said(int(status), max(0.0, took), out, err)))
        reports = self._scratch.glob("asan*")
        found += [(["the native client"], Said(99, 0.0, b"", r.read_bytes())) for r in reports]
        return found

    def _printed(self, name: str) -> bytes:
        path = self._scratch / name
        return path.read_bytes() if path.exists() else b""
