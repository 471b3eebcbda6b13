"""Whose an entry is, and Codex's config.toml."""

import json
import tomllib

import pytest

from icd.admin.setup import jsonc
from icd.admin.setup.documents import Entry, Json, Toml
from icd.admin.setup.jsonc import Malformed
from tests.support.agent_configurations import TOML, TOML_REFUSED

FIELDS = {"type": "command", "command": "", "timeout": 10}
HOOK = Entry("a hook", ("hooks", "SessionStart"), "icctl", "service ensure", FIELDS)
FLAT = Entry("a hook", ("hooks", "sessionStart"), "icctl", "service ensure; echo {}", {}, "flat")
LINE = Entry("a line", ("statusLine",), "icctl", "statusline --from=claude", {}, "member")
SERVER = Entry("a server", ("mcpServers", "intercore"), "icctl", "mcp", {}, "server")
CLAUDE = Json([HOOK])
CODEX = Toml(Entry("a server", ("mcp_servers",), "icctl", "mcp", {}, "server"))


def state(entry: Entry, value: object) -> str:
    for name in reversed(entry.names):
        value = {name: value}
    (found,) = Json([entry]).found(json.dumps(value))
    return found.state


def of_command(command: str, **fields: object) -> str:
    return state(HOOK, [{"hooks": [{**HOOK.value, "command": command, **fields}]}])


@pytest.mark.parametrize(
    "command",
    [
        "icctl service ensure", "~/bin/icctl service ensure", "/bin/sh/../icctl service ensure",
        "'icctl' service ensure", '"icctl"  service ensure ', "$HOME/.local/bin/icctl service ensure",
    ],
)  # fmt: skip
def test_an_entry_is_ours_by_what_it_runs(command):
    # A path that is not there is ours, too, and is mended.
    assert of_command(command) in ("ours", "stale")


@pytest.mark.parametrize(
    "command",
    [
        "icctl service ensure --verbose", "icctl service ensure || true", "icctl  service  ensure",
        "nice icctl service ensure", "INTERCORE_SOCKET=/x icctl service ensure", "true; icctl service ensure",
        "'/a b/icctl' service ensure 2>/dev/null", '"$HOME/icctl" service ensure; true',
    ],
)  # fmt: skip
def test_an_entry_that_runs_it_in_another_way_was_edited(command):
    assert of_command(command) == "edited"


@pytest.mark.parametrize(
    "command",
    [
        "", " ", "icctl", "icctl service", "icctl service ensured", "icctl service ensure-it", "icctl doctor",
        "myicctl service ensure", "icctl-python service ensure", "echo service ensure", "'icctl service ensure",
    ],
)  # fmt: skip
def test_other_commands_are_not_ours(command):
    assert of_command(command) == "missing" or command.startswith("'")


def test_a_changed_field_was_edited():
    assert of_command("icctl service ensure", timeout=60) == "edited"
    assert of_command("icctl service ensure", async_=True) == "edited"


def test_an_entry_is_found_where_its_user_moved_it():
    moved = {"hooks": {"Setup": [{"matcher": "x", "hooks": [1, {"a": 2}, HOOK.value]}]}}

    assert [one.state for one in Json([HOOK]).found(json.dumps(moved))] == ["ours"]


def test_an_entry_in_a_member_that_agents_do_not_read_is_missing():
    ours = CLAUDE.added("{}").strip()[1:-1]
    text = f'{{{ours}, "hooks": {{"Stop": []}}}}'
    states = [one.state for one in CLAUDE.found(text) if one.entry.is_hook]

    added = CLAUDE.added(text)

    assert states == ["unread", "missing"]
    assert "SessionStart" in json.loads(added)["hooks"]
    assert {one.state for one in CLAUDE.found(added) if one.entry.is_hook} == {"unread", "ours"}
    assert json.loads(CLAUDE.removed(added)) == {"hooks": {"Stop": []}}


def test_many_entries_are_removed_and_mended_in_one_go():
    """Counted, not timed: to read a text anew for each of 40,000 entries took half a minute."""
    gone = HOOK.value | {"command": "/nowhere/icctl service ensure"}
    text = json.dumps({"hooks": {"SessionStart": [{"hooks": [gone] * 50}] * 3}, "a": 1})
    jsonc.parse.cache_clear()

    removed = CLAUDE.removed(text)
    mended = CLAUDE.added(text)

    assert json.loads(removed) == {"a": 1}
    assert "/nowhere/" not in mended
    assert jsonc.parse.cache_info().misses <= len(["text", "mended"])


@pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 2), (2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("text", ["[{}]", "[ {} ]", "[\n  {}\n]"])
def test_whichever_of_a_list_go_the_others_stay(text, kept):
    gap = ",\n  " if "\n" in text else ", "
    whole = text.format(gap.join("0123"))
    root = jsonc.parse(whole)

    left = jsonc.dropped(whole, root, {(n,) for n in range(4) if n not in kept})

    assert left == (text.format(gap.join(map(str, kept))) if kept else "[]")


def test_a_group_goes_with_its_last_handler_only():
    group = {"matcher": "startup", "hooks": [HOOK.value]}
    both = {"matcher": "startup", "hooks": [HOOK.value, {"type": "command", "command": "x"}]}

    alone = Json([HOOK]).removed(json.dumps({"a": 1, "hooks": {"SessionStart": [group]}}))
    shared = Json([HOOK]).removed(json.dumps({"a": 1, "hooks": {"SessionStart": [both]}}))

    assert json.loads(alone) == {"a": 1}
    both["hooks"] = both["hooks"][1:]
    assert json.loads(shared) == {"a": 1, "hooks": {"SessionStart": [both]}}


def test_another_program_that_has_gone_is_replaced_in_its_place():
    old = Json([HOOK]).added('{"a": 1}').replace('"icctl ', '"/no/such/icctl ')

    assert Json([HOOK]).found(old)[0].state == "stale"
    assert Json([HOOK]).added(old) == old.replace("/no/such/icctl", "icctl")


def test_a_program_whose_path_needs_quotes_is_known_again():
    odd = Entry("a hook", HOOK.names, '/it\'s a "$path"/icctl', "service ensure", FIELDS)
    text = Json([odd]).added("{}")

    assert Json([odd]).added(text) == text
    assert Json([odd]).removed(text) == "{}"


def test_a_status_line_of_the_users_own_stays():
    assert state(LINE, {"type": "command", "command": "date"}) == "foreign"
    assert state(LINE, None) == "foreign"
    assert state(LINE, {**LINE.value, "padding": 0}) == "edited"
    assert state(LINE, LINE.value) == "ours"


def test_a_server_of_our_name_is_the_users_unless_it_is_ours():
    assert state(SERVER, {"url": "http://localhost"}) == "foreign"
    assert state(SERVER, {"command": "icctl", "args": ["mcp", "--allow=all"]}) == "edited"
    assert state(SERVER, {"command": "/usr/bin/icctl", "args": ["mcp"]}) in ("ours", "stale")


def test_cursor_gets_its_version_only_with_an_entry():
    document = Json([FLAT], {"version": 1})

    assert json.loads(document.added("")) == {"version": 1, "hooks": {"sessionStart": [FLAT.value]}}
    assert document.added('{"version": 2}').count("version") == 1


# --- TOML -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOML)
def test_the_table_is_added_and_removed(name):
    text = (TOML[name] or b"").decode()

    with_ours = CODEX.added(text)

    assert tomllib.loads(with_ours)["mcp_servers"]["intercore"] == CODEX.entry.value
    assert with_ours.startswith(text)
    assert CODEX.added(with_ours) == with_ours
    # Whether the last line had an end is remembered elsewhere.
    assert CODEX.removed(with_ours).rstrip() == text.rstrip()
    if not text or text.endswith("\n"):
        assert CODEX.removed(with_ours) == text


@pytest.mark.parametrize("name", [name for name in TOML_REFUSED if name != "not UTF-8"])
def test_toml_that_takes_no_table_is_refused(name):
    with pytest.raises(Malformed):
        CODEX.added(TOML_REFUSED[name].decode())


def test_a_table_that_was_edited_stays():
    edited = (
        CODEX.added("a = 1\n") + 'startup_timeout_sec = 5\n[mcp_servers.other]\ncommand = "x"\n'
    )

    assert CODEX.found(edited)[0].state == "edited"
    assert CODEX.removed(edited) == edited


def test_tables_around_ours_stay():
    text = (
        '[a]\nb = 1\n\n[mcp_servers.intercore]\ncommand = "icctl"\nargs = [ "mcp" ]\n\n[c]\nd = 2\n'
    )

    assert tomllib.loads(CODEX.removed(text)) == {"a": {"b": 1}, "c": {"d": 2}}


def test_the_heading_of_all_servers_stays():
    text = "[mcp_servers]\n"

    assert CODEX.removed(CODEX.added(text)) == text


def test_a_table_in_a_form_of_its_own_is_refused_rather_than_broken():
    text = 'mcp_servers.intercore = {command = "icctl", args = ["mcp"]}\n'

    assert CODEX.found(text)[0].state == "ours"
    with pytest.raises(Malformed):
        CODEX.removed(text)
