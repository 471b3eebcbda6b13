"""Schemas that are ours at first sight: what is added to them, taken from them, or written over.

The mark and the version in the header say nothing: a stranger writes them like any other byte.
"""

from icd.db import migrate
from tests.torture.repositories.clone import OURS, Clone, Primitive, template

# Statements that never come to an end, or not in a lifetime.
NO_END = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT * FROM n"
PRODUCT = (
    "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
    " SELECT a.i FROM n AS a, n AS b, n AS c WHERE a.i + b.i + c.i < 0"
)
GROWS = "WITH RECURSIVE n(i) AS (VALUES ('x') UNION ALL SELECT i || i FROM n) SELECT * FROM n"
STATE = "key, scope_id, payload, version, updated_at, expires_at, expires_ms, writer_pid"

TRIGGERS = {
    "acts": """CREATE TRIGGER planted AFTER INSERT ON runs BEGIN
        UPDATE runs SET auto_spawn = 1, phases = '["a","executing","b"]', phase = 'a'
            WHERE id = NEW.id;
        INSERT INTO run_agents VALUES
            ('agent' || NEW.id, NEW.id, 'codex', 'planted', 'active', NULL, 1, 1);
    END""",
    "acts on an event": """CREATE TRIGGER planted AFTER INSERT ON events WHEN NEW.run_id <> '' BEGIN
        UPDATE runs SET auto_spawn = 1, phases = '["brainstorm","executing"]' WHERE id = NEW.run_id;
        INSERT INTO run_agents VALUES
            (hex(randomblob(4)), NEW.run_id, 'codex', 'planted', 'active', NULL, 1, 1);
    END""",
    "forgets state": """CREATE TRIGGER planted BEFORE INSERT ON state BEGIN
        SELECT RAISE(IGNORE); END""",
    "forgets claims": """CREATE TRIGGER planted AFTER INSERT ON sentinels BEGIN
        DELETE FROM sentinels WHERE name = NEW.name; END""",
    "forbids": """CREATE TRIGGER planted BEFORE INSERT ON events BEGIN
        SELECT RAISE(ABORT, 'no'); END""",
    "has no end": f"""CREATE TRIGGER planted AFTER INSERT ON events BEGIN
        INSERT INTO counters SELECT 'x' || i, i FROM ({NO_END} LIMIT 100000000); END""",
    "fills the disk": """CREATE TRIGGER planted AFTER UPDATE ON counters BEGIN
        INSERT OR REPLACE INTO state SELECT 'x', hex(randomblob(8)), '1', 1, 1, NULL, NULL, NULL,
        NULL FROM events a, events b, events c, events d; END""",
    "on a column": "CREATE TRIGGER planted AFTER UPDATE OF seq ON cursors BEGIN SELECT 1; END",
    "on the log": """CREATE TRIGGER "events" AFTER INSERT ON state BEGIN
        INSERT INTO events (source, type, run_id, subject_id, from_state, to_state, reason, at,
        at_ms) VALUES ('x', 'y', '', '', '', '', '', 0, 0); END""",
}
VIEWS = {
    "never ends": f"SELECT i AS key, i AS scope_id, i AS payload, i AS version, i AS updated_at, NULL AS expires_at, NULL AS expires_ms, i AS writer_pid, i AS writer_session FROM ({NO_END})",
    "is a product": f"SELECT i AS key, i AS scope_id, i AS payload, i AS version, i AS updated_at, NULL AS expires_at, NULL AS expires_ms, i AS writer_pid, i AS writer_session FROM ({PRODUCT})",
    "grows": f"SELECT i AS key, 's' AS scope_id, i AS payload, 1 AS version, 1 AS updated_at, NULL AS expires_at, NULL AS expires_ms, 1 AS writer_pid, 's' AS writer_session FROM ({GROWS})",
    "is itself": "SELECT * FROM state",
    "reads files": "SELECT readfile('/etc/passwd') AS payload",
    "loads code": "SELECT load_extension('./planted.so') AS payload",
    "looks around": "SELECT * FROM pragma_database_list",
}  # fmt: skip
# Columns of our tables under which a view with no end takes their place.
HIDDEN = ["runs", "events", "dispatches", "sentinels", "cursors", "leases", "discoveries",
          "run_agents", "hook_positions", "counters", "migrations", "requests"]  # fmt: skip


def with_sql(*statements: str, name: str = OURS) -> Primitive:
    def make(clone: Clone) -> None:
        if name != OURS:
            clone.put(template(name))
        with clone.sql() as conn:
            for statement in statements:
                conn.execute(statement)

    return make


def _view_of(table: str) -> Primitive:
    """A view of the same columns, without an end, where the table was."""

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            names = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join(f"i AS {name}" for name in names)
            conn.execute(f"DROP TABLE {table}")
            conn.execute(f"CREATE VIEW {table} AS SELECT {columns} FROM ({NO_END})")

    return make


def rewritten(table: str, old: str, new: str) -> Primitive:
    """What the schema says of a table, in other words; SQLite reads it at the next opening."""

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            done = conn.execute(
                "UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = ? AND sql LIKE ?",
                (old, new, table, f"%{old}%"),
            )
            assert done.rowcount == 1, (table, old)
        _bump(clone)

    return make


def listed(kind: str, name: str, table: str, root: int | None, sql: str | None) -> Primitive:
    """A line in the table of tables that no statement would write."""

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            conn.execute(
                "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql)"
                " VALUES (?, ?, ?, ?, ?)",
                (kind, name, table, root, sql),
            )
        _bump(clone)

    return make


def _bump(clone: Clone) -> None:
    """Whoever has it open reads the schema again."""
    content = bytearray(clone.database.read_bytes())
    content[40:44] = (int.from_bytes(content[40:44], "big") + 1).to_bytes(4, "big")
    clone.put(bytes(content))


def shared_root(clone: Clone) -> None:
    with clone.sql() as conn:
        conn.execute(
            "UPDATE sqlite_schema SET rootpage ="
            " (SELECT rootpage FROM sqlite_schema WHERE name = 'runs') WHERE name = 'events'"
        )
    _bump(clone)


def root_of(page: int) -> Primitive:
    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            conn.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'runs'", (page,))
        _bump(clone)

    return make


def many_tables(clone: Clone) -> None:
    with clone.sql() as conn:
        for number in range(2000):
            conn.execute(f"CREATE TABLE planted{number} (a)")


def statistics(*rows: tuple[object, ...]) -> Primitive:
    """SQLite plans by these, and trusted them more than it should in the past."""

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            conn.execute("ANALYZE")
            conn.execute("DELETE FROM sqlite_stat1")
            conn.executemany("INSERT INTO sqlite_stat1 VALUES (?, ?, ?)", rows)

    return make


def later_table(clone: Clone) -> None:
    """A view under the name of a table that a later migration creates."""
    clone.put(template("ours-1002"))
    with clone.sql() as conn:
        conn.execute(f"CREATE VIEW runs AS {NO_END}")


def sequence(value: object) -> Primitive:
    return with_sql(
        f"INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq) VALUES (1, 'events', {value})"
    )


def big_statement(clone: Clone) -> None:
    with clone.sql() as conn:
        conn.execute(f"CREATE VIEW planted AS SELECT '{'x' * 900_000}'")


OLD = [f"ours-{number}" for number in range(migrate.FIRST, migrate.LATEST)]
ORIGINALS = [f"original-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)]
FORGETS = TRIGGERS["forgets state"]
VIRTUAL = {
    "fts5": "CREATE VIRTUAL TABLE planted USING fts5(a)",
    "fts4": "CREATE VIRTUAL TABLE planted USING fts4(a)",
    "rtree": "CREATE VIRTUAL TABLE planted USING rtree(a, b, c)",
}

PRIMITIVES: dict[str, Primitive] = {
    **{f"trigger that {does}": with_sql(sql) for does, sql in TRIGGERS.items()},
    **{
        f"view of state that {does}": with_sql("DROP TABLE state", f"CREATE VIEW state AS {sql}")
        for does, sql in VIEWS.items()
    },
    **{f"view of {table} without an end": _view_of(table) for table in HIDDEN},
    **{f"virtual table of {kind}": with_sql(sql) for kind, sql in VIRTUAL.items()},
    **{
        f"trigger in {name}": with_sql(FORGETS.replace("state", "state", 1), name=name)
        for name in OLD
    },
    **{f"view in {name}": with_sql(f"CREATE VIEW planted AS {NO_END}", name=name) for name in OLD},
    **{
        f"index of an expression in {name}": with_sql(
            "CREATE INDEX planted ON state (upper(payload))", name=name
        )
        for name in OLD
    },
    **{f"trigger in {name}": with_sql(FORGETS, name=name) for name in ORIGINALS},
    **{
        f"view for a table in {name}": with_sql(
            "ALTER TABLE state RENAME TO hidden", f"CREATE VIEW state AS {VIEWS['never ends']}",
            name=name,
        )
        for name in ORIGINALS[::2]
    },
    "view of a table to come": later_table,
    "view of nothing": with_sql("CREATE VIEW planted AS SELECT 1"),
    "view with a trigger": with_sql(
        "CREATE VIEW planted AS SELECT 1 AS a",
        "CREATE TRIGGER instead INSTEAD OF INSERT ON planted BEGIN SELECT 1; END",
    ),
    "view in a large text": big_statement,
    "table too many": with_sql("CREATE TABLE planted (a, b)"),
    "tables by the thousand": many_tables,
    "table too few": with_sql("DROP TABLE leases"),
    "table of another case": with_sql("DROP TABLE leases", "CREATE TABLE LEASES (a)"),
    "table of a look-alike": with_sql('CREATE TABLE "st\u0430te" (key, scope_id, payload)'),
    "table named after a statement": with_sql('CREATE TABLE "x; DROP TABLE state; --" (a)'),
    "table named after a newline": with_sql('CREATE TABLE "a\nb\x1b[31m" (a)'),
    "column too many": with_sql("ALTER TABLE runs ADD COLUMN planted TEXT"),
    "column that computes": with_sql(
        "ALTER TABLE runs ADD COLUMN planted TEXT AS (hex(zeroblob(length(goal) * 1000000)))"
    ),
    "column that is missing": with_sql("ALTER TABLE dispatches DROP COLUMN cache_hits"),
    "default that computes": rewritten(
        "run_agents", "status      TEXT    NOT NULL", "status TEXT NOT NULL DEFAULT (random())"
    ),
    "check that computes": rewritten(
        "sentinels", "name        TEXT    NOT NULL",
        "name TEXT NOT NULL CHECK (length(hex(zeroblob(100000000))) > 0)",
    ),
    "check that is always false": rewritten(
        "cursors", "consumer   TEXT    NOT NULL", "consumer TEXT NOT NULL CHECK (0)"
    ),
    "table no longer strict": rewritten("runs", ") STRICT", ")"),
    "columns of other types": rewritten("runs", "goal            TEXT", "goal BLOB"),
    "columns that swapped names": rewritten(
        "leases", "acquired_at INTEGER NOT NULL,\n    renewed_at ",
        "renewed_at INTEGER NOT NULL,\n    acquired_at ",
    ),
    "collation of no program": rewritten("runs", "goal            TEXT", "goal TEXT COLLATE none"),
    "reference that cascades": rewritten(
        "run_agents", "REFERENCES runs (id)", "REFERENCES runs (id) ON DELETE CASCADE"
    ),
    "reference to nothing": rewritten("run_agents", "REFERENCES runs (id)", "REFERENCES no (id)"),
    "conflicts that replace": rewritten(
        "run_agents", "PRIMARY KEY,", "PRIMARY KEY ON CONFLICT REPLACE,"
    ),
    "index too many": with_sql("CREATE INDEX planted ON runs (goal)"),
    "index of an expression": with_sql(
        "CREATE INDEX planted ON events (hex(zeroblob(length(payload) * 1000000)))"
    ),
    "index too few": with_sql("DROP INDEX runs_by_claim"),
    "index of the same name": with_sql(
        "DROP INDEX runs_by_age", "CREATE INDEX runs_by_age ON runs (goal)"
    ),
    "index that is unique": with_sql(
        "DROP INDEX runs_by_age", "CREATE UNIQUE INDEX runs_by_age ON runs (status)"
    ),
    "index of some rows": with_sql(
        "DROP INDEX runs_by_age", "CREATE INDEX runs_by_age ON runs (created_ms) WHERE 0"
    ),
    "roots that are shared": shared_root,
    **{f"root at page {page}": root_of(page) for page in (0, 1, 2, 99_999, -1, 1 << 40)},
    "schema with a trigger that no statement wrote": listed(
        "trigger", "planted", "runs", 0, FORGETS
    ),
    "schema with nonsense": listed("table", "planted", "planted", 3, "CREATE nonsense"),
    "schema with no sql": listed("table", "planted", "planted", 3, None),
    "schema with an unknown kind": listed("procedure", "planted", "runs", 0, "CREATE x"),
    "schema with two of a name": listed(
        "table", "runs", "runs", 3, "CREATE TABLE runs (id, goal, status)"
    ),
    "schema with a virtual table of no module": listed(
        "table", "planted", "planted", 0, "CREATE VIRTUAL TABLE planted USING nothing(a)"
    ),
    "schema with a hidden index": listed("index", "planted", "runs", 4, None),
    "schema with another name in its sql": listed(
        "table", "planted", "planted", 3, "CREATE TABLE sqlite_master (a)"
    ),
    "statistics of garbage": statistics(
        ("runs", "runs_by_age", "x" * 100_000), ("events", None, "-1 -1"), (None, None, None),
        ("state", "state_by_scope", "0 0 0"), ("runs", "none", "99999999999999999999 unordered"),
    ),
    "statistics of other words": statistics(
        ("runs", "runs_by_age", "1 1"), ("events", "events_by_run", "9e99 sz=1")
    ),
    "sequence at its end": sequence(2**63 - 1),
    "sequence before its begin": sequence(-5),
    "sequence of text": sequence("'abc'"),
    "sequence of the wrong name": with_sql("UPDATE sqlite_sequence SET name = 'none'"),
}  # fmt: skip
