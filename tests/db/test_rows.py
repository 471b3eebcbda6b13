"""Structs and the statements that are made from them."""

import sqlite3

import msgspec
import pytest
from msgspec import Struct

from icd.db.rows import Column, WrongValue, checked, columns, put, select, values


class Thing(Struct, omit_defaults=True):
    id: str
    size: int
    name: Column[str | None] = None
    is_old: Column[bool] = False
    label: str = ""

    def __post_init__(self) -> None:
        self.label = f"{self.id}/{self.size}"


class Described(Thing):
    text: Column[str | None] = None


@pytest.fixture
def conn():
    with sqlite3.connect(":memory:") as found:
        found.execute("CREATE TABLE things (id TEXT PRIMARY KEY, size INT, name TEXT, is_old INT)")
        yield found
    found.close()


def test_columns_are_the_fields_without_a_default_and_those_that_are_marked():
    assert columns(Thing) == "id, size, name, is_old"
    assert columns(Thing, "t") == "t.id, t.size, t.name, t.is_old"


def test_a_marked_field_behind_a_derived_one_is_no_column():
    """Rows become structs by position."""
    assert columns(Described) == "id, size, name, is_old"


def test_what_is_put_is_what_is_selected(conn):
    thing = Thing("a", 7, is_old=True)

    conn.execute(put(Thing, "things"), values(thing))
    conn.execute(put(Thing, "things", key=("id",)), values(Thing("a", 8)))

    (row,) = conn.execute(select(Thing, "things", "WHERE id = ?"), ("a",))
    assert checked(Thing, row) == Thing("a", 8)
    assert msgspec.json.encode(Thing("a", 8)) == b'{"id":"a","size":8,"label":"a/8"}'


def test_a_value_of_another_type_is_refused_in_a_marked_field_too():
    with pytest.raises(WrongValue, match="holds an integer as its name"):
        checked(Thing, ("a", 7, 8, 0))
