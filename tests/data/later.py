"""Databases of the original that are newer than its schema v9, as we imagine them.

Nobody knows what later schemas bring: these have columns and tables that nobody has heard of, lack
some that were there, and hold rows that cannot be kept.
"""

import json
import sqlite3
from contextlib import closing

from tests.data import original
from tests.data.original import NOW_S

SCHEMA = 12

_CHANGES = [
    # unknown columns: one that holds something in one of two rows, one that never does
    "ALTER TABLE runs ADD COLUMN tenant TEXT",
    "ALTER TABLE state ADD COLUMN nobody TEXT",
    "INSERT INTO runs (id, project_dir, goal, tenant) VALUES ('r2', '/p', 'more', 'acme')",
    # unknown tables, one of them with a name that needs quoting, and one that is empty
    "CREATE TABLE lanes (id TEXT PRIMARY KEY, run_id TEXT REFERENCES runs (id))",
    "INSERT INTO lanes VALUES ('a', 'r1'), ('b', 'r2')",
    'CREATE TABLE "odd ""name" (x)',
    # triggers and views of theirs
    "CREATE TRIGGER told AFTER INSERT ON runs BEGIN DELETE FROM state; END",
    "CREATE VIEW latest AS SELECT * FROM runs",
    # a column that is gone
    "ALTER TABLE dispatches DROP COLUMN sandbox",
    # rows that nobody can keep: an artifact of no run
    "INSERT INTO run_artifacts (id, run_id, phase, path) VALUES ('f2', 'gone', 'b', 'lost.md')",
]
_EVENTS = """
INSERT INTO phase_events (id, run_id, from_phase, to_phase, created_at) VALUES (?, 'r1', ?, ?, ?)
"""
_CURSOR = "INSERT INTO state (key, scope_id, payload, updated_at) VALUES ('cursor', ?, ?, ?)"


def create(path: str) -> sqlite3.Connection:
    """In WAL mode, with all of it still in the log."""
    conn = original.create(path, 9, stamped=SCHEMA)
    conn.execute("PRAGMA foreign_keys = OFF")
    for change in _CHANGES:
        conn.execute(change)
    # The second one is later than the dispatch's only event, whatever their ids say.
    conn.execute(_EVENTS, (40, "b", "c", NOW_S + 5))
    conn.execute(_EVENTS, (41, "c", "d", NOW_S + 6))
    conn.execute("UPDATE phase_events SET created_at = ? WHERE id = 1", (NOW_S,))
    conn.execute("UPDATE dispatch_events SET created_at = ?", (NOW_S + 1,))
    seen = {"phase": 40, "dispatch": 1, "interspect": 1, "discovery": 1, "review": 7}
    conn.execute(_CURSOR, ("reader", json.dumps(seen), NOW_S))
    return conn


def write(path: str) -> None:
    with closing(create(path)):
        pass


# What `icctl init --adopt` says about it.
TAKEN = {
    "discoveries": 1, "discovery_events": 1, "dispatch_events": 1, "dispatches": 1,
    "feedback_signals": 1, "interest_profile": 1, "interspect_events": 1, "phase_events": 3,
    "run_agents": 1, "run_artifacts": 1, "runs": 2, "sentinels": 2, "state": 5,
}  # fmt: skip
LEFT = [
    ("table", "lanes", None, 2),
    ("table", 'odd "name', None, 0),
    ("column", "runs", "tenant", 1),
    ("column", "state", "nobody", 0),
    ("rows", "run_artifacts", None, 1),
]
