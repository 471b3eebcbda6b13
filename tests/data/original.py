"""Databases as the original Go program left them, schema v1 to v9 (and later ones, to refuse).

The tables of v9 are those of section 2 of the contract, column by column.  What each earlier
schema lacked is known only as far as the contract tells: v1 has state and sentinels, dispatches
came with v2, runs with v3, artifacts with v4, and the columns that its migration adds to databases
from v5 on are missing before.
"""

import sqlite3
from contextlib import closing

from icd.db import migrate
from icd.db.original import runs, tables

NOW_S = 1_800_000_000

_V1 = """
CREATE TABLE state (
    key TEXT NOT NULL, scope_id TEXT NOT NULL, payload TEXT NOT NULL,
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()), expires_at INTEGER,
    PRIMARY KEY (key, scope_id));
CREATE INDEX idx_state_scope ON state (scope_id, key);
CREATE INDEX idx_state_expires ON state (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE sentinels (
    name TEXT NOT NULL, scope_id TEXT NOT NULL,
    last_fired INTEGER NOT NULL DEFAULT (unixepoch()),
    PRIMARY KEY (name, scope_id));
CREATE TABLE _migrate_lock (x INTEGER);
"""
_V2 = """
CREATE TABLE dispatches (
    id TEXT PRIMARY KEY, agent_type TEXT NOT NULL DEFAULT 'codex',
    status TEXT NOT NULL DEFAULT 'spawned', project_dir TEXT NOT NULL, prompt_file TEXT,
    prompt_hash TEXT, output_file TEXT, verdict_file TEXT, pid INTEGER, exit_code INTEGER,
    name TEXT, model TEXT, sandbox TEXT DEFAULT 'workspace-write', timeout_sec INTEGER,
    turns INTEGER DEFAULT 0, commands INTEGER DEFAULT 0, messages INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()), started_at INTEGER, completed_at INTEGER,
    verdict_status TEXT, verdict_summary TEXT, error_message TEXT, scope_id TEXT, parent_id TEXT);
CREATE INDEX idx_dispatches_status ON dispatches (status) WHERE status IN ('spawned', 'running');
CREATE INDEX idx_dispatches_scope ON dispatches (scope_id) WHERE scope_id IS NOT NULL;
"""
_V3 = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, project_dir TEXT NOT NULL, goal TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active', phase TEXT NOT NULL DEFAULT 'brainstorm',
    complexity INTEGER NOT NULL DEFAULT 3, force_full INTEGER NOT NULL DEFAULT 0,
    auto_advance INTEGER NOT NULL DEFAULT 1, created_at INTEGER NOT NULL DEFAULT (unixepoch()),
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()), completed_at INTEGER, scope_id TEXT,
    metadata TEXT);
CREATE INDEX idx_runs_status ON runs (status) WHERE status = 'active';
CREATE TABLE phase_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL REFERENCES runs (id),
    from_phase TEXT NOT NULL, to_phase TEXT NOT NULL,
    event_type TEXT NOT NULL DEFAULT 'advance', gate_result TEXT, gate_tier TEXT, reason TEXT,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()));
CREATE INDEX idx_phase_events_run ON phase_events (run_id);
"""
_V4 = """
CREATE TABLE run_agents (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (id),
    agent_type TEXT NOT NULL DEFAULT 'claude', name TEXT,
    status TEXT NOT NULL DEFAULT 'active', dispatch_id TEXT,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()),
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()));
CREATE INDEX idx_run_agents_run ON run_agents (run_id);
CREATE TABLE run_artifacts (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (id), phase TEXT NOT NULL,
    path TEXT NOT NULL, type TEXT NOT NULL DEFAULT 'file',
    created_at INTEGER NOT NULL DEFAULT (unixepoch()));
CREATE INDEX idx_run_artifacts_run ON run_artifacts (run_id);
CREATE INDEX idx_run_artifacts_phase ON run_artifacts (run_id, phase);
"""
_V5 = """
CREATE TABLE dispatch_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, dispatch_id TEXT NOT NULL, run_id TEXT,
    from_status TEXT NOT NULL, to_status TEXT NOT NULL,
    event_type TEXT NOT NULL DEFAULT 'status_change', reason TEXT,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()));
CREATE INDEX idx_dispatch_events_dispatch ON dispatch_events (dispatch_id);
"""
_V6 = """
ALTER TABLE runs ADD COLUMN phases TEXT;
ALTER TABLE run_artifacts ADD COLUMN content_hash TEXT;
ALTER TABLE run_artifacts ADD COLUMN dispatch_id TEXT;
"""
_V7 = """
ALTER TABLE runs ADD COLUMN token_budget INTEGER;
ALTER TABLE runs ADD COLUMN budget_warn_pct INTEGER DEFAULT 80;
ALTER TABLE dispatches ADD COLUMN cache_hits INTEGER;
CREATE TABLE interspect_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, agent_name TEXT NOT NULL,
    event_type TEXT NOT NULL, override_reason TEXT, context_json TEXT, session_id TEXT,
    project_dir TEXT, created_at INTEGER NOT NULL DEFAULT (unixepoch()));
CREATE INDEX idx_interspect_agent ON interspect_events (agent_name);
"""
_V8 = "ALTER TABLE run_artifacts ADD COLUMN status TEXT NOT NULL DEFAULT 'active';"
_V9 = """
CREATE TABLE discoveries (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, source_id TEXT NOT NULL, title TEXT NOT NULL,
    summary TEXT NOT NULL DEFAULT '', url TEXT NOT NULL DEFAULT '',
    raw_metadata TEXT NOT NULL DEFAULT '{}', embedding BLOB,
    relevance_score REAL NOT NULL DEFAULT 0.0, confidence_tier TEXT NOT NULL DEFAULT 'low',
    status TEXT NOT NULL DEFAULT 'new', run_id TEXT, bead_id TEXT,
    discovered_at INTEGER NOT NULL DEFAULT (unixepoch()), promoted_at INTEGER,
    reviewed_at INTEGER, UNIQUE (source, source_id));
CREATE INDEX idx_discoveries_source ON discoveries (source);
CREATE TABLE discovery_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, discovery_id TEXT NOT NULL, event_type TEXT NOT NULL,
    from_status TEXT NOT NULL DEFAULT '', to_status TEXT NOT NULL DEFAULT '',
    payload TEXT NOT NULL DEFAULT '{}', created_at INTEGER NOT NULL DEFAULT (unixepoch()));
CREATE TABLE feedback_signals (
    id INTEGER PRIMARY KEY AUTOINCREMENT, discovery_id TEXT NOT NULL, signal_type TEXT NOT NULL,
    signal_data TEXT NOT NULL DEFAULT '{}', actor TEXT NOT NULL DEFAULT 'system',
    created_at INTEGER NOT NULL DEFAULT (unixepoch()));
CREATE TABLE interest_profile (
    id INTEGER PRIMARY KEY CHECK (id = 1), topic_vector BLOB,
    keyword_weights TEXT NOT NULL DEFAULT '{}', source_weights TEXT NOT NULL DEFAULT '{}',
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()));
"""
_STEPS = [_V1, _V2, _V3, _V4, _V5, _V6, _V7, _V8, _V9]

# Rows of the tables beside state and sentinels, by the schema that brought the table.
_ROWS = {
    2: ["INSERT INTO dispatches (id, project_dir, prompt_file) VALUES ('d1', '/p', 'prompt.md')"],
    3: [
        "INSERT INTO runs (id, project_dir, goal) VALUES ('r1', '/p', 'ship it')",
        "INSERT INTO phase_events (run_id, from_phase, to_phase) VALUES ('r1', 'a', 'b')",
    ],
    4: [
        "INSERT INTO run_agents (id, run_id, name) VALUES ('a1', 'r1', 'reviewer')",
        "INSERT INTO run_artifacts (id, run_id, phase, path) VALUES ('f1', 'r1', 'b', 'plan.md')",
    ],
    5: ["INSERT INTO dispatch_events (dispatch_id, from_status, to_status) VALUES ('d1', '', 'x')"],
    7: ["INSERT INTO interspect_events (agent_name, event_type) VALUES ('reviewer', 'override')"],
    9: [
        "INSERT INTO discoveries (id, source, source_id, title) VALUES ('x1', 'w', '1', 'a title')",
        "UPDATE discoveries SET embedding = x'00ff'",
        "INSERT INTO discovery_events (discovery_id, event_type) VALUES ('x1', 'new')",
        "INSERT INTO feedback_signals (discovery_id, signal_type) VALUES ('x1', 'up')",
        "INSERT INTO interest_profile (id, topic_vector) VALUES (1, x'01')",
    ],
}

# key, scope_id, payload, updated_at, expires_at
STATE = [
    ("dispatch", "s1", '{"phase": "executing"}', NOW_S - 50, None),
    ("dispatch", "s2", "[1,  2]", NOW_S - 40, NOW_S + 60),
    ("expired", "s1", '"gone"', NOW_S - 7200, NOW_S - 3600),
    ("turns", "s1", "41", NOW_S - 30, None),
]
# name, scope_id, last_fired
SENTINELS = [
    ("drift", "s1", NOW_S - 10),
    ("stop", "s1", NOW_S - 90 * 24 * 3600),
]


def create(
    path: str, schema: int = 9, *, stamped: int | None = None, rows: bool = True
) -> sqlite3.Connection:
    """Write such a database and hand out the connection, which is in WAL mode and autocommit.

    `stamped` gives it another user_version than its tables have, as a later program would, or the
    original's own migration from v2 to v4.
    """
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("BEGIN")
    for number, step in enumerate(_STEPS[:schema], start=1):
        for statement in step.split(";"):
            conn.execute(statement)
        for row in _ROWS.get(number, []) if rows else []:
            conn.execute(row)
    if rows:
        conn.executemany("INSERT INTO state VALUES (?, ?, ?, ?, ?)", STATE)
        conn.executemany("INSERT INTO sentinels VALUES (?, ?, ?)", SENTINELS)
    conn.execute(f"PRAGMA user_version = {schema if stamped is None else stamped}")
    conn.execute("COMMIT")
    return conn


def write(path: str, schema: int = 9, *, stamped: int | None = None, rows: bool = True) -> None:
    """The same, closed: one file without a write-ahead log beside it."""
    with closing(create(path, schema, stamped=stamped, rows=rows)):
        pass


def take_over_long_ago(path: str, version: int) -> None:
    """Let an intercore of ours take it over, as it did when its schema was this old."""
    conn = sqlite3.connect(path, isolation_level=None)
    with closing(conn):
        conn.execute("BEGIN")
        tables.set_aside(conn, ("state", "sentinels"))
        for number, file in migrate.pending(0):
            if number > version:
                break
            if number == 1004:
                tables.set_aside(conn, runs.RUNS)
            if number == 1005:
                tables.set_aside(conn, tables.DISCOVERIES)
            for statement in migrate.statements(file):
                conn.execute(statement)
            if number == 1001:
                tables.bring_state(conn)
            if number == 1002:
                tables.bring_events(conn)
            if number == 1004:
                runs.bring_runs(conn, path, now_ms=NOW_S * 1000)
            if number == 1005:
                tables.bring_discoveries(conn, now_ms=NOW_S * 1000)
            conn.execute("INSERT INTO migrations VALUES (?, '0.4.0', ?)", (number, NOW_S))
        conn.execute(f"PRAGMA application_id = {migrate.APPLICATION_ID}")
        conn.execute(f"PRAGMA user_version = {version}")
        conn.execute("COMMIT")
