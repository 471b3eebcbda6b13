"""lib-intercore.sh in a real bash: every function, every host, every way to reach it."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.bash import BASHES, LIBRARY, OLD, Place
from tests.support.processes import CLEAN, DOORS, Daemon, icctl, running, until
from tests.support.sizes import size

# Each function with the answers in the three cases: status and stdout, and whether stderr has a
# line.  {dir} is a directory for legacy files.
AVAILABLE, UNAVAILABLE, BROKEN = "available", "unavailable", "broken"
LINE = "one line"
TABLE: list[tuple[str, dict[str, tuple[int, str, str]]]] = [
    ("intercore_available",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (1, "", LINE)}),
    ("intercore_event </dev/null",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (0, "", "")}),
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
    ("intercore_events_tail_all --limit=5",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_events_tail run-1",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_events_tail",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_events_cursor_get c",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_events_cursor_set c 0 0",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_events_cursor_get -v value c",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%.52s\\n' \"$value\"",
     {AVAILABLE: (0, '{"phase":0,"dispatch":0,"interspect":0,"discovery":0\n', ""),
      UNAVAILABLE: (0, "\n", ""), BROKEN: (0, "\n", "")}),
    ("intercore_events_cursor_set c x 0",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_events_cursor_reset c",
     {AVAILABLE: (0, "reset\n", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_events_cursor_reset c",
     {AVAILABLE: (0, "not found\n", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    *[(call, dict.fromkeys((AVAILABLE, UNAVAILABLE, BROKEN), answer)) for call, answer in (
        ("intercore_lock_available", (0, "", "")),
        ("intercore_lock n s", (0, "", "")),
        ("intercore_lock n s 10ms", (1, "", LINE)),
        ("intercore_lock_clean 0s", (0, "", "")),
        ("ls locks/n", (0, "s\n", "")),
        ("intercore_unlock n other", (0, "", "")),
        ("intercore_unlock n s", (0, "", "")),
        ("ls locks/n", (0, "", "")),
        ("intercore_unlock n s", (0, "", "")),
        ("intercore_lock a/b s", (2, "", LINE)),
        ("intercore_lock n ''", (2, "", LINE)),
        ("intercore_unlock n ..", (0, "", LINE)),
        ("intercore_lock n s x", (3, "", LINE)),
        ("intercore_lock_clean x", (0, "", LINE)),
        ("intercore_lock_clean", (0, "", "")),
    )],
    ("intercore_lease_acquire sprint b 1h me",
     {AVAILABLE: (0, "1\n", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_acquire -v value sprint b 1h me",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%s\\n' \"$value\"",
     {AVAILABLE: (0, "1\n", ""), UNAVAILABLE: (0, "\n", ""), BROKEN: (0, "\n", "")}),
    ("intercore_lease_acquire sprint b 1h you",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_acquire sprint c 1h",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_lease_list sprint x",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_list",
     {AVAILABLE: (0, "sprint\tb\tme\t1\t<time>\n", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_renew sprint b 2h me 1",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_renew sprint b '' you",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_release sprint b you",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_release sprint b me 1",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lease_release sprint b me",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_coordination_reserve -v value 'src/*' 1h me",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%.0s' \"$value\"", dict.fromkeys((AVAILABLE, UNAVAILABLE, BROKEN), (0, "", ""))),
    ("intercore_coordination_reserve src/a.py '' you",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_coordination_check src/a.py me",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("eval 'intercore_coordination_check src/a.py you >checked'",
     {AVAILABLE: (1, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("cut -d' ' -f1-6 checked",
     {AVAILABLE: (0, "src/* is held exclusively by me\n", ""), UNAVAILABLE: (0, "", ""),
      BROKEN: (0, "", "")}),
    ("intercore_coordination_list -v value me",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%s\\n' \"$value\" | cut -f2-5",
     {AVAILABLE: (0, "me\texclusive\t.\tsrc/*\n", ""), UNAVAILABLE: (0, "\n", ""),
      BROKEN: (0, "\n", "")}),
    ("intercore_coordination_release me 'src/*'",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    # Runs, gates and dispatches: what happens with one that is there is told further below.
    ("intercore_run_create",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_run_list",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_status nope",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_snapshot nope",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_phase nope",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_advance nope",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_skip nope p why",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_agent_add nope claude",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_agent_update nope --status=completed",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_artifact_add nope planned plan.md",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_action_add nope planned /work '[\"a\"]' both",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_action_list nope planned",
     {AVAILABLE: (0, "[]\n", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_action_update nope planned /work '' both",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_action_delete nope planned /work",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lane_create -v value kernel arc core go",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%.0s' \"$value\"", dict.fromkeys((AVAILABLE, UNAVAILABLE, BROKEN), (0, "", ""))),
    ("intercore_lane_sync kernel B-1,B-2",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lane_members kernel",
     {AVAILABLE: (0, '["B-1","B-2"]\n', ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_lane_status -v value kernel",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%s\\n' \"$value\" | tr ',' '\\n' | sed -n '/^$/p; /lane_type/p'",
     {AVAILABLE: (0, '"lane_type":"arc"\n', ""), UNAVAILABLE: (0, "\n", ""),
      BROKEN: (0, "\n", "")}),
    ("intercore_run_rollback nope planned",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_rollback_dry nope planned",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_code_rollback nope",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_agent_list nope",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_current",
     {AVAILABLE: (1, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_tokens nope",
     {AVAILABLE: (0, '{"cache_hits":0,"input_tokens":0,"output_tokens":0,"run_id":"nope","total_tokens":0}\n', ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_run_budget -v value nope",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("printf '%s\\n' \"$value\"",
     {AVAILABLE: (0, '{"budget":null,"message":"no budget set","run_id":"nope"}\n', ""),
      UNAVAILABLE: (0, "\n", ""), BROKEN: (0, "\n", "")}),
    ("intercore_gate_check nope",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_gate_override nope why",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_gate_signals 0",
     {AVAILABLE: (0, '{"cursor":0,"signals":[]}\n', ""), UNAVAILABLE: (0, "", ""),
      BROKEN: (2, "", LINE)}),
    ("intercore_run_set nope --max-agents=2",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_config_get nope",
     {AVAILABLE: (1, "nope: not set\n", ""), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_config_set max_spawn_depth 3",
     {AVAILABLE: (0, "max_spawn_depth = 3\n", ""), UNAVAILABLE: (1, "", ""),
      BROKEN: (2, "", LINE)}),
    ("intercore_events_list_review 0 10",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_events_emit execution_defect ''",
     {AVAILABLE: (2, "", LINE), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_dispatch_spawn codex . ''",
     {AVAILABLE: (3, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (3, "", LINE)}),
    ("intercore_dispatch_status nope",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_dispatch_wait nope 1s",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_dispatch_tokens nope 1 2",
     {AVAILABLE: (1, "", LINE), UNAVAILABLE: (1, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_dispatch_list_active",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (2, "", LINE)}),
    ("intercore_dispatch_kill nope",
     {AVAILABLE: (0, "", ""), UNAVAILABLE: (0, "", ""), BROKEN: (0, "", LINE)}),
]  # fmt: skip

# How a call is made: by the shell itself, which gets a native helper, or in a subshell, which does not.
WAYS = {"helper": "{call} >{n}.out 2>{n}.err", "process": "( {call} ) >{n}.out 2>{n}.err"}


SESSIONS = size(20, 8)  # of a storm
NATIVE = pytest.mark.parametrize("door", ["native"], indirect=True)  # helpers are native


@pytest.fixture(params=BASHES)
def bash(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(initialized: Path, any_daemon: Daemon, door: Path, bash: str) -> Place:
    env = {
        "INTERCORE_SOCKET": any_daemon.socket,
        "INTERCORE_TIMEOUT": "30s",
    }  # not 3: others work, too
    return Place(initialized, env, bash)


def _break(project: Path) -> None:
    (project / ".clavain" / "intercore.db").write_bytes(b"this is no database " * 1000)


HOSTS = ["daemon", "direct", "no database", "no program", "broken", "broken, direct"]
# A hundred calls take seconds.  So each host has its turn in both ways and with every bash, and the
# other door where it is asked for something: not all of them with all others.
MATRIX = [
    *[("native", "helper", "bash", host) for host in HOSTS],
    *[("native", "process", "bash", host) for host in HOSTS],
    *[("python", way, "bash", host) for way in WAYS for host in ("daemon", "direct")],
    *[("native", "helper", *old.values, host) for old in OLD for host in HOSTS],
    *[
        ("native", "process", *old.values, host)
        for old in OLD
        for host in ("daemon", "no database")
    ],
]


def test_what_the_table_puts_into_a_variable_is_shown_by_the_next_call() -> None:
    unshown = [
        call
        for (call, _), (then, _) in zip(TABLE, [*TABLE[1:], ("", {})], strict=True)
        if "-v value" in call and not then.startswith("printf ")
    ]

    assert unshown == []


@pytest.mark.parametrize(
    "door, way, bash, host",
    [
        pytest.param(
            *one, marks=[] if one[:3] == ("native", "helper", "bash") else pytest.mark.long
        )
        for one in MATRIX
    ],
    indirect=["door", "bash"],
)
def test_every_function_answers_as_documented(  # noqa: PLR0917
    host: str, way: str, project: Path, any_daemon: Daemon, door: Path, bash: str, tmp_path: Path
) -> None:
    legacy = tmp_path / "legacy"
    legacy.mkdir()
    env = {"INTERCORE_SOCKET": any_daemon.socket, "INTERCORE_TIMEOUT": "30s"}
    place = Place(project, {**env, "INTERCORE_LEGACY_DIR": str(legacy)}, bash)
    if host in ("direct", "broken, direct"):
        place.env["INTERCORE_SOCKET"] = "/nonexistent"
    if host == "no program":
        place.env["PATH"] = "/usr/bin:/bin"
    if host != "no database":
        icctl("init", cwd=project, env={"INTERCORE_MODE": "direct"})
    if host.startswith("broken"):
        _break(project)
    case = {"daemon": AVAILABLE, "direct": AVAILABLE}.get(
        host, BROKEN if "broken" in host else UNAVAILABLE
    )
    calls = [call.format(dir=legacy) for call, _ in TABLE]
    if way == "process":  # variables do not leave a subshell: assign and show in the same one
        calls = [f"{call}; s=$?; {show}; (exit $s)" if "-v value" in call else call
                 for call, show in zip(calls, [*calls[1:], ""], strict=True)]  # fmt: skip
    lines = [WAYS[way].format(call=call, n=n) for n, call in enumerate(calls)]
    script = "\n".join(f"{line}; echo $? >{n}.status" for n, line in enumerate(lines))

    place.run(script + '\necho "${_intercore_helper:-}" >helper')

    kept = [[(project / f"{n}.{kind}").read_text() for kind in ("status", "out", "err")]
            for n in range(len(TABLE))]  # fmt: skip
    got = [(int(status), out, err) for status, out, err in kept]
    shown = None
    for (call, cases), (status, printed, err) in zip(TABLE, got, strict=True):
        out = printed
        # Mistakes in the arguments are told wherever there is a program.
        mistaken = host == "no database" and cases[AVAILABLE][0] > 1
        expected = cases[AVAILABLE if mistaken else case]
        if way == "process" and "-v value" in call:
            shown = out
            out = ""
        elif way == "process" and call.startswith("printf"):
            out = shown
        out = re.sub(r"\b1\d{9}\b", "<time>", out)
        assert (status, out) == expected[:2], call
        assert (err.count("\n") == 1) == (expected[2] == LINE), (call, err)
        assert err == "" or expected[2], (call, err)
    if host != "no program":
        is_helped = way == "helper" and door == DOORS / "native"
        assert (project / "helper").read_text().strip().isdigit() == is_helped


def test_the_table_covers_every_function() -> None:
    listed = subprocess.run(
        ["bash", "-c", f"source {LIBRARY}; declare -F"], capture_output=True, check=True
    ).stdout.decode()
    public = {line.split()[2] for line in listed.splitlines()} - {
        name for name in listed.split() if name.startswith("_")
    }

    assert public == {
        word for call, _ in TABLE for word in call.split() if word.startswith("intercore_")
    } | {"intercore_check_or_die"}


# --- sourcing ---


def test_sourcing_prints_nothing_and_defines_only_its_own_names(bash: str, tmp_path: Path) -> None:
    script = f"""
    names() {{ compgen -v; compgen -A function; shopt; set +o; trap; jobs; set -- /proc/$$/fd/*; echo $#; }}
    names >before
    source {LIBRARY} >printed 2>&1; source {LIBRARY} >>printed 2>&1
    names >after
    """

    subprocess.run([bash, "-c", script], cwd=tmp_path, env=CLEAN, check=True)

    assert (tmp_path / "printed").read_bytes() == b""
    before, after = ((tmp_path / name).read_text().splitlines() for name in ("before", "after"))
    new = {line for line in after if line not in before}
    assert new
    allowed = ("intercore_", "_intercore_", "INTERCORE_", "PIPESTATUS", "_")
    assert not [name for name in new if not name.startswith(allowed)]


@NATIVE
def test_sourcing_twice_keeps_the_helper(place: Place) -> None:
    said = place.say(f"""
    intercore_state_incr n s; intercore_state_incr n s; one=$_intercore_helper
    source {LIBRARY}
    intercore_state_incr n s; echo "$(( one == _intercore_helper ))"
    """)

    assert said == ["1", "2", "3", "1"]


# --- all sorts of callers ---


def test_a_strict_caller_is_not_ended_by_anything_but_its_own_decision(place: Place) -> None:
    said = place.say("""
    set -euo pipefail
    intercore_available
    intercore_sentinel_check a s 0
    if intercore_sentinel_check a s 0; then echo twice; else echo throttled; fi
    value=$(intercore_state_get nothing s); echo "[$value]"
    intercore_state_set k s 1; intercore_state_get -v value k s; echo "$value"
    intercore_sentinel_reset_all a; intercore_state_delete_all k; intercore_cleanup_stale
    cd /; intercore_state_set k s 1; intercore_state_get k s; intercore_sentinel_check a s 0
    intercore_available || echo "not here"
    """)

    assert said == ["throttled", "[]", "1", "not here"]


@pytest.mark.parametrize(
    "name",
    ["got[$(touch run)]", "got[id]", "got[1b]", "got[08]", "map[a.b]", "got[7", "a b", "7[1]"],
)
def test_nothing_in_the_name_of_a_variable_is_run(place: Place, name: str) -> None:
    """An index is computed by bash, also if it is the name of a variable that holds one."""
    said = place.say(f"""
    declare -A map; id='other[$(touch run)]'
    intercore_state_get -v '{name}' k s 2>&1; echo $?
    """)

    assert said == [f"intercore: not the name of a variable: {name}", "3"]
    assert not (place.project / "run").exists()


def test_a_value_may_go_into_an_element_of_an_array(place: Place) -> None:
    said = place.say("""
    declare -A map; ask() { local -A own; intercore_state_get -v 'own[x]' k s; echo "${own[x]}"; }
    intercore_state_set k s 1; intercore_state_get -v 'got[7]' k s
    intercore_state_get -v 'map[1b]' k s; echo "${got[7]} ${map[1b]}"; ask
    """)

    assert said == ["1 1", "1"]


def test_a_caller_with_odd_settings_gets_the_same_answers(place: Place) -> None:
    said = place.say(r"""
    IFS=-x; set -f; shopt -s nocasematch nullglob extglob
    mkdir() { command mkdir -p "$@"; }; find() { echo never; }; rm() { echo never; }
    intercore_state_set k s-x '{"a-x": "b x"}'; intercore_state_get k s-x
    intercore_state_get -v got k s-x; echo "$got"
    set -o posix; intercore_state_get k s-x; intercore_state_incr n s; intercore_state_incr n s
    """)

    assert said == ['{"a-x": "b x"}'] * 3 + ["1", "2"]


def test_subshells_pipelines_jobs_and_substitutions_use_no_helper_and_work(place: Place) -> None:
    said = place.say("""
    intercore_state_incr -v _ n s; intercore_state_incr -v _ n s
    ( intercore_state_incr n s )
    intercore_state_incr n s | cat
    echo "$(intercore_state_incr n s)"
    cat <(intercore_state_incr n s)
    intercore_state_incr n s >job & wait "$!"; cat job
    intercore_state_incr n s
    """)

    assert said == ["3", "4", "5", "6", "7", "8"]


def test_jobs_wait_and_coproc_of_the_caller_are_its_own(place: Place) -> None:
    said = place.say("""
    sleep 0.1 & mine=$!
    coproc { read -r line; echo "co $line"; }
    intercore_state_incr -v _ n s; intercore_state_incr -v _ n s; intercore_state_incr -v n n s
    echo "$n $(( $! == COPROC_PID ))"
    echo hello >&"${COPROC[1]}"; read -r line <&"${COPROC[0]}"; echo "$line"
    wait; echo "waited $?"; jobs
    exec 8<<<"my eight" 9<<<"my nine"
    intercore_state_incr -v n n s; read -r a <&8; read -r b <&9; echo "$a $b"
    """)

    assert said == ["3 1", "co hello", "waited 0", "my eight my nine"]


def test_a_trap_in_the_middle_of_a_call_makes_its_own_call(
    initialized: Path, daemon: Daemon, door: Path, bash: str
) -> None:
    """The daemon is stopped, the trap runs while the call waits for it."""
    env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_TIMEOUT": "30s"}
    place = Place(initialized, env, bash)
    said = place.say(f"""
    trap 'intercore_state_incr -v t trapped s; echo "trap $t"' USR1
    intercore_state_incr -v _ n s; intercore_state_incr -v _ n s
    kill -STOP {daemon.pid}
    ( sleep 0.3; kill -USR1 $$; kill -CONT {daemon.pid} ) &
    intercore_state_incr -v n n s; echo "call $n"
    wait
    intercore_state_incr -v n n s; echo "call $n"
    """)

    assert sorted(said) == ["call 3", "call 4", "trap 1"]


def test_no_child_of_the_caller_inherits_anything(place: Place) -> None:
    said = place.say("""
    intercore_state_incr -v _ n s; intercore_state_incr -v _ n s; intercore_state_incr -v _ n s
    ls /proc/self/fd | wc -l
    env | grep -c INTERCORE_HANDOVER
    """)

    assert said == ["4", "0"], "stdin, stdout, stderr, and the directory that ls reads"


@pytest.mark.parametrize("door", ["python"], indirect=True)
def test_without_a_native_client_every_call_is_one_process_and_none_asks_for_a_helper(
    place: Place, door: Path, tmp_path: Path
) -> None:
    program, log = tmp_path / "icctl", tmp_path / "calls"
    program.write_text(f'#!/bin/sh\necho "$*" >>{log}\nexec {door}/icctl "$@"\n')
    program.chmod(0o755)
    place.env["INTERCORE_BIN"] = str(program)

    said = place.say("""
    intercore_state_incr n s; intercore_state_incr -v n n s; echo "$n"; intercore_state_incr n s
    echo "$_intercore_helper"
    """)

    assert said == ["1", "2", "3", "none"]
    calls = log.read_text().splitlines()
    assert len(calls) == 3
    assert all(call.endswith("state incr -- n s") for call in calls)


@NATIVE
def test_the_helper_dies_with_the_shell(place: Place) -> None:
    (pid,) = place.say(
        "intercore_available; intercore_available; echo $_intercore_helper; kill -9 $$"
    )

    until(lambda: not Path(f"/proc/{pid}").exists())
    assert list(place.project.glob("intercore-helper-*")) == []


@NATIVE
def test_a_helper_that_was_killed_is_done_without(place: Place) -> None:
    said = place.say("""
    intercore_state_incr n s; intercore_state_incr n s
    kill -9 $_intercore_helper; while kill -0 $_intercore_helper 2>/dev/null; do :; done
    intercore_state_incr n s; intercore_state_incr n s
    """)

    assert said == ["1", "2", "3", "4"]


def test_a_hook_keeps_its_stdin(place: Place) -> None:
    done = place.run(
        "intercore_sentinel_check a s 0; intercore_state_set k s 1; intercore_state_get -v v k s; cat",
        input=b'{"session_id":"x"}\n' * 5000,
    )

    assert done.stdout == b'{"session_id":"x"}\n' * 5000


@NATIVE
def test_a_helper_that_is_stopped_is_ended_after_the_time_of_a_call(place: Place) -> None:
    done = place.run("""
    intercore_available; intercore_available; echo $_intercore_helper; kill -STOP $_intercore_helper
    INTERCORE_TIMEOUT=100ms; intercore_state_incr n s; echo $?
    INTERCORE_TIMEOUT=60s
    intercore_state_incr n s; intercore_state_incr n s
    """)

    pid, *said = done.stdout.decode().split()
    assert said == ["2", "1", "2"]
    assert done.stderr.startswith(b"intercore: unknown_outcome: ")
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert list(place.project.glob("intercore-helper-*")) == []


@NATIVE
def test_no_other_shell_inherits_a_helper(place: Place) -> None:
    """Not even under `set -a`, which exports everything."""
    said = place.say(f"""
    set -a; source {LIBRARY}; intercore_available; intercore_available; set +a
    one=$_intercore_helper
    {place.bash} -c 'source {LIBRARY}; intercore_state_incr n s; intercore_state_incr n s; [[ $_intercore_helper != "$1" ]] && echo other' x "$one"
    """)

    assert said == ["1", "2", "other"]


def test_a_callers_readonly_variables_are_respected(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    icctl("init", cwd=other, env={"INTERCORE_MODE": "direct"})

    said = place.say(f"""
    readonly INTERCORE_BIN=$(type -P icctl) INTERCORE_DB={other}/.clavain/intercore.db
    readonly CLAUDE_SESSION_ID=me INTERCORE_SOCKET=$INTERCORE_SOCKET
    cd {other}
    ( intercore_state_set k s 1 ); intercore_state_get k s; set -o posix; ( intercore_state_get k s )
    """)

    assert said == ["1", "1"]
    assert icctl("state", "get", "k", "s", cwd=place.project, env=place.env).returncode == 1


@pytest.mark.parametrize("descriptor", [8, 9])
def test_a_trace_into_our_descriptors_does_not_disturb(place: Place, descriptor: int) -> None:
    said = place.say(f"""
    exec {descriptor}>trace; BASH_XTRACEFD={descriptor}; set -x
    intercore_state_incr n s; intercore_state_incr n s; intercore_state_incr n s
    """)

    assert said == ["1", "2", "3"]


@NATIVE
def test_too_few_descriptors_for_a_helper_are_enough_for_a_process(place: Place) -> None:
    done = place.run(
        "intercore_available; intercore_available; ulimit -n 9; intercore_state_incr n s; intercore_state_incr n s"
    )

    assert done.stdout.split() == [b"1", b"2"]


@pytest.mark.parametrize("way", ["{}", "( {} )"])
def test_an_output_that_cannot_be_written_is_an_error(place: Place, way: str) -> None:
    call = way.format("intercore_state_get k s >/dev/full")

    done = place.run(f"intercore_state_set k s 1; intercore_state_set k s 1; {call}; echo $?")

    assert done.stdout == b"2\n"


def test_a_directory_that_is_not_the_one_that_PWD_says_is_looked_up(place: Place) -> None:  # noqa: N802
    said = place.say("""
    intercore_state_set k s 1; intercore_state_set k s 1
    PWD=/; intercore_state_get k s
    """)

    assert said == ["1"]


def test_a_program_found_in_a_relative_directory_is_found_again_elsewhere(place: Place) -> None:
    (place.project / "bin").symlink_to(Path(place.env["PATH"].split(":")[0]))
    (place.project / "sub").mkdir()
    place.env["PATH"] = "bin:/usr/bin:/bin"

    assert place.say("intercore_state_incr n s; cd sub; ( intercore_state_incr n s )") == ["1", "2"]


# --- which program, which database, which socket ---


def test_the_program_is_found_on_the_path_in_the_home_or_as_told(
    place: Place, door: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "icctl").symlink_to(door / "icctl")
    place.env |= {"PATH": "/usr/bin:/bin", "HOME": str(home)}

    assert place.say("intercore_available && echo $INTERCORE_BIN") == [f"{home}/.local/bin/icctl"]
    place.env["HOME"] = "/nonexistent"
    assert place.say("intercore_available || echo no") == ["no"]
    place.env["INTERCORE_BIN"] = str(door / "ic")
    assert place.say("intercore_available && echo $INTERCORE_BIN") == [f"{door}/ic"]
    place.env["INTERCORE_BIN"] = "/nonexistent/ic"
    assert place.say("intercore_available || echo no") == ["no"]


def test_variables_count_whether_exported_or_not_and_may_change(
    place: Place, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    icctl("init", cwd=other, env={"INTERCORE_MODE": "direct"})

    with running() as second:
        said = place.say(f"""
        intercore_state_set k s 1; intercore_state_set k s 1
        cd {other}
        INTERCORE_DB={other}/.clavain/intercore.db; intercore_state_set k s 2; intercore_state_get k s
        INTERCORE_DB={place.project}/.clavain/intercore.db; cd {place.project}; intercore_state_get k s
        INTERCORE_DB=; intercore_state_get k s
        INTERCORE_SOCKET={second.socket}; intercore_state_get k s
        CLAUDE_SESSION_ID=me; intercore_state_set k s 3
        """)
        calls = second.call("icd.status")["calls"]

    assert said == ["2", "1", "1", "1"]
    assert calls == {"state.get": 1, "state.set": 1}
    row = icctl("state", "get", "k", "s", "--json", cwd=place.project, env=place.env).stdout
    assert json.loads(row)["writer_session"] == "me"


def test_the_library_is_found_by_the_program(place: Place) -> None:
    done = subprocess.run(
        [place.bash, "-c", 'source "$(icctl lib-path)" && intercore_available && echo here'],
        cwd=place.project, env=place.env, capture_output=True, check=True,
    )  # fmt: skip

    assert done.stdout == b"here\n"
    shown = icctl("lib-path", cwd=place.project, env=place.env)
    assert (shown.stdout.decode().strip(), shown.stderr) == (str(LIBRARY), b"")


# --- what is passed ---


@pytest.mark.parametrize("way", ["", "( {} )"])
def test_any_bytes_that_bash_can_hold_come_back(place: Place, way: str) -> None:
    """Large ones and odd ones, through a helper and through processes."""
    calls = [
        'intercore_state_set k "$scope" "$json"',
        'intercore_state_get k "$scope" >"got.$i"',
    ]
    wrapped = "; ".join((way or "{}").format(call) for call in calls)
    documents = [
        [r"quotes ' \" back\\slash é € 😀 $HOME `x` * ; # ! ~ {a,b} %s %% \x00"],
        ["x" * 11_990],
        ["é" * 20_000],
        ["y" * 100_000] * 10,
        ["z" * 99_990] * 10 + ["w" * 48_000],
    ]
    scripts = []
    for i, document in enumerate(documents):
        text = json.dumps(document, ensure_ascii=False)
        (place.project / f"in.{i}").write_text(text, encoding="utf-8")
        scripts.append(f"i={i}; scope=$'s {i}\\'\"'; json=$(<in.{i}); {wrapped}; {wrapped}")

    assert place.say("\n".join(scripts)) == []

    for i in range(len(documents)):
        sent = (place.project / f"in.{i}").read_bytes()
        assert (place.project / f"got.{i}").read_bytes() == sent + b"\n"


# --- legacy guards, while there is nothing else ---


@pytest.fixture
def bare(tmp_path: Path, bash: str) -> Place:
    """No program at all."""
    return Place(tmp_path, {"PATH": "/usr/bin:/bin"}, bash)


def test_a_legacy_guard_with_an_interval_is_due_again_after_it(bare: Place) -> None:
    check = "intercore_sentinel_check_or_legacy n s 60 guard; echo $?"

    assert bare.say(f"{check}; {check}") == ["0", "1"]
    assert bare.say(f"touch -d '30 seconds ago' guard; {check}") == ["1"]
    assert bare.say(f"touch -d '62 seconds ago' guard; {check}; {check}; ls") == ["0", "1", "guard"]


def test_the_interval_of_a_legacy_guard_may_be_a_duration(bare: Place) -> None:
    for number, interval in enumerate(("60s", "1m", "60")):
        check = f"intercore_sentinel_check_or_legacy n s {interval} g{number}; echo $?"

        assert bare.say(f"{check}; {check}") == ["0", "1"]
        assert bare.say(f"touch -d '30 seconds ago' g{number}; {check}") == ["1"]
        assert bare.say(f"touch -d '62 seconds ago' g{number}; {check}") == ["0"]


def test_a_legacy_guard_that_somebody_touched_counts(bare: Place) -> None:
    """Hooks that were not migrated yet made regular files."""
    check = "intercore_sentinel_check_or_legacy n s"

    assert bare.say(f"touch g; {check} 0 g; echo $?; {check} 60 g; echo $?") == ["1", "1"]
    assert bare.say(
        f"touch -d '2 minutes ago' g; {check} 60 g; echo $?; {check} 60 g; echo $?"
    ) == ["0", "1"]


def test_a_legacy_guard_that_is_a_link_or_a_strangers_is_refused(bare: Place) -> None:
    done = bare.run("ln -s target g; intercore_sentinel_check_or_legacy n s 0 g; echo $?; ls")

    assert done.stdout == b"2\ng\n"
    assert done.stderr == b"intercore: g is no guard of ours, and cannot become one\n"
    if os.geteuid() == 0:
        os.mkdir(bare.project / "theirs")
        os.chown(bare.project / "theirs", 65_534, 65_534)
        assert bare.run("intercore_sentinel_check_or_legacy n s 9 theirs; echo $?").stdout == b"2\n"


def test_a_legacy_claim_that_died_half_way_is_taken_over(bare: Place) -> None:
    check = "intercore_sentinel_check_or_legacy n s 60 g; echo $?"
    prepare = "mkdir g; touch -d @1000000000 g; mkdir g.due-1000000000"

    assert bare.say(f"{prepare}; {check}; {check}") == ["1", "1"], "somebody may be at it"
    assert bare.say(f"touch -d '2 minutes ago' g.due-1000000000; {check}; {check}; {check}; ls") == [
        "1", "0", "1", "g",
    ]  # fmt: skip


def test_an_interval_that_is_none_is_a_mistake_and_nothing_is_evaluated(bare: Place) -> None:
    for interval in ("x", "300x", "5ms", "s", "1h30m", "", "x[$(touch pwned)0]s", "-1"):
        done = bare.run(f"intercore_sentinel_check_or_legacy n s '{interval}' g; echo $?")

        assert done.stdout == b"3\n"
        assert done.stderr.count(b"\n") == 1
    assert bare.say("mkdir g; touch -d '9 seconds ago' g; intercore_sentinel_check_or_legacy n s 08 g; echo $?; ls") == ["0", "g"]  # fmt: skip


def test_shadowed_commands_and_odd_options_do_not_defeat_a_guard(bare: Place) -> None:
    said = bare.say("""
    mkdir() { command mkdir -p "$@"; }; rm() { echo never; }; touch() { echo never; }
    shopt -s failglob; set -f
    intercore_sentinel_check_or_legacy n s 0 g; echo $?
    intercore_sentinel_check_or_legacy n s 0 g; echo $?
    intercore_state_delete_all k 'none*'; echo $?
    intercore_sentinel_reset_all n 'g*'; echo $?
    set +f; shopt -u failglob; ls
    """)

    assert said == ["0", "1", "0", "0"]


@pytest.mark.parametrize("due", [False, True])
def test_many_hooks_race_for_a_legacy_guard_and_one_wins(bare: Place, due: bool) -> None:
    said = bare.say(f"""
    {"mkdir g; touch -d '2 hours ago' g" if due else ":"}
    for ((i = 0; i < 30; i++)); do
        ( intercore_sentinel_check_or_legacy n s 3600 g && echo won ) &
    done
    wait
    """)

    assert said == ["won"]


def test_stale_legacy_guards_are_cleaned_up_and_fresh_ones_kept(bare: Place) -> None:
    bare.env["INTERCORE_LEGACY_DIR"] = str(bare.project)

    said = bare.say("""
    touch -d '2 hours ago' clavain-stop-1 clavain-drift-last-1 other; mkdir clavain-stop-2
    touch -d '2 hours ago' clavain-stop-2; touch clavain-stop-3
    intercore_cleanup_stale; ls
    """)

    assert said == ["clavain-stop-3", "other"]


def test_clean_up_leaves_what_still_throttles(place: Place) -> None:
    import sqlite3

    place.say("""
    intercore_sentinel_check once s 0; intercore_sentinel_check long s 86400
    intercore_sentinel_check short s 60
    """)
    with sqlite3.connect(place.project / ".clavain" / "intercore.db") as conn:
        conn.execute(
            "UPDATE sentinels SET fired_ms = fired_ms - 7200000, last_fired = last_fired - 7200"
        )
    conn.close()

    place.say("intercore_cleanup_stale")

    listed = icctl("sentinel", "list", cwd=place.project, env=place.env).stdout.decode()
    assert [line.split("\t")[0] for line in listed.splitlines()] == ["long", "once"]


# --- failures are seen ---


def test_failures_are_counted_where_status_shows_them(place: Place, daemon: Daemon) -> None:
    place.run("""
    intercore_state_set Bad s 1; intercore_sentinel_check n s x; intercore_state_set k s 'no json'
    intercore_state_set k s '"x"'; intercore_state_incr k s
    cd /; intercore_state_get k s
    """)

    failures = daemon.call("icd.status")["failures"]
    assert failures == {"state.set": 2, "sentinel.check": 1, "state.incr": 1}


def test_failures_that_the_daemon_did_not_see_are_counted_too(place: Place, daemon: Daemon) -> None:
    place.run(
        """
    INTERCORE_MODE=direct
    intercore_state_set Bad s 1; intercore_sentinel_check n s x; intercore_state_get none s
    INTERCORE_MODE=daemon INTERCORE_TIMEOUT=100ms
    """
        f"""
    kill -STOP {daemon.pid}; intercore_state_incr n s; kill -CONT {daemon.pid}
    """
    )

    assert daemon.call("icd.status")["missed"] == {
        "state.set": 1, "sentinel.check": 1, "state.incr": 1,
    }  # fmt: skip
    shown = icctl("status", cwd=place.project, env=place.env).stdout
    assert b"! failed without the daemon: state.set 1\n" in shown


# --- under load ---


@pytest.mark.long
@pytest.mark.timeout(600)  # a thousand processes; half a minute on a quiet machine
def test_a_storm_of_stop_hooks_has_one_winner_per_session_while_the_daemon_restarts(
    initialized: Path, bash: str
) -> None:
    """The guard of docs/migration.md, in many sessions, 50 hooks each, at the same time."""
    daemon = Daemon()
    hook = f'source {LIBRARY}; intercore_check_or_die stop "$1" 0 "/nonexistent/clavain-stop-$1"; echo "$1"'
    # 100 hooks at a time, of two sessions: a thousand would only wait for two processors.
    script = f"""
    for session in {{1..{SESSIONS}}}; do for ((i = 0; i < 50; i++)); do echo "session-$session"; done; done |
        xargs -P 100 -n 1 {bash} -c '{hook}' hook
    """
    env = {
        **CLEAN,
        "HOME": str(initialized),
        "INTERCORE_SOCKET": daemon.socket,
        "INTERCORE_TIMEOUT": "60s",
    }
    try:
        daemon.start()
        process = subprocess.Popen(
            [bash, "-c", script],
            cwd=initialized,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3):
            served = daemon.call("icd.status")["calls"].get("sentinel.check", 0)
            until(lambda served=served: process.poll() is not None
                  or daemon.call("icd.status")["calls"].get("sentinel.check", 0) > served + 50)  # fmt: skip
            daemon.kill()
            daemon.start()
        out, err = process.communicate(timeout=500)
    finally:
        daemon.close()

    assert err == b""
    assert sorted(out.decode().split()) == sorted(f"session-{n}" for n in range(1, SESSIONS + 1))


def test_events_come_once_and_the_cursor_tells_where(place: Place) -> None:
    for kind in ("one", "two"):
        icctl("events", "record", "--source=ci", f"--type={kind}", cwd=place.project, env=place.env)

    said = place.say(
        """
        intercore_events_tail_all --consumer=c --limit=1 | grep -o '"type":"[a-z]*"'
        intercore_events_tail_all --consumer=c | grep -o '"type":"[a-z]*"'
        intercore_events_tail_all --consumer=c; echo "$?"
        intercore_events_cursor_get c | grep -o '"seq":[0-9]*'
        """
    )

    assert said == ['"type":"one"', '"type":"two"', "0", '"seq":2']


# --- runs, gates and dispatches ---


AGENT = """#!/bin/bash
while (($#)); do [[ $1 != -o ]] || out=$2; shift; done
printf 'STATUS: pass\\nSUMMARY: fine\\n' >"$out.verdict"
"""


@pytest.fixture
def sprint(place: Place) -> Place:
    """A place where agents can be started."""
    (place.project / "prompt.md").write_text("do it")
    agent = place.project / "dispatch.sh"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    place.env["CLAVAIN_DISPATCH_SH"] = str(agent)
    return place


def test_a_run_from_its_first_phase_on(sprint: Place) -> None:
    said = sprint.say("""
    intercore_run_create -v run --goal=it --scope-id=bead-1
    intercore_run_current -v found . && [[ $found == "$run" ]] && echo found
    intercore_run_phase "$run"
    intercore_gate_check "$run" || echo "closed $?"
    artifact=$(intercore_run_artifact_add "$run" brainstorm prompt.md doc) && echo "${#artifact}"
    intercore_gate_check "$run" 0 && echo open
    intercore_run_advance "$run" 0 brainstorm | grep -o '"to_phase":"[a-z-]*"'
    intercore_run_advance -v told "$run" '' brainstorm || echo "stale $?"
    intercore_run_skip "$run" planned "too small" me
    intercore_gate_override "$run" "I say so"
    intercore_run_agent_add -v agent "$run" claude bob
    intercore_run_agent_update "$agent" --status=completed
    intercore_run_agent_list "$run" | cut -f2-
    """)

    assert said == [
        "found",
        "brainstorm",
        "closed 1",
        "8",
        "open",
        '"to_phase":"brainstorm-reviewed"',
        "stale 1",
        "skipped: planned",
        "brainstorm-reviewed → strategized (override: I say so)",
        "updated",
        "claude\tcompleted\tbob",
    ]


def test_actions_and_lanes(sprint: Place) -> None:
    said = sprint.say("""
    intercore_run_create -v run --goal=it --phases='["a","b"]'
    intercore_run_action_add "$run" b /work '["${artifact:plan}"]' both
    intercore_run_action_add "$run" b /work 2>/dev/null || echo "twice $?"
    intercore_run_action_update "$run" b /work '' '' 3 && echo updated
    intercore_run_artifact_add -v _ "$run" a prompt.md plan
    intercore_run_action_list "$run" b | grep -o '"args":[^]]*]\\|"mode":"[a-z]*"'
    intercore_run_advance "$run" | grep -o '"args":[^]]*]'
    intercore_run_action_delete "$run" b /work && echo deleted
    intercore_run_action_delete "$run" b /work 2>/dev/null || echo "gone $?"
    intercore_lane_create -v lane kernel arc core go && echo "${#lane}"
    intercore_lane_create kernel 2>/dev/null || echo "taken $?"
    intercore_lane_sync "$lane" B-2,B-1 && intercore_lane_members kernel
    intercore_lane_status kernel | grep -o '"intent":"go","lane_type":"arc"'
    intercore_lane_status nope 2>/dev/null || echo "unknown $?"
    """)

    assert said == [
        '{"id":1}',
        "twice 1",
        "updated",
        '"args":["${artifact:plan}"]',
        '"mode":"both"',
        '"args":["prompt.md"]',
        "deleted",
        "gone 1",
        "8",
        "taken 2",
        '["B-1","B-2"]',
        '"intent":"go","lane_type":"arc"',
        "unknown 2",
    ]


def test_a_run_that_goes_back(sprint: Place) -> None:
    said = sprint.say("""
    intercore_run_create -v run --goal=it
    intercore_run_artifact_add -v _ "$run" brainstorm prompt.md
    intercore_run_advance -v _ "$run"; intercore_run_advance -v _ "$run"
    intercore_run_rollback_dry "$run" brainstorm | grep -c dry_run; intercore_run_phase "$run"
    intercore_run_rollback -v told "$run" brainstorm again; [[ $told == *'"reason": "again"'* ]] && echo told
    intercore_run_phase "$run"
    intercore_run_code_rollback "$run" brainstorm | grep -o '"path": .*,'
    intercore_run_snapshot --current --json | grep -o '"event_type":"rollback"'
    intercore_run_list --active | cut -f3,4; intercore_run_status "$run" | head -n 1 | cut -c1-3
    """)

    assert said == [
        "1",
        "strategized",
        "told",
        "brainstorm",
        '"path": "prompt.md",',
        '"event_type":"rollback"',
        "brainstorm\tit",
        "ID:",
    ]


def test_a_dispatch_from_a_script(sprint: Place) -> None:
    said = sprint.say("""
    intercore_dispatch_spawn -v id codex . prompt.md out.md reviewer
    intercore_dispatch_wait "$id" 40s; echo "waited $?"
    intercore_dispatch_status "$id" | grep -o '"verdict_status":"[a-z]*"'
    intercore_dispatch_tokens "$id" 10 20 3
    intercore_dispatch_list_active; echo "none $?"
    intercore_dispatch_kill "$id"; echo "over already $?"
    """)

    assert said == [
        "waited 0",
        '"verdict_status":"pass"',
        "updated",
        "none 0",
        "over already 0",
    ]


def test_whoever_advances_a_run_starts_its_agents_though_there_is_a_helper(sprint: Place) -> None:
    prompts = sprint.project / ".ic" / "prompts"
    prompts.mkdir(parents=True)
    (prompts / "bob.md").write_text("do it")

    done = sprint.run("""
    intercore_run_create -v run --goal=it --auto-spawn --phases='["planned","executing","done"]'
    intercore_run_agent_add -v _ "$run" codex bob
    intercore_run_advance -v told "$run"; [[ -n $_intercore_helper ]] && echo "helped $?"
    IFS=$'\\t' read -r id _ kind name < <("$INTERCORE_BIN" dispatch list); echo "$kind $name"
    intercore_dispatch_wait "$id" 40s && echo ended
    """)

    assert done.stdout.decode().splitlines() == ["helped 0", "codex bob", "ended"]
    assert re.fullmatch(rb"\[event\] auto-spawn: agent bob started: \w{8}\n", done.stderr)


def test_a_dispatch_outlives_the_time_of_a_call_and_is_killed(sprint: Place) -> None:
    """The time of a call is not the agent's; nor is waiting for it a call that times out."""
    (sprint.project / "dispatch.sh").write_text("#!/bin/bash\nexec sleep 1000\n")
    said = sprint.say("""
    INTERCORE_TIMEOUT=6s
    intercore_dispatch_spawn -v id codex . prompt.md
    intercore_dispatch_wait "$id" 7s 2>/dev/null; echo "still there $?"
    intercore_dispatch_list_active -v line; [[ $line == "$id"$'\\t'running* ]] && echo running
    intercore_dispatch_kill "$id"; intercore_dispatch_list_active; echo "killed $?"
    """)

    assert said == ["still there 1", "running", "killed 0"]


@pytest.mark.parametrize(
    "script",
    [
        f"(cat {LIBRARY}; echo 'intercore_lock_available && echo ok') | bash -us",
        f"bash -uc 'eval \"$(<{LIBRARY})\"; intercore_lock_available && echo ok'",
        f"bash -uc 'f() {{ eval \"$(<{LIBRARY})\"; echo ok; }}; f'",
    ],
)
def test_a_library_from_a_pipe_works(script: str, tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment" / "here.sh").write_text("echo stranger")

    done = subprocess.run(["bash", "-c", script], check=False, cwd=tmp_path, capture_output=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")
