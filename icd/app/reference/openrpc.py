"""An OpenRPC document of the API, generated from the structs that check it."""

from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import Meta

from icd import __version__
from icd.app import registry
from icd.app.call import Params
from icd.app.verb import Argument, Method, Option, hints, parts


@cache
def document() -> dict[str, Any]:
    table = [method for method in registry.every() if not method.runs.local]
    types = [kind for method in table for kind in (method.params, method.result)]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    for component in components.values():
        require_derived(component)
    pairs = zip(schemas[::2], schemas[1::2], strict=True)
    return {
        "openrpc": "1.3.2",
        "info": {"title": "intercore", "version": __version__},
        "methods": [
            _describe(method, components[params["$ref"].rpartition("/")[2]], result)
            for method, (params, result) in zip(table, pairs, strict=True)
        ],
        "components": {"schemas": components},
    }


def require_derived(component: dict[str, Any]) -> None:
    """A time as text has a default only until the struct is made: it comes with its seconds."""
    required = component.get("required", [])
    for name, schema in component.get("properties", {}).items():
        if name.removesuffix("_iso") in required and name not in required:
            required.append(name)
            schema.pop("default", None)


def _describe(
    method: Method[Any, Any], params: dict[str, Any], result: dict[str, Any]
) -> dict[str, Any]:
    required = params.get("required", [])
    said = descriptions(method.params)
    return {
        "name": method.name,
        "description": about(method.params),
        "paramStructure": "either",
        "params": [
            {
                "name": name,
                "description": said.get(name, ""),
                "required": name in required,
                "schema": schema,
            }
            for name, schema in params["properties"].items()
        ],
        "result": {"name": "result", "schema": result},
    }


def about(params: type[Params]) -> str:
    """What a method does; a subclass that has a docstring of its own inherits no description."""
    return vars(params).get("rpc") or cleandoc(params.__doc__ or "")


def descriptions(params: type[Params]) -> dict[str, str]:
    """What each parameter means; a `Meta` says it where the command line has another source."""
    found: dict[str, str] = {}
    for name, hint in (Params.__annotations__ | hints(params)).items():
        for mark in parts(hint)[1]:
            if isinstance(mark, Meta) and mark.description:
                found[name] = mark.description
            elif isinstance(mark, Argument | Option):
                found.setdefault(name, mark.help)
    return found
