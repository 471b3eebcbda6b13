"""`icctl config set`, `get`, `list`: what newer scripts keep, which is no setting of ours."""

import json

import pytest

from icd.features.state import store as state
from tests.conftest import NOW_MS


def test_what_is_kept_is_a_row_of_state_as_in_the_original(stdout, conn):
    said = stdout("config", "set", "global_max_dispatches", "4")

    row = state.get(conn, "kernel.global_max_dispatches", "global", now_ms=NOW_MS)

    assert said == "global_max_dispatches = 4\n"
    assert (row.payload, row.expires_ms) == ("4", None)
    assert stdout("config", "get", "global_max_dispatches") == said


def test_a_value_that_is_not_kept_is_said_so_with_exit_1(ic):
    plain, as_json = ic("config", "get", "nope"), ic("config", "get", "nope", "--json")

    assert (plain.exit, plain.stdout) == (1, b"nope: not set\n")
    assert (as_json.exit, as_json.stdout) == (1, b'{"key":"nope","value":null}\n')


def test_the_list_has_all_that_is_kept_and_nothing_else(stdout, conn):
    empty = stdout("config", "list")
    stdout("config", "set", "max_spawn_depth", "2")
    stdout("config", "set", "note", '{"a": [1]}', "--json")
    stdout("state", "set", "kernel.other", "elsewhere", "--value=1")

    assert empty == "no config values set\n"
    assert stdout("config", "list") == f'{"max_spawn_depth":<25} = 2\n{"note":<25} = {{"a": [1]}}\n'
    assert json.loads(stdout("config", "list", "--json")) == {
        "max_spawn_depth": 2,
        "note": {"a": [1]},
    }


@pytest.mark.parametrize("value", ["x", '"4"', "1.5", "null", "1" * 13, ""])
@pytest.mark.parametrize("key", ["global_max_dispatches", "max_spawn_depth"])
def test_a_limit_is_a_number(ic, key, value):
    output = ic("config", "set", key, value)

    assert (output.exit, output.stdout) == (3, b"")
    assert b"nonnegative integer" in output.stderr


def test_other_values_obey_the_rules_of_state(ic):
    assert ic("config", "set", "note", "nothing").exit == 2
    assert ic("config", "set", "note", '"ghp_' + "a1" * 18 + '"').exit == 2
    assert ic("config", "set", "Note", "1").exit == 2


def test_a_row_is_no_setting_of_ours(stdout, ic):
    """A project may bring a database along."""
    before = ic("config", "show").stdout
    stdout("config", "set", "auto_spawn", "true")

    assert ic("config", "show").stdout == before
