"""Rows that intercore would never have written: other types, NULL, no UTF-8, no JSON, no time.

The file may come from a stranger, with our schema and any contents.  Reading it fails where it
happens to matter; this module then tells which row is to blame, so that nothing is called a bug
of ours that is not, and the reverse.
"""

import re
import sqlite3
import time
from collections.abc import Iterator
from math import inf
from typing import Any

from icd.db import schema
from icd.db.connection import Progress, untold
from icd.db.rows import WrongValue, is_json
from icd.errors import DamagedRow, IcError

# How long a failed call looks for the row that is to blame, while others wait for the database.
SECONDS = 0.5
# No clock or counter comes near: adding to what is larger leaves the range of SQLite's integers.
COUNT = 2**62
# The last second of the last year that the system's calendar knows.
CALENDAR_SECONDS = 67_768_036_191_676_799
# Characters of a row's key in a sentence.
KEY_CHARACTERS = 60

_JSON = {
    ("state", "payload"),
    ("requests", "effect"),
    ("events", "payload"),
    ("discoveries", "raw_metadata"),
    ("feedback_signals", "signal_data"),
    ("interest_profile", "keyword_weights"),
    ("interest_profile", "source_weights"),
}
_SECONDS = re.compile(r".*_at|at|last_fired")
_COUNTS = re.compile(r".*_ms|version|token|seq|started|value")
_UNDECODED = re.compile(r"Could not decode to UTF-8 column '([a-z_]+)'")


def blamed(exc: Exception, conn: sqlite3.Connection | None) -> IcError | None:
    """The row that made a call fail with something unforeseen; None if no row did."""
    found = None
    try:
        if isinstance(conn, sqlite3.Connection):  # no stranger hands over a server
            found = next(every(conn, deadline=time.monotonic() + SECONDS), None)
    except (sqlite3.Error, TimeoutError):
        found = None  # it cannot be told; the exception itself may still say so
    if found is None and isinstance(exc, WrongValue):
        found = DamagedRow(str(exc))
    undecoded = _UNDECODED.match(str(exc)) if isinstance(exc, sqlite3.Error) else None
    if found is None and undecoded:
        found = DamagedRow(f"a row of the database has invalid UTF-8 in {undecoded[1]}")
    return found


def every(
    conn: sqlite3.Connection, *, deadline: float = inf, tell: Progress = untold
) -> Iterator[IcError]:
    """Each damaged row, by its first damaged column; `TimeoutError` at the deadline."""
    found = {"counters": _missing(conn), "sqlite_sequence": _sequences(conn)}  # a moment each
    looks = [
        *found.items(),
        *((table.name, _of_table(conn, table, deadline)) for table in schema.tables()),
    ]
    for number, (name, rows) in enumerate(looks):
        tell(number, len(looks), f"checking the rows of {name}")
        try:
            yield from rows
        except (sqlite3.DataError, MemoryError):
            yield DamagedRow(f"a row of table {name} is too large to read")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise  # else the table, or a column of it, is not there: it has no rows of ours


def _missing(conn: sqlite3.Connection) -> Iterator[IcError]:
    """The rows that our migrations put into the table of counters, and nothing removes."""
    for name in schema.counters():
        if conn.execute("SELECT 1 FROM counters WHERE name = ?", (name,)).fetchone() is None:
            yield DamagedRow(f"row {name} of table counters is missing")


def _sequences(conn: sqlite3.Connection) -> Iterator[IcError]:
    """SQLite's own table of the last numbers: it has no types."""
    select = "SELECT typeof(seq), CASE typeof(seq) WHEN 'integer' THEN seq END FROM sqlite_sequence"
    for kind, seq in conn.execute(f"{select} WHERE name = 'events'"):
        where = "row events of table sqlite_sequence is damaged"
        if kind != "integer":
            yield DamagedRow(f"{where}: seq is {kind.upper()}, not INTEGER")
        elif abs(seq) > COUNT:
            yield DamagedRow(f"{where}: seq is {seq}, which is out of range")


def _of_table(conn: sqlite3.Connection, table: schema.Table, deadline: float) -> Iterator[IcError]:
    names = [column.name for column in table.columns]
    words = [f"typeof({name})" for name in names]
    words += [_VALUES[column.type].format(column.name) for column in table.columns]
    words += [f"({check}) IS NOT 0" for check in table.checks]
    size = len(names)
    select = f"SELECT {', '.join(words)} FROM {table.name}"  # noqa: S608 -- names of our migrations
    for row in conn.execute(select):
        if time.monotonic() >= deadline:
            raise TimeoutError
        types, values, kept = row[:size], row[size : 2 * size], row[2 * size :]
        problem = _problem(table, types, values) or _broken(table, kept)
        if problem:
            by_name = dict(zip(names, values, strict=True))
            key = "/".join(_shown(by_name[name]) for name in table.key)
            yield DamagedRow(f"row {key} of table {table.name} is damaged: {problem}")


# Text as bytes, which need not be UTF-8, and nothing that has another type.
_VALUES = {
    "TEXT": "CAST({0} AS BLOB)",
    "INTEGER": "CASE typeof({0}) WHEN 'integer' THEN {0} END",
    "BLOB": "NULL",
}


def _problem(table: schema.Table, types: tuple[str, ...], values: tuple[Any, ...]) -> str:
    for column, kind, value in zip(table.columns, types, values, strict=True):
        if kind == "null":
            if column.required:
                return f"{column.name} is NULL"
        elif kind != column.type.lower():
            return f"{column.name} is {kind.upper()}, not {column.type}"
        elif column.type == "TEXT":
            text = _decoded(value)
            if text is None:
                return f"{column.name} is not UTF-8"
            if (table.name, column.name) in _JSON and not is_json(text):
                return f"{column.name} is not JSON"
        elif column.type == "INTEGER" and abs(value) > _most(column.name):
            return f"{column.name} is {value}, which is out of range"
    return ""


def _most(name: str) -> int:
    if _SECONDS.fullmatch(name):
        return CALENDAR_SECONDS
    return COUNT if _COUNTS.fullmatch(name) else 2**64


def _broken(table: schema.Table, kept: tuple[int, ...]) -> str:
    broken = [check for check, holds in zip(table.checks, kept, strict=True) if not holds]
    return f"violated constraint: {broken[0]}" if broken else ""


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _shown(value: object) -> str:
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    return ascii(text)[1:-1][:KEY_CHARACTERS]
