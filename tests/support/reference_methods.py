"""The part of `docs/protocol.md` that is made from the rows of the methods.

The fields of a result are listed once, with the method that is most about them; other methods
refer to it.
"""

from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import UNSET, inspect

from icd.app import registry
from icd.app.call import Params
from icd.app.reference.openrpc import about, descriptions
from icd.app.verb import Method
from tests.support.markdown import anchor, cell
from tests.support.reference_commands import called

Row = Method[Any, Any]

_WORDS = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.FloatType: "number",
    inspect.NoneType: "null",
    inspect.AnyType: "any JSON value",
    inspect.RawType: "any JSON value",
    inspect.BytesType: "string in base64",
}
# Methods that are most about a result, before those that merely give it back, too.
_MOST_ABOUT = (".get", ".status", ".check", ".set")
# No bound that a caller would meet.
_FAR = 2**53


def index() -> Iterator[str]:
    for noun in registry.METHODS:
        yield f"- {', '.join(_link(name) for name in registry.table(noun))}"


def common() -> Iterator[str]:
    yield from _parameters(Params, Params.__struct_fields__)


def methods() -> Iterator[str]:
    for method in registry.every():
        yield from _method(method)


def _method(method: Row) -> Iterator[str]:
    yield from (f"#### `{method.name}`", "", about(method.params), "")
    yield from (*_traits(method), "")
    own = [name for name in method.params.__struct_fields__ if name not in Params.__struct_fields__]
    if own:
        yield from (*_parameters(method.params, own), "")
    yield from _result(method)
    commands = _commands().get(method.name, [])
    if commands:
        links = ", ".join(f"[{name}](cli.md#{anchor(name)})" for name in commands)
        yield from (f"{'Command' if len(commands) == 1 else 'Commands'}: {links}.", "")


@cache
def _commands() -> dict[str, list[str]]:
    """The commands that call each method."""
    found: dict[str, list[str]] = {}
    for name, command in registry.commands().items():
        for method in called(command.row):
            found.setdefault(method, []).append(name)
    return found


def _traits(method: Row) -> Iterator[str]:
    if method.writes is not None:
        yield "It writes."
    if method.stream is not None and method.stream.notifies:
        yield f"It is a [typed stream](#typed-streams) of `{method.stream.notifies}`."
    if method.runs.creates:
        yield "It creates the database if there is none."
    if method.runs.whole:
        yield "It works on the database as a whole: other calls to it wait."
    if method.runs.local:
        yield "It runs in the caller's own process only: the daemon answers `method_not_found`."
    if method.run is None:
        yield "The daemon answers it itself, without a database."


# --- parameters -----------------------------------------------------------------------------


def _parameters(params: type[Params], names: Any) -> Iterator[str]:
    said = descriptions(params)
    by_name = {field.name: field for field in _info(params).fields}
    yield from ("| Parameter | Type | Default | Meaning |", "|---|---|---|---|")
    for name in names:
        field = by_name[name]
        kind = _type(field.type if field.required else _given(field.type))
        cells = (f"`{name}`", kind, _default(field), said.get(name, ""))
        yield f"| {' | '.join(map(cell, cells))} |"


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    if field.default_factory is not inspect.NODEFAULT:
        return f"`{msgspec.json.encode(field.default_factory()).decode()}`"
    if field.default in (None, UNSET) or isinstance(field.default, msgspec.Raw):
        return ""
    return f"`{msgspec.json.encode(field.default).decode()}`"


# --- results --------------------------------------------------------------------------------


def _result(method: Row) -> Iterator[str]:
    found = inspect.type_info(method.result)
    here = [kind for kind in _structs(found) if _homes()[kind.cls] == method.name]
    tops = [*_tops(found)]
    yield from (f"Result: {_type(found, method.name)}.", "")
    for kind in here:
        if kind.cls not in tops:
            uses = ", ".join(f"`{name}`" for name in _uses(found, kind.cls))
            yield from (f"In {uses}:", "")
        yield from (*_about(kind), *_fields(kind, method.name), "")


def _about(kind: inspect.StructType) -> Iterator[str]:
    said = kind.cls.__dict__.get("__doc__")
    if said:
        yield from (cleandoc(said), "")


def _fields(kind: inspect.StructType, home: str) -> Iterator[str]:
    yield from ("| Field | Type | Present |", "|---|---|---|")
    always = {field.encode_name for field in kind.fields if _always(kind, field)}
    for field in kind.fields:
        name = field.encode_name
        there = name in always or name.removesuffix("_iso") in always
        kind_of = _type(field.type if there else _given(field.type), home)
        yield f"| `{name}` | {cell(kind_of)} | {'always' if there else 'if known'} |"


def _always(kind: inspect.StructType, field: inspect.Field) -> bool:
    if field.required:
        return True
    return not kind.cls.__struct_config__.omit_defaults and field.default is not UNSET


@cache
def _homes() -> dict[type, str]:
    """With which method the fields of a struct are listed."""
    homes: dict[type, str] = {}
    rows = registry.every()
    first = [row for row in rows if row.name.endswith(_MOST_ABOUT)]
    for row in (*first, *rows):
        for kind in _tops(inspect.type_info(row.result)):
            homes.setdefault(kind, row.name)
    for row in rows:
        for info in _structs(inspect.type_info(row.result)):
            homes.setdefault(info.cls, row.name)
    return homes


def _tops(found: inspect.Type) -> Iterator[type]:
    """The structs that a result is, or is an array of."""
    if isinstance(found, inspect.StructType):
        yield found.cls
    elif isinstance(found, inspect.UnionType):
        for part in found.types:
            yield from _tops(part)
    elif isinstance(found, inspect.ListType | inspect.VarTupleType):
        yield from _tops(found.item_type)


def _structs(found: inspect.Type) -> list[inspect.StructType]:
    """All structs within a type, outer ones first."""
    seen: dict[type, inspect.StructType] = {}

    def look(kind: inspect.Type) -> None:
        if isinstance(kind, inspect.StructType):
            if kind.cls not in seen:
                seen[kind.cls] = kind
                for field in kind.fields:
                    look(field.type)
            return
        for part in _within(kind):
            look(part)

    look(found)
    return list(seen.values())


def _within(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.UnionType):
        return tuple(kind.types)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return (kind.item_type,)
    if isinstance(kind, inspect.DictType):
        return (kind.value_type,)
    return ()


def _uses(found: inspect.Type, cls: type) -> list[str]:
    """The fields within a result that hold a struct."""
    names = [
        field.encode_name
        for kind in _structs(found)
        for field in kind.fields
        if any(cls is part.cls for part in _direct(field.type))
    ]
    return list(dict.fromkeys(names))


def _direct(kind: inspect.Type) -> Iterator[inspect.StructType]:
    if isinstance(kind, inspect.StructType):
        yield kind
    for part in _within(kind):
        yield from _direct(part)


# --- types ----------------------------------------------------------------------------------


def _info(kind: type[msgspec.Struct]) -> inspect.StructType:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found


def _given(kind: inspect.Type) -> inspect.Type:
    """A type without the null that means that nothing is given."""
    if isinstance(kind, inspect.Metadata):
        return _given(kind.type)
    if not isinstance(kind, inspect.UnionType):
        return kind
    parts = tuple(part for part in kind.types if not isinstance(part, inspect.NoneType))
    return parts[0] if len(parts) == 1 else inspect.UnionType(parts)


def _type(kind: inspect.Type, home: str = "") -> str:
    """A type in words; `home` is the method below which it is written."""
    if isinstance(kind, inspect.Metadata):
        return _type(kind.type, home)
    if isinstance(kind, inspect.UnionType):
        return " or ".join(_type(part, home) for part in kind.types)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        return _array(_type(kind.item_type, home))
    if isinstance(kind, inspect.DictType):
        return f"object, name to {_type(kind.value_type, home)}"
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, inspect.IntType):
        return _integer(kind)
    if isinstance(kind, inspect.StructType):
        return _object(kind.cls, home)
    return _WORDS[type(kind)]


def _array(of: str) -> str:
    word, _, rest = of.partition(" ")
    many = f"{word}s" if word in {"object", "string", "integer", "number", "boolean"} else word
    return f"array of {' '.join(filter(None, (many, rest)))}"


def _integer(kind: inspect.IntType) -> str:
    low = kind.ge if kind.ge is not None and abs(kind.ge) < _FAR else None
    high = kind.le if kind.le is not None and abs(kind.le) < _FAR else None
    if low is not None and high is not None:
        return f"integer, {low} to {high}"
    return f"integer, at least {low}" if low is not None else "integer"


def _object(cls: type[msgspec.Struct], home: str) -> str:
    found = _homes().get(cls)
    if found is None:  # of parameters
        names = ", ".join(f"`{name}`" for name in cls.__struct_encode_fields__)
        return f"object with {names}"
    return "object" if found == home else f"object of {_link(found)}"


def _link(name: str) -> str:
    return f"[`{name}`](#{anchor(name)})"
