"""The hot statements on a large database, against a small one; in this process."""

import itertools
import random
import time

from icd.features.events import store as events
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.values.processes import Writer
from tests.bench import setting as place
from tests.bench.table import Table

SMALL, LARGE = 1_000, 1_000_000
HOT = 100  # keys in use at a time, as of a hundred sessions
REPEATS = 4
ROUNDS = 20


def run(table: Table) -> None:
    times: dict[str, dict[int, list[float]]] = {}
    with place.project() as small, place.project() as large:
        settings = {SMALL: small, LARGE: large}
        grow(small, SMALL)
        grow(large, LARGE)
        opened = {rows: setting.open() for rows, setting in settings.items()}
        for _ in range(ROUNDS):
            for rows, database in opened.items():
                for name, taken in _measure(database, rows).items():
                    times.setdefault(name, {}).setdefault(rows, []).extend(taken)
        for database in opened.values():
            with database.hold(time.monotonic() + 5):
                database.close()
    meaning = "In this process, warm; the two databases take turns after each 400 calls."
    for name, taken in times.items():
        table.ratio(
            f"{name}, {LARGE:,} rows / {SMALL:,} rows",
            taken[LARGE], taken[SMALL], unit="µs", most=1.3, meaning=meaning,
        )  # fmt: skip
        meaning = ""


def grow(setting: place.Setting, rows: int) -> None:
    database = setting.open()
    now_ms = time.time_ns() // 1_000_000
    week = now_ms + sentinels.WEEK_MS
    with database.hold(time.monotonic() + 5):
        conn = database.connection()
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("DELETE FROM state")
        conn.execute("DELETE FROM sentinels")
        conn.executemany(
            "INSERT INTO state (key, scope_id, payload, version, updated_at, expires_at, expires_ms)"
            " VALUES ('bench', ?, '{\"i\":1}', ?, ?, ?, ?)",
            (
                (f"s{i:07}", i, now_ms // 1000, week // 1000, week) if i % 2 else
                (f"s{i:07}", i, now_ms // 1000, None, None)
                for i in range(rows)
            ),
        )  # fmt: skip
        conn.executemany(
            "INSERT INTO sentinels (name, scope_id, last_fired, fired_ms, interval_ms, once, prune_ms)"
            " VALUES ('bench', ?, ?, ?, 3600000, 0, ?)",
            ((f"s{i:07}", now_ms // 1000, now_ms, week) for i in range(rows)),
        )
        conn.executemany(
            "INSERT INTO events (source, type, run_id, subject_id, from_state, to_state, reason,"
            " payload, at, at_ms) VALUES ('bench', 't', ?, '', 'a', 'b', '', '{\"i\":1}', ?, ?)",
            ((f"r{i % 100}", now_ms // 1000, now_ms) for i in range(rows)),
        )
        conn.execute("COMMIT")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()


def _measure(database: place.Database, rows: int) -> dict[str, list[float]]:
    """Microseconds of each call, on rows picked at random but warm: the same few of them every time."""
    scopes = [f"s{i:07}" for i in random.Random(1).sample(range(rows), HOT)]
    writer = Writer()
    with database.hold(time.monotonic() + 5):
        conn = database.connection()
        now_ms = time.time_ns() // 1_000_000
        later = itertools.count(now_ms + 10_000, 20)  # each key comes again after two seconds
        calls = {
            "state.get": lambda s: state.get(conn, "bench", s, now_ms=now_ms),
            "state.set": lambda s: state.set(conn, "bench", s, "{}", writer=writer, now_ms=now_ms),
            "sentinel.check, throttled": lambda s: sentinels.check(
                conn, "bench", s, interval_s=3600, now_ms=now_ms
            ),
            "sentinel.check, allowed": lambda s: sentinels.check(
                conn, "bench", s, interval_s=1, now_ms=next(later)
            ),
            "sentinel auto-prune": lambda s: sentinels.auto_prune(conn, now_ms=now_ms),
            "events.tail, 10 events from the middle": lambda s: events.read(
                conn, since=rows // 2 + int(s[1:]) % 100, limit=10
            ),
            "events.tail of a run, 5 events from the middle": lambda s: events.read(
                conn, since=rows // 2, limit=5, run_id=f"r{int(s[1:]) % 100}"
            ),
            "state prune when nothing expired": lambda s: state.prune_some(conn, now_ms=now_ms),
        }
        found: dict[str, list[float]] = {}
        for name, call in calls.items():
            conn.execute("BEGIN IMMEDIATE")
            for scope in scopes:  # the statement's cost is asked for, not that of a cold cache
                call(scope)
            taken = found[name] = []
            for scope in scopes * REPEATS:
                began = time.perf_counter()
                call(scope)
                taken.append((time.perf_counter() - began) * 1e6)
            conn.execute("ROLLBACK")
    return found
