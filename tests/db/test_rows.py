"""Structs and the statements that are made from them."""

import sqlite3
from contextlib import closing

import msgspec
import pytest
from msgspec import Struct

from icd.db.connection import ROW_CHARACTERS, connect
from icd.db.rows import Column, WrongValue, checked, columns, one, put, select, values
from icd.errors import ReplyTooLarge


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


# --- one row ---

BY_ID = select(Thing, "things", "WHERE id = ?")


@pytest.fixture
def bounded(tmp_path):
    """A connection of ours, which counts what it reads."""
    (tmp_path / "x.db").touch()
    with closing(connect(str(tmp_path / "x.db"))) as found:
        found.execute("CREATE TABLE things (id, size, name, is_old)")
        found.execute(put(Thing, "things"), values(Thing("a", 7, "name")))
        yield found


def test_one_row_is_found_or_none_through_any_connection(conn, bounded):
    conn.execute(put(Thing, "things"), values(Thing("a", 7, "name")))

    for each in (conn, bounded):
        assert one(each, Thing, BY_ID, ("a",)) == Thing("a", 7, "name")
        assert one(each, Thing, BY_ID, ("b",)) is None


def test_one_row_is_counted_like_any_other(bounded):
    bounded.bounds.taken = 0
    bounded.execute(BY_ID, ("a",)).fetchone()
    usual, bounded.bounds.taken = bounded.bounds.taken, 0
    one(bounded, Thing, BY_ID, ("a",))

    assert bounded.bounds.taken == usual == ROW_CHARACTERS + len("a") + len("name")
    bounded.bounds.room = usual
    with pytest.raises(ReplyTooLarge):
        one(bounded, Thing, BY_ID, ("a",))


def test_one_row_with_a_wrong_value_is_refused_and_leaves_no_statement_open(bounded):
    bounded.execute("BEGIN")
    bounded.execute("UPDATE things SET name = 8")

    with pytest.raises(WrongValue, match="holds an integer as its name"):
        one(bounded, Thing, BY_ID, ("a",))

    bounded.execute("DROP TABLE things")  # SQLite refuses it while a statement reads the table
    bounded.execute("COMMIT")
