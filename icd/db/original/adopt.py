"""Taking over a database of the original that is newer than those we know.

Ours is built beside it, from the tables and columns that we know by name, with the same code that
takes over the earlier ones; the old file is kept under another name.

Promises
    - no other process uses the original meanwhile: we hold SQLite's exclusive lock on it from
      before the first row is read until after the switch, and refuse if another has it open.
      A process that opens it in between waits for that lock in vain, and then finds the new file;
    - whenever we are killed, the path names the old file, complete, or ours, complete: what is
      built has another name until it is on the disk, and the switch is one rename;
    - what is ours already stays as it is;
    - the database of the original is read, and never written: a column that is missing has its
      default, a table without a column that it makes no sense without is not the one we know, and
      what is not known stays behind, and is told: tables, columns, and how many rows have them.

The caller holds our own lock, so no process of intercore has the file open.
"""

import glob
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Literal

from msgspec import Struct

from icd import files, procfs
from icd.db import backup, lost, migrate, permissions, schema
from icd.db.connection import Progress, connect, is_log_emptied, transaction, until, untold
from icd.db.database import Database, identity
from icd.db.original.runs import RUN_LIMITS, RUN_NUMBERS
from icd.db.original.tables import lenient
from icd.db.rows import quoted
from icd.errors import Corrupt, IcError, Locked, NoDatabase, from_os

# --- tables of any schema, copied as those of the last schema that we know ------------------------

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
        f"scope_id metadata phases token_budget gate_rules {' '.join((*RUN_NUMBERS, *RUN_LIMITS))}",
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
    "coordination_locks": _columns(
        "id type owner scope pattern",
        "exclusive reason ttl_seconds created_at expires_at released_at dispatch_id run_id",
    ),
    "coordination_events": _columns(
        "id", "lock_id run_id event_type owner pattern scope reason", **_EVENT
    ),
    "sessions": _columns(
        "id session_id project_dir",
        "agent_type model metadata started_at ended_at input_tokens output_tokens "
        "cache_creation_tokens cache_read_tokens",
    ),
    "session_attributions": _columns("id session_id", "project_dir bead_id run_id phase", **_EVENT),
    "lanes": _columns(
        "id name", "lane_type status description intent metadata created_at updated_at closed_at"
    ),
    "lane_members": _columns("lane_id bead_id", "added_at"),
    "lane_events": _columns("id", "lane_id event_type payload", **_EVENT),
    "phase_actions": _columns(
        "id run_id phase command", "action_type args mode priority created_at updated_at"
    ),
    "review_events": _columns(
        "id",
        "run_id finding_id agents_json resolution dismissal_reason chosen_severity impact "
        "session_id project_dir event_type",
        **_EVENT,
    ),
    "agency_events": _columns(
        "id",
        "run_id agency_name event_type cycle_id stage context_json idempotency_key project_dir",
        **_EVENT,
    ),
    "intent_events": _columns(
        "id",
        "intent_type bead_id idempotency_key session_id run_id success error_detail",
        **_EVENT,
    ),
}
# Where ours have another name; attributions are events, of which one row each session is left.
_OURS = {
    "coordination_locks": "reservations",
    "phase_actions": "run_actions",
    "session_attributions": "session_events",
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


def stage(
    conn: sqlite3.Connection, fresh: str, tell: Progress = untold
) -> tuple[dict[str, int], list[Left]]:
    """Copy what we know into the empty file `fresh`; the rows of each table, and what is left."""
    conn.execute("ATTACH ? AS fresh", (fresh,))
    try:
        conn.execute("PRAGMA fresh.journal_mode = MEMORY")  # if we are killed it is worth nothing
        conn.execute("PRAGMA fresh.synchronous = OFF")
        conn.execute("BEGIN")
        try:
            with lenient(conn):
                found = _copy_all(conn, tell)
            conn.execute(f"PRAGMA fresh.user_version = {migrate.LAST_ORIGINAL}")
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
    finally:
        conn.execute("DETACH fresh")
    return found


def _copy_all(conn: sqlite3.Connection, tell: Progress) -> tuple[dict[str, int], list[Left]]:
    counts: dict[str, int] = {}
    left: list[Left] = []
    tables = _tables(conn)
    for number, (table, columns) in enumerate(tables.items()):
        tell(number, len(tables), "copying the tables")
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


def taken_over(
    conn: sqlite3.Connection, counts: dict[str, int]
) -> tuple[dict[str, int], list[Left]]:
    """How many rows of each table are in ours now, and which tables had more."""
    events = dict(conn.execute(_EVENTS))
    names = {table: _OURS.get(table, table) for table in counts}
    found = {
        table: events.get(name, 0) if name.endswith("_events") else _count(conn, name) or 0
        for table, name in names.items()
    }
    missing = {table: counts[table] - rows for table, rows in found.items()}
    return found, [Left("rows", table, None, rows) for table, rows in missing.items() if rows]


# --- adoption -------------------------------------------------------------------------------------

# The original gives up on a locked database after a tenth of a second.
LOOK_AGAIN_SECONDS = 0.01

_UNTRUSTED = "the database is not trusted and may not start programs; trust it with 'icctl trust'"
_WAIT = "stop the processes that use it, then run 'icctl init --adopt' again; nothing was changed"


class Adoption(Struct, frozen=True):
    """`schema`: of the original; `taken`: the rows of each of its tables that are in ours.

    `still_open`: processes that opened the old file too late to be refused, and keep it open.
    """

    schema: int
    kept: str
    taken: dict[str, int]
    left: list[Left]
    still_open: list[int]


# Brings what takes the rules of a noun, from the tables that are still there under their names.
Bring = Callable[[sqlite3.Connection], None]


def _nothing(_conn: sqlite3.Connection) -> None:
    pass


def adopt(
    database: Database,
    *,
    bring: Bring = _nothing,
    now_ms: int,
    deadline: float,
    tell: Progress = untold,
) -> Adoption | None:
    """Take it over; None if it is ours, or can be upgraded like any other."""
    path = database.path
    if identity(path) is None:
        raise NoDatabase(f"no database at {path}")
    permissions.refuse_read_only(path)
    with closing(connect(path)) as conn:
        if not migrate.is_newer_original(conn):
            return None
    fresh = f"{path}.adopt"
    files.remove(fresh, f"{fresh}-journal")  # we hold the lock, so its owner died over it
    try:
        with _alone(path) as old:
            schema = migrate.version(old)
            taken, left = _build(
                old, fresh, path, bring, now_ms=now_ms, deadline=deadline, tell=tell
            )
            tell(0, 0, "putting it in place")
            lost.note_replacement(database.lock, fresh)
            kept = _switch(old, fresh, path, f"{path}.original-{backup.stamp(now_ms)}")
            still_open = _stragglers(kept, deadline)
    finally:
        files.remove(fresh)
    # Its rows are another program's, perhaps a stranger's, and that file was never trusted.
    database.notes.append(_UNTRUSTED)
    return Adoption(schema, kept, taken, left, still_open)


@contextmanager
def _alone(path: str) -> Iterator[sqlite3.Connection]:
    """A connection to the file while no other process reads, writes or has it open."""
    with closing(connect(path)) as conn:
        conn.execute("PRAGMA main.locking_mode = EXCLUSIVE")  # kept until the connection is closed
        try:
            conn.execute("BEGIN EXCLUSIVE")
            conn.execute("COMMIT")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise _in_use(path) from exc
        # After the lock, or a process could come between the two.
        if _users(path):
            raise _in_use(path)
        yield conn


def _users(path: str) -> list[int]:
    there = identity(path)
    return procfs.openers(*there) if there else []


def _in_use(path: str) -> IcError:
    """The error that names the user of the file, if it can be seen: another user's cannot."""
    pids = _users(path)
    found = procfs.stat(pids[0]) if pids else None
    who = f"process {pids[0]} ({found.name})" if found else "another process"
    return Locked(f"the original is in use: {who} has {path} open", hint=_WAIT)


def _build(
    old: sqlite3.Connection,
    fresh: str,
    path: str,
    bring: Bring,
    *,
    now_ms: int,
    deadline: float,
    tell: Progress,
) -> tuple[dict[str, int], list[Left]]:
    """Ours, complete and on the disk, under its temporary name."""
    os.close(permissions.create(fresh))
    with until(old, deadline):
        tell(0, 0, "checking the original")
        _refuse_damage(old, path)
        counts, left = stage(old, fresh, tell)
    tell(0, 0, "converting")
    with closing(connect(fresh)) as conn, until(conn, deadline):
        conn.execute("PRAGMA journal_mode = MEMORY")  # if we are killed it is worth nothing
        conn.execute("PRAGMA foreign_keys = ON")
        with transaction(conn):
            migrate.apply(conn, path, now_ms=now_ms)
            bring(conn)
            for table in schema.foreign_tables(conn):
                conn.execute(f"DROP TABLE {quoted(table)}")
            taken, missing = taken_over(conn, counts)
        conn.execute("VACUUM")  # the copies of the original's tables have left room behind
    files.sync(fresh)
    return taken, left + missing


def _refuse_damage(conn: sqlite3.Connection, path: str) -> None:
    (verdict,) = conn.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Corrupt(f"{path} is damaged: {verdict}", hint="repair it with the original program")


def _switch(old: sqlite3.Connection, fresh: str, path: str, name: str) -> str:
    """Put ours in its place; where the original is now."""
    if not is_log_emptied(old):
        raise _in_use(path)
    try:
        kept = _keep(old, path, name)
    except OSError as exc:
        raise from_os(exc, f"replace {path}") from exc
    # The content of all three is in the file by now.
    backup.put(fresh, path, permissions.SQLITES_OWN)
    return kept


def _keep(old: sqlite3.Connection, path: str, stem: str) -> str:
    """A second name for the file, or a copy where there are no such; the path still names it."""
    for name in glob.glob(f"{glob.escape(path)}.original-*"):
        if identity(name) == identity(path):
            os.unlink(name)  # of an attempt that was killed before its switch
    kept = permissions.free_name(stem)
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:
        backup.to(old, kept)
    return kept


def _stragglers(kept: str, deadline: float) -> list[int]:
    """A process that opened the old file before the switch must not get to write to it.

    While we hold its lock they cannot, and they give up soon; those that do not are told.
    """
    while (found := _users(kept)) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN_SECONDS)
    return found
