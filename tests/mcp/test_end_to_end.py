"""A client of the official SDK and `icctl mcp`, with a daemon and without one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ListRootsResult

from icd.app.invocation import SESSION_VARIABLES
from icd.mcp import offer, tools
from tests.support.examples import prepare
from tests.support.processes import running
from tests.support.tool_client import ERAS, connected, error, hosted, result

pytestmark = pytest.mark.anyio

TOOLS = {tool.name: tool for tool in map(tools.describe, offer.candidates())}
# Where the first example is not enough, or where there is none.
ARGUMENTS = {
    "events_tail": {"limit": 5},
    "artifact_add": {"run_id": "run", "phase": "planned", "path": "plan.md"},
    "discovery_search": {"like": "id"},
    "discovery_retire": {"source": "nobody", "since": 1767225600},
}
# Each is about what another one has done.
FIRST = ("lease_acquire", "state_set", "discovery_submit")


# The other host has its turn in test_process.py and test_subscriptions.py, in minutes.
@pytest.fixture(scope="module", params=["daemon", pytest.param("direct", marks=pytest.mark.long)])
def env(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    with hosted(request.param) as found:
        yield found


@pytest.fixture
def ready(database: Any, project: Path) -> Path:
    database.close()
    prepare(project, files=[])
    return project


def arguments(tool: tools.Tool) -> dict[str, Any]:
    if tool.name in ARGUMENTS:
        return ARGUMENTS[tool.name]
    (given, *_) = [*tools.examples(tool.method), {}]
    text = re.sub(r"\$([A-Z_]+)", lambda found: found[1].lower(), json.dumps(given))
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_lists_the_tools_and_calls_each_once(ready, env, era):
    async with connected(ready, "--allow=all", env=env, era=era) as client:
        listed = (await client.list_tools()).tools
        order = sorted(listed, key=lambda tool: tool.name not in FIRST)
        failed = {}
        for tool in order:
            prepare(ready, files=[])
            answer = await client.call_tool(tool.name, arguments(TOOLS[tool.name]))
            if answer.is_error:
                failed[tool.name] = error(answer)

    assert {tool.name for tool in listed} == set(TOOLS)
    assert failed == {}


async def test_without_allow_nothing_that_deletes_or_starts_is_there(ready, env):
    async with connected(ready, env=env) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        refused = {}
        for name in sorted(set(TOOLS) - listed):
            with pytest.raises(MCPError) as caught:
                await client.call_tool(name, arguments(TOOLS[name]))
            refused[TOOLS[name].method.name] = caught.value.error.message

    assert set(refused) == {row.name for row in offer.candidates() if not offer.is_default(row)}
    assert {"state.delete", "run.create", "gate.override"} <= set(refused)
    for name, told in refused.items():
        assert f"--allow={name}" in told


@pytest.mark.parametrize("era", ERAS)
async def test_a_lease_conflict_is_an_error_with_a_hint(ready, env, era):
    mine = {"name": "deploy", "scope_id": "web", "owner": "me", "ttl_ms": 600_000}
    async with connected(ready, env=env, era=era) as client:
        token = result(await client.call_tool("lease_acquire", mine))["token"]

        answer = await client.call_tool("lease_acquire", {**mine, "owner": "you"})

    told = error(answer)
    assert told["name"] == "lease_held"
    assert told["owner"] == "me"
    assert told["token"] == token
    assert told["hint"] == "wait until it expires, or ask its owner to release it"
    assert f"{told['name']}: {told['message']}; {told['hint']}" == answer.content[0].text


async def test_what_one_agent_stores_another_finds(ready, env):
    payload = {"n": [1, 10**30, -(2**63), 0.1, None, "ü\n", {"": {}}]}
    async with connected(ready, env=env) as one, connected(ready, env=env) as two:
        where = {"key": "plan", "scope_id": "s"}
        result(await one.call_tool("state_set", {**where, "payload": payload}))

        found = result(await two.call_tool("state_get", where))

    assert found["payload"] == payload


HOSTILE: list[tuple[str, Any]] = [
    ("state_get", {}),
    ("state_get", {"key": 1, "scope_id": "s"}),
    ("state_get", {"key": ["a"], "scope_id": {"b": "c"}}),
    ("state_get", {"key": "k", "scope_id": "s", "unknown": 1}),
    ("state_get", {"key": "k", "scope_id": "s", "db": "/etc/passwd"}),
    ("state_get", {"key": "k", "scope_id": "s", "cwd": "/"}),
    ("state_get", {"key": "k", "scope_id": "s", "session": "another"}),
    ("state_get", {"key": "k" * 10_000_000, "scope_id": "s"}),
    ("state_get", {"key": "\0", "scope_id": "\x1b[31m"}),
    ("state_set", {"key": "k", "scope_id": "s", "payload": "x" * 5_000_000}),
    ("state_set", {"key": "k", "scope_id": "s"}),
    ("sentinel_check", {"name": "n", "scope_id": "s", "interval": 2**70}),
    ("sentinel_check", {"name": "n", "scope_id": "s", "interval": -1}),
    ("sentinel_check_many", {"guards": [{"name": "n"}] * 10_000}),
    ("lease_acquire", {"name": "n", "scope_id": "s", "owner": "o", "ttl_ms": 0}),
    ("events_tail", {"limit": 10**9}),
    ("run_status", {"run_id": "'; DROP TABLE runs; --"}),
]


async def test_hostile_arguments_get_errors_and_the_server_goes_on(ready, env):
    async with connected(ready, env=env) as client:
        told = [error(await client.call_tool(name, given)) for name, given in HOSTILE]
        for name in ("nothing", "state.get", "", "x" * 1_000_000, "../state_get", "icd_reload"):
            with pytest.raises(MCPError, match="there is no tool"):
                await client.call_tool(name, {})

        assert result(await client.call_tool("state_list", {"prefix": ""})) == []
    assert [found for found in told if found["name"] in ("internal", "unknown_outcome")] == []
    assert all(found["message"] for found in told)


async def test_a_deep_payload_is_refused(ready, env):
    deep: Any = 0
    for _ in range(150):
        deep = [deep]
    async with connected(ready, env=env) as client:
        given = {"key": "k", "scope_id": "s", "payload": deep}

        told = error(await client.call_tool("state_set", given))

    assert told["name"] == "invalid_payload"


@pytest.mark.parametrize("era", ERAS)
async def test_the_project_is_the_clients_root(ready, tmp_path, env, era):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    roots = ["file://elsewhere/", elsewhere.as_uri(), ready.as_uri()]
    async with connected(elsewhere, env=env, era=era, roots=roots) as client:
        assert result(await client.call_tool("run_status", {"run_id": "run"}))["id"] == "run"
        roots.clear()

        assert result(await client.call_tool("run_status", {"run_id": "run"}))["id"] == "run"


@pytest.mark.parametrize("words", [["--project=project"], ["--db=project/.clavain/intercore.db"]])
async def test_the_user_can_say_which_project_is_meant(ready, words, env):
    async with connected(ready.parent, *words, env=env, roots=["file:///nowhere"]) as client:
        assert result(await client.call_tool("run_status", {"run_id": "run"}))["id"] == "run"


async def test_without_a_database_the_hint_says_how_to_make_one(project, env):
    async with connected(project, env=env) as client:
        told = error(await client.call_tool("state_list", {"key": "k"}))

    assert told["name"] == "no_database"
    assert "icctl init" in told["hint"]


async def test_calls_go_on_while_daemons_come_and_go(ready):
    with running() as daemon:
        async with connected(ready, env={"INTERCORE_SOCKET": daemon.socket}) as client:
            given = {"key": "turns", "scope_id": "s"}
            values = []
            for end in (daemon.kill, daemon.start, daemon.stop, daemon.start):
                values.append(result(await client.call_tool("state_incr", given))["value"])
                end()
            values.append(result(await client.call_tool("state_incr", given))["value"])

    assert values == [1, 2, 3, 4, 5]


async def test_parallel_calls_are_all_answered(ready, env):
    async with connected(ready, env=env) as client:
        given = {"key": "turns", "scope_id": "s"}
        values: list[int] = []

        async def count() -> None:
            values.append(result(await client.call_tool("state_incr", given))["value"])

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(count)

    assert sorted(values) == list(range(1, 21))


# Each `icctl mcp` costs a second; which variables there are is tested with the commands, too.
@pytest.mark.parametrize(
    "variable",
    [
        SESSION_VARIABLES[0],
        *(pytest.param(v, marks=pytest.mark.long) for v in SESSION_VARIABLES[1:]),
    ],
)
async def test_the_session_of_the_agent_is_recorded(ready, env, variable):
    given = {"key": "k", "scope_id": "s"}
    async with connected(ready, env={**env, variable: "mine" + 300 * "e"}) as client:
        await client.call_tool("state_set", {**given, "payload": 1})

        found = result(await client.call_tool("state_get", given))

    assert found["writer_session"] == "mine" + 196 * "e"


async def test_a_client_that_does_not_tell_its_roots_gets_the_working_directory(ready, env):
    async def refuse(_context: object) -> ListRootsResult:
        raise MCPError(-32603, "no roots today")

    async with connected(ready, env=env, era="legacy", list_roots=refuse) as client:
        for _ in range(2):
            assert result(await client.call_tool("run_status", {"run_id": "run"}))["id"] == "run"
