"""Makes the databases of this directory: one of every schema that there ever was, as SQL.

    python -m tests.data.databases.make

`ours-N.sql` is what intercore of schema N left behind, with rows in every table that it had;
`original-N.sql` is the original's.  A new schema adds a file: those that are there are what people
have on their disks, and never change.  `tests/test_databases.py` says so if a migration that was
released is edited.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from icd.db import migrate
from tests.data import later, original

HERE = Path(__file__).parent
# In 2020: whatever happens now can be told from what happened then.
THEN = 1_600_000_000
NEVER = 200_000_000_000  # in the year 8307

# Rows of the tables that each migration brings.
_ROWS = {
    1001: [
        (
            "INSERT INTO state VALUES ('dispatch', 's1', '{\"phase\": \"executing\"}', 1,"
            f" {THEN}, NULL, NULL, 4711, 'session')"
        ),
        (
            f"INSERT INTO state VALUES ('dispatch', 's2', '[1,  2]', 2, {THEN}, {NEVER}, {NEVER}000,"
            " NULL, NULL)"
        ),
        f"INSERT INTO state VALUES ('gone', 's1', '0', 3, {THEN}, {THEN}, {THEN}000, NULL, NULL)",
        (
            "INSERT INTO state VALUES ('cursor', 'old', '{\"phase\":7,\"dispatch\":0}', 4,"
            f" {THEN}, NULL, NULL, NULL, NULL)"
        ),
        "UPDATE counters SET value = 9 WHERE name = 'state'",
        f"INSERT INTO sentinels VALUES ('stop', 's1', {THEN}, {THEN}123, 0, 1, NULL, 0, 'r1')",
        (
            f"INSERT INTO sentinels VALUES ('drift', 's1', {THEN}, {THEN}999, 60000, 0, NULL, 60000,"
            " NULL)"
        ),
        f"INSERT INTO requests VALUES ('q1', 'state.set', 42, '{{}}', {THEN}000)",
    ],
    1002: [
        (
            "INSERT INTO events VALUES (5, 'phase', 'advance', 'run00001', '', 'a', 'b', 'because',"
            f" '{{\"gate_result\": \"pass\"}}', {THEN}, {THEN}000, 4711, 1000, 'session', 't', 's',"
            " '/p', 7, NULL)"
        ),
        (
            "INSERT INTO events VALUES (6, 'review', 'found', '', 'x', '', '', '', NULL,"
            f" {THEN}, {THEN}500, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'once')"
        ),
        (
            "INSERT INTO events VALUES (9, 'phase', 'skip', 'run00001', '', 'b', 'c', '', NULL,"
            f" {THEN}, {THEN}900, NULL, NULL, NULL, NULL, NULL, NULL, 8, NULL)"
        ),
        "UPDATE counters SET value = 4 WHERE name = 'events_pruned'",
        f"INSERT INTO cursors VALUES ('reader', '', 6, {THEN}, {THEN}000, NULL)",
        f"INSERT INTO cursors VALUES ('reader', 'run00001', 5, {THEN}, {THEN}000, NULL)",
    ],
    1003: ["INSERT INTO hook_positions VALUES ('notify', 6, 6)"],
    1004: [
        (
            "INSERT INTO runs VALUES ('run00001', '/p', 'ship it', 'active', 'b', 4, 0, 1, 0, 'bead-1',"
            ' \'["a","b","c","d"]\', NULL, 1000, 80, 1, \'{"k":1}\', NULL, \'session\', 4711, 1,'
            f" 'boot', 'pidns', {THEN}, {THEN}000, {THEN}, {THEN}000, NULL)"
        ),
        (
            "INSERT INTO runs VALUES ('run00002', '/p', 'done', 'completed', 'done', 3, 1, 0, 1, NULL,"
            " NULL, NULL, NULL, 90, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL,"
            f" {THEN}, {THEN}001, {THEN}, {THEN}001, {THEN})"
        ),
        f"INSERT INTO run_skips VALUES ('run00001', 'c', 'not needed', {THEN})",
        (
            "INSERT INTO run_agents VALUES ('agent001', 'run00001', 'claude', 'reviewer', 'active',"
            f" 'disp0001', {THEN}, {THEN})"
        ),
        (
            "INSERT INTO run_artifacts VALUES ('artif001', 'run00001', 'a', 'plan.md', 'file',"
            f" 'abc', 'disp0001', 'active', {THEN})"
        ),
        (
            "INSERT INTO dispatches VALUES ('disp0001', 'run00001', 'bead-1', NULL, 'codex',"
            " 'completed', 'worker', 'gpt', 'workspace-write', '/p', 'prompt.md', 'hash', 'out',"
            " 'verdict', 60000, 4712, 2, 4713, 3, 'boot', 'pidns', 0, 'pass', 'fine', NULL, 3, 4, 5,"
            f" 600, 70, 8, 'session', {THEN}, {THEN}000, {THEN}, {THEN}, 4)"
        ),
        (
            f"INSERT INTO leases VALUES ('deploy', 'p', 'me', 7, 60000, {THEN}, {THEN}, {NEVER},"
            f" {NEVER}000, 'session', 4711)"
        ),
        "UPDATE counters SET value = 7 WHERE name = 'leases'",
    ],
    1005: [
        (
            "INSERT INTO discoveries VALUES ('disc00000001', 'web', '1', 'A title', 'Sum', 'http://x',"
            f" '{{\"k\": 1}}', 750000, 1000000, 'scored', NULL, NULL, {THEN}, {THEN}000, NULL, NULL,"
            f" {THEN}, NULL, 1)"
        ),
        (
            "INSERT INTO discoveries VALUES ('disc00000002', 'web', '2', 'Promoted', '', '', '{}',"
            f" 900000, 1000000, 'promoted', 'run00001', 'bead-1', {THEN}, {THEN}000, NULL, {THEN},"
            f" {THEN}, NULL, 2)"
        ),
        "INSERT INTO embeddings VALUES ('disc00000001', 'web', x'0000803f00000040')",
        "INSERT INTO embedding_sources VALUES ('web', 2)",
        (
            "INSERT INTO feedback_signals VALUES (1, 'disc00000001', 'boost', '{\"s\": 1}', 'me',"
            f" {THEN})"
        ),
        (
            "INSERT INTO interest_profile VALUES (1, 3, x'0000803f00000040', '{\"sqlite\": 1.5}',"
            f" '{{\"web\": 0.5}}', {THEN})"
        ),
        "UPDATE counters SET value = 2 WHERE name = 'discoveries'",
    ],
    1006: [
        (
            "INSERT INTO reservations VALUES ('lock0001', 'file_reservation', 'me', '.', 'src/*.py',"
            f" 1, 'why', NULL, '', '', {THEN}, {THEN}000, NULL, NULL, 'session', NULL, NULL, NULL,"
            " NULL, 'src/')"
        ),
    ],
    1007: [
        (
            f"INSERT INTO sessions VALUES ('s1', '/p', 1, 'codex', 'm', '{{}}', {THEN}, NULL,"
            " 5, 6, 7, 8)"
        ),
        f"INSERT INTO attributions VALUES ('s1', '/p', 'b', 'r', NULL, {THEN})",
        "UPDATE counters SET value = 1 WHERE name = 'sessions'",
    ],
    1008: [
        (
            "INSERT INTO lanes VALUES ('lane0001', 'kernel', 'standing', 'active', 'the core', 'go',"
            f" '{{\"paused\":true}}', {THEN}, {THEN}, {THEN}000, NULL)"
        ),
        f"INSERT INTO lane_members VALUES ('lane0001', 'B-1', {THEN}, NULL, {THEN}000)",
        f"INSERT INTO lane_members VALUES ('lane0001', 'B-2', {THEN}, {THEN}, {THEN}000)",
        (
            "INSERT INTO run_actions VALUES ('run00001', 'c', '/work', 1, 'command',"
            f" '[\"${{run_id}}\"]', 'both', -1, {THEN}, {THEN}, {THEN}000)"
        ),
        "UPDATE counters SET value = 1 WHERE name = 'run_actions'",
    ],
    1009: [
        (
            "UPDATE runs SET max_agents = 3, max_dispatches = 2, budget_enforce = 1"
            " WHERE id = 'run00001'"
        ),
        "UPDATE feedback_signals SET idempotency_key = 'cycle-1' WHERE id = 1",
    ],
}


def ours(schema: int) -> sqlite3.Connection:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    for number, file in migrate.pending(0):
        if number <= schema:
            for statement in migrate.statements(file):
                conn.execute(statement)
            conn.execute("INSERT INTO migrations VALUES (?, '0.4.0', ?)", (number, THEN))
            for row in _ROWS[number]:
                conn.execute(row)
    conn.execute(f"PRAGMA application_id = {migrate.APPLICATION_ID}")
    conn.execute(f"PRAGMA user_version = {schema}")
    return conn


def theirs(schema: int) -> sqlite3.Connection:
    later_one = schema == later.SCHEMA
    conn = later.create(":memory:") if later_one else original.create(":memory:", schema)
    conn.execute("DROP TRIGGER IF EXISTS told")
    for table, column in _times(conn):
        conn.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL", (THEN,))
    conn.execute("UPDATE state SET expires_at = ? WHERE expires_at AND key <> 'expired'", (NEVER,))
    return conn


def _times(conn: sqlite3.Connection) -> list[tuple[str, str]]:
    return conn.execute(
        """
        SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
        WHERE t.type = 'table' AND (c.name LIKE '%\\_at' ESCAPE '\\' OR c.name = 'last_fired')
        """
    ).fetchall()


def every() -> Iterator[tuple[str, str]]:
    """The name and the content of each file."""
    for number, _ in migrate.pending(0):
        yield f"ours-{number}", _dumped(ours(number))
    for number in [*range(1, 10), later.SCHEMA]:
        yield f"original-{number}", _dumped(theirs(number))


def _dumped(conn: sqlite3.Connection) -> str:
    """Not with `iterdump`, whose words depend on the version of Python."""
    with closing(conn):
        lines = [
            f"PRAGMA {name} = {conn.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        schema = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid"
        for kind, name, sql in conn.execute(schema).fetchall():
            if not name.startswith("sqlite_"):
                lines.append(f"{sql};")
            if kind == "table" and not name.startswith("sqlite_"):
                lines.extend(_rows(conn, name))
    return "\n".join(lines) + "\n"


def _rows(conn: sqlite3.Connection, table: str) -> Iterator[str]:
    quoted = '"' + table.replace('"', '""') + '"'
    columns = [row[1] for row in conn.execute(f"PRAGMA table_info({quoted})")]
    values = ", ".join(f"quote({name})" for name in columns)
    for row in conn.execute(
        f"SELECT {values} FROM {quoted} ORDER BY {', '.join(columns)}"
    ).fetchall():
        yield f"INSERT INTO {quoted} VALUES ({', '.join(row)});"


if __name__ == "__main__":
    for name, content in every():
        (HERE / f"{name}.sql").write_text(content, encoding="utf-8")
