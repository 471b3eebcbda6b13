"""Everything about a run in one call, next to the five that it takes without."""

import socket
import subprocess
import time

from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.runs import store as runs
from icd.values.processes import Writer
from tests.bench import setting as place
from tests.bench.table import Table
from tests.support import rows

RUNS = 50
RUN = "run00001"
LISTED, LISTS, TOGETHER = 50, 100, 10
EVENTS, ARTIFACTS, AGENTS, DISPATCHES = 1_000, 100, 50, 20
SNAPSHOT = ["run", "snapshot", RUN, "--json"]
# What the scripts of a sprint ask today.
FIVE = [
    ["run", "status", RUN, "--json"],
    ["run", "events", RUN, "--json"],
    ["run", "artifact", "list", RUN, "--json"],
    ["run", "agent", "list", RUN, "--json"],
    ["run", "tokens", RUN, "--json"],
]


def run(table: Table) -> None:
    with place.project() as setting, place.daemon(setting) as process:
        _fill(setting)
        times = _interleaved(setting)
        screen, piped = _lists(setting, process.pid)
    snapshot, *others = times.values()
    five = [sum(taken) for taken in zip(*others, strict=True)]
    what = f"run snapshot / five calls, of {EVENTS:,} events"
    table.ratio(
        what, snapshot, five, unit="ms", most=0.8,
        meaning="One question instead of five, whose times are summed.",
    )  # fmt: skip
    table.ratio(
        f"run list on a terminal / in a pipe, {LISTED} runs, by the daemon", screen, piped,
        unit="ms", most=1.15,
        meaning="Headings, columns, ages and colours: processor time of the daemon for a call.",
    )  # fmt: skip


def _lists(setting: place.Setting, pid: int) -> tuple[list[float], list[float]]:
    """The same question with a terminal and without one, some of each in turn."""
    fields = [b"nicctl", b"c1", b"d" + bytes(setting.root), b"arun", b"alist", b"a--all-projects"]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * LISTS):
        more = [b"w100 0 1"] if number % 2 == 0 else []
        frame = b"\0".join([b"ic1 %d" % len(fields + more), *fields, *more, b""])
        began = place.cpu_seconds(pid)
        for _ in range(TOGETHER):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(setting.socket)
                sock.sendall(frame)
                head = sock.makefile("rb").readline()
            assert head.startswith(b"0 "), head
        times[number % 2].append((place.cpu_seconds(pid) - began) * 1000 / TOGETHER)
    return times


def _fill(setting: place.Setting) -> None:
    database = setting.open()
    now_ms = time.time_ns() // 1_000_000
    with database.hold(time.monotonic() + 5):
        conn = database.connection()
        conn.execute("BEGIN IMMEDIATE")
        rows.run(conn, RUN, project_dir=str(setting.root), phase="executing")
        for i in range(1, LISTED):
            rows.run(
                conn, f"listed{i:02}", project_dir=str(setting.root), phase="planned",
                goal=f"Goal {i}, which takes more room than a line of a list has for it, by far",
            )  # fmt: skip
        for i in range(EVENTS):
            fact = Fact("phase", "pause", run_id=RUN, from_state="executing", reason=f"reason {i}")
            events.append(conn, fact, actor=Writer(), now_ms=now_ms)
        for i in range(ARTIFACTS):
            runs.add_artifact(
                conn, RUN, phase="executing", path=f"src/file-{i}.py", type="file",
                content_hash=None, dispatch_id=None, now_ms=now_ms,
            )  # fmt: skip
        for i in range(AGENTS):
            runs.add_agent(
                conn, RUN, agent_type="claude", name=f"a{i}", dispatch_id=None, now_ms=now_ms
            )
        for i in range(DISPATCHES):
            rows.dispatch(conn, RUN, "pass", f"dispatch{i}")
        conn.execute("COMMIT")
        database.close()


def _interleaved(setting: place.Setting) -> place.Times:
    """The snapshot first, and then the others."""
    commands = {" ".join(words): [str(place.BIN / "icctl"), *words] for words in (SNAPSHOT, *FIVE)}
    for command in commands.values():  # what fails is fast, and measures nothing
        subprocess.run(
            command, env=setting.env, cwd=setting.root, stdout=subprocess.DEVNULL, check=True
        )
    return place.interleaved(commands, setting, RUNS)
