"""lib-intercore.sh in a real bash: every function, every host, every way to reach it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import CLEAN, DOORS, PATIENCE, Daemon, icctl, running, until

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "lib-intercore.sh"
OLD_BASH = ROOT / ".venv" / "old-bash"
BASHES = ["bash", str(OLD_BASH)] if OLD_BASH.exists() else ["bash"]

# Each function with the answers in the three cases: status and stdout, and whether stderr has a
# line.  {dir} is a directory for legacy files.
AVAILABLE, UNAVAILABLE, BROKEN = "available", "unavailable", "broken"
LINE = "one line"
TABLE: list[tuple[str, dict[str, tuple[int, str, str]]]] = [
    ("intercore_available",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (1, "", LINE)}),
    ("intercore_state_set k s '{{\"a\": 1}}'",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_state_set k t 2 1h",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_state_get k s",
     {AVAILABLE: (0, '{"a": 1}\n', ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_state_get nothing s",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_state_get -v value k s",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%s\\n' \"$value\"",
     {AVAILABLE: (0, '{"a": 1}\n', ""), UNAVAILABLE: (0, "\n", ""), BROKEN: (0, "\n", "")}),
    ("intercore_state_incr n s",
     {AVAILABLE: (0, "1\n", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_state_incr -v value n s 41 1h",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%s\\n' \"$value\"",
     {AVAILABLE: (0, "42\n", ""), UNAVAILABLE: (0, "\n", ""), BROKEN: (0, "\n", "")}),
    ("intercore_sentinel_check once s 0",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_sentinel_check once s 0",
     {AVAILABLE: (1, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_sentinel_check_many once:s:0 rate:s:60",
     {AVAILABLE: (1, "once\ts\tthrottled\nrate\ts\tallowed\n", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_sentinel_check_many -v value other:s:60",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%s\\n' \"$value\"",
     {AVAILABLE: (0, "other\ts\tallowed\n", ""), UNAVAILABLE: (0, "\n", ""), BROKEN: (0, "\n", "")}),
    ("intercore_sentinel_check_or_legacy guard s 0 {dir}/guard",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_sentinel_check_or_legacy guard s 0 {dir}/guard",
     {AVAILABLE: (1, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("ls {dir}",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "guard\n", ""), BROKEN: (0, "", "")}),
    ("eval '( intercore_check_or_die guard s 0 {dir}/guard; echo went on )'",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (0, "went on\n", LINE)}),
    ("eval '( intercore_check_or_die new s 0; echo went on )'",
     {AVAILABLE: (0, "went on\n", ""), UNAVAILABLE: (0, "went on\n", ""), BROKEN: (0, "went on\n", LINE)}),
    ("intercore_sentinel_reset_or_legacy guard s '{dir}/gu*'",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (0, "", LINE)}),
    ("intercore_sentinel_check_or_legacy guard s 0 {dir}/guard",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_sentinel_reset_all guard '{dir}/gu*'",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (0, "", LINE)}),
    ("intercore_sentinel_check guard s 0",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_state_delete_all k '{dir}/k*'",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (0, "", LINE)}),
    ("intercore_state_get k s",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_cleanup_stale",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (0, "", LINE)}),
    ("intercore_state_set Bad s 1",
     {AVAILABLE: (2, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_state_set k s 'no json'",
     {AVAILABLE: (2, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_sentinel_check n s x",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_run_create --goal=x",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_run_list",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_run_status x",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_run_agent_list x",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_run_agent_update x",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
]  # fmt: skip

# How a call is made: by the shell itself, which gets a helper, or in a subshell, which does not.
WAYS = {"helper": "{call} >out 2>err", "process": "( {call} ) >out 2>err"}


class Place:
    """A project, a way to reach it, and a bash."""

    def __init__(self, project: Path, env: dict[str, str], bash: str) -> None:
        self.project = project
        self.env = {**CLEAN, "HOME": str(project), "TMPDIR": str(project), "LEGACY": "", **env}
        self.bash = bash

    def run(self, script: str, **options) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [self.bash, "-c", f"source {LIBRARY}\n{script}"],
            cwd=self.project, env=self.env, capture_output=True, timeout=PATIENCE * 3, check=False, **options,
        )  # fmt: skip

    def say(self, script: str, **options) -> list[str]:
        done = self.run(script, **options)
        assert done.stderr == b"", done.stderr.decode()
        return done.stdout.decode().splitlines()


@pytest.fixture(params=BASHES)
def bash(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(initialized: Path, daemon: Daemon, door: Path, bash: str) -> Place:
    return Place(initialized, {"INTERCORE_SOCKET": daemon.socket}, bash)


def _break(project: Path) -> None:
    (project / ".clavain" / "intercore.db").write_bytes(b"this is no database " * 1000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("host", ["daemon", "direct", "no database", "no program", "broken", "broken, direct"])
def test_every_function_answers_as_documented(
    host: str, way: str, project: Path, daemon: Daemon, door: Path, bash: str, tmp_path: Path
) -> None:
    legacy = tmp_path / "legacy"
    legacy.mkdir()
    place = Place(project, {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_LEGACY_DIR": str(legacy)}, bash)
    if host in ("direct", "broken, direct"):
        place.env["INTERCORE_SOCKET"] = "/nonexistent"
    if host == "no program":
        place.env["PATH"] = "/usr/bin:/bin"
    if host != "no database":
        icctl("init", cwd=project, env={"INTERCORE_MODE": "direct"})
    if host.startswith("broken"):
        _break(project)
    case = {"daemon": AVAILABLE, "direct": AVAILABLE}.get(host, BROKEN if "broken" in host else UNAVAILABLE)
    calls = [call.format(dir=legacy) for call, _ in TABLE]
    if way == "process":  # variables do not leave a subshell: assign and show in the same one
        calls = [f"{call}; s=$?; {show}; (exit $s)" if "-v value" in call else call
                 for call, show in zip(calls, [*calls[1:], ""], strict=True)]  # fmt: skip
    script = "\n".join(_recorded(WAYS[way].format(call=call)) for call in calls)

    place.run(script + '\necho "${_intercore_helper:-}" >helper')

    got = [json.loads(line) for line in (project / "log").read_text().splitlines()]
    shown = None
    for (call, cases), (status, out, err) in zip(TABLE, got, strict=True):
        # Mistakes in the arguments are told wherever there is a program.
        mistaken = host == "no database" and cases[AVAILABLE][0] > 1
        expected = cases[AVAILABLE if mistaken else case]
        if way == "process" and "-v value" in call:
            shown = out
            out = ""
        elif way == "process" and call.startswith("printf"):
            out = shown
        assert (status, out) == expected[:2], call
        assert (err.count("\n") == 1) == (expected[2] == LINE), (call, err)
        assert err == "" or expected[2], (call, err)
    if host != "no program":
        assert ((project / "helper").read_text().strip().isdigit()) == (way == "helper")


def _recorded(call: str) -> str:
    """Keep the status and what was printed, as a line of JSON."""
    quote = r"""'import json,sys; print(json.dumps([int(sys.argv[1]), open("out").read(), open("err").read()]))'"""
    return f'{call}; python3 -c {quote} "$?" >>log'


def test_the_table_covers_every_function() -> None:
    listed = subprocess.run(
        ["bash", "-c", f"source {LIBRARY}; declare -F"], capture_output=True, check=True
    ).stdout.decode()
    public = {line.split()[2] for line in listed.splitlines()} - {
        name for name in listed.split() if name.startswith("_")
    }

    assert public == {word for call, _ in TABLE for word in call.split() if word.startswith("intercore_")} | {
        "intercore_check_or_die"
    }
