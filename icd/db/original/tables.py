"""Tables of the original of any schema, copied as those of the last schema that we know.

- Columns are looked up by name; one that is missing has its default.
- A table without a column that it makes no sense without is not the one we know.
- What is not known stays behind, and is told: tables, columns, and how many rows have them.

The database of the original is read, and never written.
"""

import sqlite3
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from icd.db.original import tables_v9 as original
from icd.db.original.rows import lenient
from icd.db.original.runs import RUN_NUMBERS
from icd.db.rows import quoted

# What each column is if it is missing, as SQL; None: the table makes no sense without it.
_Columns = dict[str, str | None]


def _columns(needed: str, other: str, **defaults: str) -> _Columns:
    return {
        **dict.fromkeys(needed.split()),
        **dict.fromkeys(other.split(), "NULL"),
        **defaults,
    }


_EVENT = {"created_at": "0"}
KNOWN: dict[str, _Columns] = {
    "state": _columns("key scope_id payload", "expires_at", updated_at="0"),
    "sentinels": _columns("name scope_id last_fired", ""),
    "dispatches": _columns(
        "id",
        "agent_type status project_dir prompt_file prompt_hash output_file verdict_file pid "
        "exit_code name model sandbox timeout_sec turns commands messages input_tokens "
        "output_tokens cache_hits created_at started_at completed_at verdict_status "
        "verdict_summary error_message scope_id parent_id",
    ),
    "runs": _columns(
        "id",
        "project_dir goal status phase force_full auto_advance created_at updated_at completed_at "
        f"scope_id metadata phases token_budget {' '.join(RUN_NUMBERS)}",
    ),
    "run_agents": _columns("id run_id", "agent_type name status dispatch_id created_at updated_at"),
    "run_artifacts": _columns(
        "id run_id", "phase path type content_hash dispatch_id status created_at"
    ),
    "phase_events": _columns(
        "id", "run_id from_phase to_phase event_type gate_result gate_tier reason", **_EVENT
    ),
    "dispatch_events": _columns(
        "id", "dispatch_id run_id from_status to_status event_type reason", **_EVENT
    ),
    "interspect_events": _columns(
        "id",
        "run_id agent_name event_type override_reason context_json session_id project_dir",
        **_EVENT,
    ),
    "discovery_events": _columns(
        "id", "discovery_id event_type from_status to_status payload", **_EVENT
    ),
    "discoveries": _columns(
        "id",
        "source source_id title summary url raw_metadata embedding relevance_score "
        "confidence_tier status run_id bead_id discovered_at promoted_at reviewed_at",
    ),
    "feedback_signals": _columns("id discovery_id", "signal_type signal_data actor created_at"),
    "interest_profile": _columns("id", "topic_vector keyword_weights source_weights updated_at"),
}
# Without them it would not pass for a database of the original.
_ALWAYS = ("state", "sentinels")
_NOTHING = "(SELECT 1) WHERE 0"
# Holds nothing.
_IGNORED = {"_migrate_lock"}


class Left(Struct, frozen=True):
    """What was not taken over; `rows` is None where they cannot be counted.

    A column counts where it holds something; `rows` of a table that was taken over are those that
    could not be.
    """

    kind: Literal["table", "column", "rows"]
    table: str
    column: str | None
    rows: int | None


def stage(conn: sqlite3.Connection, fresh: str) -> tuple[dict[str, int], list[Left]]:
    """Copy what we know into the empty file `fresh`; the rows of each table, and what is left."""
    conn.execute("ATTACH ? AS fresh", (fresh,))
    try:
        conn.execute("PRAGMA fresh.journal_mode = MEMORY")  # if we are killed it is worth nothing
        conn.execute("PRAGMA fresh.synchronous = OFF")
        conn.execute("BEGIN")
        try:
            with lenient(conn):
                found = _copy_all(conn)
            conn.execute(f"PRAGMA fresh.user_version = {original.LAST_SCHEMA}")
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
    finally:
        conn.execute("DETACH fresh")
    return found


def _copy_all(conn: sqlite3.Connection) -> tuple[dict[str, int], list[Left]]:
    counts: dict[str, int] = {}
    left: list[Left] = []
    for table, columns in _tables(conn).items():
        known = KNOWN.get(table)
        if known is None or any(known[name] is None for name in known.keys() - columns):
            left.append(Left("table", table, None, _count(conn, table)))
            continue
        _copy(conn, table, known, columns)
        counts[table] = _count(conn, table) or 0
        left.extend(_left_columns(conn, table, sorted(columns - known.keys())))
    for table in _ALWAYS:
        if table not in counts:
            _copy(conn, table, KNOWN[table], set())
    return counts, left


def _tables(conn: sqlite3.Connection) -> dict[str, set[str]]:
    """The names of all tables with those of their columns."""
    names = conn.execute(
        """
        SELECT name FROM main.sqlite_schema
        WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name
        """
    ).fetchall()
    return {name: _columns_of(conn, name) for (name,) in names if name not in _IGNORED}


def _columns_of(conn: sqlite3.Connection, table: str) -> set[str]:
    try:
        found = conn.execute("SELECT name FROM pragma_table_info(?, 'main')", (table,)).fetchall()
    except sqlite3.OperationalError as exc:  # of a module that we do not have
        if exc.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return set()
    return {name for (name,) in found}


def _copy(conn: sqlite3.Connection, table: str, known: _Columns, there: set[str]) -> None:
    """In the order of its rows, which is that of their creation."""
    words = [
        f"coalesce({name}, {default or 'NULL'}) AS {name}"
        if name in there
        else f"{default or 'NULL'} AS {name}"
        for name, default in known.items()
    ]
    rows = f"main.{table} NOT INDEXED WHERE {_sound(table, known)}" if there else _NOTHING
    chosen = f"SELECT {', '.join(words)} FROM {rows}"  # noqa: S608 -- names of ours only
    conn.execute(f"CREATE TABLE fresh.{table} AS {chosen}")


def _sound(table: str, known: _Columns) -> str:
    """Which rows say what they must; the number of an event is a number."""
    if table.endswith("_events"):
        return "typeof(id) = 'integer'"
    return " AND ".join(f"{name} IS NOT NULL" for name, default in known.items() if not default)


def _left_columns(conn: sqlite3.Connection, table: str, names: list[str]) -> Iterator[Left]:
    for name in names:
        count = f"SELECT count({quoted(name)}) FROM main.{table}"  # noqa: S608 -- quoted
        (rows,) = conn.execute(count).fetchone()
        yield Left("column", table, name, rows)


def _count(conn: sqlite3.Connection, table: str) -> int | None:
    try:
        count = f"SELECT count(1) FROM main.{quoted(table)}"  # noqa: S608 -- quoted
        (rows,) = conn.execute(count).fetchone()
    except sqlite3.OperationalError as exc:  # of a module that we do not have
        if exc.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return None
    return int(rows)


_EVENTS = "SELECT source || '_events', count(1) FROM events GROUP BY source"


def taken(conn: sqlite3.Connection, counts: dict[str, int]) -> tuple[dict[str, int], list[Left]]:
    """How many rows of each table are in ours now, and which tables had more."""
    events = dict(conn.execute(_EVENTS))
    found = {
        table: events.get(table, 0) if table.endswith("_events") else _count(conn, table) or 0
        for table in counts
    }
    missing = {table: counts[table] - rows for table, rows in found.items()}
    return found, [Left("rows", table, None, rows) for table, rows in missing.items() if rows]
