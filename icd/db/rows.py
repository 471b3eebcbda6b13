"""From a row to a struct, with a look at its values, and from a struct to SQL.

The struct of a table names its columns, and no other code does: statements are made from it.
Columns are its fields without a default, then those that are marked as a `Column`.

SQLite checks the types of a STRICT table when it is written, not when it is read, so a file that
another program made can hold anything.  What is above this module can rely on its structs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Raw

from icd.db.connection import ROW_CHARACTERS, Connection

Kind = TypeVar("Kind")

# A column that JSON leaves out while it has its default, such as `name: Column[str | None] = None`.
_COLUMN = object()
Column = Annotated[Kind, _COLUMN]

# How many sequences of types are remembered per struct: few columns can be NULL in practice, and
# a stranger's rows must not fill the memory with all that are possible.
REMEMBERED = 64
# With each, which columns are texts or bytes.
_good: dict[type, dict[tuple[type, ...], tuple[int, ...]]] = {}


class WrongValue(ValueError):
    """A row that SQLite would not have taken from us."""


def checked(kind: type[Kind], row: tuple[Any, ...]) -> Kind:
    """A struct or a named tuple; raises `WrongValue` if it declares other types for the columns."""
    types = tuple(map(type, row))
    if types not in _good.get(kind, ()):
        _judge(kind, types)
    return kind(*row)


def one(
    conn: sqlite3.Connection, kind: type[Kind], statement: str, given: Sequence[Any]
) -> Kind | None:
    """What a statement finds that finds one row at most, such as by a key.

    The hot reads: without a cursor for each, and the row is looked at once.
    """
    if not isinstance(conn, Connection):
        row = conn.execute(statement, given).fetchone()
        return None if row is None else checked(kind, row)
    row = conn.single.execute(statement, given).fetchone()
    if row is None:
        return None
    types = tuple(map(type, row))
    known = _good.get(kind)
    texts = None if known is None else known.get(types)
    if texts is None:
        texts = _judge(kind, types)
    characters = ROW_CHARACTERS
    for index in texts:
        characters += len(row[index])
    bounds = conn.bounds
    bounds.taken += characters
    if bounds.taken > bounds.room:
        bounds.refuse()
    return kind(*row)


def _judge(kind: type, types: tuple[type, ...]) -> tuple[int, ...]:
    names: tuple[str, ...] = getattr(kind, "__struct_fields__", None) or kind._fields  # type: ignore[attr-defined]
    hints = _hints(kind)
    for name, found in zip(names, types, strict=False):
        if not _allows(hints[name], found):
            raise WrongValue(f"a row of the database holds {_word(found)} as its {name}")
    texts = tuple(i for i, found in enumerate(types) if found in (str, bytes))
    known = _good.setdefault(kind, {})
    if len(known) < REMEMBERED:
        known[types] = texts
    return texts


def _hints(kind: type) -> dict[str, Any]:
    bases = [getattr(base, "__annotations__", {}) for base in kind.__mro__]
    return {name: hint for base in bases for name, hint in base.items()}


def _allows(hint: Any, found: type) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_allows(each, found) for each in args)
    if origin is Literal:
        return any(type(each) is found for each in args)
    if origin is Annotated:
        return _allows(args[0], found)
    if hint in (float, bool):  # SQLite has no booleans
        return found in (hint, int)
    return bool(hint is found or (hint is None and found is NoneType))


def _word(kind: type) -> str:
    words = {NoneType: "nothing", int: "an integer", float: "a fraction", bytes: "bytes"}
    return words.get(kind, "text")


def columns(kind: type[msgspec.Struct], table: str = "") -> str:
    """The columns that a struct is made of, for a SELECT."""
    return ", ".join(f"{table}.{name}" if table else name for name in _columns(kind))


def select(kind: type[msgspec.Struct], table: str, rest: str = "") -> str:
    """The statement that reads structs from a table; `rest` is what follows its name."""
    return f"SELECT {columns(kind)} FROM {table} {rest}"  # noqa: S608 -- a struct names the columns


def put(kind: type[msgspec.Struct], table: str, *, key: Sequence[str] = ()) -> str:
    """The statement that inserts a struct, or replaces the row with the same key."""
    names = _columns(kind)
    text = f"INSERT INTO {table} ({columns(kind)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608
    if key:
        changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
        text += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    return text


def values(row: msgspec.Struct) -> tuple[Any, ...]:
    """What the statement of `put` is given."""
    return msgspec.structs.astuple(row)[: len(_columns(type(row)))]


@cache
def _columns(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    names = kind.__struct_fields__
    hints = _hints(kind)
    end = len(names) - len(kind.__struct_defaults__)
    while end < len(names) and _COLUMN in getattr(hints[names[end]], "__metadata__", ()):
        end += 1
    return names[:end]


def quoted(name: str) -> str:
    """The name of a table or a column that another program chose."""
    return '"' + name.replace('"', '""') + '"'


def document(text: str) -> Raw:
    """A stored payload, ready to stand in an answer; what is no JSON becomes a string."""
    try:
        _decoder.decode(text)  # walks through it and makes nothing
    except (msgspec.DecodeError, RecursionError):
        if not is_json(text):  # such as half of a surrogate pair, which is legal
            return Raw(msgspec.json.encode(text))
    return Raw(text)


def is_json(text: str) -> bool:
    """Numbers may have any size: they are not counted with, and Python has a limit."""
    import json  # what we write ourselves is not looked at so closely

    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decoder = msgspec.json.Decoder(Raw)
