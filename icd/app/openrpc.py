"""An OpenRPC document of the API, generated from the structs that check it."""

from functools import cache
from typing import Any

import msgspec

from icd import __version__
from icd.app import registry
from icd.app.verb import Method


@cache
def document() -> dict[str, Any]:
    table = [method for method in registry.every() if not method.runs.local]
    types = [kind for method in table for kind in (method.params, method.result)]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
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


def _describe(
    method: Method[Any, Any], params: dict[str, Any], result: dict[str, Any]
) -> dict[str, Any]:
    required = params.get("required", [])
    return {
        "name": method.name,
        "paramStructure": "either",
        "params": [
            {"name": name, "required": name in required, "schema": schema}
            for name, schema in params["properties"].items()
        ],
        "result": {"name": "result", "schema": result},
    }
