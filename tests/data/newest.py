"""A database of the original's schema v39, with what its later versions keep: reservations,
sessions, lanes, actions, and logs of their own.

Of each kind there are rows that can be kept, and some that cannot.
"""

from contextlib import closing

from tests.data import original
from tests.data.original import NOW_S

SCHEMA = 39
FAR = NOW_S + 86_400 * 3650

_TABLES = [
    """
    CREATE TABLE coordination_locks (
        id TEXT PRIMARY KEY, type TEXT, owner TEXT, scope TEXT, pattern TEXT, exclusive INTEGER,
        reason TEXT, ttl_seconds INTEGER, created_at INTEGER, expires_at INTEGER,
        released_at INTEGER, dispatch_id TEXT, run_id TEXT)
    """,
    """
    CREATE TABLE coordination_events (
        id INTEGER PRIMARY KEY, lock_id TEXT, run_id TEXT, event_type TEXT, owner TEXT,
        pattern TEXT, scope TEXT, reason TEXT, envelope_json TEXT, created_at INTEGER)
    """,
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY, session_id TEXT, project_dir TEXT, agent_type TEXT, model TEXT,
        started_at INTEGER, ended_at INTEGER, metadata TEXT, input_tokens INTEGER,
        output_tokens INTEGER, cache_creation_tokens INTEGER, cache_read_tokens INTEGER)
    """,
    """
    CREATE TABLE session_attributions (
        id INTEGER PRIMARY KEY, session_id TEXT, project_dir TEXT, bead_id TEXT, run_id TEXT,
        phase TEXT, created_at INTEGER)
    """,
    """
    CREATE TABLE lanes (
        id TEXT PRIMARY KEY, name TEXT, lane_type TEXT, status TEXT, description TEXT,
        metadata TEXT, created_at INTEGER, updated_at INTEGER, closed_at INTEGER, intent TEXT)
    """,
    "CREATE TABLE lane_members (lane_id TEXT, bead_id TEXT, added_at INTEGER)",
    """
    CREATE TABLE lane_events (
        id INTEGER PRIMARY KEY, lane_id TEXT, event_type TEXT, payload TEXT, created_at INTEGER)
    """,
    """
    CREATE TABLE phase_actions (
        id INTEGER PRIMARY KEY, run_id TEXT, phase TEXT, action_type TEXT, command TEXT, args TEXT,
        mode TEXT, priority INTEGER, created_at INTEGER, updated_at INTEGER)
    """,
    """
    CREATE TABLE review_events (
        id INTEGER PRIMARY KEY, run_id TEXT, finding_id TEXT, agents_json TEXT, resolution TEXT,
        dismissal_reason TEXT, chosen_severity TEXT, impact TEXT, session_id TEXT,
        project_dir TEXT, created_at INTEGER, event_type TEXT)
    """,
    """
    CREATE TABLE intent_events (
        id INTEGER PRIMARY KEY, intent_type TEXT, bead_id TEXT, idempotency_key TEXT,
        session_id TEXT, run_id TEXT, success INTEGER, error_detail TEXT, created_at INTEGER)
    """,
    """
    CREATE TABLE agency_events (
        id INTEGER PRIMARY KEY, run_id TEXT, agency_name TEXT, event_type TEXT, cycle_id TEXT,
        stage TEXT, context_json TEXT, idempotency_key TEXT, project_dir TEXT, created_at INTEGER)
    """,
    "CREATE TABLE goals (id TEXT)",
]
_LOCK = "INSERT INTO coordination_locks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)"
_ROWS: dict[str, list[tuple[object, ...]]] = {
    "coordination_events": [
        (1, "lock0001", "r1", "coordination.acquired", "ada", "src/*", "/p", None, None, NOW_S),
    ],
    "sessions": [
        (1, "s1", "sub", "codex", "m", NOW_S, None, '{"a":1}', 5, 6, 7, 8),
        (2, "s2", "sub", None, None, NOW_S, NOW_S + 9, None, 0, 0, 0, 0),
        (3, "", "sub", None, None, NOW_S, None, None, 0, 0, 0, 0),
        (4, "s2", "sub/..", None, None, NOW_S, None, None, 9, 0, 0, 0),  # the same project
    ],
    "session_attributions": [
        (1, "s1", "sub", "b1", "r1", "plan", NOW_S),
        (2, "s1", "sub", None, None, "work", NOW_S + 1),
        (3, "s1", "sub", "b2", "r2", None, NOW_S + 2),
    ],
    "lanes": [
        ("lane0001", "kernel", "standing", "active", "core", '{"paused":true}', 1, 2, None, "go"),
        ("lane0002", "launch", "arc", "closed", "", "{}", 1, 2, 2, ""),
        ("lane0003", "odd", "strange", "active", "", "{}", 1, 2, None, ""),
        ("lane0004", "bad", "arc", "active", "", "[]", 1, 2, None, ""),
    ],
    "lane_members": [("lane0001", "B-1", 1), ("lane0001", "B-2", 2), ("lane0003", "B-3", 3)],
    "lane_events": [
        (1, "lane0001", "created", "{}", NOW_S),
        (2, "lane0001", "snapshot", '{"count":2}', NOW_S + 1),
    ],
    "phase_actions": [
        (7, "r1", "b", "command", "/work", '["${artifact:plan}"]', "both", 2, 1, 2),
        (8, "r1", "b", "command", "/first", None, "interactive", 1, 1, 2),
        (9, "r1", "c", "command", "/loose", "no array", "interactive", 0, 1, 2),
        (10, "gone", "c", "command", "/x", None, "interactive", 0, 1, 2),
    ],
    "review_events": [
        (1, "r1", "f1", '{"a":"high"}', "kept", None, "high", "gate", "s1", "/p", NOW_S,
         "execution_defect"),
    ],
    "intent_events": [(1, "claim", "b1", "k1", "s1", "r1", 1, None, NOW_S)],
    "agency_events": [(1, "r1", "ag", "cycle", "c1", "plan", "{}", "k", "/p", NOW_S)],
    "goals": [("g1",)],
}  # fmt: skip


def write(path: str, project: str) -> None:
    """`project` has the database: the original names it in full."""
    with closing(original.create(path, 9, stamped=SCHEMA)) as conn:
        conn.execute("PRAGMA foreign_keys = OFF")
        for table in _TABLES:
            conn.execute(table)
        for row in _locks(project):
            conn.execute(_LOCK, row)
        for table, rows in _ROWS.items():
            for each in rows:
                marks = ", ".join("?" * len(each))
                conn.execute(f"INSERT INTO {table} VALUES ({marks})", each)


def _locks(project: str) -> list[tuple[object, ...]]:
    kind, ever, over = "file_reservation", None, NOW_S - 1
    return [
        ("lock0001", kind, "ada", project, "src/*.py", 1, "why", ever, NOW_S, ever, None),
        ("lock0002", kind, "ben", project, "docs/a.md", 0, None, 60, NOW_S, FAR, None),
        ("lock0003", "named_lock", "ada", "jobs", "nightly", 1, None, ever, NOW_S, ever, None),
        ("lock0004", kind, "ada", project, "free.py", 1, None, ever, NOW_S, ever, NOW_S),
        ("lock0005", kind, "ada", project, "late.py", 1, None, 1, NOW_S - 9, over, None),
        ("lock0006", kind, "cy", project, "src/a.py", 1, None, ever, NOW_S, ever, None),
        ("lock0007", "strange", "cy", project, "x", 1, None, ever, NOW_S, ever, None),
        ("lock0008", kind, "cy", project, "[", 1, None, ever, NOW_S, ever, None),
    ]


# Of what `original.create` puts into every table of v9, and of what is here.
TAKEN = {
    "coordination_locks": 3, "coordination_events": 1, "sessions": 2, "session_attributions": 3,
    "lanes": 2, "lane_members": 2, "lane_events": 2, "phase_actions": 2, "review_events": 1,
    "intent_events": 1, "agency_events": 1,
}  # fmt: skip
LEFT = {
    ("rows", "coordination_locks", None, 5),
    ("rows", "sessions", None, 2),
    ("rows", "lanes", None, 2),
    ("rows", "lane_members", None, 1),
    ("rows", "phase_actions", None, 2),
    ("column", "coordination_events", "envelope_json", 0),
    ("table", "goals", None, 1),
}
