"""Soak: a usual day again and again, and nothing grows.

Sessions do what USERS.md lists: hooks ask their sentinels, starts of sessions look around, sprints
go through their phases, a consumer reads events, a status line is shown, a scanner submits.  Most
of it comes as keyhole frames, as the native client sends them, and a little as real processes.

Time is cut into rounds.  At the end of each everybody rests, what is old is pruned, and the daemon
is looked at: its descriptors, threads, memory, the median time of a call, and the size of the
database.  After the first rounds, which fill caches, none of these may have a trend: the slope is
the median of the slopes between all pairs of rounds (Theil and Sen), so that one slow round, or
a machine that others use, is none.
"""

import os
import random
import statistics
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from tests.support.processes import Daemon, until
from tests.torture import frames
from tests.torture.suite import Broken, Run

SESSIONS = 4
RUNS = 10  # of each session
ROUNDS = 24  # of a long form; a short one has rounds of at least ROUND_SECONDS
ROUND_SECONDS = 0.5
LEAST_ROUNDS = 3  # a trend needs some, however slow the machine is
# Caches fill, and Python's allocator finds its size, within this share of the rounds.
WARM_UP = 1 / 3
# Memory and times of a run that is shorter than this say nothing.
LONG_SECONDS = 120.0
KEEP_EVENTS = 500
KIB = 1024


@dataclass(frozen=True)
class Bound:
    """How much something may grow from the first round to the last: this much, or this share."""

    absolute: float
    share: float
    is_long: bool = False  # said of long runs only


BOUNDS = {
    "descriptors": Bound(4, 0),
    "threads": Bound(2, 0),
    "KiB of memory": Bound(8 * KIB, 0.1, is_long=True),
    "microseconds of a call": Bound(1000, 1.0, is_long=True),
    # A database that is pruned keeps its free pages, and uses them again.
    "KiB of database": Bound(512, 0.5),
}


@dataclass
class Day:
    """What one session does, by chance, and how long each call took."""

    daemon: Daemon
    project: Path
    rng: random.Random
    took_us: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    number: int = 0

    def go(self, until_at: float) -> None:
        try:
            while time.monotonic() < until_at:
                act = self.rng.choices(ACTS, WEIGHTS)[0]
                act(self, f"session-{self.rng.randrange(20)}")
        except Exception as exc:  # noqa: BLE001 -- the suite is told
            self.problems.append(repr(exc))

    def say(self, *argv: str, may: tuple[int, ...] = (0,)) -> bytes:
        began = time.perf_counter()
        reply = frames.ask(self.daemon, *argv, cwd=self.project)
        self.took_us.append((time.perf_counter() - began) * 1e6)
        if reply.what == "&":  # once it is printed, it is acknowledged
            self.say(*reply.then)
        elif reply.what != "exit" or reply.exit not in may:
            raise Broken(f"{' '.join(argv)}: {reply}")
        return reply.stdout


def stop_hook(day: Day, session: str) -> None:
    for guard in ("stop", "compound_throttle", "drift_throttle"):
        day.say("sentinel", "check", guard, session, "--interval=1", may=(0, 1))


def edit_hook(day: Day, session: str) -> None:
    day.say("sentinel", "check", "autopub", session, "--interval=0", may=(0, 1))
    day.say("health")


def session_start(day: Day, session: str) -> None:
    day.say("run", "list", "--active", "--json")
    day.say("run", "current", may=(0, 1))
    day.say("state", "set", "dispatch", session, '--value={"name":"x","turns":1}', "--ttl=1s")
    day.say("state", "get", "dispatch", session, may=(0, 1))
    day.say("events", "cursor", "register", f"consumer-{session}")


def sprint(day: Day, session: str) -> None:
    if len(day.runs) == RUNS:  # they stay for ever: nothing prunes them
        day.say("run", "status", day.rng.choice(day.runs), "--json")
        day.say("run", "advance", day.rng.choice(day.runs), may=(1,))  # it is over
        return
    made = day.say("run", "create", "--goal=soak", f"--session={session}", may=(0, 1))
    run = made.decode().strip()
    if not run:
        return  # another session has one
    day.runs.append(run)
    day.say("run", "agent", "add", run, "--type=codex", f"--name={session}", may=(0, 1))
    day.say("run", "status", run, "--json")
    day.say("run", "advance", run, "--disable-gates", may=(0, 1))
    day.say("run", "tokens", run)
    day.say("run", "cancel", run)


def consumer(day: Day, session: str) -> None:
    day.say("events", "tail", "--all", f"--consumer=consumer-{session}", "--limit=50", "--json")


def statusline(day: Day, session: str) -> None:
    day.say("statusline", f"--session={session}")


def scanner(day: Day, session: str) -> None:
    day.number += 1
    source = f"--source-id={session}-{day.number % 50}"
    day.say("discovery", "submit", "--source=soak", source, "--title=t", "--score=0.5", may=(0, 1))


def lease(day: Day, session: str) -> None:
    owner = f"--owner={session}"
    day.say("lease", "acquire", "sprint", session, "--ttl=1s", owner, may=(0, 1))
    day.say("lease", "release", "sprint", session, owner, may=(0, 1))


# How often, in the proportion of USERS.md: a hook per turn and per edit, the rest now and then.
ACTS = [stop_hook, edit_hook, session_start, sprint, consumer, statusline, scanner, lease]
WEIGHTS = [30, 30, 5, 3, 10, 15, 4, 3]

PRUNES = [
    ("state", "prune"),
    ("sentinel", "prune", "--older-than=1s"),
    ("events", "prune", f"--keep={KEEP_EVENTS}", "--force"),
    ("dispatch", "prune", "--older-than=1s"),
]


def run(run: Run) -> None:
    with ExitStack() as stack:
        project = run.directory / "project"
        (project / ".git").mkdir(parents=True)
        daemon = run.code.daemon()
        stack.callback(daemon.close)
        daemon.start()
        made = run.code.icctl("init", cwd=project, env={"INTERCORE_SOCKET": daemon.socket})
        assert made.returncode == 0, made
        days = [Day(daemon, project, random.Random(run.rng.random())) for _ in range(SESSIONS)]
        seen: dict[str, list[float]] = {name: [] for name in BOUNDS}
        # The first round is for everything that is loaded when it is first used.
        _round(run, days, seconds=ROUND_SECONDS)
        while not run.is_over or run.figures["rounds"] < LEAST_ROUNDS:
            _round(run, days, seconds=max(ROUND_SECONDS, run.seconds / ROUNDS))
            _look(daemon, days, seen)
            run.figures["rounds"] += 1
        _judge(seen, is_long=run.seconds >= LONG_SECONDS)
        if "Traceback" in daemon.log.read_text():
            raise Broken(f"the daemon's log has a traceback:\n{daemon.log.read_text()[-3000:]}")
        for name, values in seen.items():
            run.figures[f"{name} at the end"] = round(values[-1])


def _round(run: Run, days: list[Day], *, seconds: float) -> None:
    until_at = time.monotonic() + seconds
    threads = [threading.Thread(target=day.go, args=(until_at,)) for day in days]
    for thread in threads:
        thread.start()
    env = {"INTERCORE_SOCKET": days[0].daemon.socket}
    real = run.code.icctl("statusline", cwd=days[0].project, env=env)
    for thread in threads:
        thread.join()
    problems = [problem for day in days for problem in day.problems]
    if real.returncode != 0 or problems:
        raise Broken(f"{problems[:3]} {real}")
    run.figures["calls"] += sum(len(day.took_us) for day in days) + 1
    for prune in PRUNES:
        days[0].say(*prune)


def _look(daemon: Daemon, days: list[Day], seen: dict[str, list[float]]) -> None:
    """While nobody calls: what is left then, stays."""
    until(lambda: daemon.call("icd.status")["sessions"] <= 1)
    process = Path(f"/proc/{daemon.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    pages = Path(days[0].project, ".clavain", "intercore.db").stat().st_size
    now = {
        "descriptors": _settled(process / "fd"),
        "threads": float(status["Threads"]),
        "KiB of memory": float(status["VmRSS"].split()[0]),
        "microseconds of a call": statistics.median(us for day in days for us in day.took_us),
        "KiB of database": pages / KIB,
    }
    for name, value in now.items():
        seen[name].append(value)
    for day in days:
        day.took_us.clear()


def _settled(directory: Path) -> float:
    """The least of several looks: a connection that is being closed is none."""
    counts = []
    for _ in range(10):
        counts.append(len(os.listdir(directory)))
        time.sleep(0.005)
    return float(min(counts))


def _judge(seen: dict[str, list[float]], *, is_long: bool) -> None:
    for name, bound in BOUNDS.items():
        values = seen[name][int(len(seen[name]) * WARM_UP) :]
        if bound.is_long and not is_long:
            continue
        limit = max(bound.absolute, bound.share * statistics.median(values))
        if growth(values) > limit:
            shown = ", ".join(f"{value:.0f}" for value in values)
            raise Broken(f"{name} grew by more than {limit:.0f}: {shown}")


def growth(values: list[float]) -> float:
    """From the first to the last, if the median slope between all pairs had been that of all."""
    pairs = combinations(enumerate(values), 2)
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in pairs]
    return statistics.median(slopes) * (len(values) - 1) if slopes else 0.0
