"""The table of methods."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

from icd.app import registry
from icd.app.call import Params


def test_a_method_is_found_by_its_name():
    for method in registry.every():
        assert registry.find(method.name) is method, method


@pytest.mark.parametrize(
    "name", ["", "state", "state.", "state.nothing", "nothing.get", "State.get"]
)
def test_what_is_not_in_the_table_is_not_found(name):
    assert registry.find(name) is None


def test_names_are_unique():
    names = [method.name for method in registry.every()]

    assert len(set(names)) == len(names)


def test_every_noun_has_methods():
    assert all(registry.table(noun) for noun in registry.METHODS)


def test_a_method_takes_what_every_method_takes():
    for method in registry.every():
        assert set(Params.__struct_fields__) <= set(method.params.__struct_fields__), method


def test_only_a_method_of_a_database_writes_or_creates():
    for method in registry.every():
        assert method.run is not None or not (method.writes or method.runs.creates), method


# Never stored, nor compared by the database; or judged by the method itself.
UNBOUNDED = {"deadline_ms", "priority", "protocols", "ttl_ms", "version"}


def test_a_database_can_hold_every_number_that_it_is_given():
    for method in registry.every():
        for name, number in _numbers(inspect.type_info(method.params), ""):
            if name not in UNBOUNDED:
                assert None not in (number.ge, number.le), name
                assert -(2**63) <= number.ge <= number.le < 2**63, name


def _numbers(kind: Any, name: str) -> Iterator[tuple[str, inspect.IntType]]:
    if isinstance(kind, inspect.IntType):
        yield name, kind
    for field in getattr(kind, "fields", ()):
        yield from _numbers(field.type, field.name)
    for inner in (
        *getattr(kind, "types", ()),
        *getattr(kind, "item_types", ()),
        getattr(kind, "item_type", None),
        getattr(kind, "value_type", None),
        getattr(kind, "type", None),
    ):
        if inner is not None:
            yield from _numbers(inner, name)
