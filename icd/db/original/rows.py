"""Rows of the original Go program, read without trust.

Its columns came with its versions, and some of its own upgrades left them out; they hold whatever
was put into them.  What is missing, of another type or out of range has its default: no row makes
an upgrade fail.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from icd.db.rows import is_json

# The year 9999: the last one that RFC 3339 can show.
LAST_SECOND = 253_402_300_799
# Sums of a few of these still fit into a column.
_LARGEST = 2**62

# Characters, of up to four bytes: the names of ours have at most 4096.
_WORD = 1000

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Row(Struct, frozen=True):
    values: dict[str, object]

    def text(self, name: str, default: str = "") -> str:
        return text(self.values.get(name)) or default

    def word(self, name: str, default: str = "") -> str:
        """A text that is shown in lines and columns."""
        return _CONTROL.sub("\ufffd", self.text(name)[:_WORD]) or default

    def number(self, name: str, default: int = 0, least: int = 0, most: int = _LARGEST) -> int:
        value = self.values.get(name)
        return value if isinstance(value, int) and least <= value <= most else default

    def real(self, name: str) -> float:
        """A number of any kind, if it is one; SQLite stores what is not as NULL."""
        value = self.values.get(name)
        return value if isinstance(value, (int, float)) else 0.0

    def blob(self, name: str) -> bytes:
        value = self.values.get(name)
        return value if isinstance(value, bytes) else b""

    def json(self, name: str, default: str) -> str:
        """The value as JSON; what is no JSON becomes a string."""
        given = self.text(name, default)
        return given if is_json(given) else json.dumps(given)

    def seconds(self, name: str, default: int = 0) -> int:
        return self.number(name, default, most=LAST_SECOND)


def rows(conn: sqlite3.Connection, table: str) -> list[Row]:
    """One for each id, the newest, in the order of their creation; none if there is no table."""
    if not exists(conn, table):
        return []
    with lenient(conn):
        found = conn.execute(f"SELECT * FROM {table} ORDER BY rowid")  # noqa: S608 -- ours
        names = [column[0] for column in found.description]
        every = [Row(dict(zip(names, row, strict=True))) for row in found]
    every.sort(key=lambda row: row.seconds("created_at"))
    return list({row.word("id"): row for row in every if row.word("id")}.values())


def exists(conn: sqlite3.Connection, table: str) -> bool:
    found = conn.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    return found is not None


def set_aside(conn: sqlite3.Connection, tables: tuple[str, ...]) -> None:
    """Free the names that our tables need; a database of ours has none of them."""
    for table in tables:
        if exists(conn, table):
            conn.execute(f"ALTER TABLE {table} RENAME TO original_{table}")


def put(
    conn: sqlite3.Connection, table: str, values: dict[str, object], conflict: str = ""
) -> bool:
    """Insert a row by the names of its columns; whether it was inserted."""
    marks = ", ".join(f":{name}" for name in values)
    text = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks}) {conflict}"  # noqa: S608
    return conn.execute(text, values).rowcount > 0


@contextmanager
def lenient(conn: sqlite3.Connection) -> Iterator[None]:
    """Read texts that are no UTF-8, too."""
    before = conn.text_factory
    conn.text_factory = text
    try:
        yield
    finally:
        conn.text_factory = before


def text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
