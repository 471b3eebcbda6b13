"""Databases whose schema is ours and whose rows come from a stranger.

A STRICT table refuses a wrong type, but only from those who write through SQLite with our schema:
the file itself can hold anything.  `plant` writes what the schema forbids, and leaves the schema
byte for byte as the migrations make it.
"""

import json
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

from icd.db import migrate

NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1000
RUN, AGENT, DISPATCH, DISCOVERY = "run00001", "agent001", "disp0001", "disc0001"
# Everything that could command a terminal, and a word by which it is found in an output.
COMMANDS = "\x1b]0;planted\x07\x1b[31m\x9b2J\x7f\u202e\u2066\x00"
BREAKS = "planted\tcolumn\nline\rover"


class Text(bytes):
    """Bytes that are stored as TEXT, be they UTF-8 or not."""

    __slots__ = ()


NOT_UTF8 = Text(b"planted\xff\xfe")
WRONG_TYPES: list[object] = [None, 7, 1.5, float("inf"), b"\x00\xffblob", "word", "", NOT_UTF8]
NUMBERS: list[object] = [-1, 0, -(2**63), 2**63 - 1, 253_402_300_800, 10**15]
TEXTS: list[object] = [COMMANDS, BREAKS, "../../outside", "a/b", "x" * 100_000]
JSON: list[object] = [
    "{",
    "[" * 5000,
    '{"a":' + "[" * 5000,
    "NaN",
    "1e999",
    '"\\ud800"',
    '{"phase":7,"conditions":7}',
    "[7]",
    '1},"id":9}\n{"jsonrpc":"2.0"',
    json.dumps(COMMANDS),
    json.dumps(COMMANDS, ensure_ascii=False).replace("\x00", ""),
]
_DOCUMENTS = {
    "payload", "phases", "gates", "metadata", "actions", "raw_metadata", "signal_data",
    "keyword_weights", "source_weights", "effect", "args",
}  # fmt: skip


def _run(project: str) -> dict[str, object]:
    return {
        "id": RUN, "project_dir": project, "goal": "a goal", "status": "active",
        "phase": "brainstorm", "complexity": 3, "force_full": 0, "auto_advance": 1,
        "auto_spawn": 0, "scope_id": "bead-1", "phases": '["brainstorm","plan","done"]',
        "gates": "[]", "token_budget": 1000, "budget_warn_pct": 80, "budget_told": 0,
        "metadata": "{}", "actions": "{}", "session": "s1", "owner_pid": 1, "owner_start": 1,
        "owner_boot": "b", "owner_pidns": "n", "created_at": NOW, "created_ms": NOW_MS,
        "updated_at": NOW, "updated_ms": NOW_MS, "completed_at": None, "max_agents": 9,
        "max_dispatches": 9, "budget_enforce": 1,
    }  # fmt: skip


def _dispatch(project: str) -> dict[str, object]:
    return {
        "id": DISPATCH, "run_id": RUN, "scope_id": RUN, "parent_id": None, "agent_type": "codex",
        "status": "running", "name": "worker", "model": "m", "sandbox": "s",
        "project_dir": project, "prompt_file": "p", "prompt_hash": "h", "output_file": "o",
        "verdict_file": "v", "timeout_ms": 1000, "runner_pid": 99_999_999, "runner_start": 1,
        "pid": 99_999_998, "pid_start": 1, "boot": "b", "pidns": "n", "exit_code": None,
        "verdict_status": "pass", "verdict_summary": "fine", "error_message": "none",
        "turns": 1, "commands": 1, "messages": 1, "input_tokens": 1, "output_tokens": 1,
        "cache_hits": 1, "session": "s1", "created_at": NOW, "created_ms": NOW_MS,
        "started_at": NOW, "completed_at": None, "version": 1,
    }  # fmt: skip


def ordinary(project: str) -> dict[str, dict[str, object]]:
    """One row of every table, as intercore itself would write it."""
    vector = b"\x00\x00\x80\x3f" * 4
    return {
        "state": {
            "key": "dispatch", "scope_id": "s1", "payload": '{"name":"w","activity":"a"}',
            "version": 1, "updated_at": NOW, "expires_at": NOW + 86_400 * 365 * 50,
            "expires_ms": NOW_MS + 86_400_000 * 365 * 50, "writer_pid": 1, "writer_session": "s1",
        },
        "sentinels": {
            "name": "guard", "scope_id": "s1", "last_fired": NOW, "fired_ms": NOW_MS,
            "interval_ms": 5000, "once": 0, "prune_ms": NOW_MS + 10**12, "claim_ms": 5000,
            "request_id": "r",
        },
        "requests": {
            "id": "request1", "method": "state.set", "digest": 1, "effect": "{}",
            "at_ms": NOW_MS,
        },
        "events": {
            "seq": 1, "source": "phase", "type": "advance", "run_id": RUN, "subject_id": RUN,
            "from_state": "brainstorm", "to_state": "plan", "reason": "because",
            "payload": '{"result":"pass","tier":"hard","evidence":{"conditions":[]}}',
            "at": NOW, "at_ms": NOW_MS, "actor_pid": 1, "actor_uid": 1, "actor_session": "s1",
            "trace_id": "t", "span_id": "s", "project_dir": project, "source_id": 1,
            "idempotency_key": "k",
        },
        "cursors": {
            "consumer": "reader", "run_id": "", "seq": 0, "updated_at": NOW,
            "updated_ms": NOW_MS, "expires_ms": NOW_MS + 10**12,
        },
        "hook_positions": {"hook": "on-phase-event", "seq": 0, "started": 0},
        "runs": _run(project),
        "run_skips": {"run_id": RUN, "phase": "plan", "reason": "short", "created_at": NOW},
        "run_agents": {
            "id": AGENT, "run_id": RUN, "agent_type": "codex", "name": "worker",
            "status": "active", "dispatch_id": DISPATCH, "created_at": NOW, "updated_at": NOW,
        },
        "run_artifacts": {
            "id": "arti0001", "run_id": RUN, "phase": "brainstorm", "path": "a.md",
            "type": "file", "content_hash": "h", "dispatch_id": DISPATCH, "status": "active",
            "created_at": NOW,
        },
        "run_actions": {
            "run_id": RUN, "phase": "plan", "command": "/work", "id": 1, "action_type": "command",
            "args": '["${artifact:file}","${run_id}"]', "mode": "both", "priority": 0,
            "created_at": NOW, "updated_at": NOW, "updated_ms": NOW_MS,
        },
        "lanes": {
            "id": "lane0001", "name": "kernel", "lane_type": "standing", "status": "active",
            "description": "d", "intent": "i", "metadata": "{}", "created_at": NOW,
            "updated_at": NOW, "updated_ms": NOW_MS, "closed_at": None,
        },
        "lane_members": {
            "lane_id": "lane0001", "bead_id": "B-1", "added_at": NOW, "removed_at": None,
            "changed_ms": NOW_MS,
        },
        "dispatches": _dispatch(project),
        "leases": {
            "name": "lease", "scope_id": "s1", "owner": "me", "token": 1, "ttl_ms": 10**12,
            "acquired_at": NOW, "renewed_at": NOW, "expires_at": NOW + 10**9,
            "expires_ms": NOW_MS + 10**12, "session": "s1", "pid": 1,
        },
        "sessions": {
            "session_id": "s1", "project_dir": project, "id": 1, "agent_type": "codex",
            "model": "m", "metadata": "{}", "started_at": NOW, "ended_at": None,
            "input_tokens": 1, "output_tokens": 2, "cache_creation_tokens": 3,
            "cache_read_tokens": 4,
        },
        "attributions": {
            "session_id": "s1", "project_dir": project, "bead_id": "b", "run_id": "run00001",
            "phase": "plan", "updated_at": NOW,
        },
        "reservations": {
            "id": "lock0001", "type": "file_reservation", "owner": "me", "scope": ".",
            "pattern": "src/*", "exclusive": 1, "reason": "", "ttl_ms": 10**12, "run_id": "",
            "dispatch_id": "", "created_at": NOW, "renewed_ms": NOW_MS, "expires_at": NOW + 10**9,
            "expires_ms": NOW_MS + 10**12, "session": "s1", "pid": 1, "pid_start": 1,
            "pid_boot": "b", "pid_ns": "n", "key": "src/",
        },
        "discoveries": {
            "id": DISCOVERY, "source": "scan", "source_id": "1", "title": "a title",
            "summary": "a summary", "url": "https://example.org", "raw_metadata": "{}",
            "relevance": 700_000, "decay": 1_000_000, "status": "new", "run_id": None,
            "bead_id": None, "discovered_at": NOW, "discovered_ms": NOW_MS, "decayed_ms": None,
            "promoted_at": None, "reviewed_at": None, "dismissed_ms": None, "version": 1,
        },
        "embeddings": {"discovery_id": DISCOVERY, "source": "scan", "vector": vector},
        "embedding_sources": {"source": "scan", "dimension": 4},
        "feedback_signals": {
            "id": 1, "discovery_id": DISCOVERY, "signal_type": "promote", "signal_data": "{}",
            "actor": "me", "created_at": NOW, "idempotency_key": "k",
        },
        "interest_profile": {
            "id": 1, "version": 1, "topic_vector": vector, "keyword_weights": '{"a":1.0}',
            "source_weights": '{"scan":1.0}', "updated_at": NOW,
        },
    }  # fmt: skip


def make(path: Path) -> None:
    """A database with one ordinary row in every table, in a `.clavain` of its own."""
    path.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
    path.touch(0o600)
    project = str(path.parent.parent.resolve())
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("BEGIN")
        migrate.apply(conn, str(path), now_ms=NOW_MS)
        for table, row in ordinary(project).items():
            marks = ", ".join("?" * len(row))
            conn.execute(
                f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", [*row.values()]
            )
        conn.execute("UPDATE counters SET value = 1 WHERE name <> 'events_pruned'")
        conn.execute("COMMIT")


def plant(path: Path, table: str, column: str, value: object) -> None:
    """Put a value into the first row of a table; makes the database if there is none.

    What a table cannot hold in any way (NULL in the key of a table WITHOUT ROWID, anything but an
    integer as a row's number) raises `sqlite3.IntegrityError`.
    """
    if not path.exists():
        make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        (ours,) = conn.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        loose = _loose(conn, table, ours)
        _redefine(conn, table, loose)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as conn:
            place = "CAST(? AS TEXT)" if isinstance(value, Text) else "?"
            given = bytes(value) if isinstance(value, Text) else value
            conn.execute(f"UPDATE {table} SET {column} = {place}", (given,))
    finally:
        with closing(sqlite3.connect(path, isolation_level=None)) as conn:
            _redefine(conn, table, ours)


def _redefine(conn: sqlite3.Connection, table: str, sql: str) -> None:
    (version,) = conn.execute("PRAGMA schema_version").fetchone()
    conn.execute("PRAGMA writable_schema = ON")
    conn.execute("UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?", (sql, table))
    conn.execute(f"PRAGMA schema_version = {version + 1}")


def _loose(conn: sqlite3.Connection, table: str, ours: str) -> str:
    """The same columns in the same places, and nothing that would refuse or convert a value."""
    columns = conn.execute(f"PRAGMA table_info({table})").fetchall()
    key = [name for _, name, *_, place in sorted(columns, key=lambda c: c[5]) if place]
    numbered = "INTEGER PRIMARY KEY" in " ".join(ours.split())
    if numbered:
        grows = " AUTOINCREMENT" if "AUTOINCREMENT" in ours else ""
        words = [f"{c[1]} INTEGER PRIMARY KEY{grows}" if c[5] else c[1] for c in columns]
    else:
        words = [c[1] for c in columns] + [f"PRIMARY KEY ({', '.join(key)})"]
    if "UNIQUE (source, source_id)" in ours:
        words.append("UNIQUE (source, source_id)")
    rest = " WITHOUT ROWID" if "WITHOUT ROWID" in ours else ""
    return f"CREATE TABLE {table} ({', '.join(words)}){rest}"


@cache
def columns() -> dict[str, dict[str, str]]:
    """Every column of every table of ours, with its declared type."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        migrate.apply(conn, "", now_ms=0)
        tables = conn.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        return {
            name: {c[1]: c[2] for c in conn.execute(f"PRAGMA table_info({name})")}
            for (name,) in tables
        }


def _nasty(column: str, kind: str) -> list[object]:
    values = [*WRONG_TYPES]
    if kind == "INTEGER":
        values += NUMBERS
    if kind == "TEXT":
        values += TEXTS
    if column in _DOCUMENTS:
        values += JSON
    return values


# Everything that a column may hold and should not: (table, column, value).
CASES: list[tuple[str, str, object]] = [
    (table, column, value)
    for table, kinds in columns().items()
    for column, kind in kinds.items()
    for value in _nasty(column, kind)
]
