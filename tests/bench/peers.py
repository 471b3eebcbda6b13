"""What one would use instead: the same tasks with the tools at hand, in turn.

A guard (who was first within the hour), a value that is written and read, and a lock.  What a shell
does by itself (touch-file, flock, our library) is measured as a script of bash, and so is whatever
is compared with it; programs are compared with programs.  Peers keep as many rows as we do.
"""

import contextlib
import shutil
import sqlite3
import subprocess

from msgspec import Struct

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 100
SLOW_RUNS = 20  # of locks, which start Python twice
SOURCE = f"source {place.ROOT / 'lib-intercore.sh'}"
OURS = ("icctl", "icctl-python", "library")
GUARD = """
INSERT INTO guards VALUES ('bench-s1', unixepoch()) ON CONFLICT (name) DO UPDATE
SET fired = excluded.fired WHERE excluded.fired - fired >= 3600 RETURNING 'allowed'
"""
PUT = """
INSERT INTO rows VALUES ('bench-s1', '{}') ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
GET = "SELECT value FROM rows WHERE name = 'bench-s1'"


class Task(Struct, frozen=True):
    """Commands by who does it; a script is what bash runs, beside programs that bash starts."""

    name: str
    meaning: str  # of its first row
    native: list[str]
    library: str
    peers: dict[str, list[str]]
    scripts: dict[str, str]


def run(table: Table) -> None:
    with place.project() as setting, place.daemon(setting), place.redis() as client:
        setting.env["INTERCORE_LOCK_DIR"] = str(setting.root / "locks")
        tasks = _tasks(setting, client)
        for task in tasks:
            _measure(table, task, setting)
    for program in ("sqlite3", "redis-cli", "flock", "find"):
        if shutil.which(program) is None:
            table.note(f"against {program}", "not installed")


def _tasks(setting: place.Setting, client: list[str]) -> list[Task]:
    sqlite = _sqlite(setting)
    guard, put, get = ({"sqlite3": [*sqlite, sql]} if sqlite else {} for sql in (GUARD, PUT, GET))
    if client:
        guard["redis-cli"] = [*client, "set", "guard", "1", "nx", "ex", "3600"]
        put["redis-cli"] = [*client, "set", "bench-s1", "{}"]
        get["redis-cli"] = [*client, "get", "bench-s1"]
    touch = {
        "touch-file, find -mmin": "[[ -n $(find guard -mmin -60 2>/dev/null) ]] || touch guard"
    }
    lock = {"flock": "exec 9>lock; flock -n 9; flock -u 9"}
    return [
        Task("guard", "Who is the first within an hour.", ["sentinel", "check", "bench", "s1", "--interval=3600"],
             "intercore_sentinel_check bench s1 3600", guard,
             touch if shutil.which("find") else {}),
        Task("write a value", "A small JSON document is replaced; ours is validated and versioned.", ["state", "set", "bench", "s1", "--value={}"],
             "intercore_state_set bench s1 {}", put, {}),
        Task("read a value", "One row by its key.", ["state", "get", "bench", "s1"],
             "intercore_state_get bench s1", get, {}),
        Task("lock and unlock", "A lock that names its owner and outlives the command, taken and "
             "given back through the daemon.", [], "intercore_lock bench s1; intercore_unlock bench s1", {},
             lock if shutil.which("flock") else {}),
    ]  # fmt: skip


def _sqlite(setting: place.Setting) -> list[str]:
    """How to call the shell of SQLite on a database with as many rows as ours."""
    program = shutil.which("sqlite3")
    if program is None:
        return []
    path = setting.root / "peer.db"
    with contextlib.closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("CREATE TABLE guards (name TEXT PRIMARY KEY, fired INTEGER) WITHOUT ROWID")
        conn.execute("CREATE TABLE rows (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
        rows = ((f"bench-s{i}",) for i in range(place.ROWS))
        conn.executemany("INSERT INTO rows VALUES (?, '{\"i\":1}')", rows)
        guards = ((f"bench-s{i}",) for i in range(place.SENTINELS))
        conn.executemany("INSERT INTO guards VALUES (?, unixepoch())", guards)
    return [program, "-cmd", ".timeout 5000", str(path)]


def _measure(table: Table, task: Task, setting: place.Setting) -> None:
    commands = dict(task.peers)
    scripts = dict(task.scripts)
    for name, words in task.peers.items():
        scripts[name] = _quoted(words)
    ours = {}
    if task.native:
        for door in ("icctl", "icctl-python"):
            ours[door] = commands[door] = [str(place.BIN / door), *task.native]
    else:  # locks are no call of a database: each door takes it, and gives it back
        for door in ("icctl", "icctl-python"):
            words = f"{place.BIN / door} lock %s bench s1 --owner=$$:$HOSTNAME"
            scripts[door] = f"{words % 'acquire'}; {words % 'release'}"
    scripts["library"] = f"{SOURCE}; {task.library}"
    for name, script in scripts.items():
        commands[f"bash: {name}"] = ["bash", "-c", script]
    _check(commands, setting)
    runs = RUNS if task.native else SLOW_RUNS
    _report(table, task, place.interleaved(commands, setting, runs))


def _check(commands: dict[str, list[str]], setting: place.Setting) -> None:
    """What fails is fast, and measures nothing; 1 is an expected no."""
    for name, command in commands.items():
        done = subprocess.run(
            command, env=setting.env, cwd=setting.root, capture_output=True, check=False
        )
        if done.returncode not in (0, 1) or done.stderr:
            raise RuntimeError(f"{name}: {done}")


def _report(table: Table, task: Task, times: place.Times) -> None:
    programs = [] if not task.native else ["icctl", "icctl-python"]
    in_bash = ["bash: library"] if task.native else [n for n in times if n.split()[1] in OURS]
    meaning = task.meaning
    for ours, peers in (
        (programs, list(task.peers)),
        (in_bash, [f"bash: {name}" for name in (*task.scripts, *task.peers)]),
    ):
        for mine in ours:
            for peer in peers:
                table.ratio(
                    f"{task.name}: {mine} / {peer}",
                    times[mine], times[peer], unit="ms", meaning=meaning,
                )  # fmt: skip
                meaning = ""


def _quoted(words: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
