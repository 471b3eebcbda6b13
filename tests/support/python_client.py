"""`icctl/api/made`, the methods of the Python client, made from the rows of the verbs.

`make docs` writes the files; `tests/icctl/api/test_made.py` fails when one differs from what is
made here.

A parameter that is typed as a word in its place may be given in its place, one that is typed behind
a name must be named.  A span of time (`ttl_ms`, `--ttl=5m`) is a `Duration` without the unit in its
name.  All else is called as in the protocol.
"""

import subprocess
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from icd.app import registry
from icd.app.call import Params
from icd.app.reference.openrpc import about, descriptions
from icd.app.types import Duration, Seconds
from icd.app.verb import Argument, Method, Option, hints, parts
from icd.features.database.watch import Written
from icd.features.state.watch import Gone

MADE = Path(__file__).parents[2] / "icctl" / "api" / "made"
# `rpc` and `cli` are for generic clients, `hook` is for those that run the programs of a project.
LEFT_OUT = ("hook", "rpc", "cli")
HEAD = '"""{about}  Made by `make docs` from the rows of the verbs: do not edit."""'
# What a stream hands out, by method; the row tells the notification only.
STREAMS = {
    "state.watch": "results.StateDocument | results.StateGone",
    "events.watch": "results.Event",
    "dispatch.watch": "results.Dispatch",
    "db.watch": "results.DatabaseWritten",
}
# What results are called after, where that is not the noun of the method.
NOUNS = {"events": "Event", "db": "Database", "icd": "Daemon"}
SHORTER = {"scope_id": "scope"}
WIDTH = 100


class Kind(NamedTuple):
    """A client: its base classes, and how a method of it is written."""

    file: str
    about: str
    base: str
    host: str
    is_async: bool = False
    is_queued: bool = False


KINDS = [
    Kind("blocking.py", "The nouns of `Client`.", "Blocking", "Client"),
    Kind("awaiting.py", "The nouns of `AsyncClient`.", "Awaiting", "AsyncClient", is_async=True),
    Kind("queued.py", "The nouns of a pipeline.", "Queued", "Queue", is_queued=True),
]


def files() -> dict[Path, str]:
    """Each generated file, with the text that it is to have."""
    made = {kind.file: _module(kind) for kind in KINDS}
    made |= {"results.py": _results(), "__init__.py": HEAD.format(about="The verbs, as methods.")}
    return {MADE / name: _formatted(text, name) for name, text in made.items()}


def nouns() -> dict[str, list[Method[Any, Any]]]:
    return {
        noun: [*registry.table(noun).values()] for noun in registry.METHODS if noun not in LEFT_OUT
    }


# --- results --------------------------------------------------------------------------------------


@cache
def names() -> dict[type, str]:
    """Every struct that a method takes or answers, by the name that a caller writes."""
    found: dict[type, str] = {}
    for depth in (1, 9):  # what a method answers is called after that method
        for noun, methods in nouns().items():
            prefix = NOUNS.get(noun, noun.capitalize())
            for method in methods:
                hinted = [field.type for field in _fields(method)]
                hinted += [] if method.name in STREAMS else [method.result]
                for kind in _structs(hinted, depth):
                    found.setdefault(kind, _name(prefix, kind))
    found.setdefault(Gone, "StateGone")
    found.setdefault(Written, "DatabaseWritten")
    assert len({*found.values()}) == len(found), "two results have the same name"
    return found


def _name(prefix: str, kind: type) -> str:
    return kind.__name__ if kind.__name__.startswith(prefix) else f"{prefix}{kind.__name__}"


def _structs(hinted: list[Any], depth: int) -> Iterator[type]:
    """The structs within types, outermost first, so many within each other."""
    for hint in hinted if depth else ():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield hint
            yield from _structs([field.type for field in msgspec.structs.fields(hint)], depth - 1)
        else:
            inner = hint.__origin__ if hasattr(hint, "__metadata__") else None
            yield from _structs([inner] if inner else [*typing.get_args(hint)], depth)


def _results() -> str:
    found = names()
    lines = [HEAD.format(about="The results of calls, by name."), ""]
    lines += [
        f"from {kind.__module__} import {kind.__name__}"
        + (f" as {n}" if n != kind.__name__ else "")
        for kind, n in found.items()
    ]
    lines += ["", f"__all__ = {sorted(found.values())}"]
    return "\n".join(lines)


# --- parameters -----------------------------------------------------------------------------------


class Parameter(NamedTuple):
    name: str
    field: str
    hint: str
    default: str  # empty: it must be given
    value: str
    is_positional: bool
    help: str


def _fields(method: Method[Any, Any]) -> list[Any]:
    return [
        field
        for field in msgspec.structs.fields(method.params)
        if field.name not in Params.__struct_fields__
    ]


def parameters(method: Method[Any, Any]) -> list[Parameter]:
    said, noted = descriptions(method.params), hints(method.params)
    found = [_parameter(f, parts(noted[f.name])[1], said.get(f.name, "")) for f in _fields(method)]
    return sorted(found, key=lambda one: (not one.is_positional, bool(one.default)))


def _parameter(field: Any, marks: list[Any], told: str) -> Parameter:
    is_option = any(isinstance(mark, Option) for mark in marks)
    is_argument = any(isinstance(mark, Argument) for mark in marks)
    name, hint, value = SHORTER.get(field.name, field.name), spelled(field.type), ""
    if any(isinstance(mark, Duration) for mark in marks):
        name, hint = name.removesuffix("_ms"), hint.replace("int", "Duration")
        value = f"ms({name})"
    elif any(isinstance(mark, Seconds) for mark in marks):
        hint, value = "Duration", f"whole_seconds({name})"
    default = "" if field.required else _default(field.default)
    if value and default not in ("", "None", "0"):
        default = str(int(default) / 1000).removesuffix(".0")  # seconds
    if default == "None" and not hint.endswith("None") and hint != "Json":
        hint += " | None"
    is_positional = is_argument or (field.required and not is_option)
    return Parameter(name, field.name, hint, default, value or name, is_positional, told)


def _default(value: Any) -> str:
    """What is made by a function, or is a struct, is left to the row."""
    return repr(value) if isinstance(value, str | int | float | bool) else "None"


def spelled(hint: Any) -> str:
    """A type, as a caller writes it."""
    if hasattr(hint, "__metadata__"):
        return spelled(hint.__origin__)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(spelled, inner)))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin is list:
        return f"Sequence[{spelled(inner[0])}]"
    if origin is dict:
        return f"Mapping[{', '.join(map(spelled, inner))}]"
    if hint is msgspec.Raw:
        return "Json"
    if hint is type(None):
        return "None"
    if hint in names():
        return f"results.{names()[hint]}"
    return str(hint.__name__)


def answered(hint: Any) -> str:
    """The type of a result: a list may be changed by its owner, and is none of ours."""
    return spelled(hint).replace("Sequence[", "builtins.list[")


# --- methods --------------------------------------------------------------------------------------


def _module(kind: Kind) -> str:
    lines = [HEAD.format(about=kind.about), *_imports(kind)]
    for noun, methods in nouns().items():
        lines += _class(kind, noun, methods)
    lines += ["", "class Nouns:", f"    def __init__(self, host: {_host(kind)}) -> None:"]
    lines += [f"        self.{noun} = {noun.capitalize()}(host)" for noun in nouns()]
    return "\n".join(lines)


def _host(kind: Kind) -> str:
    return "nouns.Queue" if kind.is_queued else kind.host


def _imports(kind: Kind) -> list[str]:
    stream = "AsyncStream" if kind.is_async else "Stream"
    place = "async_followers" if kind.is_async else "followers"
    found = [
        "", "from __future__ import annotations", "",
        "import builtins", "from collections.abc import Mapping, Sequence",
        "from typing import TYPE_CHECKING, Literal", "",
        "from icctl.api import nouns",
        "from icctl.api.requests import Duration, Json, ms, whole_seconds", "",
        "if TYPE_CHECKING:",
    ]  # fmt: skip
    if kind.is_queued:
        found += ["    from icctl.api.requests import Reply"]
    else:
        found += [f"    from icctl.api.{kind.file[:-3]} import {kind.host}"]
        found += [f"    from icctl.api.{place} import {stream}"]
    return [*found, "    from icctl.api.made import results", ""]


def _class(kind: Kind, noun: str, methods: list[Method[Any, Any]]) -> Iterator[str]:
    extra = "Events" if noun == "events" and not kind.is_queued else ""
    base = f"nouns.{kind.base}{extra}"
    yield from ("", f"class {noun.capitalize()}({base}):")
    for method in methods:
        is_stream = method.name in STREAMS
        assert is_stream == bool(method.stream and method.stream.notifies), method.name
        if not (is_stream and kind.is_queued):
            yield textwrap.indent("\n".join(_method(kind, method)), "    ") + "\n"


def _method(kind: Kind, method: Method[Any, Any]) -> Iterator[str]:
    given = parameters(method)
    is_stream = method.name in STREAMS
    name = method.name.partition(".")[2]
    name += "_" if name == "import" else ""
    starts = "async def" if kind.is_async and not is_stream else "def"
    yield f"{starts} {name}({', '.join(_signature(kind, method, given))}) -> {_returns(kind, method)}:"
    yield textwrap.indent(_docstring(method, given), "    ")
    sent = ", ".join(f'"{one.field}": {one.value}' for one in given)
    call = [f'"{method.name}"', f"{{{sent}}}"]
    if is_stream:
        yield f"    return self._host.watch({', '.join(call)})"
        return
    call += [] if kind.is_queued else ["timeout"]
    call += ["request_id"] if method.writes else []
    if kind.is_queued:
        yield f"    return self._host.queue({', '.join(call)})"
        return
    waits = "await " if kind.is_async else ""
    yield f"    found: {answered(method.result)} = {waits}self._host.ask({', '.join(call)})"
    yield "    return found"


def _signature(kind: Kind, method: Method[Any, Any], given: list[Parameter]) -> Iterator[str]:
    yield "self"
    positional = [one for one in given if one.is_positional]
    named = [_declared(one) for one in given if not one.is_positional]
    if method.name not in STREAMS:
        named += [] if kind.is_queued else ["timeout: Duration | None = None"]
        named += ["request_id: str | None = None"] if method.writes else []
    yield from (_declared(one) for one in positional)
    yield from ["*", *named] if named else []


def _declared(one: Parameter) -> str:
    return f"{one.name}: {one.hint} = {one.default}" if one.default else f"{one.name}: {one.hint}"


def _returns(kind: Kind, method: Method[Any, Any]) -> str:
    if method.name in STREAMS:
        return f"{'AsyncStream' if kind.is_async else 'Stream'}[{STREAMS[method.name]}]"
    result = answered(method.result)
    return f"Reply[{result}]" if kind.is_queued else result


def _docstring(method: Method[Any, Any], given: list[Parameter]) -> str:
    told = about(method.params).replace("\\", "\\\\").split("\n")
    lines = [line for part in told for line in textwrap.wrap(part, WIDTH - 12) or [""]]
    if given:
        lines.append("")
    for one in given:
        told_of_it = f"{one.name}: {one.help}".replace("\\", "\\\\")
        lines += textwrap.wrap(told_of_it, WIDTH - 12, subsequent_indent="    ")
    return '"""' + "\n".join(lines) + ('\n"""' if len(lines) > 1 else '"""')


def _formatted(text: str, name: str) -> str:
    ruff = Path(sys.executable).parent / "ruff"
    for command in (["check", "--fix-only", "--quiet", "--select=I,F401"], ["format", "--quiet"]):
        text = subprocess.run(
            [ruff, *command, f"--stdin-filename=icctl/api/made/{name}", "-"],
            input=text, capture_output=True, text=True, check=True, cwd=MADE.parents[2],
        ).stdout  # fmt: skip
    return text


def main() -> None:
    MADE.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
