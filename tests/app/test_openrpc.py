"""The OpenRPC document: complete, consistent, and JSON."""

import msgspec
import pytest

from icd import __version__
from icd.app import registry
from icd.app.call import Params
from icd.app.reference import openrpc as discover


def references(value):
    """Every $ref below a value."""
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [ref for child in value.values() for ref in references(child)]
    return [ref for child in value for ref in references(child)] if isinstance(value, list) else []


def described(name):
    (found,) = [m for m in discover.document()["methods"] if m["name"] == name]
    return found


def parameters(name):
    return {parameter["name"]: parameter for parameter in described(name)["params"]}


def test_every_method_is_described_once():
    names = [method["name"] for method in discover.document()["methods"]]

    assert sorted(names) == sorted(
        method.name for method in registry.every() if not method.runs.local
    )


def test_the_document_is_json():
    document = discover.document()

    assert msgspec.json.decode(msgspec.json.encode(document)) == document


def test_every_reference_resolves():
    document = discover.document()
    found = references(document)

    assert found
    for reference in found:
        head, _, name = reference.rpartition("/")
        assert head == "#/components/schemas"
        assert name in document["components"]["schemas"]


def test_a_method_is_described_with_its_own_parameters():
    for method in [m for m in registry.every() if not m.runs.local]:
        assert set(parameters(method.name)) == set(method.params.__struct_fields__), method


def test_every_method_and_every_parameter_has_a_description():
    for method in registry.every():
        said = discover.descriptions(method.params)

        assert method.params is not Params, method
        assert (method.params.__doc__ or "").strip(), method
        assert [name for name in method.params.__struct_fields__ if not said.get(name)] == [], (
            method
        )


def test_the_document_has_all_descriptions():
    methods = discover.document()["methods"]

    assert all(method["description"] for method in methods)
    assert all(p["description"] for method in methods for p in method["params"])


@pytest.mark.parametrize(
    "method, own",
    [
        ("state.prune", set()),
        ("sentinel.prune", {"older_than_ms", "keep_once", "keep_live"}),
        ("state.list", {"key", "prefix"}),
        ("sentinel.list", set()),
    ],
)
def test_methods_whose_parameters_share_a_name_are_told_apart(method, own):
    assert set(parameters(method)) - set(Params.__struct_fields__) == own


def test_required_parameters_are_marked():
    required = {name: p["required"] for name, p in parameters("sentinel.check").items()}

    assert [name for name, needed in required.items() if needed] == ["name", "scope_id", "interval"]


def test_bounds_are_described():
    assert parameters("sentinel.check")["interval"]["schema"]["minimum"] == 0


def test_the_document_says_what_it_describes():
    document = discover.document()

    assert document["openrpc"].startswith("1.")
    assert document["info"] == {"title": "intercore", "version": __version__}
    assert all(method["paramStructure"] == "either" for method in document["methods"])
    assert all("schema" in method["result"] for method in document["methods"])


def test_a_time_as_text_comes_with_its_seconds():
    for component in discover.document()["components"]["schemas"].values():
        required = component.get("required", [])
        for name in component.get("properties", {}):
            if name.endswith("_iso") and name.removesuffix("_iso") in required:
                assert name in required
