"""Judge a database's schema before anything in it is used.

A file that came with a clone can say that it is ours and still hold a trigger that undoes a write,
a view that never ends in the place of a table, or an index that refuses a row.  So the schema is
compared, object by object, with what our migrations make; what differs is refused, and untouched.

Most calls open a current database, and compare one digest.  A database that is about to be upgraded
may still hold tables of the original program: before the upgrade, nothing in it may act by itself;
after it, inside the same transaction, the schema is exactly ours or the upgrade is rolled back.
"""

from __future__ import annotations

import sqlite3

# hashlib would load OpenSSL, which costs more than all the rest.
from _blake2 import blake2b
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache

from msgspec import Struct

from icd.db import migrate
from icd.errors import IcError, UntrustedDatabase

# Of what all migrations make; tests/db/test_schema.py computes it anew and says what it is to be.
DIGEST = "1720a153c8432c41bc3d8c69f60af984"
Object = tuple[str, str, str, str | None]  # type, name, table, SQL
_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


def refuse_strange(conn: sqlite3.Connection, path: str) -> None:
    """Raise unless a database of ours that is current has exactly our schema."""
    there = objects(conn)
    if digest(there) == DIGEST:
        return
    found = differences(there, expected(migrate.LATEST))
    if found:
        raise untrusted(path, found)


def refuse_active(conn: sqlite3.Connection, path: str) -> None:
    """Raise if a database that is about to be upgraded has anything that acts by itself.

    The objects of ours that its version has are there as we made them, and those of later versions
    are not there; other tables may be the original's.
    """
    there = objects(conn)
    found = [f"{kind} {name!r}" for kind, name, _, sql in there if _acts(kind, sql)]
    if not found and migrate.is_ours(conn):
        found = _of_another_version(there, migrate.version(conn))
    found += [f"column {name!r}" for name in _generated(conn)] if not found else []
    if found:
        raise untrusted(path, found)


def _of_another_version(there: list[Object], version: int) -> list[str]:
    """What contradicts the version that a database of ours says it has."""
    if not migrate.FIRST <= version <= migrate.LATEST:
        return [f"version {version}"]
    known = {(kind, name): sql for kind, name, _, sql in there}
    ours = {(kind, name): sql for kind, name, _, sql in expected(version)}
    changed = [name for name, sql in ours.items() if known.get(name, "") != sql]
    every = _by_name(expected(migrate.LATEST))
    later = [
        (kind, name)
        for kind, name in every
        if (kind, name) in known and (kind, name) not in ours and not migrate.is_set_aside(name)
    ]
    return [f"{kind} {name!r}" for kind, name in (*changed, *later)]


def foreign_tables(conn: sqlite3.Connection) -> list[str]:
    """The tables that our migrations do not make."""
    ours = {name for kind, name, _, _ in expected(migrate.LATEST) if kind == "table"}
    there = [name for kind, name, _, _ in objects(conn) if kind == "table"]
    return [name for name in there if name not in ours and not name.startswith("sqlite_")]


def differences(there: list[Object], ours: list[Object]) -> list[str]:
    """What is foreign, changed or missing, most telling first."""
    known, found = _by_name(ours), _by_name(there)
    foreign = [name for name in found if name not in known]
    changed = [name for name in found if name in known and found[name] != known[name]]
    missing = [name for name in known if name not in found]
    foreign.sort(key=lambda name: name[0] in ("table", "index"))
    return [f"{kind} {name!r}" for kind, name in (*foreign, *changed, *missing)]


def untrusted(path: str, found: list[str]) -> IcError:
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return UntrustedDatabase(f"{path} does not have intercore's schema: {found[0]}{more}")


def objects(conn: sqlite3.Connection) -> list[Object]:
    return conn.execute(_OBJECTS).fetchall()


def digest(there: list[Object]) -> str:
    """A digest without the order of the objects, which differs after a vacuum."""
    lines = sorted(repr(each) for each in there)
    return blake2b("\n".join(lines).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def expected(version: int) -> list[Object]:
    with _fresh(version) as conn:
        return objects(conn)


@contextmanager
def _fresh(version: int = migrate.LATEST) -> Iterator[sqlite3.Connection]:
    """A database in memory, as the migrations up to a version make it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        for number, file in migrate.pending(0):
            if number <= version:
                for statement in migrate.statements(file):
                    conn.execute(statement)
        yield conn


# --- the tables that our migrations make --------------------------------------------------------


class Column(Struct, frozen=True):
    name: str
    type: str
    required: bool


class Table(Struct, frozen=True):
    name: str
    columns: list[Column]
    key: list[str]
    checks: list[str]


@cache
def tables() -> list[Table]:
    with _fresh() as conn:
        rows = conn.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%STRICT%'"
        ).fetchall()
        return [_table(conn, name, sql) for name, sql in rows]


@cache
def counters() -> list[str]:
    """The counters that every database has."""
    with _fresh() as conn:
        return [name for (name,) in conn.execute("SELECT name FROM counters ORDER BY name")]


def _table(conn: sqlite3.Connection, name: str, sql: str) -> Table:
    found = conn.execute(f"PRAGMA table_info({name})").fetchall()
    columns = [Column(c[1], c[2], bool(c[3] or c[5])) for c in found]
    return Table(name, columns, [c[1] for c in found if c[5]], _checks(sql))


def _checks(sql: str) -> list[str]:
    """The expressions between the parentheses of each CHECK."""
    import re  # only an import of rows asks for this

    found = []
    for start in re.finditer(r"CHECK\s*\(", sql):
        depth, end = 1, start.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        found.append(" ".join(sql[start.end() : end - 1].split()))
    return found


def _by_name(there: list[Object]) -> dict[tuple[str, str], tuple[str, str | None]]:
    return {(kind, name): (table, sql) for kind, name, table, sql in there}


def _acts(kind: str, sql: object) -> bool:
    """Whether an object can act by itself, as triggers, views and virtual tables do."""
    is_plain = kind in ("table", "index") and (sql is None or isinstance(sql, str))
    return not is_plain or (isinstance(sql, str) and sql.upper().startswith("CREATE VIRTUAL"))


def _generated(conn: sqlite3.Connection) -> list[str]:
    rows = conn.execute(
        """
        SELECT t.name || '.' || c.name
        FROM sqlite_schema AS t JOIN pragma_table_xinfo(t.name) AS c
        WHERE t.type = 'table' AND c.hidden <> 0
        """
    )
    return [str(name) for (name,) in rows]
