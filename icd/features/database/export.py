"""export: every row of every table as a line that can be kept anywhere.

The schema says which columns a line has, so they are declared nowhere else.  What it does not say
stands in `_NUMBERS`: a file from elsewhere brings nothing that no command could have written.
"""

import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta, Struct

from icd import __version__
from icd.db import migrate, schema
from icd.db.rows import checked, select
from icd.features.database import store
from icd.features.discoveries.vectors import MAX_DIMENSION

# In the order that an import needs.  Counters before state: what is taken in must not get a version
# that was in use over there.  Runs and discoveries before what belongs to them.
TABLES = {
    "migrations": "ORDER BY version",
    # Those of requests tell about the clocks of this machine, and mean nothing elsewhere.
    "counters": "WHERE substr(name, 1, 9) <> 'requests_' ORDER BY name",
    "state": "ORDER BY version",
    "sentinels": "ORDER BY name, scope_id",
    "requests": "ORDER BY id",
    "events": "ORDER BY seq",
    "cursors": "ORDER BY consumer, run_id",
    "hook_positions": "ORDER BY hook",
    # In the order of their creation, which decides between two of the same millisecond.
    "runs": "ORDER BY rowid",
    "run_skips": "ORDER BY run_id, phase",
    "run_agents": "ORDER BY rowid",
    "run_artifacts": "ORDER BY rowid",
    "run_actions": "ORDER BY id",
    "dispatches": "ORDER BY rowid",
    "leases": "ORDER BY name, scope_id",
    "reservations": "ORDER BY rowid",
    "sessions": "ORDER BY id",
    "attributions": "ORDER BY session_id, project_dir",
    "lanes": "ORDER BY rowid",
    "lane_members": "ORDER BY lane_id, bead_id",
    "discoveries": "ORDER BY version, id",
    "embedding_sources": "ORDER BY source",
    "embeddings": "ORDER BY discovery_id",
    "feedback_signals": "ORDER BY id",
    "interest_profile": "ORDER BY id",
}

# --- what a line is -------------------------------------------------------------------------------


def _between(low: int, high: int) -> Any:
    return Annotated[int, Meta(ge=low, le=high)]


_INT64 = 2**63 - 1
_COUNT = _between(0, 2**62)
# The year 9999: the last one that RFC 3339 can show.
_SECONDS = _between(0, 253_402_300_799)
_MILLISECONDS = _between(0, 253_402_300_799_999)
# Absolute: else it would mean another directory in every process that reads it.
_DIRECTORY = Annotated[str, Meta(pattern=r"\A/[^\x00]*\Z")]
# The first that fits the name of a column says which numbers it holds.
_NUMBERS = [
    (r"digest|exit_code|priority|writer_pid|actor_pid|actor_uid", _between(-_INT64 - 1, _INT64)),
    # Counted by other programs: as large as they may say.
    (r"turns|commands|messages|.*_tokens|cache_hits", _between(0, _INT64)),
    (r"once|force_full|auto_.*|budget_enforce", Literal[0, 1]),
    (r"complexity", _between(1, 5)),
    (r"token_budget", _between(1, _INT64)),
    (r".*_pct", _between(1, 99)),
    (r"budget_told", Literal[0, 1, 2]),
    (r"dimension", _between(1, MAX_DIMENSION)),
    (r"(interval|prune|claim|ttl|timeout)_ms", _COUNT),
    (r".*_ms", _MILLISECONDS),
    (r".*_at|at|last_fired", _SECONDS),
    (r".*", _COUNT),
]


class Line(Struct, tag_field="kind", forbid_unknown_fields=True):
    """A row of the table that `kind` names; its fields are the columns."""


class Header(Line, tag="header", forbid_unknown_fields=False):
    """Always the first line; a later intercore may say more in it, and still be told apart."""

    format: Literal["intercore-export"]
    schema: int
    program: str


class End(Line, tag="end"):
    """Always the last line: what ends without it was cut off."""


@cache
def kinds() -> dict[str, type[Struct]]:
    """The lines of each table.  A vector is base64."""
    return {table.name: _kind(table) for table in schema.tables()}


@cache
def decoder() -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Union[Header, End, *kinds().values()])


def _kind(table: schema.Table) -> type[Struct]:
    fields = [
        (column.name, kind if column.required else kind | None)
        for column in table.columns
        for kind in [_checked(table, column) or _typed(column)]
    ]
    return msgspec.defstruct(
        table.name, fields, bases=(Line,), tag=table.name, forbid_unknown_fields=True
    )


def _checked(table: schema.Table, column: schema.Column) -> Any:
    """What a CHECK of the table says about a column; None if there is none."""
    if (table.name, column.name) == ("counters", "name"):
        return Literal[*schema.counters()]
    for check in table.checks:
        name, operator, rest = re.split(r" (IN|BETWEEN|=) ", check)
        if name == column.name:
            values = [int(word) if word.isdecimal() else word for word in re.findall(r"\w+", rest)]
            return _between(values[0], values[2]) if operator == "BETWEEN" else Literal[*values]
    return None


def _typed(column: schema.Column) -> Any:
    if column.type == "INTEGER":
        return next(kind for names, kind in _NUMBERS if re.fullmatch(names, column.name))
    if column.name == "project_dir" and column.required:
        return _DIRECTORY
    return bytes if column.type == "BLOB" else str


# --- lines ----------------------------------------------------------------------------------------


def export(conn: sqlite3.Connection) -> Iterator[Struct]:
    """All lines, read as they are asked for."""
    yield Header("intercore-export", migrate.version(conn), __version__)
    for table, rest in TABLES.items():
        kind = kinds()[table]
        for row in conn.execute(select(kind, table, rest)):
            yield checked(kind, row)
    yield End()


def rows(conn: sqlite3.Connection) -> int:
    """How many lines an export has, beside the first and the last."""
    return sum(store.count(conn, table, rest) for table, rest in TABLES.items())
