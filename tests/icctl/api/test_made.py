"""The methods of the Python client are those of the rows."""

import inspect
from pathlib import Path

import pytest

from icctl.api import AsyncClient, Client, Error, results
from icctl.api.awaiting import AsyncPipeline
from icctl.api.blocking import Pipeline
from icctl.api.places import PLACES
from icd import errors
from icd.app import registry
from tests.support import python_client

METHODS = [method for methods in python_client.nouns().values() for method in methods]


@pytest.mark.parametrize("path", python_client.files(), ids=lambda path: path.name)
def test_a_made_file_is_what_the_rows_make_of_it(path: Path) -> None:
    assert path.read_text("utf-8") == python_client.files()[path], "run 'make docs'"


def test_a_method_is_there_in_every_client_and_is_described(tmp_path: Path) -> None:
    for method in METHODS:
        client, other = Client(tmp_path), AsyncClient(tmp_path)
        noun, _, verb = method.name.partition(".")
        hosts: list[object] = [client, other]
        if method.name not in PLACES:
            hosts += [Pipeline(client, None), AsyncPipeline(other, None)]

        for host in hosts:
            found = getattr(getattr(host, noun), {"import": "import_"}.get(verb, verb))
            told = inspect.getdoc(found)
            assert told, method.name
            for one in python_client.parameters(method):
                assert one.help, f"{one.name} of {method.name} is not described"
                assert f"{one.name}: " in told, method.name


def test_all_but_a_few_nouns_have_methods() -> None:
    left_out = {method.name for method in registry.every()} - {method.name for method in METHODS}

    assert left_out == {"hook.begin", "hook.end", "rpc.discover", "cli.run"}


def test_every_stream_of_the_protocol_can_be_followed() -> None:
    streams = {m.name for m in registry.every() if m.stream is not None and m.stream.notifies}

    assert streams == set(PLACES)


def test_results_have_names_of_their_own() -> None:
    assert results.Event is not results.EventBatch
    assert all(getattr(results, name) for name in results.__all__)


def test_every_error_is_raised_with_its_name() -> None:
    from icctl.api.errors import from_error

    for kind in errors.TABLE:
        made = from_error(kind("it happened", owner="me"))

        assert isinstance(made, Error), kind
        assert (made.name, made.code, made.exit) == (kind.name, kind.code, kind.exit), kind
        assert (made.is_retryable, made.data["owner"]) == (kind.retryable, "me"), kind
        assert kind.name in str(made), kind
