"""Subscribers are told that the log of events has grown."""

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp_types import ListRootsResult, ResourceUpdatedNotification, Root

from tests.support.processes import PATIENCE, icctl, running
from tests.support.tool_client import HOSTS, connected, hosted, result

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.long,
    # What agents subscribe with until they speak the newer protocol.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

URI = "intercore://events"
EVENT = {"source": "deploy", "type": "done"}


@pytest.fixture(params=HOSTS)
def env(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    with hosted(request.param) as found:
        yield found


class Told:
    """What a client of the handshake's era is told."""

    def __init__(self) -> None:
        self._send, self._received = anyio.create_memory_object_stream[str](100)

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await self._send.send(str(message.params.uri))

    async def next(self) -> str:
        with anyio.fail_after(PATIENCE):
            return await self._received.receive()

    def close(self) -> None:
        self._send.close()
        self._received.close()


@pytest.fixture
def told() -> Iterator[Told]:
    found = Told()
    yield found
    found.close()


@pytest.mark.usefixtures("database")
async def test_the_resource_has_the_newest_events(project, env):
    async with connected(project, env=env) as client:
        (listed,) = (await client.list_resources()).resources
        for number in range(103):
            await client.call_tool("events_record", {**EVENT, "payload": number})

        found = json.loads((await client.read_resource(URI)).contents[0].text)

    assert (str(listed.uri), listed.mime_type) == (URI, "application/json")
    assert [event["payload"] for event in found["events"]] == list(range(3, 103))


@pytest.mark.usefixtures("database")
async def test_the_resource_has_what_was_not_pruned(project, env):
    async with connected(project, "--allow=events.prune", env=env) as client:
        for number in range(5):
            await client.call_tool("events_record", {**EVENT, "payload": number})
        await client.call_tool("events_prune", {"keep": 2})

        found = json.loads((await client.read_resource(URI)).contents[0].text)

    assert [event["payload"] for event in found["events"]] == [3, 4]


@pytest.mark.usefixtures("database")
async def test_a_subscriber_is_told_of_every_event_in_the_era_of_the_handshake(project, env, told):
    async with connected(project, env=env, era="legacy", message_handler=told) as client:
        await client.subscribe_resource(URI)

        for _ in range(3):
            await client.call_tool("events_record", EVENT)
            assert await told.next() == URI
        await client.unsubscribe_resource(URI)
        await client.subscribe_resource(URI)
        await client.call_tool("events_record", EVENT)
        assert await told.next() == URI


@pytest.mark.usefixtures("database")
async def test_a_listener_is_told_of_every_event(project, env):
    async with (
        connected(project, env=env) as client,
        client.listen(resource_subscriptions=[URI]) as events,
    ):
        for _ in range(3):
            await client.call_tool("events_record", EVENT)
            with anyio.fail_after(PATIENCE):
                assert (await anext(events)).uri == URI


@pytest.mark.usefixtures("database")
async def test_a_subscriber_hears_what_others_do_and_what_happens_while_the_daemon_is_away(
    project, told
):
    with running() as daemon:
        env = {"INTERCORE_SOCKET": daemon.socket}
        async with (
            connected(project, env=env, era="legacy", message_handler=told) as client,
            connected(project, env=env) as another,
        ):
            await client.subscribe_resource(URI)
            for end in (daemon.kill, daemon.start, daemon.stop):
                result(await another.call_tool("events_record", EVENT))
                assert await told.next() == URI
                end()
            result(await another.call_tool("events_record", EVENT))
            assert await told.next() == URI


@pytest.mark.usefixtures("database")
async def test_the_stream_moves_to_the_project_of_the_clients_root(project, tmp_path, env):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    async with (
        connected(elsewhere, env=env, roots=[project.as_uri()]) as client,
        client.listen(resource_subscriptions=[URI]) as events,
    ):
        for _ in range(2):
            result(await client.call_tool("events_record", EVENT))
            with anyio.fail_after(PATIENCE):
                assert (await anext(events)).uri == URI


@pytest.mark.parametrize("there", ["where it was started", "another root"])
async def test_the_stream_moves_when_the_roots_change(tmp_path, env, told, there):
    """Without a call: who has subscribed may only wait."""
    started, first, second = places = [tmp_path / name for name in ("started", "first", "second")]
    for place in places:
        (place / ".git").mkdir(parents=True)
        assert icctl("init", cwd=place, env=env).returncode == 0
    roots = [first]

    async def list_roots(_context: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=root.as_uri()) for root in roots])

    options = {"env": env, "era": "legacy", "list_roots": list_roots, "message_handler": told}
    async with connected(started, **options) as client:
        await client.subscribe_resource(URI)
        roots[:], followed = (
            ([], started) if there == "where it was started" else ([second], second)
        )
        await client.send_roots_list_changed()

        # A move is told as well, and it takes two of them at most.
        for _ in range(4):
            recorded = icctl("events", "record", "--source=d", "--type=t", cwd=followed, env=env)
            assert recorded.returncode == 0
            assert await told.next() == URI
