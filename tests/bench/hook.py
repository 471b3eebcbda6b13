"""What an agent pays at an event: `icctl hook` that is throttled, and that runs its command."""

import itertools
import json
import os
import time

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 300
THROTTLED_MOST, ALLOWED_MOST = 2.2, 3.2


def run(table: Table) -> None:
    with place.project() as setting, place.daemon(setting):
        times = _interleaved(setting)
    table.ratio(
        "icctl hook --every=300 -- true, throttled / true", times["throttled"], times["true"],
        unit="ms", most=THROTTLED_MOST,
        meaning="An event at which nothing is to be done: read, and asked for.",
    )  # fmt: skip
    table.ratio(
        "icctl hook --every=300 -- true, allowed / true", times["allowed"], times["true"],
        unit="ms", most=ALLOWED_MOST,
        meaning="The claim is written, and the command started and waited for.",
    )  # fmt: skip
    table.ratio(
        "icctl hook -- true / true", times["plain"], times["true"], unit="ms",
        meaning="Nothing is asked: the event is read, and the command gets it.",
    )  # fmt: skip
    table.ratio(
        "icctl hook --serial=x -- true / true", times["serial"], times["true"], unit="ms",
        meaning="A lock is taken before, and given back after.",
    )  # fmt: skip


def _interleaved(setting: place.Setting) -> place.Times:
    event = setting.root / "event.json"
    tool = {"tool_name": "Edit", "tool_input": {"file_path": str(setting.root / "a.py")}}
    sent = {"session_id": "s1", "cwd": str(setting.root), "hook_event_name": "PostToolUse", **tool}
    event.write_text(json.dumps(sent))
    setting.env["INTERCORE_LOCK_DIR"] = str(setting.root / "locks")
    hook, names = [str(place.BIN / "icctl"), "hook"], itertools.count()
    commands = {
        "true": lambda: ["/bin/true"],
        "throttled": lambda: [*hook, "--every=300", "--name=t", "--", "/bin/true"],
        "allowed": lambda: [*hook, "--every=300", f"--name=n{next(names)}", "--", "/bin/true"],
        "plain": lambda: [*hook, "--", "/bin/true"],
        "serial": lambda: [*hook, "--serial=x", "--", "/bin/true"],
    }
    times: place.Times = {name: [] for name in commands}
    for turn in range(RUNS + 1):
        for name, command in commands.items():
            took = _once(command(), str(event), setting.env)
            if turn:  # the first makes the claim, and the directory of locks
                times[name].append(took)
    return times


def _once(command: list[str], event: str, env: dict[str, str]) -> float:
    """Milliseconds, without what Python's own way to start a process costs."""
    began = time.perf_counter()
    opened = (os.POSIX_SPAWN_OPEN, 0, event, os.O_RDONLY, 0)
    pid = os.posix_spawn(command[0], command, env, file_actions=[opened])
    _, status = os.waitpid(pid, 0)
    assert status == 0, command
    return (time.perf_counter() - began) * 1000
