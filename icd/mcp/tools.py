"""A method as a tool: everything that a client is told about it, made from the row.

The parameters that every method has are left out: the server knows the project, and an agent has
no say in which database, or whose session, it means.
"""

import re
import shlex
import time
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec import Struct

from icd.app import registry
from icd.app.call import Params
from icd.app.invocation import Ask, World
from icd.app.planner import plan
from icd.app.reference.openrpc import about, descriptions, require_derived
from icd.app.verb import Method, parts
from icd.mcp import offer

if TYPE_CHECKING:
    from icctl.api import Error

Row = Method[Any, Any]

# What the server says itself; and positions in the tables of the original program.
HIDDEN = frozenset({*Params.__struct_fields__, "marks"})
# What results are wrapped in that are no objects: the protocol wants one.
RESULT = "result"
EXAMPLES = 2
_DEFINITION = "#/$defs/{name}"
# A command of ours in a line of shell, with what is piped into it.
_COMMAND = re.compile(
    r"""(?:(?:echo|printf) '([^']*)' \| )?\bicctl ((?:"[^"]*"|'[^']*'|[^|&)<>;])+)"""
)
_REFERENCE = re.compile(r"`([a-z]+\.[a-z_]+)`")
NOWHERE = "/nowhere"  # the directory of the examples; what comes from it is no example
_PATIENCE = 60.0  # nothing is carried out
_WORLD_OF_EXAMPLES = {"CLAUDE_SESSION_ID": "$CLAUDE_SESSION_ID"}


class Tool(Struct, frozen=True):
    name: str
    method: Row
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    reads: bool
    destroys: bool
    idempotent: bool

    @property
    def parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = self.input_schema["properties"]
        return found


def name_of(row: Row) -> str:
    return row.name.replace(".", "_")


def _tool_named(found: re.Match[str]) -> str:
    """A method that is named in a description, as the tool that it is."""
    row = registry.find(found[1])
    return found[0] if row is None else f"`{name_of(row)}`"


def describe(row: Row) -> Tool:
    reads = row.writes is None
    return Tool(
        name=name_of(row),
        method=row,
        title=row.name.replace(".", " ").replace("_", " "),
        description="\n".join([_REFERENCE.sub(_tool_named, about(row.params)), *_examples(row)]),
        input_schema=_input_schema(row),
        output_schema=_output_schema(row),
        reads=reads,
        destroys=offer.is_destructive(row),
        idempotent=reads or row.name in offer.IDEMPOTENT,
    )


# --- schemas --------------------------------------------------------------------------------------


def _input_schema(row: Row) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([row.params], ref_template=_DEFINITION)
    own = components.pop(_name(schema))
    said = descriptions(row.params)
    names = [name for name in own["properties"] if name not in HIDDEN]
    found: dict[str, Any] = {
        "type": "object",
        "properties": {
            name: {**own["properties"][name], "description": said[name]} for name in names
        },
        "required": [name for name in own.get("required", []) if name not in HIDDEN],
        "additionalProperties": False,
    }
    inner = {kind.__name__: components[kind.__name__] for kind in _inner(row, names)}
    for kind in _inner(row, names):
        for name, text in descriptions(kind).items():
            if name in inner[kind.__name__]["properties"]:
                inner[kind.__name__]["properties"][name]["description"] = text
    return found | ({"$defs": inner} if inner else {})


def _inner(row: Row, names: list[str]) -> list[Any]:
    """The structs in lists of parameters."""
    kinds = [f.type for f in msgspec.structs.fields(row.params) if f.name in names]
    inner = [part for kind in kinds for part in get_args(parts(kind)[0])]
    return [kind for kind in inner if isinstance(kind, type) and issubclass(kind, Struct)]


def _output_schema(row: Row) -> dict[str, Any]:
    (schema,), components = msgspec.json.schema_components([row.result], ref_template=_DEFINITION)
    for component in components.values():
        require_derived(component)
    if is_object(row):
        schema = components.pop(_name(schema)) if not _is_used(schema, components) else schema
    else:
        schema = {"properties": {RESULT: schema}, "required": [RESULT]}
    found: dict[str, Any] = {"type": "object", **schema}
    return found | ({"$defs": components} if components else {})


def is_object(row: Row) -> bool:
    """Whether the result is always an object, and can be given as it is."""
    return isinstance(row.result, type) and issubclass(row.result, Struct)


def _is_used(schema: dict[str, Any], components: dict[str, Any]) -> bool:
    """Whether a definition is referred to from inside, too."""
    return f'"{schema["$ref"]}"' in msgspec.json.encode(components).decode()


def _name(schema: dict[str, Any]) -> str:
    found: str = schema["$ref"].rpartition("/")[2]
    return found


# --- examples -------------------------------------------------------------------------------------


def examples(row: Row) -> list[dict[str, Any]]:
    """Arguments that the tool takes."""
    return _arguments().get(row.name, [])[:EXAMPLES]


def _examples(row: Row) -> list[str]:
    found = [msgspec.json.encode(given).decode() for given in examples(row)]
    return [f"Example arguments: {text}" for text in found]


@cache
def _arguments() -> dict[str, list[dict[str, Any]]]:
    """The arguments of each method, as the examples of the commands give them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for leaf in registry.commands().values():
        for example in leaf.row.examples:
            for line in _COMMAND.finditer(example):
                asked = _planned(line[2], line[1] or "")
                if asked is None:
                    continue
                given = _given(asked.params)
                if given not in found.setdefault(asked.method, []):
                    found[asked.method].append(given)
    return found


def _planned(line: str, stdin: str) -> Ask | None:
    """What a command would ask; None if it needs a file, or the caller's own process."""
    world = World(
        argv=shlex.split(line),
        cwd=NOWHERE,
        deadline=time.monotonic() + _PATIENCE,
        env=_WORLD_OF_EXAMPLES,
        stdin=stdin.encode() or b"{}",
    )
    found = plan(world)
    return found if isinstance(found, Ask) else None


def _given(params: Params) -> dict[str, Any]:
    """What differs from the defaults."""
    defaults = {
        field.name: field.default
        if field.default_factory is msgspec.NODEFAULT
        else field.default_factory()
        for field in msgspec.structs.fields(params)
    }
    given = {
        name: getattr(params, name)
        for name in params.__struct_fields__
        if name not in HIDDEN and getattr(params, name) not in (defaults[name], NOWHERE)
    }
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(given))
    return found


# --- arguments and results ------------------------------------------------------------------------


def told(error: "Error") -> dict[str, Any]:
    """An error as a client gets it."""
    hint = error.hint
    if error.name == "invalid_params":
        hint = "see the input schema of the tool"
    facts = {name: error.data[name] for name in error.data if name not in {"exit", "retryable"}}
    return {**facts, "name": error.name, "message": error.message, "hint": hint}


def method_named(tool: str) -> str | None:
    """The method of a tool, offered or not."""
    return next((row.name for row in offer.candidates() if name_of(row) == tool), None)
