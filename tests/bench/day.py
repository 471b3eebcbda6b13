"""How much a database grows in a normal day: the mix of callers, played with a clock of its own.

`MIX` is the day of one person with one project: eight hours, four sessions, one sprint.  Every call
goes through the dispatcher to a real file, with a request id as clients send one.  After each hour
and at the end of the day the daemon's own upkeep is run: prune, then checkpoint.

What "grows" means
    The file never shrinks by itself, but deleted rows make room for new ones.  So the first days
    say little, though they are told, too: sentinels stay for a week, cursors of sessions for a
    month, and each table and index of a new file takes its first pages.  It is asked what a day adds once everything that is forgotten is being forgotten: the
    size of the file after `WARM_DAYS` days, and `DAYS` days later, divided by `DAYS`, since
    files grow by whole pages.

What is counted
    `hooks` is what the budget of 10 KB was written for: state, sentinels, cursors, the statusline.
    `records` adds those of a sprint and of a scanner, which nobody deletes by default: a run, its
    artifacts, agents, dispatches and events, and discoveries are there to be read later.  That is
    the day of the people who use it, who claim with lock directories, not in the database.
    `leases` is a sprint that claims with a lease at each step as well: each is an event, too.  The
    mix first had them, and was above the limit with 11 KB; they are apart because the scripts that
    it is taken from do not use leases, and they are still measured so that anybody can judge.

Reads change nothing, so what is asked every second is played every ten minutes.
"""

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct, json

from icd import config
from icd.app import registry
from icd.app.call import Call
from icd.app.dispatch import Clock, run_batch
from icd.app.write_cache import Recent
from icd.db.database import Database
from icd.db.paths import Where
from icd.errors import DuplicateDiscovery
from icd.server.stores.maintenance import Maintenance
from icd.values.processes import Writer

LIMIT_BYTES = 10 * 1024
WARM_DAYS = 32  # longer than anything is kept that is forgotten by itself
DAYS = 40  # each table and index grows by whole pages: the more days, the less that shows
WORKING_HOURS = range(9, 17)
SCANS = (0, 6, 12, 18)
HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
MIDNIGHT_MS = 1_800_057_600_000  # of some day
PATIENCE_SECONDS = 60.0
PHASES = ("brainstorm", "brainstorm-reviewed", "strategized", "planned", "executing", "review",
          "polish", "reflect")  # fmt: skip
DAY_TTL_MS = DAY_MS  # what belongs to a session: as long as its mirrored file is kept


class Caller(Struct, frozen=True):
    """One row of the mix; `play` makes one round of its calls."""

    name: str
    per_hour: int  # of the working hours; 0: at `SCANS`
    calls: str
    play: Callable[["Day"], None]
    kind: str = "hooks"


class FakeClock(Clock):
    """Both clocks move along, as on a machine that stays awake."""

    def __init__(self) -> None:
        self.wall_ms = MIDNIGHT_MS
        self._started = time.monotonic()

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self._started + (self.wall_ms - MIDNIGHT_MS) / 1000


class Day:
    """Days, one after the other, on one database."""

    def __init__(self, root: Path, settings: config.Settings = config.DEFAULTS) -> None:
        (root / ".git").mkdir(exist_ok=True)
        self.root = root
        self.clock = FakeClock()
        self.number = 0
        self.calls = 0
        self.session = ""
        self.run = ""
        self.step = 0
        self._recent = Recent()
        self._path = str(root / ".clavain" / "intercore.db")
        self._where = Where(str(root), db=self._path)
        self._database = Database(self._path, settings)
        self._upkeep = Maintenance(self._database, self.clock, self._recent)
        self.call("db.init")

    def play(self, callers: list["Caller"]) -> None:
        """One day of these callers."""
        start = self.clock.wall_ms
        for hour in range(24):
            for caller, at_ms in _schedule(callers, hour):
                self.clock.wall_ms = start + hour * HOUR_MS + at_ms
                caller.play(self)
            self.clock.wall_ms = start + (hour + 1) * HOUR_MS - 1
            self.look_after()
        self.clock.wall_ms = start + DAY_MS
        self.number += 1

    def call(self, method: str, *, request: bool = True, **params: Any) -> Any:
        found = registry.find(method)
        assert found is not None, method
        if request and found.writes:
            params["request_id"] = os.urandom(8).hex()
        deadline = self.clock.monotonic() + PATIENCE_SECONDS
        writer = Writer(pid=4000 + self.calls % 28_000, session=self.session or None)
        call = Call(found, found.params(**params), self._where, writer, deadline)
        if found.check is not None:
            found.check(call.params)
        (answer,) = run_batch(self._database, [call], clock=self.clock, recent=self._recent)
        assert answer is not None
        if answer.error is not None:
            raise answer.error
        self.calls += 1
        return answer.result

    def set(self, key: str, scope: str, payload: object, ttl_ms: int = DAY_TTL_MS) -> None:
        text = Raw(json.encode(payload))
        self.call("state.set", key=key, scope_id=scope, payload=text, ttl_ms=ttl_ms)

    def check(self, name: str, scope: str, interval: int) -> None:
        self.call("sentinel.check", name=name, scope_id=scope, interval=interval)

    def size(self) -> int:
        """Bytes of the file, its log emptied."""
        return os.stat(self._path).st_size + os.stat(self._path + "-wal").st_size

    def pages(self) -> dict[str, int]:
        """Bytes by table and index, where SQLite can tell; else nothing."""
        with self._database.hold(time.monotonic() + PATIENCE_SECONDS):
            conn = self._database.connection()
            try:
                rows = conn.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall()
            except sqlite3.OperationalError:
                return {}
        return dict(rows)

    def close(self) -> None:
        with self._database.hold(time.monotonic() + PATIENCE_SECONDS):
            self._database.close()
        self._database.lock.close()

    def look_after(self) -> None:
        self._upkeep.used = True
        while self._upkeep.look(close=False) == 0.0:
            pass


def _schedule(callers: list[Caller], hour: int) -> Iterator[tuple[Caller, int]]:
    """Who calls in an hour, and at which millisecond of it, in order."""
    rounds = []
    for caller in callers:
        if caller.per_hour and hour in WORKING_HOURS:
            every = HOUR_MS // caller.per_hour
            rounds += [(caller, i * every) for i in range(caller.per_hour)]
        elif not caller.per_hour and hour in SCANS:
            rounds.append((caller, 0))
    yield from sorted(rounds, key=lambda entry: entry[1])


def _start(day: Day) -> None:
    """A session is new every other hour; else it is resumed or compacted."""
    hour = day.clock.wall_ms // HOUR_MS % 24
    if hour % 2 or not day.session:
        day.session = f"{day.number:08x}-5f0e-4c1b-9d2a-{hour:012x}"
    scope = day.session
    day.call("run.current", project=str(day.root))
    day.call("run.list", status="active")
    day.call("state.get", key="handoff", scope_id=scope)
    day.call("cursor.register", consumer=f"session-{scope[:8]}-{hour}")
    day.set("bead", scope, {"id": "ic-12", "phase": "executing", "reason": "", "ts": 1})
    day.set("lane", scope, {"lane": "core"})
    day.set("dispatch", str(4000 + hour), {"name": "main", "workdir": "/p", "activity": "starting"})
    day.set("discovery_brief", "global", {"brief": "3 new discoveries, 1 of them high", "ts": 1})
    day.check("catalog_remind", scope, 0)
    day.check("session_greeting", scope, 0)


def _turn(day: Day) -> None:
    day.check("stop", day.session, 0)
    day.check("compound_throttle", day.session, 300)
    day.check("drift_throttle", day.session, 600)
    tokens = {"level": "yellow", "pressure": 45, "est_tokens": day.calls * 10, "ts": day.calls}
    day.set("pressure", day.session, tokens)


def _edit(day: Day) -> None:
    day.check("autopub", "global", 60)
    day.set("coordination", f"project-{day.session[:8]}",
            {"layer": "edits", "icon": "*", "text": f"file {day.calls % 40}", "priority": 1})  # fmt: skip


def _consume(day: Day) -> None:
    day.call("events.consume", consumer="interspect")


def _statusline(day: Day) -> None:
    day.call("statusline.get", session_id=day.session, project=str(day.root))


def _step(day: Day) -> None:
    """A step of a sprint: one run a day, one phase an hour."""
    if day.step % len(PHASES) == 0:
        made = day.call("run.create", project=str(day.root), goal="make the tests of the parser pass",
                        scope_id=f"ic-{day.number}", token_budget=500_000)  # fmt: skip
        day.run = made.id
    phase = PHASES[day.step % len(PHASES)]
    day.step += 1
    for method in ("run.status", "artifact.list", "run.events", "run.tokens", "agent.list"):
        day.call(method, run_id=day.run)
    day.call("artifact.add", run_id=day.run, phase=phase, path=f"docs/{phase}/ic-{day.number}.md")
    if phase in ("executing", "review"):
        _dispatch(day)
    day.set("budget", day.session, {"pct_consumed": 37, "total_tokens": day.calls, "ts": 1})
    advanced = day.call("run.advance", run_id=day.run)
    assert advanced.advanced, advanced


def _dispatch(day: Day) -> None:
    agent = day.call("agent.add", run_id=day.run, name="implementer")
    made = day.call("dispatch.create", project_dir=str(day.root), run_id=day.run, name="implementer",
                    model="large", prompt_file="/p/.clavain/prompt.md", agent_id=agent.id)  # fmt: skip
    day.call("dispatch.started", id=made.id, pid=4242)
    end = {"id": made.id, "status": "completed", "exit_code": 0, "turns": 20, "commands": 40,
           "messages": 60, "input_tokens": 90_000, "output_tokens": 9_000,
           "verdict_status": "pass", "verdict_summary": "All tests pass; two notes."}  # fmt: skip
    record = registry.find("dispatch.record")
    assert record is not None
    converted = json.decode(json.encode({"end": end}), type=record.params)
    day.call("dispatch.record", end=converted.end)  # type: ignore[attr-defined]
    day.call("agent.update", agent_id=agent.id, status="completed")


def _claim(day: Day) -> None:
    day.call("lease.acquire", name="sprint", scope_id=f"ic-{day.number}", owner=day.session,
             ttl_ms=HOUR_MS)  # fmt: skip


def _scan(day: Day) -> None:
    """Most of what a scanner finds it has found before."""
    number = day.number * len(SCANS) + day.clock.wall_ms // HOUR_MS % 24 // 6
    for item in range(number, number + 5):
        with suppress(DuplicateDiscovery):
            day.call("discovery.submit", source="feeds", source_id=f"item-{item}",
                     title=f"An article of some relevance, number {item}", score=0.4,
                     url=f"https://example.org/articles/{item}")  # fmt: skip


def _people(day: Day) -> None:
    day.call("state.list", key="bead")
    day.call("sentinel.list")
    day.call("run.list")


MIX = [
    Caller("Session start", 1, "10: run list/current, state get/set, cursor, sentinel", _start),
    Caller("Stop hook", 15, "4: sentinel check, state set", _turn),
    Caller("Edit hook", 30, "2: sentinel check, state set", _edit),
    Caller("Event consumer", 6, "1 (in truth every second): events tail", _consume),
    Caller("Statusline", 6, "1 (in truth every second): statusline", _statusline),
    Caller("People", 2, "3: state, sentinel and run list", _people),
    Caller("Sprint library", 1, "8-13: run, artifact, agent, dispatch, advance", _step, "records"),
    Caller("Scanner", 0, "5 at 0, 6, 12 and 18 h: discovery submit, 1 of them new", _scan,
           "records"),
    Caller("Sprint library, claiming", 1, "1: lease acquire", _claim, "leases"),
]  # fmt: skip
HOOKS = ("hooks",)
RECORDS = ("hooks", "records")
LEASES = ("hooks", "records", "leases")


class Growth(Struct, frozen=True):
    """Bytes, and what the last days of them are, by table and index."""

    empty: int
    first_day: int
    second_day: int
    largest_day: int
    warm: int
    per_day: float
    calls_per_day: int
    tables: dict[str, float]


def measure(
    *,
    kinds: tuple[str, ...],
    settings: config.Settings = config.DEFAULTS,
    warm_days: int = WARM_DAYS,
    days: int = DAYS,
) -> Growth:
    callers = [caller for caller in MIX if caller.kind in kinds]
    with tempfile.TemporaryDirectory(prefix="icday-") as directory:
        day = Day(Path(directory), settings)
        day.look_after()
        empty = day.size()
        day.play(callers)
        first, calls = day.size(), day.calls
        day.play(callers)
        second = day.size()
        for _ in range(warm_days - 2):
            day.play(callers)
        warm, before = day.size(), day.pages()
        sizes = [warm]
        for _ in range(days):
            day.play(callers)
            sizes.append(day.size())
        tables = {
            name: (size - before.get(name, 0)) / days
            for name, size in day.pages().items()
            if size != before.get(name, 0)
        }
        found = Growth(
            empty=empty,
            first_day=first - empty,
            second_day=second - first,
            largest_day=max(b - a for a, b in pairwise(sizes)),
            warm=warm,
            per_day=(sizes[-1] - warm) / days,
            calls_per_day=calls,
            tables=tables,
        )
        day.close()
    return found
