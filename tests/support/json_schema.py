"""The keywords of JSON Schema that tests/data/schemas/ uses, and no others."""

from collections.abc import Iterator
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,),
    "integer": (int,), "number": (int, float),
}  # fmt: skip
KNOWN = {
    "$defs", "$ref", "type", "const", "enum", "required", "properties", "additionalProperties",
    "minProperties", "items", "minItems", "minLength", "minimum", "exclusiveMinimum",
}  # fmt: skip


def violations(schema: dict[str, Any], value: Any) -> list[str]:
    """What breaks a rule, by its place; empty if all is well."""
    return list(_violations(schema, schema, value, "$"))


def _violations(root: dict[str, Any], rule: dict[str, Any], value: Any, at: str) -> Iterator[str]:
    assert rule.keys() <= KNOWN, rule.keys() - KNOWN
    if "$ref" in rule:
        rule = root["$defs"][rule["$ref"].removeprefix("#/$defs/")]
    if "type" in rule and not _is(value, rule["type"]):
        yield f"{at}: {value!r} is no {rule['type']}"
        return
    yield from (f"{at}: {told}" for told in _scalar(rule, value))
    if isinstance(value, dict):
        yield from _object(root, rule, value, at)
    if isinstance(value, list):
        if len(value) < rule.get("minItems", 0):
            yield f"{at}: too few items"
        for number, item in enumerate(value):
            yield from _violations(root, rule.get("items", {}), item, f"{at}[{number}]")


def _is(value: Any, kind: str) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, TYPES[kind]) and is_bool == (kind == "boolean")


def _scalar(rule: dict[str, Any], value: Any) -> Iterator[str]:
    if "const" in rule and value != rule["const"]:
        yield f"{value!r} is not {rule['const']!r}"
    if "enum" in rule and value not in rule["enum"]:
        yield f"{value!r} is not one of {rule['enum']}"
    if isinstance(value, str) and len(value) < rule.get("minLength", 0):
        yield "too short"
    if "minimum" in rule and value < rule["minimum"]:
        yield f"{value} is too small"
    if "exclusiveMinimum" in rule and value <= rule["exclusiveMinimum"]:
        yield f"{value} is too small"


def _object(root: dict[str, Any], rule: dict[str, Any], value: Any, at: str) -> Iterator[str]:
    yield from (
        f"{at}: {name!r} is missing" for name in rule.get("required", ()) if name not in value
    )
    if len(value) < rule.get("minProperties", 0):
        yield f"{at}: too few members"
    others = rule.get("additionalProperties", {})
    for name, member in value.items():
        known = rule.get("properties", {}).get(name, others)
        if known is False:
            yield f"{at}: {name!r} is not known"
        else:
            yield from _violations(root, known, member, f"{at}.{name}")
