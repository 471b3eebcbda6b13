"""What a client is told about a tool."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema

from icd.app.call import Params
from icd.mcp import offer, tools

TOOLS = [tools.describe(row) for row in offer.candidates()]


def ids(tool: tools.Tool) -> str:
    return tool.name


def described(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Every parameter, those of inner objects too, and its description."""
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner.get("description", "")
        yield from described(inner, f"{path}.{name}")
    for name, inner in schema.get("$defs", {}).items():
        yield from described(inner, f"{path}.{name}")


def test_there_is_a_tool_for_each_method_under_a_name_that_clients_take():
    names = [tool.name for tool in TOOLS]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_]{1,64}", name) for name in names)
    assert [tools.method_named(name) for name in names] == [tool.method.name for tool in TOOLS]


def test_no_tool_and_no_parameter_is_without_a_description():
    found = [(tool.name, tool.description) for tool in TOOLS]
    for tool in TOOLS:
        found += described(tool.input_schema, tool.name)

    assert [name for name, text in found if not text.strip()] == []


def test_the_schemas_are_schemas_of_objects():
    for tool in TOOLS:
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object", tool
            named = set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)))
            assert named <= set(schema.get("$defs", {})), tool


def test_the_server_says_itself_which_project_and_whose_session_is_meant():
    for tool in TOOLS:
        assert set(tool.parameters).isdisjoint(Params.__struct_fields__), tool.name
        assert tool.input_schema["additionalProperties"] is False


def test_examples_are_arguments_that_the_schema_takes():
    count = 0
    for tool in TOOLS:
        for given in tools.examples(tool.method):
            jsonschema.validate(given, tool.input_schema)
            count += 1

    assert count > len(TOOLS)


def test_every_tool_with_parameters_that_are_required_has_an_example():
    needy = [tool for tool in TOOLS if tool.input_schema["required"]]

    missing = [tool.name for tool in needy if not tools.examples(tool.method)]

    assert missing == ["artifact_add"]  # its command reads a file


def test_a_description_names_tools_rather_than_methods():
    (found,) = (tool for tool in TOOLS if tool.name == "run_events")

    assert "`events_tail`" in found.description


def test_hints_say_what_reads_deletes_and_can_be_repeated():
    by_name = {tool.name: (tool.reads, tool.destroys, tool.idempotent) for tool in TOOLS}

    assert by_name["state_get"] == (True, False, True)
    assert by_name["state_set"] == (False, False, False)
    assert by_name["state_delete"] == (False, True, True)
    assert by_name["run_rollback"] == (False, True, False)
