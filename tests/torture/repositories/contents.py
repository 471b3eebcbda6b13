"""Rows that no command of ours would write, in a database whose schema is ours to the letter."""

import contextlib
import json
import sqlite3
from collections.abc import Callable

from tests.torture.repositories.clone import Clone, Primitive

TABLES = [
    "counters", "cursors", "discoveries", "dispatches", "embedding_sources", "embeddings", "events",
    "feedback_signals", "hook_positions", "interest_profile", "leases", "migrations", "requests",
    "run_agents", "run_artifacts", "run_skips", "runs", "sentinels", "state",
]  # fmt: skip
# Of colours, titles and clipboards; of C1; that turn the direction; and what breaks lines.
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x1b]52;c;cHduZWQ=\x07\x9b2J\u202etxt\u2066\r\n\x08\x00"
WORSE = 2**63 - 1
HUGE_BYTES = 40_000_000
LARGE_BYTES = 8_000_000  # less than what we let SQLite read, and far more than we store
MANY = 100_000
# Words that the schema allows in a column: others would not be let in by its CHECK.
FIXED = {"status", "id", "name", "run_id", "discovery_id", "hook", "source", "consumer"}
Column = tuple[str, str, bool]  # its name and type, and whether it is part of the key


def _columns(conn: sqlite3.Connection, table: str) -> list[Column]:
    return [(row[1], row[2], bool(row[5])) for row in conn.execute(f"PRAGMA table_info({table})")]


def _unchecked(clone: Clone, table: str, change: Callable[[sqlite3.Connection], None]) -> None:
    """Write what the table's own words forbid, and leave the words as they were."""
    with clone.sql() as conn:
        (sql,) = conn.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        plain = sql.replace(" STRICT, WITHOUT ROWID", " WITHOUT ROWID").replace(") STRICT", ")")
        plain = plain.replace("NOT NULL", "")
        conn.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (plain, table))
        (number,) = conn.execute("PRAGMA schema_version").fetchone()
        conn.execute(f"PRAGMA schema_version = {number + 1}")
    with clone.sql() as conn:
        conn.execute("PRAGMA ignore_check_constraints = ON")
        change(conn)
        conn.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, table))
        conn.execute(f"PRAGMA schema_version = {number + 2}")


def _where_it_may(conn: sqlite3.Connection, statement: str, value: object) -> None:
    """Two rows of the same value are too many for an index that is unique."""
    with contextlib.suppress(sqlite3.IntegrityError):
        conn.execute(statement, (value,))


def escaped(table: str) -> Primitive:
    """Sequences for the terminal in every text of a table that is not looked up by it."""

    def make(clone: Clone) -> None:
        def change(conn: sqlite3.Connection) -> None:
            for name, kind, is_key in _columns(conn, table):
                if kind == "TEXT" and not is_key and name not in FIXED:
                    words = f"ifnull({name}, '{name}') || ?"
                    _where_it_may(conn, f"UPDATE {table} SET {name} = {words}", ESCAPES)

        _unchecked(clone, table, change)

    return make


def keyed(table: str) -> Primitive:
    """The same in what rows are found by, and in the words that the schema fixes."""

    def make(clone: Clone) -> None:
        def change(conn: sqlite3.Connection) -> None:
            for name, kind, is_key in _columns(conn, table):
                if kind == "TEXT" and (is_key or name in FIXED):
                    _where_it_may(conn, f"UPDATE {table} SET {name} = {name} || ?", ESCAPES)

        _unchecked(clone, table, change)

    return make


def typed(table: str, value: object) -> Primitive:
    """One and the same value in every column that is not the key, whatever its type."""

    def make(clone: Clone) -> None:
        def change(conn: sqlite3.Connection) -> None:
            for name, _kind, is_key in _columns(conn, table):
                if not is_key:
                    _where_it_may(conn, f"UPDATE {table} SET {name} = ?", value)

        _unchecked(clone, table, change)

    return make


def stored(*statements: str) -> Primitive:
    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            for statement in statements:
                conn.execute(statement)

    return make


def payload(content: str) -> Primitive:
    """A row of state, and an event, whose content is not what it should be."""

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            conn.execute("UPDATE state SET payload = ?", (content,))
            conn.execute("UPDATE events SET payload = ?", (content,))
            conn.execute("UPDATE runs SET phases = ?, gates = ?, metadata = ?", (content,) * 3)
            conn.execute("UPDATE discoveries SET raw_metadata = ?", (content,))
            conn.execute("UPDATE interest_profile SET keyword_weights = ?", (content,))

    return make


def many(table: str) -> Primitive:
    rows = {
        "state": "SELECT 'dispatch', 'many' || n.value, '1', 1, 1, NULL, NULL, NULL, NULL",
        "events": "SELECT n.value + 100, 'x', 't', '', '', '', '', '', '{}', 1, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
        "sentinels": "SELECT 'n', 's' || n.value, 1, 1, 1, 0, NULL, 1, NULL",
        "run_agents": "SELECT 'a' || n.value, 'run00001', 'codex', 'planted', 'active', NULL, 1, 1",
        "cursors": "SELECT 'c' || n.value, '', 1, 1, 1, NULL",
    }  # fmt: skip
    numbers = f"WITH RECURSIVE n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < {MANY})"
    return stored(f"INSERT INTO {table} {numbers} {rows[table]} FROM n")


def large(statement: str, size: int = LARGE_BYTES) -> Primitive:
    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            conn.execute(statement, (json.dumps("x" * size),))

    return make


def starting(clone: Clone) -> None:
    """A run that is about to start agents, whose prompts and scripts are the clone's."""
    with clone.sql() as conn:
        conn.execute(
            "UPDATE runs SET auto_spawn = 1, phases = NULL, phase = 'planned', token_budget = NULL,"
            " status = 'active', scope_id = NULL, project_dir = ?",
            (str(clone.root),),
        )
        conn.execute("DELETE FROM run_skips")
        conn.execute("UPDATE run_artifacts SET phase = 'planned'")
        conn.execute(
            "UPDATE run_agents SET dispatch_id = NULL, name = 'planted', status = 'active'"
        )


def starting_at_once(clone: Clone) -> None:
    """In every phase that a custom chain names, with gates that are always open."""
    with clone.sql() as conn:
        conn.execute(
            'UPDATE runs SET auto_spawn = 1, phases = \'["a","executing","b"]\','
            " phase = 'a', status = 'active', scope_id = NULL, gates = NULL, token_budget = NULL,"
            " project_dir = ?",
            (str(clone.root),),
        )
        conn.execute("UPDATE run_agents SET dispatch_id = NULL, name = 'planted'")


def leading(column: str, where: Callable[[Clone], str]) -> Primitive:
    """A path that leads out of the clone, in every place of a kind."""
    tables = {
        "project_dir": ["runs", "dispatches", "events"], "path": ["run_artifacts"],
        "prompt_file": ["dispatches"], "output_file": ["dispatches"],
        "verdict_file": ["dispatches"],
    }[column]  # fmt: skip

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            for table in tables:
                conn.execute(f"UPDATE {table} SET {column} = ?", (where(clone),))
            conn.execute("UPDATE dispatches SET status = 'running', pid = 4194303, pid_start = 1")

    return make


def naming(**known: bool) -> Primitive:
    """Dispatches that run, whose process is one of the user's; `known` is what they know of it."""

    def make(clone: Clone) -> None:
        victim = clone.victim
        start = victim.start if known.get("start") else None
        boot = victim.boot if known.get("boot") else None
        with clone.sql() as conn:
            conn.execute(
                "UPDATE dispatches SET status = 'running', pid = ?, pid_start = ?, boot = ?,"
                " pidns = ?, runner_pid = ?, runner_start = ?, completed_at = NULL,"
                " timeout_ms = 1, exit_code = NULL, verdict_status = NULL",
                (victim.pid, start, boot, victim.pidns if boot else None, victim.pid, start),
            )
            conn.execute(
                "UPDATE runs SET owner_pid = ?, owner_start = ?, owner_boot = ?, owner_pidns = ?",
                (victim.pid, start, boot, victim.pidns),
            )

    return make


VALUES: dict[str, object] = {
    "nothing": None, "bytes": b"\xff\x00\xfe", "words": "abc", "the largest number": WORSE,
    "a fraction": 1e308, "minus one": -1,
}  # fmt: skip
DEEP = "[" * 100_000 + "]" * 100_000

PRIMITIVES: dict[str, Primitive] = {
    **{f"escapes in {table}": escaped(table) for table in TABLES},
    **{f"escapes in keys of {table}": keyed(table) for table in TABLES},
    **{
        f"{what} in {table}": typed(table, value)
        for number, table in enumerate(TABLES)
        for turn, (what, value) in enumerate(VALUES.items())
        if (number + turn) % 3 == 0
    },
    "payload of no JSON": payload("no json \x1b[31m"),
    "payload of deep JSON": payload(DEEP),
    "payload of half a character": payload('"\\ud800"'),
    "payload of a large number": payload("1" * 5000),
    "payload of names twice": payload('{"a":1,"a":2}'),
    "payload of nothing": payload(""),
    "payload that turns the direction": payload('{"a":"\u202eabc\u2066\x9b"}'),
    "value that is huge, in state": large("UPDATE state SET payload = ?", HUGE_BYTES),
    "value that is huge, in events": large("UPDATE events SET payload = ?"),
    "value that is huge, in runs": large("UPDATE runs SET goal = ?"),
    "value that is huge, in dispatches": large("UPDATE dispatches SET verdict_summary = ?"),
    "vector that is odd": stored("UPDATE embeddings SET vector = x'010203'"),
    "vector that is empty": stored("UPDATE embeddings SET vector = x''"),
    "vector that is none": stored("UPDATE embeddings SET vector = x'0000c07f0000807f'"),
    "vector that is huge": stored("UPDATE embeddings SET vector = zeroblob(40000000)"),
    "vector of many dimensions": stored("UPDATE embedding_sources SET dimension = 2000000000"),
    **{f"rows by the thousand in {table}": many(table) for table in ("state", "events", "sentinels", "run_agents", "cursors")},
    "counters that are missing": stored("DELETE FROM counters"),
    "counters at their end": stored(f"UPDATE counters SET value = {WORSE}"),
    "counters below nothing": stored("UPDATE counters SET value = -1"),
    "migrations that are missing": stored("DELETE FROM migrations"),
    "migrations that lie": stored("UPDATE migrations SET version = version + 9000"),
    "events at their end": stored(f"UPDATE events SET seq = {WORSE} WHERE seq = 9"),
    "events before their begin": stored("UPDATE events SET seq = -9 WHERE seq = 9"),
    "events of times to come": stored(f"UPDATE events SET at = {WORSE}, at_ms = {WORSE}"),
    "runs of times to come": stored(f"UPDATE runs SET created_at = {WORSE}, updated_ms = {WORSE}"),
    "hooks that have seen everything": stored(f"UPDATE hook_positions SET seq = {WORSE}"),
    "hooks that are about to run": stored("INSERT OR REPLACE INTO hook_positions VALUES ('on-event', 0, 1), ('on-phase-advance', 0, 5)"),
    "leases without an end": stored(f"UPDATE leases SET expires_ms = {WORSE}, expires_at = {WORSE}"),
    "requests that are known": stored("UPDATE requests SET effect = 'no json'"),
    "run that starts agents": starting,
    "run that starts agents at once": starting_at_once,
    "project of the user's home": leading("project_dir", lambda c: str(c.home)),
    "project of another": leading("project_dir", lambda c: str(c.other.parent.parent)),
    "project that is a device": leading("project_dir", lambda c: "/dev/zero"),
    "artifact out of the clone": leading("path", lambda c: "../../precious.txt"),
    "artifact that is a device": leading("path", lambda c: "/dev/zero"),
    "prompt out of the clone": leading("prompt_file", lambda c: str(c.precious)),
    "output out of the clone": leading("output_file", lambda c: str(c.precious)),
    "output that is a device": leading("output_file", lambda c: "/dev/zero"),
    "verdict out of the clone": leading("verdict_file", lambda c: str(c.precious)),
    "verdict that is a device": leading("verdict_file", lambda c: "/dev/zero"),
    "dispatch of a user's process": naming(start=True, boot=True),
    "dispatch of a user's process by its number": naming(),
    "dispatch of a user's process of another boot": naming(start=True),
}  # fmt: skip
